// @ts-check
/**
 * Which step and which phase each record of the log is in, and where these end.
 *
 * A phase is what its events and the patch that ends them say it is: with asynchronous scheduling
 * the next step is scheduled while the last one executes, so that their records interleave, and a
 * step need not be one piece of the log. Without it, it is.
 *
 * @typedef {{phase: string, first: number, last: number, entry: StepEntry}} PhaseSpan one run of a
 *   phase; what is between `first` and `last` may be of another step
 * @typedef {{step: number, first: number, last: number, phases: PhaseSpan[], complete: boolean,
 *   command?: true}} StepEntry a step, or a row of commands between steps
 */
import { atOrBefore } from "./sorted.js";

/** @import { LogRecord } from "./records.js" */

export class StepIndex {
  constructor() {
    /** @type {StepEntry[]} in the order in which they began */
    this.steps = [];
    /** @type {PhaseSpan[]} of each record */
    this.spans = [];
    /** @type {Map<number, StepEntry>} */
    this.byStep = new Map();
    this.phaseEnds = new Ends();
    this.stepEnds = new Ends();
    /** @type {PhaseSpan[]} begun, and not ended by a patch so far: one a lane at most */
    this.open = [];
  }

  /** @param {LogRecord} record the next one @param {number} index */
  take(record, index) {
    const span = this.open.find((each) => isIn(each, record)) ?? this.begin(record, index);
    this.spans.push(span);
    const { entry } = span;
    span.last = entry.last = index;
    if (record.kind !== "patch") return;
    this.open = this.open.filter((each) => each !== span);
    this.phaseEnds.push(index);
    entry.complete ||= record.phase === "output";
    const goesOn = this.spans[this.stepEnds.last ?? -1]?.entry === entry; // a row of commands
    if (entry.command && goesOn) this.stepEnds.pop();
    if (entry.command || entry.complete) this.stepEnds.push(index);
  }

  /** @param {LogRecord} record @param {number} index @returns {PhaseSpan} */
  begin(record, index) {
    const entry = this.entryOf(record, index);
    const span = { phase: record.phase, first: index, last: index, entry };
    entry.phases.push(span);
    this.open.push(span);
    return span;
  }

  /**
   * A command belongs to the step that it falls into, else to the commands before it.
   * @param {LogRecord} record @param {number} index @returns {StepEntry}
   */
  entryOf({ step, phase }, index) {
    const command = phase === "command";
    const known = this.byStep.get(step);
    if (known && !(command && known.complete)) return known;
    const before = this.spans[index - 1]?.entry;
    if (command && before?.command && before.step === step) return before;
    /** @type {StepEntry} */
    const entry = { step, first: index, last: index, phases: [], complete: false };
    if (command) entry.command = true;
    else this.byStep.set(step, entry);
    this.steps.push(entry);
    return entry;
  }

  /**
   * The newest step that has begun at a record.
   * @param {number} index @returns {StepEntry|null}
   */
  newestAt(index) {
    let place = atOrBefore(this.steps.length, (k) => this.steps[k].first, index);
    while (place >= 0 && this.steps[place].command) place -= 1;
    return this.steps[place] ?? null;
  }
}

/** @param {PhaseSpan} span @param {LogRecord} record */
function isIn(span, record) {
  return span.phase === record.phase && span.entry.step === record.step;
}

/** Indexes of records in order, each the end of something. */
class Ends {
  constructor() {
    /** @type {number[]} */
    this.indexes = [];
  }

  get last() {
    return this.indexes[this.indexes.length - 1];
  }

  /** @param {number} index above all that are there */
  push(index) {
    this.indexes.push(index);
  }

  pop() {
    this.indexes.pop();
  }

  /** @param {number} index @returns {number|undefined} the first one behind it */
  after(index) {
    const { indexes } = this;
    return indexes[atOrBefore(indexes.length, (k) => indexes[k], index) + 1];
  }

  /** @param {number} index @returns {number|undefined} the last one before it */
  before(index) {
    const { indexes } = this;
    return indexes[atOrBefore(indexes.length, (k) => indexes[k], index - 1)];
  }
}
