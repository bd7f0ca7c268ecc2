// @ts-check
/**
 * What the workspace has the server do: each wish stands until the server has heard it, since a
 * run of its script that is cut short would lose a trigger.
 *
 * @typedef {"given" | "home" | "marked" | "picked"} What a document was chosen, the engine's own
 *   map is wanted, a moment or a box was chosen for a lesson
 * @typedef {{turn: number, what: What, value: any}} Wish
 */

export class Wishes {
  constructor() {
    /** Tells the server what there is. @type {((wishes: Wish[]) => void)|undefined} */
    this.tell = undefined;
    /** @type {Wish[]} that were not heard yet, as far as it is known */
    this.open = [];
    /** Of the latest wish, and of the latest that was heard. */
    this.turn = this.last = 0;
    /** What was told is more than a few words, and is taken back once it was heard. */
    this.isLong = false;
  }

  /** @param {What} what @param {any} [value] */
  ask(what, value = null) {
    this.turn = Math.max(this.turn, this.last) + 1;
    this.open.push({ turn: this.turn, what, value });
    if (what === "given") this.isLong = true;
    this.tell?.([...this.open]);
  }

  /** The server was told of those up to this turn. @param {number} turn */
  heard(turn) {
    const before = this.open.length;
    this.last = Math.max(this.last, turn);
    this.open = this.open.filter((wish) => wish.turn > turn);
    const isOver = this.isLong && before > 0 && this.open.length === 0;
    // Streamlit may forget what it was told while it draws the page anew.
    if (this.open.length || isOver) this.tell?.([...this.open]);
    if (isOver) this.isLong = false;
  }
}
