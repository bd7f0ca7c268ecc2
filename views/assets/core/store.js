// @ts-check
/**
 * The page's one store: a log with a cursor and the state there (`Log`), what is looked at
 * (`LookedAt`), where the log comes from, how the cursor moves, and the commands to the engine.
 * Map, inspector, transport and panels read it and never keep a copy.
 */
import { Bookmarks } from "./bookmarks.js";
import { Clock } from "./clock.js";
import { LookedAt } from "./looked_at.js";
import { copyState } from "./state.js";
import { keep, recall } from "./tab_memory.js";
import { parseTrace } from "./trace_file.js";

/** @import { LogRecord } from "./records.js" */
/** @import { Doing, EngineLink, KeptMoment } from "./stream.js" */

/** Beyond this the oldest records become part of the base state, as in the engine's own log. */
const MAX_RECORDS = 240_000;

const LOADING_MS = 1500;
const CURSOR = "glassbox.cursor"; // in the memory of the tab
const MOST_FILES = 6; // that the tab holds on to

export class Store extends LookedAt {
  constructor() {
    super();
    this.following = true;
    this.live = true;
    /** Name of the saved trace that is shown, "" for a live engine. */
    this.traceName = "";
    /** Whether that is its path in the server's folder of traces. */
    this.savedPath = false;
    /** @type {"none"|"connecting"|"open"|"lost"} */
    this.connection = "none";
    /** @type {{kind: "error"|"info", text: string}|null} */
    this.notice = null;
    /** What this tab was when the server knew it no more and gave it another session. */
    this.forgotten = /** @type {""|"tab"|"director"} */ ("");
    /** What takes the engine longer than a step, at the moment. @type {Doing|null} */
    this.doing = null;
    /** @type {any} the model's loading, while there is no engine yet */
    this.modelStatus = null;
    /** @type {"own"|"shared"} */
    this.engine = "own";
    /** @type {KeptMoment|null} what the engine can be brought back to */
    this.moment = null;
    /** Whether the server has an engine of its own to look at. */
    this.sharedOffered = true;
    /** @type {EngineLink|null} */
    this.link = null;
    /** Whether it stands beside the page's own store: then requests keep the hues they have. */
    this.isBeside = false;
    /** Whether the engine checks its rules after each phase that it is stepped by. */
    this.checksPhases = false;
    /** Files of logs that were opened here, by the log: the way back asks for none again. */
    this.files = /** @type {Map<string, Blob>} */ (new Map());
    /** Counts every change of the log or the cursor. */
    this.version = 0;
    this.maxRecords = MAX_RECORDS;
    /** When this log's header came: what follows at once is its past. */
    this.beganAt = 0;
    this.clock = new Clock(this);
    this.bookmarks = new Bookmarks(this);
    /** @type {number|null} */
    this.wantedSeq = null;
    this.stepWanted = /** @type {"event"|null} */ (null);
  }

  // -- the log -----------------------------------------------------------------------------------

  /** @param {any} header a new log begins */
  begin(header) {
    this.clock.stop();
    const again = this.header?.trace_id === header.trace_id ? this.records[this.cursor]?.seq : null;
    this.header = header;
    this.beganAt = performance.now();
    this.clear(header.state);
    this.bookmarks.take(header.bookmarks);
    this.forgetStrangers();
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
    this.take(records);
    if (this.records.length === start) return;
    this.version += 1;
    if (this.wantedSeq !== null) this.reachWanted();
    else if (this.stepWanted) this.takeOneEvent(start);
    else if (this.following && !this.clock.playing) this.followHead(start);
    const { length } = this.records;
    if (length > this.maxRecords) this.forgetOldest(length - this.maxRecords * 0.75);
    this.changed();
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

  // -- the cursor --------------------------------------------------------------------------------

  /** @param {number} index go to this record; at the head of a live engine the page follows it */
  seek(index) {
    this.clock.stop();
    this.wantedSeq = null;
    this.moveCursor(index);
    this.following = this.live && this.cursor >= this.head;
    this.remember();
  }

  /** Go to a record by a link or a leap, to which there is a way back. @param {number} index */
  jump(index) {
    this.onLeave();
    this.seek(index);
  }

  /** @param {number} index move the cursor and nothing else */
  moveCursor(index) {
    const target = Math.max(-1, Math.min(this.head, Math.trunc(index)));
    this.cursor = target;
    this.folded.moveTo(target);
    this.version += 1;
    this.changed();
  }

  /** Whether the cursor goes on by itself: the log plays, or its engine runs and is followed. */
  get moves() {
    const runs = this.live && this.following && this.headEngine.mode === "running";
    return runs || this.clock.playing || this.clock.walking;
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

  /** @returns {number|null} the record this tab looked at before it was loaded again */
  recallCursor() {
    const kept = recall(CURSOR);
    if (!kept || kept.trace_id !== this.header.trace_id || kept.following) return null;
    return Number.isInteger(kept.seq) ? kept.seq : null;
  }

  remember() {
    if (!this.header) return;
    keep(CURSOR, {
      trace_id: this.header.trace_id,
      seq: this.header.base_seq + this.cursor,
      following: this.following,
    });
  }

  // -- commands ----------------------------------------------------------------------------------

  get canCommand() {
    return this.live && this.engine === "own" && !this.whyNoLook;
  }

  /** Why the engine cannot be commanded from here, or "". */
  get whyNoCommand() {
    if (this.live && this.engine === "shared") {
      return "The shared engine belongs to all clients of this server; it runs by itself.";
    }
    return this.whyNoLook;
  }

  /** Why there is no engine that could be asked something, or "". */
  get whyNoLook() {
    if (!this.live) return "A saved trace has no engine behind it.";
    if (this.connection !== "open") return "The page is not connected to its engine.";
    if (!this.header) return "There is no engine yet: its model is not loaded.";
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
   * @param {boolean} [savedPath] whether that is its path in the server's folder of traces
   * @param {Blob|null} [file] that it was read from
   */
  openTrace(text, name, savedPath = false, file = null) {
    const { header, records } = parseTrace(text);
    this.onLeave();
    if (file) this.keepFile(header.trace_id, file);
    this.link?.close();
    this.live = false;
    this.traceName = name;
    this.savedPath = savedPath;
    this.connection = "none";
    this.notice = null;
    this.doing = null;
    this.begin(header);
    this.take(records);
    const wanted = this.wantedSeq;
    this.wantedSeq = null;
    this.following = false;
    this.moveCursor(wanted === null ? this.head : wanted - header.base_seq);
  }

  /** @param {string} log @param {Blob} file */
  keepFile(log, file) {
    this.files.delete(log);
    this.files.set(log, file);
    const [oldest] = this.files.keys();
    if (this.files.size > MOST_FILES) this.files.delete(oldest);
  }

  backToLive() {
    this.onLeave();
    this.live = true;
    this.traceName = "";
    this.header = null;
    this.clear({});
    this.headEngine = {};
    this.doing = null;
    this.following = true;
    this.link?.open();
    this.version += 1;
    this.changed();
  }
}
