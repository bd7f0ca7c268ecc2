// @ts-check
/** Two runs side by side: where they part and why, and what stands around them. */
import { eventPhrase } from "./events.js";
import { plural } from "./format.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Part } from "./parts.js" */

/**
 * What both engines did about one request in one step (engine/comparison/decisions.py, `Told`).
 * @typedef {{step: number, request: string, kind: string, a: EventRecord[], b: EventRecord[]}} Told
 */

/** Where a side has no event of the kind. @type {Record<string, (request: string) => string>} */
const NOTHING = {
  scheduled: (request) => `${request} is not in its queues any more, or not yet`,
  hit: (request) => `${request} hits no cached block`,
  preempted: (request) => `${request} keeps its seat`,
  drafts: (request) => `${request} has no draft in the step`,
  finished: (request) => `${request} goes on`,
  allocated: (request) => `${request} gets no new block`,
  evicted: () => "no cached content is lost",
};

/** @param {Told|null} told @param {number} steps that both runs have */
export function opening(told, steps) {
  if (told === null)
    return (
      `No decision differs: over ${plural(steps, "step")}, both engines gave the same requests ` +
      "the same tokens and blocks."
    );
  const about = told.request ? `, over ${told.request}` : "";
  if (told.kind === "order")
    return `They part in step ${told.step}: the same decisions fall in another order.`;
  return `They part in step ${told.step}${about}.`;
}

/** How the forwards differ where no decision does. @param {Told} told */
export function dispatchOpening(told) {
  return `Forwards run otherwise from step ${told.step} on.`;
}

/** What one side did. @param {Told} told @param {"a"|"b"} side @returns {Part[]} */
export function sideParts(told, side) {
  const events = told[side];
  if (!events.length) {
    const nothing = NOTHING[told.kind] ?? NOTHING.scheduled;
    return [{ text: `${nothing(told.request)}.`, seqs: [] }];
  }
  const parts = events.map((event, i) => ({
    text: `${i ? "; " : ""}${eventPhrase(event)}`,
    seqs: [event.seq],
  }));
  return [...parts, { text: ".", seqs: [] }];
}

export const WORDS = {
  clock:
    "Both stand at the same step: press a column, or the arrow keys in a timeline. Steps are " +
    "counted; how long each took is in the figures below.",
  parts: "first difference",
  loading: "Both logs are being fetched…",
  both: "Both runs",
  ended: (/** @type {number} */ steps) => `This run ended after ${plural(steps, "step")}.`,
  open: (/** @type {string} */ side) => `Open ${side} on the map`,
  save: (/** @type {string} */ side) => `Save ${side}`,
  toDifference: "Go to the first difference",
  failed: (/** @type {string} */ why) =>
    `The logs of the two runs could not be shown (${why}). Run both again.`,
  strip: (/** @type {string} */ side, /** @type {string} */ label) => `Run ${side}: ${label}`,
  /** What a strip's plane is called. @param {string} side @param {number} step @param {number} n */
  plane: (side, step, n) =>
    `Run ${side}: step ${step}, ${plural(n, "request")} shown. Arrow keys move through steps and ` +
    "requests, in both runs.",
  twin: (/** @type {string} */ side) => `Run ${side}, tokens of each request in the steps shown`,
  twinColumns: ["Request", "Steps"],
  /** @param {{step: number, kind: string|null, tokens?: number}} cell */
  cell: ({ step, kind, tokens }) => `step ${step}: ${kind} of ${tokens}`,
};

/** Marks of the timelines. @type {[string, string][]} */
export const LEGEND = [
  ["is-prefill", "prefill chunk, with its tokens"],
  ["is-decode", "decode"],
  ["is-waiting", "waiting"],
  ["is-stopped", "next in line, not admitted"],
  ["is-preempted", "preempted"],
  ["is-end", "finished"],
  ["is-parts", WORDS.parts],
  ["is-playhead", "the step of both"],
];
