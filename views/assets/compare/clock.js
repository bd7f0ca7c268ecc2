// @ts-check
/** One clock for two logs: the step that both stand at, and the columns that both have. */
import { seekStep, stepOf } from "../panels/cursor.js";
import { GUTTER, RIGHT } from "../panels/lifecycle_bars.js";
import { Store } from "../core/store.js";
import { traceIndex } from "../core/trace_index.js";

/** A log beside the page's own: it remembers nothing and changes nothing of the page. */
export class BesideStore extends Store {
  /** @param {string} text JSON Lines @param {string} name */
  constructor(text, name) {
    super();
    this.isBeside = true;
    this.openTrace(text, name);
  }

  recall() {}

  remember() {}

  /** @param {Partial<import("../core/looked_at.js").Selection>} partial */
  select(partial) {
    Object.assign(this.selection, { block: null }, partial);
    this.changed();
  }
}

export class SharedClock {
  /** @param {Store[]} stores */
  constructor(stores) {
    this.stores = stores;
    this.step = 0;
    this.from = 0;
    this.pan = 0;
    this.ends = stores.map((store) => Math.max(0, traceIndex(store).lastStep));
    this.last = Math.max(...this.ends);
  }

  /**
   * Have both stand at the end of a step; one that has ended stays at its end.
   * @param {number} step
   */
  seek(step) {
    this.step = Math.max(0, Math.min(this.last, step));
    this.pan = 0;
    for (const [i, store] of this.stores.entries()) {
      if (this.step > this.ends[i]) store.seek(store.head);
      else seekStep(store, this.step);
    }
  }

  /** One of them was moved: the other follows. @param {Store} moved */
  follow(moved) {
    const step = stepOf(moved);
    if (step === Math.min(this.step, this.ends[this.stores.indexOf(moved)])) return;
    this.step = step;
    this.pan = 0;
    for (const [i, store] of this.stores.entries()) {
      if (store === moved) continue;
      if (step > this.ends[i]) store.seek(store.head);
      else seekStep(store, step);
    }
  }

  /** Which steps fit, so that the clock's is among them. @param {number} width */
  window(width) {
    const room = Math.max(60, width - GUTTER - RIGHT);
    const column = Math.max(18, Math.min(34, Math.floor(room / (this.last + 1))));
    const fits = Math.max(4, Math.floor(room / column));
    const latest = Math.max(0, this.last - fits + 1);
    if (this.step < this.from + 1 || this.step > this.from + fits - 2)
      this.from = this.step - Math.round(fits * 0.5);
    this.from = Math.max(0, Math.min(latest, this.from));
    const from = Math.max(0, Math.min(latest, this.from + Math.round(this.pan)));
    return { column, from, to: from + fits - 1 };
  }
}
