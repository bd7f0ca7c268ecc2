// @ts-check
/** The state at any record of the log, in the middle of a phase too. */
import { EFFECTS } from "./effects.js";
import { laneOf } from "./records.js";
import { Reversible } from "./reversible.js";
import { Timeline } from "./state.js";

/** @import { EventRecord, LogRecord } from "./records.js" */

/**
 * What the log has told of the state by the last patch, and on top of it the effects of the events
 * since, which are taken back before the next patch is merged in: what they change may be a
 * checkpoint's, too. From event to event inside a phase it costs that event; anywhere else what
 * `Timeline` costs, and the phase's events so far.
 */
export class PhaseState {
  /**
   * @param {any} base the state before the first record @param {LogRecord[]} records
   * @param {boolean} [cut] whether there were records before these, perhaps of the same phase
   */
  constructor(base, records, cut = false) {
    this.records = records;
    this.timeline = new Timeline(base, records);
    this.cut = cut;
    this.index = -1;
    this.now = new Reversible(this.timeline.state);
    /** @type {number[]} how many changes there were before each event since the latest patch */
    this.marks = [];
    /** @type {Set<string>} threads of which a phase has ended */
    this.ended = new Set();
  }

  get state() {
    return this.timeline.state;
  }

  /** Index of the record that changed the state last; -1: none, it is the base. */
  get changedAt() {
    const { changes } = this.now;
    let k = this.marks.length;
    while (k > 0 && this.marks[k - 1] === changes) k -= 1;
    return this.timeline.index + k;
  }

  /** @param {number} target index of the record whose state is wanted; -1: before the first */
  moveTo(target) {
    const patch = this.patchBefore(target);
    if (patch !== this.timeline.index) {
      this.now.undoTo(0);
      this.timeline.moveTo(patch);
      this.begin();
    }
    while (this.index > target) this.back();
    while (this.index < target) this.forward();
    return this.state;
  }

  /** @template T @param {(state: any) => T} look @returns {T} what it makes of the latest patch */
  atPhaseEnd(look) {
    const { index } = this;
    this.now.undoTo(0);
    const seen = look(this.state);
    this.begin();
    this.moveTo(index);
    return seen;
  }

  /** On from the latest patch. */
  begin() {
    this.index = this.timeline.index;
    this.now = new Reversible(this.timeline.state);
    this.marks = [];
    this.ended.clear();
    for (const event of this.underWay()) this.apply(event);
  }

  forward() {
    this.index += 1;
    this.marks.push(this.now.changes);
    this.apply(/** @type {EventRecord} */ (this.records[this.index]));
  }

  back() {
    this.index -= 1;
    this.now.undoTo(/** @type {number} */ (this.marks.pop()));
  }

  /** @param {EventRecord} event nothing where its phase may have begun before the first record */
  apply({ type, facts, reason, phase }) {
    if (this.cut && !this.ended.has(laneOf(phase))) return;
    if (Object.hasOwn(EFFECTS, type)) EFFECTS[type](this.now, facts, reason);
  }

  /** @param {number} target @returns {number} the last patch up to a record; -1: none */
  patchBefore(target) {
    let at = target;
    while (at >= 0 && this.records[at].kind !== "patch") at -= 1;
    return at;
  }

  /**
   * The events before the latest patch whose own phase it does not end: of the other thread, where
   * there are two.
   * @returns {EventRecord[]} in order
   */
  underWay() {
    const events = [];
    for (let at = this.index; at >= 0 && this.ended.size < 2; at -= 1) {
      const record = this.records[at];
      const lane = laneOf(record.phase);
      if (record.kind === "patch") this.ended.add(lane);
      else if (!this.ended.has(lane)) events.push(record);
    }
    return events.reverse();
  }
}
