// @ts-check
/**
 * The one clock of the page: it moves the cursor through records that exist already, either to
 * play a recording or to let the eye follow what a live engine just did.
 *
 * Time is dealt out by phases: from the end of one to the end of the next it takes the same time,
 * which the records in between share.
 */
import { STEP_PHASES } from "./records.js";

/** @import { Store } from "./store.js" */

/** What a step may take on the screen where the engine itself has no pace, in milliseconds. */
const STEP_SHOWN = 900;
const PHASE_SHOWN = 320;
/** A step is shown within this part of the time until the engine's next one. */
const PACE = 0.8;
/** Steps that are on show for less cannot be told apart. */
export const QUICK_MS = 100;
/** Steps a second where frames alone set the pace: one a frame. */
const FREE_RATE = 60;

export class Clock {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.frame = 0;
    this.before = 0;
    this.position = 0;
    /** Steps a second while a recording plays; null: free; undefined: not playing. */
    this.rate = /** @type {number|null|undefined} */ (undefined);
    this.deadline = 0;
    /** How long a step is on show while the cursor walks, in milliseconds. */
    this.stepMs = STEP_SHOWN;
    this.reduced = matchMedia("(prefers-reduced-motion: reduce)");
  }

  get playing() {
    return this.rate !== undefined;
  }

  /** Whether the cursor goes on by itself in the next frame. */
  get walking() {
    return this.frame !== 0;
  }

  /** @param {number|null} rate steps a second; null: as fast as frames come */
  play(rate) {
    this.rate = rate;
    this.stepMs = 1000 / (rate ?? FREE_RATE);
    this.deadline = 0;
    this.start();
  }

  stop() {
    this.rate = undefined;
    this.deadline = 0;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  /**
   * New records came while the page follows: walk to them in a moment, or jump.
   * @param {number|undefined} engineRate steps a second of a running engine
   * @param {boolean} running
   */
  follow(engineRate, running) {
    const { store } = this;
    const free = running && engineRate === undefined;
    if (this.reduced.matches || free || document.hidden) {
      this.deadline = 0;
      store.moveCursor(store.head);
      return;
    }
    const now = performance.now();
    const phases = this.phasesUntil(store.head);
    const longest = running ? (1000 * PACE) / (engineRate ?? 1) : STEP_SHOWN;
    const wanted = Math.min(longest, phases * PHASE_SHOWN);
    this.stepMs = longest;
    this.deadline = Math.max(this.deadline, now + wanted);
    this.deadline = Math.min(this.deadline, now + longest);
    this.start();
  }

  start() {
    if (this.frame) return;
    this.before = performance.now();
    this.position = this.store.cursor;
    this.frame = requestAnimationFrame((now) => this.tick(now));
  }

  /** @param {number} now */
  tick(now) {
    this.frame = 0;
    const { store } = this;
    const passed = Math.max(0, now - this.before);
    this.before = now;
    if (Math.floor(this.position) !== store.cursor) this.position = store.cursor;
    if (this.rate !== undefined) this.advance(this.phasesPassed(passed));
    else if (this.deadline) {
      const left = this.deadline - now;
      if (left <= 0) this.position = store.head;
      else this.advance((this.phasesUntil(store.head) * passed) / (left + passed));
    } else return;
    const target = Math.min(store.head, Math.floor(this.position));
    if (target !== store.cursor) store.moveCursor(target);
    if (target >= store.head) {
      const played = this.rate;
      this.stop();
      if (played !== undefined) store.playedToHead(played);
      return;
    }
    this.frame = requestAnimationFrame((next) => this.tick(next));
  }

  /** @param {number} passed milliseconds */
  phasesPassed(passed) {
    return (passed / this.stepMs) * STEP_PHASES.length;
  }

  /** @param {number} phases how far to go, in phases; may be a part of one */
  advance(phases) {
    const { store } = this;
    let left = phases;
    while (left > 0 && this.position < store.head) {
      const { last, size } = this.stretchAt(Math.floor(this.position) + 1);
      const rest = (last - this.position) / size;
      if (rest > left) {
        this.position += left * size;
        return;
      }
      this.position = last;
      left -= rest;
    }
  }

  /** @param {number} target */
  phasesUntil(target) {
    const { store } = this;
    let phases = 0;
    let index = store.cursor + 1;
    while (index <= target && phases < 100) {
      const { last, size } = this.stretchAt(index);
      phases += (last - index + 1) / size;
      index = last + 1;
    }
    return phases;
  }

  /**
   * The records from one end of a phase to the next, of whichever step.
   * @param {number} index
   */
  stretchAt(index) {
    const first = this.store.previousPhase(index) + 1;
    const last = this.store.nextPhase(index - 1);
    return { last, size: last - first + 1 };
  }
}
