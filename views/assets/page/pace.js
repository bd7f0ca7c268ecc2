// @ts-check
/**
 * When words are brought up to date. While the cursor walks by itself they change a few times
 * a second, since nobody reads faster and laying text out is what costs a browser most; whenever it
 * stands they say what is there at once. Pictures do not wait.
 *
 * A part with words has a `Pace` that it updates when the page is brought up to date and there is
 * something new, or the pace still waits: then it draws, or sees to it that it is asked again.
 */

import { QUICK_MS } from "../core/clock.js";

/** @import { Store } from "../core/store.js" */

const EVERY_MS = 100;
/** For what is read rather than glanced at. */
export const READ_MS = 200;
const PARTS_EVERY_MS = 300;
const REST_MS = 400;
const APART_MS = 1000 / 60;
/**
 * After so long a wait a part draws beside another one: where frames are slow, each has one that
 * is due and asked before it.
 */
const LONGEST_MS = 250;

/** When words were drawn last, whosever: two parts of the page share no frame. */
let anyDrawnAt = -Infinity;

export class Pace {
  /** @param {Store} store @param {() => void} draw @param {number} [every] milliseconds */
  constructor(store, draw, every = EVERY_MS) {
    this.store = store;
    this.draw = draw;
    this.every = every;
    this.drawnAt = -Infinity;
    this.timer = 0;
    /** Whether something new has not been drawn yet, and since when its turn is overdue. */
    this.waits = false;
    this.since = Infinity;
  }

  /** Draw what is new, now or soon: a step that is on show long enough has words of its own. */
  update() {
    const now = performance.now();
    const { walking, stepMs } = this.store.clock;
    const isRead = stepMs >= QUICK_MS;
    const again = this.drawnAt + (isRead ? Math.min(this.every, stepMs / 3) : this.every);
    const oldest = isRead ? this.drawnAt + (2 * stepMs) / 3 : Infinity;
    const latest = Math.min(this.since + LONGEST_MS, oldest);
    const wait = walking ? Math.min(Math.max(again, anyDrawnAt + APART_MS), latest) - now : 0;
    if (wait <= 0) {
      this.now();
      return;
    }
    this.waits = true;
    this.since = Math.min(this.since, Math.max(now, again));
    this.timer ||= window.setTimeout(() => {
      this.timer = 0;
      this.store.changed();
    }, wait);
  }

  now() {
    this.stop();
    this.waits = false;
    this.since = Infinity;
    this.drawnAt = anyDrawnAt = performance.now();
    this.draw();
  }

  /** Nobody is asked again. */
  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
  }
}

/**
 * A place with more words than a frame has time for, in parts: while the cursor walks, a frame
 * draws one of them, the one that was drawn longest ago.
 */
export class Parts {
  /** @param {Store} store @param {(() => void)[]} draws in the order for a cursor that stands */
  constructor(store, draws) {
    this.paces = draws.map((draw) => new Pace(store, draw, PARTS_EVERY_MS));
  }

  /** Whether something new has not been drawn yet. */
  get waits() {
    return this.paces.some(({ waits }) => waits);
  }

  /** Draw what is new, now or soon. */
  update() {
    const stalest = [...this.paces].sort((a, b) => a.drawnAt - b.drawnAt);
    for (const pace of stalest) pace.update();
  }

  now() {
    for (const pace of this.paces) pace.now();
  }

  /** Nobody is asked again. */
  stop() {
    for (const pace of this.paces) pace.stop();
  }
}

/** For what nobody looks at: it is brought up to date when nothing has changed for a moment. */
export class Rest {
  /** @param {() => void} draw @param {number} [after] milliseconds */
  constructor(draw, after = REST_MS) {
    this.draw = draw;
    this.after = after;
    this.changedAt = 0;
    this.timer = 0;
  }

  /** There is something new. */
  update() {
    this.changedAt = performance.now();
    this.timer ||= window.setTimeout(() => this.look(), this.after);
  }

  look() {
    const rest = this.changedAt + this.after - performance.now();
    this.timer = rest > 0 ? window.setTimeout(() => this.look(), rest) : 0;
    if (!this.timer) this.draw();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
  }
}
