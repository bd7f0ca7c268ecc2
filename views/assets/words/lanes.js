// @ts-check
/** Where steps overlap: what both threads do, what is in flight, and what is not known yet. */
import { BY_PHASES_UP_TO } from "../core/lanes.js";
import { capital, micros, plural } from "./format.js";

/** @import { Doing, Lanes } from "../core/lanes.js" */

export const THREADS = {
  name: "Both threads over time",
  columns: ["Thread", "Phase", "Step", "Time"],
  wider: "Show more time",
  closer: "Show less time, larger",
  show: "Show the threads",
  showTitle: "Show both threads in time",
  fold: "Fold the threads",
  foldTitle: "Fold this away",
  /** @param {string} lane */
  phases: (lane) => `Phases of the ${lane}'s thread`,
};

/** @type {Record<string, (step: number) => string>} while a phase runs */
const DOES = {
  arrive: (step) => `step ${step} takes in who has come`,
  schedule: (step) => `step ${step} is being scheduled`,
  prepare: (step) => `step ${step} is being laid out`,
  execute: (step) => `step ${step} executes`,
  sample: (step) => `step ${step} samples`,
  update: (step) => `step ${step}'s tokens are taken in`,
  output: (step) => `step ${step}'s text goes out`,
};

/** @type {Record<string, (step: number) => string>} once it has ended */
const DID = {
  arrive: (step) => `step ${step} has taken in who had come`,
  schedule: (step) => `step ${step} is scheduled`,
  prepare: (step) => `step ${step} is laid out`,
  execute: (step) => `step ${step} has executed`,
  sample: (step) => `step ${step} has sampled`,
  update: (step) => `step ${step}'s tokens are known`,
  output: (step) => `step ${step} is over`,
};

/** @param {Doing} doing */
function phrase({ step, phase, ended, us }) {
  const words = (ended ? DID : DOES)[phase]?.(step) ?? `${phase} of step ${step}`;
  if (us === null) return words;
  return ended ? `${words}, in ${micros(us)}` : `${words}, for ${micros(us)} so far`;
}

/**
 * `Step 12 is scheduled, in 0.3 ms; meanwhile step 11 executes, for 3.1 ms so far.`
 * @param {Lanes} lanes @param {boolean} byPhases whether they run one after the other, by hand or
 *   slowly, so that the next one is known
 * @returns {string}
 */
export function lanesSentence({ own, other, inFlight, next }, byPhases) {
  const begun = own ?? other;
  if (!begun) return byPhases ? nextWords(next) : "Nothing is in flight.";
  const meanwhile =
    own && other ? `; meanwhile ${phrase(other)}` : own && !byPhases ? waits(own, inFlight) : "";
  const sentence = `${capital(phrase(begun))}${meanwhile}.`;
  const known = byPhases && (own?.ended ?? true);
  return known ? `${sentence} ${nextWords(next)}`.trim() : sentence;
}

/** @param {Lanes["next"]} next */
function nextWords(next) {
  return next ? `Next: ${next.phase} of step ${next.step}.` : "";
}

/** What the other thread waits for. @param {Doing} own @param {Lanes["inFlight"]} inFlight */
function waits(own, inFlight) {
  if (own.lane === "executor") return "; the engine waits for its tokens";
  return inFlight.length ? "" : "; the executor has nothing to run";
}

/**
 * Why a token that came is not used: its request had ended, or a reset made it void.
 * @param {{request: string, token: number}} facts @param {boolean} isVoid
 * @param {string|undefined} finish how the request has ended
 */
export function droppedWords({ request, token }, isVoid, finish) {
  const dropped = `token ${token} of ${request} dropped`;
  if (isVoid) return `${dropped}: void since the reset`;
  const how = finish === "abort" ? "was aborted" : `had finished${finish ? ` (${finish})` : ""}`;
  return `${dropped}: too late, ${request} ${how}`;
}

/**
 * Phase by phase at rest: where the next press leads.
 * @param {{step: number, next: string}[]} inFlight @param {Lanes["next"]} next
 */
export function pausedWords(inFlight, next) {
  const steps = plural(inFlight.length, "step");
  return `Paused with ${steps} in flight, before ${next?.phase} of step ${next?.step}`;
}

/** Of an engine that runs so slowly that one sees its phases. */
export const BY_PHASES =
  `Phase by phase; above ${BY_PHASES_UP_TO} steps/s both threads work at once.`;

export const BOTH_HOW =
  "time in which both threads were in a phase ÷ time in which at least one was, up to the " +
  "cursor; a phase's interval is its patch's time less its duration to its time";

export const UNKNOWN_HOW =
  "num_output_placeholders of the request: a step in flight samples this token, and the next " +
  "step counts on it without knowing it";
