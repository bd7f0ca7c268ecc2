// @ts-check
/** A log as it came, a cursor into it, and the state there: what there is to read. */
import { PhaseState } from "./phase_state.js";
import { ASIDES } from "./records.js";
import { Timeline, mergePatch } from "./state.js";
import { StepIndex } from "./steps.js";

/** @import { EventRecord, LogRecord } from "./records.js" */
/** @import { PhaseSpan, StepEntry } from "./steps.js" */

export class Log {
  constructor() {
    /** @type {any} */
    this.header = null;
    /** @type {LogRecord[]} */
    this.records = [];
    this.cursor = -1;
    this.log = new StepIndex();
    this.folded = new PhaseState({}, this.records);
    /** `engine` part of the state at the head, whatever the cursor shows. */
    this.headEngine = /** @type {any} */ ({});
    /** @type {{index: number, message: string}|null} */
    this.failure = null;
  }

  /** Index of the last record; -1 where there is none. */
  get head() {
    return this.records.length - 1;
  }

  /** The state at the cursor. Read it, never write it. */
  get state() {
    return this.folded.state;
  }

  /** Index of the record, up to the cursor, that changed the state last. */
  get changedAt() {
    return this.folded.changedAt;
  }

  /**
   * What `look` makes of the state as the latest phase left it.
   * @template T @param {(state: any) => T} look @returns {T}
   */
  atPhaseEnd(look) {
    return this.folded.atPhaseEnd(look);
  }

  /** Steps, and the commands between them, in the order in which they began. */
  get steps() {
    return this.log.steps;
  }

  /** Whether this log's engine drafts tokens. */
  get speculates() {
    return Boolean(this.header?.config?.speculative_config);
  }

  /** Whether this log's steps may overlap: the next one is scheduled while one is in flight. */
  get overlaps() {
    return this.header?.config?.async_scheduling === true;
  }

  /**
   * At the cursor, the steps that are scheduled and whose output has not gone out, oldest first,
   * each with its next phase. None where steps do not overlap.
   * @returns {{step: number, next: string}[]}
   */
  get inFlight() {
    const steps = this.state.engine?.in_flight ?? {};
    return Object.keys(steps)
      .map((step) => ({ step: Number(step), next: steps[step] }))
      .sort((a, b) => a.step - b.step);
  }

  /**
   * @param {number} index @returns {StepEntry|null} the step, or the commands, that record is in
   */
  stepAt(index) {
    return this.log.spans[index]?.entry ?? null;
  }

  /**
   * What the page shows at the cursor: commands that only set how the engine runs, such as a pause,
   * leave the step before them on show.
   * @returns {StepEntry|null}
   */
  entryOnShow() {
    const entry = this.stepAt(this.cursor);
    if (!entry?.command) return entry;
    for (let i = entry.first; i <= this.cursor; i += 1)
      if (this.stepAt(i) === entry && !isAside(this.records[i])) return entry;
    return this.stepAt(entry.first - 1) ?? entry;
  }

  /**
   * @param {number} index
   * @returns {PhaseSpan|null} the phase that record is in
   */
  phaseAt(index) {
    return this.log.spans[index] ?? null;
  }

  /**
   * The phase that the page shows at the cursor: a command that says nothing of the work, such as a
   * pause or a check, leaves the one before it on show once it has ended.
   * @returns {PhaseSpan|null}
   */
  phaseOnShow() {
    let at = this.cursor;
    while (this.records[at]?.kind === "patch" && this.phaseAt(at)?.phase === "command") {
      const span = this.phaseAt(at);
      for (; at >= 0 && this.phaseAt(at) === span; at -= 1)
        if (!isAside(this.records[at])) return span;
    }
    return this.phaseAt(at);
  }

  /**
   * @param {StepEntry} entry
   * @param {number} [upto]
   * @returns {EventRecord[]}
   */
  eventsOfStep(entry, upto = this.cursor) {
    const last = Math.min(entry.last, upto);
    return this.eventsBetween(entry.first, last, (span) => span.entry === entry);
  }

  /**
   * @param {PhaseSpan} phase
   * @param {number} [upto]
   * @returns {EventRecord[]}
   */
  eventsOfPhase(phase, upto = this.cursor) {
    return this.eventsBetween(phase.first, Math.min(phase.last, upto), (span) => span === phase);
  }

  /**
   * @param {number} first @param {number} last @param {(span: PhaseSpan) => boolean} [wanted]
   * @returns {EventRecord[]}
   */
  eventsBetween(first, last, wanted = () => true) {
    const events = [];
    for (let i = Math.max(0, first); i <= last && i < this.records.length; i += 1) {
      const record = this.records[i];
      if (record.kind === "event" && wanted(this.log.spans[i])) events.push(record);
    }
    return events;
  }

  /** Events of the phase on show, up to the cursor. */
  phaseEvents() {
    const phase = this.phaseOnShow();
    return phase ? this.eventsOfPhase(phase) : [];
  }

  /** The event the cursor stands on, or the last one before it in the same phase. */
  currentEvent() {
    const events = this.phaseEvents();
    return events.length ? events[events.length - 1] : null;
  }

  /** @param {LogRecord} record */
  indexOf(record) {
    return record.seq - this.header.base_seq;
  }

  get atHead() {
    return this.cursor >= this.head;
  }

  // -- from place to place -----------------------------------------------------------------------

  /** @param {number} from @returns {number} index of the next event, or the head */
  nextEvent(from) {
    for (let i = from + 1; i < this.records.length; i += 1) {
      if (this.records[i].kind === "event") return i;
    }
    return this.head;
  }

  /** @param {number} from @returns {number} index of the event before, or -1 */
  previousEvent(from) {
    for (let i = from - 1; i >= 0; i -= 1) if (this.records[i].kind === "event") return i;
    return -1;
  }

  /** @param {number} from @returns {number} where the next phase ends, of whichever step */
  nextPhase(from) {
    return this.log.phaseEnds.after(from) ?? this.head;
  }

  /** @param {number} from @returns {number} where the phase before ended */
  previousPhase(from) {
    return this.log.phaseEnds.before(from) ?? -1;
  }

  /** @param {number} from @returns {number} where the next step, or row of commands, ends */
  nextStep(from) {
    return this.log.stepEnds.after(from) ?? this.head;
  }

  /** @param {number} from @returns {number} where the step before ended */
  previousStep(from) {
    return this.log.stepEnds.before(from) ?? -1;
  }

  // -- what comes and goes -----------------------------------------------------------------------

  /** @param {any} base the state of the empty log that begins here */
  clear(base) {
    this.records = [];
    this.log = new StepIndex();
    this.failure = null;
    this.cursor = -1;
    this.folded = new PhaseState(base, this.records, this.header?.base_seq > 0);
  }

  /** @param {LogRecord[]} records what does not follow on those that are here is left out */
  take(records) {
    for (const record of records) {
      if (record.seq !== this.header.base_seq + this.records.length) continue;
      this.records.push(record);
      this.index(record, this.records.length - 1);
    }
  }

  /** @param {LogRecord} record @param {number} index */
  index(record, index) {
    this.log.take(record, index);
    if (record.kind === "patch") {
      if (record.changes.engine) mergePatch(this.headEngine, record.changes.engine);
      return;
    }
    if (record.type === "engine_failed") this.failure = { index, message: record.facts.message };
  }

  /** @param {number} count */
  forgetOldest(count) {
    const cut = this.steps.find((entry) => entry.first >= count)?.first;
    if (cut === undefined) return;
    const base = new Timeline(this.header.state, this.records).moveTo(cut - 1);
    const seq = Math.max(this.cursor - cut, -1);
    const kept = this.records.slice(cut);
    this.header = { ...this.header, base_seq: this.header.base_seq + cut, state: base };
    this.clear(base);
    this.take(kept);
    this.cursor = seq;
    this.folded.moveTo(seq);
  }
}

/** @param {LogRecord} record whether it says nothing of the work: mode, rate, asides */
function isAside(record) {
  if (record.kind === "event") return ASIDES.has(record.type);
  return Object.keys(record.changes).every((name) => name === "engine");
}
