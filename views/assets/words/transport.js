// @ts-check
/** What the transport's buttons do, and where its cursor stands. */

export const TRANSPORT = {
  stepBack: "Back to the end of the step before ([ or p)",
  phaseBack: "Back to the end of the phase before (Shift+←)",
  eventBack: "Back by one event (←)",
  eventOn: "On by one event (→)",
  phaseOn: "On to the end of the phase (Shift+→)",
  stepOn: "On to the end of the step (] or n)",
  live: "To the newest record, and follow it (End)",
  leaveTrace: "Back to live: leave the saved trace",
  run: "Run (Space)",
  pause: "Pause (Space)",
  endOfLog: "This is the end of the log.",
  runs: "The engine runs: pause it first.",
  speed: "Speed",
  speedTitle: "Steps a second, of the engine or of the recording",
  more: "More of the transport",
  moreTitle: "Speed, phases, jumps and bookmarks",
  back: "Back",
  forward: "Forward",
  phases: "Phases of the step",
  whereHow: "the step at the cursor / the newest step of the log",
  start: "before the first record",
  counted: "counted in the log of the engine",
  reported: "what the server reports",
};

/**
 * What a button does, for those who do not see its arrow.
 * @param {-1|1} way @param {string} unit
 */
export function oneWords(way, unit) {
  return `${way < 0 ? "Back" : "Forward"} one ${unit.toLowerCase()}`;
}

/** @param {string} phase @param {boolean} isNext of a live engine */
export function phaseTitle(phase, isNext) {
  return isNext ? `${phase}: the engine's next phase` : phase;
}

/**
 * Where the cursor stands; `before` is the step before the command that it stands at.
 * @param {{step: number, command?: boolean}|null} entry @param {number|undefined} last
 * @param {number|undefined} before @param {boolean} isEmpty whether the log has nothing yet
 */
export function whereText(entry, last, before, isEmpty) {
  if (!entry) return isEmpty ? "no step yet" : "start";
  if (!entry.command) return `step ${entry.step} / ${last}`;
  if (before !== undefined) return `after step ${before} / ${last}`;
  // A restored engine's log begins in the middle.
  return entry.step ? `before step ${entry.step}` : "before the first step";
}
