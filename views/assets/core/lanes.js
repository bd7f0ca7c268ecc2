// @ts-check
/**
 * Where steps overlap: what the two threads do at the cursor. The engine's decides steps and takes
 * their tokens in, the executor's runs them. The intervals are measured: from a patch's time less
 * its duration to its time.
 */
import { laneOf } from "./records.js";
import { atOrBefore } from "./sorted.js";
import { traceIndex } from "./trace_index.js";

/** @import { Lane } from "./records.js" */
/** @import { Store } from "./store.js" */
/** @import { StepEntry } from "./steps.js" */
/** @import { Run, TraceIndex } from "./trace_index.js" */

/**
 * @typedef {{lane: Lane, step: number, phase: string, ended: boolean, us: number|null}} Doing a
 *   phase at the cursor, and how long it has run; null: not known before it has ended
 */
/**
 * @typedef {Object} Lanes
 * @property {number} t of the cursor, on the log's clock
 * @property {Doing|null} own the phase that the cursor's record is in; null in a command
 * @property {Doing|null} other what the other thread does meanwhile; null: it waits, for all that
 *   is known
 * @property {{step: number, next: string}[]} inFlight
 * @property {{step: number, phase: string}|null} next what a press on Phase would run at the cursor
 * @property {Map<string, Run>} last each phase's latest run that has ended
 * @property {{us: number, of: number}} both time in which both threads were in some phase, and in
 *   which one was
 */

/** The parts of a step by thread. @type {Record<Lane, string[]>} */
export const LANES = {
  engine: ["arrive", "schedule", "update", "output"],
  executor: ["prepare", "execute", "sample"],
};

/** So slow a run, in steps a second, stops between phases (engine/engine_loop.py). */
export const BY_PHASES_UP_TO = 4;

/** Whether both threads work at once. @param {any} engine its record in the state */
export function runsAtOnce(engine) {
  return engine?.mode === "running" && !(engine.rate <= BY_PHASES_UP_TO);
}

/** The engine's name of the box that each phase is at. @type {Record<string, string>} */
export const PHASE_BOXES = {
  arrive: "async-engine",
  schedule: "scheduler",
  prepare: "gpu-runner",
  execute: "gpu-runner",
  sample: "gpu-runner",
  update: "scheduler",
  output: "async-engine",
};

/** @param {Store} store @returns {Lanes|null} null where steps do not overlap */
export function lanesAt(store) {
  if (!store.overlaps) return null;
  const index = traceIndex(store);
  const t = store.records[store.cursor]?.t_us ?? 0;
  const own = ownOf(store, index, t);
  const place = atOrBefore(index.runs.length, (k) => index.runs[k].i, store.cursor);
  return {
    t,
    own,
    other: otherOf(store, index, own?.lane ?? "engine", place, t),
    inFlight: store.inFlight,
    next: nextOf(store),
    last: lastOf(index, place),
    both: { us: index.runs[place]?.both ?? 0, of: index.engineTime(t) },
  };
}

/**
 * The step that a thread's boxes and panels show: what it does at the cursor or did last. The
 * other thread may be at another one; where steps do not overlap, there is one for all.
 * @param {Store} store @param {Lane} lane @returns {StepEntry|null}
 */
export function entryOfLane(store, lane) {
  const lanes = lanesAt(store);
  if (!lanes || (lanes.own?.lane ?? "engine") === lane) return store.entryOnShow();
  const step =
    lanes.other?.step ?? latestOf(lanes, lane)?.step ?? lanes.inFlight[0]?.step ?? NaN;
  return store.log.byStep.get(step) ?? store.entryOnShow();
}

/** @param {Lanes} lanes @param {Lane} lane */
function latestOf({ last }, lane) {
  const runs = LANES[lane].map((phase) => last.get(phase)).filter((run) => run !== undefined);
  return runs.sort((a, b) => b.i - a.i)[0];
}

/**
 * The records of the phases that are under way at the cursor: of the other thread's too.
 * @param {Store} store
 */
export function eventsUnderWay(store) {
  const events = store.phaseEvents();
  const other = lanesAt(store)?.other;
  const entry = other && store.log.byStep.get(other.step);
  const span = entry?.phases.find((each) => each.phase === other?.phase);
  return span ? [...events, ...store.eventsOfPhase(span)] : events;
}

/** @param {Store} store @param {TraceIndex} index @param {number} t @returns {Doing|null} */
function ownOf(store, index, t) {
  const span = store.phaseOnShow();
  if (!span || span.phase === "command") return null;
  const run = index.runs[atOrBefore(index.runs.length, (k) => index.runs[k].i, span.last)];
  const known = run?.i === span.last;
  const ended = store.records[store.cursor].kind === "patch";
  return {
    lane: laneOf(span.phase),
    step: span.entry.step,
    phase: span.phase,
    ended,
    us: known ? (ended ? run.end : t) - run.start : null,
  };
}

/**
 * The other thread's next run is under way where it began before the cursor's time. At the head its
 * end is not written yet: then its events may be, or the engine runs and it is due.
 * @param {Store} store @param {TraceIndex} index @param {Lane} own @param {number} place
 * @param {number} t @returns {Doing|null}
 */
function otherOf(store, index, own, place, t) {
  const lane = own === "engine" ? "executor" : "engine";
  const run = index.runs.slice(place + 1, place + 12).find((each) => each.lane === lane);
  if (run) return run.start < t ? doing(lane, run.step, run.phase, t - run.start) : null;
  const open = store.log.open.find((span) => span.first <= store.cursor && isOf(span, lane));
  if (open) return doing(lane, open.entry.step, open.phase, null);
  const due = store.inFlight.find((step) => laneOf(step.next) === "executor");
  const runs = lane === "executor" && runsAtOnce(store.state.engine);
  return due && runs ? doing(lane, due.step, due.next, null) : null;
}

/** @param {{phase: string}} span @param {Lane} lane */
function isOf(span, lane) {
  return span.phase !== "command" && laneOf(span.phase) === lane;
}

/**
 * @param {Lane} lane @param {number} step @param {string} phase @param {number|null} us
 * @returns {Doing}
 */
function doing(lane, step, phase, us) {
  return { lane, step, phase, ended: false, us };
}

/**
 * Stepped by hand the engine's thread goes first, and where it waits for tokens, the executor's.
 * @param {Store} store @returns {Lanes["next"]}
 */
export function nextOf(store) {
  // Behind the end of a saved trace nothing comes, whatever its engine was about to do.
  if (!store.live && store.atHead) return null;
  const { step, next_phase: phase } = store.state.engine ?? {};
  if (phase === undefined) return null;
  const waits = store.inFlight.find((each) => laneOf(each.next) === "executor");
  if (phase === "update" && waits && waits.step <= step)
    return { step: waits.step, phase: waits.next };
  return { step, phase };
}

/** @param {TraceIndex} index @param {number} place @returns {Map<string, Run>} */
function lastOf(index, place) {
  /** @type {Map<string, Run>} */
  const last = new Map();
  for (let k = place; k >= 0 && k > place - 40 && last.size < 7; k -= 1) {
    const run = index.runs[k];
    if (!last.has(run.phase)) last.set(run.phase, run);
  }
  return last;
}
