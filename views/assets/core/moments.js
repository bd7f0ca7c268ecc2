// @ts-check
/**
 * The moments of a log that one looks for: who lost its blocks, what was hit, what ended. Each
 * record is looked at once, when it comes.
 *
 * @typedef {"preemption" | "resumption" | "hit" | "eviction" | "eager" | "rejection" | "finish" |
 *   "abort"} Kind
 * @typedef {Kind | "any"} Sought
 */
import { atOrBefore } from "./sorted.js";

/** @import { LogRecord } from "./records.js" */
/** @import { Store } from "./store.js" */

/** @type {Kind[]} */
export const KINDS = [
  "preemption",
  "resumption",
  "hit",
  "eviction",
  "eager",
  "rejection",
  "finish",
  "abort",
];

/** @type {Record<string, (facts: any) => Kind|null>} */
const KIND_OF = {
  request_preempted: () => "preemption",
  request_scheduled: ({ kind }) => (kind === "resumed" ? "resumption" : null),
  blocks_hit: () => "hit",
  block_evicted: () => "eviction",
  step_dispatched: ({ mode }) => (mode === "NONE" ? "eager" : null),
  drafts_verified: (facts) => (facts.num_accepted < facts.drafts.length ? "rejection" : null),
  request_finished: ({ finish_reason: reason }) => (reason === "abort" ? null : "finish"),
  request_aborted: () => "abort",
};

/** @param {LogRecord|undefined} record @returns {Kind|null} */
export function kindOf(record) {
  if (record?.kind !== "event" || !Object.hasOwn(KIND_OF, record.type)) return null;
  return KIND_OF[record.type](record.facts);
}

/** @typedef {{header: any, length: number, places: Record<Sought, number[]>}} Index */

/** @type {WeakMap<object, Index>} */
const indexes = new WeakMap();

/**
 * Where in `store.records` the moments of each kind are, in order.
 * @param {Store} store @returns {Record<Sought, number[]>}
 */
export function momentsOf(store) {
  const { records, header } = store;
  let index = indexes.get(store);
  if (!index || index.header !== header || index.length > records.length) {
    index = { header, length: 0, places: noPlaces() };
    indexes.set(store, index);
  }
  for (; index.length < records.length; index.length += 1) {
    const kind = kindOf(records[index.length]);
    if (!kind) continue;
    index.places[kind].push(index.length);
    index.places.any.push(index.length);
  }
  return index.places;
}

/** @returns {Record<Sought, number[]>} */
function noPlaces() {
  /** @type {Partial<Record<Sought, number[]>>} */
  const places = { any: [] };
  for (const kind of KINDS) places[kind] = [];
  return /** @type {Record<Sought, number[]>} */ (places);
}

/**
 * The place behind `from`, or before it; undefined where there is none.
 * @param {number[]} places in order @param {number} from @param {1|-1} way
 * @returns {number|undefined}
 */
export function nextPlace(places, from, way) {
  const at = (/** @type {number} */ k) => places[k];
  return way > 0
    ? places[atOrBefore(places.length, at, from) + 1]
    : places[atOrBefore(places.length, at, from - 1)];
}
