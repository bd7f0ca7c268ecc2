// @ts-check
/** The console's lines of a trace: made once a record, when it comes, as the trace index is. */
import { linesOf, openingLines } from "../words/console.js";

/** @import { Line } from "../words/console.js" */
/** @import { Store } from "./store.js" */

/** @typedef {Line & {i: number, key: string, t_us: number}} Entry `i`: of its record, -1: header */

/** @type {WeakMap<object, ConsoleIndex>} */
const indexes = new WeakMap();

/**
 * The lines of the store's trace, up to its last record.
 * @param {Store} store
 * @returns {Entry[]}
 */
export function consoleLines(store) {
  if (!store.header) return [];
  let index = indexes.get(store);
  if (!index?.continues(store)) {
    index = new ConsoleIndex(store);
    indexes.set(store, index);
  }
  return index.read(store);
}

class ConsoleIndex {
  /** @param {Store} store */
  constructor(store) {
    this.header = store.header;
    this.length = 0;
    /** @type {Entry[]} */
    this.entries = [];
    this.take(openingLines(store.header), -1, "header", 0);
  }

  /** Forgetting the oldest records brings another header. @param {Store} store */
  continues(store) {
    return store.header === this.header && store.records.length >= this.length;
  }

  /** @param {Store} store */
  read(store) {
    for (; this.length < store.records.length; this.length += 1) {
      const record = store.records[this.length];
      if (record.kind === "event")
        this.take(linesOf(record), this.length, String(record.seq), record.t_us);
    }
    return this.entries;
  }

  /** @param {Line[]} lines @param {number} i @param {string} key @param {number} t_us */
  take(lines, i, key, t_us) {
    for (const [n, line] of lines.entries())
      this.entries.push({ ...line, i, key: `${key} ${n}`, t_us });
  }
}

/**
 * How many of the lines stand at or before a record.
 * @param {Entry[]} entries @param {number} cursor index of the record
 */
export function linesUpTo(entries, cursor) {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entries[middle].i <= cursor) low = middle + 1;
    else high = middle;
  }
  return low;
}
