// @ts-check
/**
 * The page's link to the server: commands go down, the log comes up. One event stream a tab.
 */
import { keepText, recallText } from "./tab_memory.js";
import { MAX_FILE, tooLarge } from "./trace_file.js";

/** @import { Store } from "./store.js" */
/** @typedef {{file_name: string, step: number, num_bytes: number}} KeptMoment */

/** @typedef {{name: string, what: string, where: string}} FileKind */
/**
 * @typedef {{path: string, num_bytes: number, written: number, problem: string,
 *   model: string|null, step: number|null, num_records: number|null}} SavedTrace a file of the
 *   server's folder; `written` in seconds since the epoch; `problem`: why it cannot be opened
 */

/** @typedef {{what: string, done: number, total: number, unit: string, text: string}} Doing */
/** @typedef {"jsonl" | "perfetto" | "csv"} LogFormat what a log is written as */

const FILE_START = 65_536; // bytes by which the server tells what it is
export const SESSION_KEY = "glassbox.session";
export const ENGINE_KEY = "glassbox.engine";
/** The session by which this tab directs a class's engine, if it does. */
export const DIRECTOR_KEY = "glassbox.director";
const SHARED_KEY = "EMPTY";
const FIRST_RETRY = 400;
const LONGEST_RETRY = 8000;

/** An answer of the server that is no success. */
class ServerError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class EngineLink {
  /**
   * @param {Store} store
   * @param {(key: string) => void} onSession
   */
  constructor(store, onSession) {
    this.store = store;
    this.onSession = onSession;
    this.key = recallText(SESSION_KEY) ?? "";
    store.engine = recallText(ENGINE_KEY) === "shared" ? "shared" : "own";
    /** @type {EventSource|null} */
    this.source = null;
    this.retry = FIRST_RETRY;
    this.timer = 0;
    /** Counts openings, so that what an older one still awaits comes to nothing. */
    this.turn = 0;
  }

  get authorization() {
    return `Bearer ${this.store.engine === "shared" ? SHARED_KEY : this.key}`;
  }

  /** Of the tab's own session, whichever engine is shown. */
  get own() {
    return `Bearer ${this.key}`;
  }

  /** Open the stream; it is opened again whenever it breaks. */
  open() {
    this.close();
    this.store.connection = "connecting";
    this.store.changed();
    void this.connect(this.turn);
  }

  close() {
    this.turn += 1;
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
  }

  /** @param {number} turn */
  async connect(turn) {
    try {
      await this.ensureSession();
      const { ticket } = await this.request("POST", "/api/events/ticket");
      if (turn !== this.turn) return;
      this.listen(ticket, turn);
    } catch (error) {
      if (turn === this.turn) this.later(turn, error);
    }
  }

  /** Keep the tab's key where the server still knows it, else get another. */
  async ensureSession() {
    if (this.key) {
      try {
        await this.recognize();
        return;
      } catch (error) {
        if (!(error instanceof ServerError) || error.status !== 401) throw error;
        this.store.forgotten = recallText(DIRECTOR_KEY) === this.key ? "director" : "tab";
      }
    }
    const { key } = await this.request("POST", "/api/session", {}, null);
    this.key = key;
    keepText(SESSION_KEY, key);
    await this.recognize();
  }

  /** Ask the server what it knows of this tab's session, and what it offers beside it. */
  async recognize() {
    const session = await this.request("GET", "/api/session", undefined, this.own);
    this.store.sharedOffered = session.shared_engine !== false;
    if (!this.store.sharedOffered) this.store.engine = "own";
    this.store.moment = session.moment ?? null;
    this.onSession(this.key);
  }

  /** @param {string} ticket @param {number} turn */
  listen(ticket, turn) {
    const { store } = this;
    const query = new URLSearchParams({ ticket });
    if (store.header && store.head >= 0) {
      query.set("after", `${store.header.trace_id}:${store.header.base_seq + store.head}`);
    }
    const source = new EventSource(`/api/events?${query}`);
    this.source = source;
    source.addEventListener("open", () => {
      this.retry = FIRST_RETRY;
      store.connection = "open";
      store.changed();
    });
    const on = (/** @type {string} */ name, /** @type {(data: any) => void} */ act) =>
      source.addEventListener(name, (message) => {
        if (turn === this.turn) act(JSON.parse(message.data));
      });
    on("header", (header) => {
      store.modelStatus = null;
      store.begin(header);
    });
    on("records", (records) => {
      store.append(records);
      if (store.notice?.kind === "info") store.tell(null, ""); // it was about the time before
    });
    on("doing", (doing) => {
      store.doing = doing;
      store.changed();
    });
    on("status", (status) => {
      store.modelStatus = status;
      store.changed();
    });
    on("notice", ({ text }) => store.tell("info", text));
    on("closed", ({ text }) => store.tell("info", text));
    on("failed", ({ error }) => store.tell("error", error.message));
    // A ticket is good for once, so the browser's own retry cannot work: ask for another.
    source.addEventListener("error", () => {
      source.close();
      if (turn === this.turn) this.later(turn, null);
    });
  }

  /** @param {number} turn @param {unknown} error */
  later(turn, error) {
    this.source?.close();
    this.source = null;
    this.store.connection = "lost";
    this.store.doing = null;
    if (error instanceof ServerError) this.store.tell("error", error.message);
    this.store.changed();
    this.timer = setTimeout(() => {
      if (turn === this.turn) void this.connect(turn);
    }, this.retry);
    this.retry = Math.min(LONGEST_RETRY, this.retry * 2);
  }

  /** @param {"own"|"shared"} engine */
  choose(engine) {
    if (this.store.engine === engine) return;
    this.store.engine = engine;
    keepText(ENGINE_KEY, engine);
    this.close();
    this.store.tell(null, "");
    this.store.backToLive();
  }

  /** @param {string} name @param {any} body */
  command(name, body) {
    return this.request("POST", `/api/engine/${name}`, body);
  }

  /** The log of the engine as a file. @param {LogFormat} [form] */
  async traceFile(form = "jsonl") {
    return (await this.fetched("GET", `/api/trace?format=${form}`)).blob();
  }

  /** A file of the server's folder of traces, as text. @param {string} path */
  async savedTrace(path) {
    const asked = `/api/traces?path=${encodeURIComponent(path)}`;
    const answer = await this.fetched("GET", asked, null, this.own);
    if (Number(answer.headers.get("Content-Length")) > MAX_FILE) {
      await answer.body?.cancel(); // none of it is sent for
      throw new Error(tooLarge());
    }
    return answer.text();
  }

  /** @returns {Promise<{offered: boolean, traces: SavedTrace[], left_out: number}>} */
  savedTraces() {
    return this.request("GET", "/api/traces", undefined, this.own);
  }

  /** What a file is, by how it begins. @param {Blob} file @returns {Promise<FileKind>} */
  async kindOf(file) {
    const start = file.slice(0, FILE_START);
    return (await this.fetched("POST", "/api/file_kind", start, this.own)).json();
  }

  /** The log of a run of this tab's comparison, as text. @param {"a"|"b"} side */
  async comparedTrace(side) {
    return (await this.fetched("GET", `/api/compare/trace/${side}`, null, this.own)).text();
  }

  /** The engine itself, between two steps, and what the file is called. */
  async momentFile() {
    const file = await (await this.fetched("GET", "/api/engine/moment")).blob();
    await this.recognize();
    return { file, name: this.store.moment?.file_name ?? "engine.moment.safetensors" };
  }

  /** Go on from the file, or without one from what the server keeps. @param {File|null} file */
  async restore(file) {
    const path = file ? "/api/engine/restore" : "/api/engine/restore_kept";
    const answer = await this.fetched("POST", path, file);
    this.store.moment = (await answer.json()).moment;
  }

  /** A saved log in another form. @param {Blob} trace @param {LogFormat} form */
  async exported(trace, form) {
    return (await this.fetched("POST", `/api/export?format=${form}`, trace, this.own)).blob();
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {any} [body]
   * @param {string|null} [authorization] null: none
   */
  async request(method, path, body, authorization = this.authorization) {
    const json = method === "POST" ? JSON.stringify(body ?? {}) : null;
    return (await this.fetched(method, path, json, authorization)).json();
  }

  /**
   * The server's answer as it is; an Error with what it says where it is no success.
   * @param {string} method
   * @param {string} path
   * @param {string|Blob|null} [body] a text is JSON
   * @param {string|null} [authorization] null: none
   */
  async fetched(method, path, body = null, authorization = this.authorization) {
    /** @type {Record<string, string>} */
    const headers = {};
    if (authorization) headers.Authorization = authorization;
    if (typeof body === "string") headers["Content-Type"] = "application/json";
    let answer;
    try {
      answer = await fetch(path, { method, headers, body });
    } catch {
      throw new Error("The server does not answer.");
    }
    if (!answer.ok) throw await errorOf(answer);
    return answer;
  }
}

/** @param {Response} answer */
async function errorOf(answer) {
  let message = `The server answered ${answer.status}.`;
  try {
    message = (await answer.json()).error.message || message;
  } catch {
    // No JSON in the answer: the status has to do.
  }
  return new ServerError(answer.status, message);
}
