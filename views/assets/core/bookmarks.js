// @ts-check
/**
 * Moments of a log that somebody marked, with a name each. The tab keeps them for each log, and a
 * saved trace has them in its header.
 *
 * @typedef {{seq: number, name: string}} Bookmark `seq`: of the record that the cursor stood at; -1
 *   is before the first
 */
import { keep, recall } from "./tab_memory.js";

/** @import { Store } from "./store.js" */

const KEY = "glassbox.bookmarks";
const MOST_LOGS = 12;
export const MOST_BOOKMARKS = 200;
export const LONGEST_NAME = 120; // characters

export class Bookmarks {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {[string, Bookmark[]][]} by log, the one that was marked last at the end */
    this.logs = kept();
  }

  /** Those of the log that is shown, in the order of the log. @returns {Bookmark[]} */
  get list() {
    return this.logs.find(([log]) => log === this.store.header?.trace_id)?.[1] ?? [];
  }

  /** The record that the cursor stands at, by its number in the log. */
  get here() {
    return (this.store.header?.base_seq ?? 0) + this.store.cursor;
  }

  /** @param {number} [seq] @returns {Bookmark|undefined} */
  at(seq = this.here) {
    return this.list.find((each) => each.seq === seq);
  }

  /** Set one at the cursor. @param {string} name @returns {boolean} whether there was room */
  add(name) {
    if (!this.store.header || this.list.length >= MOST_BOOKMARKS) return false;
    if (!this.at()) this.keep([...this.list, { seq: this.here, name: cut(name) }]);
    return true;
  }

  /** @param {number} seq */
  remove(seq) {
    this.keep(this.list.filter((each) => each.seq !== seq));
  }

  /** @param {number} seq @param {string} name */
  rename(seq, name) {
    const words = cut(name.trim());
    if (!words) return;
    this.keep(this.list.map((each) => (each.seq === seq ? { seq, name: words } : each)));
  }

  /** Those of a file beside those that the tab has of the same log. @param {any} [saved] */
  take(saved) {
    const known = new Set(this.list.map((each) => each.seq));
    const news = (saved ?? []).filter((/** @type {Bookmark} */ each) => !known.has(each.seq));
    if (news.length) this.keep([...this.list, ...news].slice(0, MOST_BOOKMARKS));
  }

  /** Where they stand in `store.records`; what the log has forgotten stands nowhere. */
  get places() {
    const base = this.store.header?.base_seq ?? 0;
    return this.list.map((each) => each.seq - base).filter((i) => i >= -1 && i <= this.store.head);
  }

  /** @param {Bookmark[]} list */
  keep(list) {
    const log = this.store.header.trace_id;
    const sorted = [...list].sort((a, b) => a.seq - b.seq);
    const others = this.logs.filter(([id]) => id !== log);
    this.logs = [...others, /** @type {[string, Bookmark[]]} */ ([log, sorted])].slice(-MOST_LOGS);
    keep(KEY, this.logs);
    this.store.changed();
  }
}

/** @param {string} name */
function cut(name) {
  return [...name].slice(0, LONGEST_NAME).join("");
}

/** @returns {[string, Bookmark[]][]} */
function kept() {
  const found = recall(KEY);
  return Array.isArray(found) ? found : [];
}
