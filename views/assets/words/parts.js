// @ts-check
/**
 * A sentence is a list of parts, and each part names the events it was made of, so that a changed
 * event changes its own part and no other.
 *
 * @typedef {{text: string, seqs: number[], truth?: TruthKind, aside?: boolean}} Part `aside` is
 *   said in a lower voice
 * @typedef {Object} Context what a sentence may know beside its events
 * @property {number} [step] named where a step has no event yet
 * @property {number} [open] requests that are not finished
 * @property {(id: string) => number | undefined} [promptTokens]
 * @property {string} [device] that the times were measured on
 * @property {boolean} [ran] whether the step's execution is over
 * @typedef {(opening: string, events: EventRecord[], context: Context) => Part[]} Teller
 */
import { plural } from "./format.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { TruthKind } from "../page/truth.js" */

/** @param {EventRecord[]} events @param {string} type */
export function of(events, type) {
  return events.filter((event) => event.type === type);
}

/** @param {EventRecord[]} events @returns {number[]} */
export function seqs(events) {
  return events.map((event) => event.seq);
}

/**
 * Put items into a row: `a, b and c`.
 * @param {Part[]} items @returns {Part[]}
 */
export function row(items) {
  return items.map((item, i) => ({
    ...item,
    text: `${i === 0 ? "" : i === items.length - 1 ? " and " : ", "}${item.text}`,
  }));
}

/**
 * The first `most` of `events` in words, the rest counted.
 * @param {EventRecord[]} events @param {number} most @param {(e: EventRecord) => string} words
 * @param {string} noun for the rest @returns {Part[]}
 */
export function some(events, most, words, noun) {
  const shown = events.length > most ? events.slice(0, most - 1) : events;
  const parts = shown.map((event) => ({ text: words(event), seqs: [event.seq] }));
  if (shown.length < events.length) {
    const rest = events.slice(shown.length);
    parts.push({
      text: plural(rest.length, `more ${noun}`).replace(/^1 more/, "one more"),
      seqs: seqs(rest),
    });
  }
  return parts;
}
