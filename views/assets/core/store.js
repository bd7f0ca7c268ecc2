// @ts-check
/**
 * The page's one store: the log as it came, a cursor into it, the state at the cursor, and what
 * is selected. Map, inspector, transport and panels read it and never keep a copy.
 *
 * @typedef {{component: string|null, request: string|null, block: number|null}} Selection
 */
import { Clock } from "./clock.js";
import { ASIDES } from "./records.js";
import { Timeline, copyState, mergePatch } from "./state.js";
import { StepIndex } from "./steps.js";
import { parseTrace } from "./trace_file.js";

/** @import { PageDocument } from "./document.js" */
/** @import { EventRecord, LogRecord } from "./records.js" */
/** @import { PhaseSpan, StepEntry } from "./steps.js" */
/** @import { EngineLink } from "./stream.js" */

/** Beyond this the oldest records become part of the base state, as in the engine's own log. */
const MAX_RECORDS = 240_000;

const LOADING_MS = 1500;

const MEMORY = {
  cursor: "glassbox.cursor",
  view: "glassbox.view",
  selection: "glassbox.selection",
};

export class Store {
  constructor() {
    /** What is drawn: nothing is, before it came. */
    this.document = /** @type {PageDocument} */ (/** @type {unknown} */ (null));
    /** @type {any} */
    this.header = null;
    /** @type {LogRecord[]} */
    this.records = [];
    this.cursor = -1;
    this.following = true;
    this.log = new StepIndex();
    this.view = "";
    /** @type {Selection} */
    this.selection = { component: null, request: null, block: null };
    /** The engine's name of the box that a line elsewhere is about, while it is pointed at. */
    this.pointed = /** @type {string|null} */ (null);
    this.live = true;
    /** Name of the saved trace that is shown, "" for a live engine. */
    this.traceName = "";
    /** `engine` part of the state at the head, whatever the cursor shows. */
    this.headEngine = /** @type {any} */ ({});
    /** @type {{index: number, message: string}|null} */
    this.failure = null;
    /** @type {"none"|"connecting"|"open"|"lost"} */
    this.connection = "none";
    /** @type {{kind: "error"|"info", text: string}|null} */
    this.notice = null;
    /** @type {any} the model's loading, while there is no engine yet */
    this.modelStatus = null;
    /** @type {"own"|"shared"} */
    this.engine = "own";
    /** Whether the server has an engine of its own to look at. */
    this.sharedOffered = true;
    /** @type {EngineLink|null} */
    this.link = null;
    /** Whether the engine checks its rules after each phase that it is stepped by. */
    this.checksPhases = false;
    /** Counts every change of the log or the cursor. */
    this.version = 0;
    this.maxRecords = MAX_RECORDS;
    /** When this log's header came: what follows at once is its past. */
    this.beganAt = 0;

    this.timeline = new Timeline({}, this.records);
    this.clock = new Clock(this);
    /** @type {Set<(store: Store) => void>} */
    this.listeners = new Set();
    this.scheduled = 0;
    /** @type {number|null} */
    this.wantedSeq = null;
    this.stepWanted = /** @type {"event"|null} */ (null);
    this.recall();
  }

  // -- reading -----------------------------------------------------------------------------------

  /** Index of the last record; -1 where there is none. */
  get head() {
    return this.records.length - 1;
  }

  /** The state at the cursor. Read it, never write it. */
  get state() {
    return this.timeline.state;
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

  get currentView() {
    return this.document?.views?.find((view) => view.id === this.view) ?? null;
  }

  get atHead() {
    return this.cursor >= this.head;
  }

  // -- the log -----------------------------------------------------------------------------------

  /** @param {any} header a new log begins */
  begin(header) {
    this.clock.stop();
    const again = this.header?.trace_id === header.trace_id ? this.records[this.cursor]?.seq : null;
    this.header = header;
    this.beganAt = performance.now();
    this.clear(header.state);
    this.headEngine = copyState(header.state.engine ?? {});
    this.stepWanted = null;
    this.wantedSeq = again !== null && !this.following ? again : this.recallCursor();
    this.following = this.wantedSeq === null;
    this.changed();
  }

  /** @param {LogRecord[]} records they follow those that are here already */
  append(records) {
    if (!this.header) return;
    const start = this.records.length;
    for (const record of records) {
      if (record.seq !== this.header.base_seq + this.records.length) continue;
      this.records.push(record);
      this.index(record, this.records.length - 1);
    }
    if (this.records.length === start) return;
    this.version += 1;
    if (this.wantedSeq !== null) this.reachWanted();
    else if (this.stepWanted) this.takeOneEvent(start);
    else if (this.following && !this.clock.playing) this.followHead(start);
    const { length } = this.records;
    if (length > this.maxRecords) this.forgetOldest(length - this.maxRecords * 0.75);
    this.changed();
  }

  /** @param {any} base the state of the empty log that begins here */
  clear(base) {
    this.records = [];
    this.log = new StepIndex();
    this.failure = null;
    this.cursor = -1;
    this.timeline = new Timeline(base, this.records);
  }

  /** @param {LogRecord[]} records */
  take(records) {
    for (const record of records) {
      this.records.push(record);
      this.index(record, this.records.length - 1);
    }
  }

  /** @param {number} start index of the first new record */
  followHead(start) {
    // What was there before this page came is no news: no need to walk through it.
    const past = start === 0 || performance.now() - this.beganAt < LOADING_MS;
    if (past) this.moveCursor(this.head);
    else this.clock.follow(this.headEngine.rate, this.headEngine.mode === "running");
  }

  reachWanted() {
    const index = /** @type {number} */ (this.wantedSeq) - this.header.base_seq;
    if (index > this.head) return;
    this.wantedSeq = null;
    this.seek(Math.max(-1, index));
  }

  /** @param {number} start */
  takeOneEvent(start) {
    this.stepWanted = null;
    const event = this.nextEvent(start - 1);
    this.seek(event);
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
    this.timeline.moveTo(seq);
  }

  // -- the cursor --------------------------------------------------------------------------------

  /** @param {number} index go to this record; at the head of a live engine the page follows it */
  seek(index) {
    this.clock.stop();
    this.wantedSeq = null;
    this.moveCursor(index);
    this.following = this.live && this.cursor >= this.head;
    this.remember();
  }

  /** @param {number} index move the cursor and nothing else */
  moveCursor(index) {
    const target = Math.max(-1, Math.min(this.head, Math.trunc(index)));
    this.cursor = target;
    this.timeline.moveTo(target);
    this.version += 1;
    this.changed();
  }

  goLive() {
    this.wantedSeq = null;
    this.clock.stop();
    this.moveCursor(this.head);
    this.following = this.live;
    this.remember();
  }

  /** @param {number|null} rate play the recording from the cursor on */
  play(rate) {
    if (this.atHead) this.moveCursor(-1);
    this.following = false;
    this.clock.play(rate);
    this.changed();
  }

  stopPlaying() {
    this.clock.stop();
    this.following = this.live && this.atHead;
    this.remember();
    this.changed();
  }

  /** @param {number|null} rate the recording was played up to the head */
  playedToHead(rate) {
    if (this.live) {
      this.following = true;
      if (this.canCommand && this.headEngine.mode !== "running") void this.command("run", { rate });
    }
    this.remember();
    this.changed();
  }

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

  // -- commands ----------------------------------------------------------------------------------

  get canCommand() {
    return this.live && this.engine === "own" && this.connection === "open";
  }

  /** Why the engine cannot be commanded from here, or "". */
  get whyNoCommand() {
    if (!this.live) return "A saved trace has no engine behind it.";
    if (this.engine === "shared") {
      return "The shared engine belongs to all clients of this server; it runs by itself.";
    }
    if (this.connection !== "open") return "The page is not connected to its engine.";
    return "";
  }

  /**
   * @param {string} name phase, step, run, pause, check, abort, reset, reset_prefix_cache
   * @param {any} [body]
   * @returns {Promise<boolean>} whether the engine took it
   */
  async command(name, body = {}) {
    if (!this.canCommand || !this.link) {
      this.tell("error", this.whyNoCommand);
      return false;
    }
    try {
      await this.link.command(name, body);
      this.tell(null, "");
      return true;
    } catch (error) {
      this.tell("error", error instanceof Error ? error.message : String(error));
      return false;
    }
  }

  /** At the head: let the engine do its next phase and show the first event of it. */
  async commandOneEvent() {
    this.stepWanted = "event";
    if (!(await this.command("phase", { check: this.checksPhases }))) this.stepWanted = null;
  }

  /** @param {"error"|"info"|null} kind @param {string} text */
  tell(kind, text) {
    const notice = kind ? { kind, text } : null;
    if (notice?.text === this.notice?.text) return;
    this.notice = notice;
    this.changed();
  }

  // -- saved traces ------------------------------------------------------------------------------

  /**
   * Show a saved trace; the live engine stays where it is, and `backToLive` returns to it.
   * @param {string} text JSON Lines
   * @param {string} name
   */
  openTrace(text, name) {
    const { header, records } = parseTrace(text);
    this.link?.close();
    this.live = false;
    this.traceName = name;
    this.connection = "none";
    this.notice = null;
    this.begin(header);
    this.take(records);
    const wanted = this.wantedSeq;
    this.wantedSeq = null;
    this.following = false;
    this.moveCursor(wanted === null ? this.head : wanted - header.base_seq);
  }

  backToLive() {
    this.live = true;
    this.traceName = "";
    this.header = null;
    this.clear({});
    this.headEngine = {};
    this.following = true;
    this.link?.open();
    this.version += 1;
    this.changed();
  }

  // -- what is looked at -------------------------------------------------------------------------

  /** @param {PageDocument} pageDocument */
  setDocument(pageDocument) {
    if (this.document === pageDocument) return;
    this.document = pageDocument;
    const views = pageDocument.views ?? [];
    if (!views.some((view) => view.id === this.view)) this.view = views[0]?.id ?? "";
    const known = pageDocument.components.some((item) => item.id === this.selection.component);
    if (!known) this.selection = { ...this.selection, component: null };
    this.changed();
  }

  /**
   * Choose something beside what is chosen already. The inspector tells of a block first, so
   * whatever is chosen without one lets go of it.
   * @param {Partial<Selection>} partial
   */
  select(partial) {
    this.selection = { ...this.selection, block: null, ...partial };
    keep(MEMORY.selection, this.selection);
    this.changed();
  }

  /** @param {string|null} live */
  point(live) {
    if (this.pointed === live) return;
    this.pointed = live;
    this.changed();
  }

  /** @param {string} id */
  setView(id) {
    if (this.view === id || !this.document?.views?.some((view) => view.id === id)) return;
    this.view = id;
    keep(MEMORY.view, id);
    this.changed();
  }

  // -- memory of the tab -------------------------------------------------------------------------

  recall() {
    this.view = recalled(MEMORY.view) ?? "";
    const selection = recalled(MEMORY.selection);
    if (selection && typeof selection === "object") {
      this.selection = { component: null, request: null, block: null, ...selection };
    }
  }

  /** @returns {number|null} the record this tab looked at before it was loaded again */
  recallCursor() {
    const kept = recalled(MEMORY.cursor);
    if (!kept || kept.trace_id !== this.header.trace_id || kept.following) return null;
    return Number.isInteger(kept.seq) ? kept.seq : null;
  }

  remember() {
    if (!this.header) return;
    keep(MEMORY.cursor, {
      trace_id: this.header.trace_id,
      seq: this.header.base_seq + this.cursor,
      following: this.following,
    });
  }

  // -- subscribers -------------------------------------------------------------------------------

  /** @param {(store: Store) => void} listener @returns {() => void} */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Tell the subscribers in the next frame, once however much changes until then. */
  changed() {
    if (this.scheduled) return;
    this.scheduled = requestAnimationFrame(() => {
      this.scheduled = 0;
      for (const listener of [...this.listeners]) listener(this);
    });
  }
}

/** @param {LogRecord} record whether it says nothing of the work: mode, rate, asides */
function isAside(record) {
  if (record.kind === "event") return ASIDES.has(record.type);
  return Object.keys(record.changes).every((name) => name === "engine");
}

/** @param {string} key @param {any} value */
function keep(key, value) {
  try {
    sessionStorage.setItem(key, JSON.stringify(value));
  } catch {
    // A full or forbidden storage costs the memory over a reload, nothing else.
  }
}

/** @param {string} key @returns {any} */
function recalled(key) {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}
