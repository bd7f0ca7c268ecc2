// @ts-check
/** What there is to do, or to know, in one line beside the transport's buttons. */
import { nextOf, runsAtOnce } from "../core/lanes.js";
import { ASIDES } from "../core/records.js";
import { traceIndex } from "../core/trace_index.js";
import { doingText } from "./doing.js";
import { eventSentence } from "./events.js";
import { capital, does, plural } from "./format.js";
import { BY_PHASES, pausedWords } from "./lanes.js";

/** @import { LogRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */

/** @param {Store} store @returns {{kind: string, text: string}} */
export function hintOf(store) {
  if (store.notice) return { kind: store.notice.kind, text: store.notice.text };
  if (!store.live) return { kind: "", text: insideHint(store) || savedHint(store) };
  if (!store.header && store.modelStatus)
    return {
      kind: store.modelStatus.stage === "failed" ? "error" : "",
      text: loadingHint(store.modelStatus),
    };
  if (store.connection !== "open") return { kind: "", text: connectionHint(store) };
  if (!store.header) {
    const { doing, modelStatus } = store;
    return { kind: "", text: doing ? doingText(doing) : loadingHint(modelStatus) };
  }
  if (store.clock.playing) return { kind: "", text: "Playing what was recorded." };
  if (!store.following && !store.atHead) {
    const inside = insideHint(store);
    if (inside) return { kind: "", text: inside };
    const back = plural(store.head - store.cursor, "record");
    return { kind: "", text: `You look at the past: ${back} before the newest.` };
  }
  if (store.doing) return { kind: "", text: doingText(store.doing) };
  if (store.engine === "shared")
    return {
      kind: "",
      text:
        store.headEngine.mode === "paused"
          ? "The shared engine of this server: whoever directs it has paused it."
          : "The shared engine of this server, as its clients drive it.",
    };
  if (store.failure) return { kind: "error", text: "The engine failed: reset it to go on." };
  return engineHint(store);
}

/**
 * What happened last up to the cursor, in its step; "" before the first request. It stands where a
 * narrow page has no room for the sentence of the view.
 * @param {Store} store
 */
export function happenedText(store) {
  const at = store.phaseAt(store.cursor);
  if (!Object.keys(store.state.requests ?? {}).length) return "";
  for (let i = store.cursor; at && i >= at.entry.first; i -= 1) {
    const record = store.records[i];
    if (record.kind === "event" && !ASIDES.has(record.type)) return eventSentence(record);
  }
  return "";
}

/**
 * Where the cursor has come to rest, for those who do not see it.
 * @param {LogRecord|undefined} record @param {string} sentence of the view
 */
export function restText(record, sentence) {
  if (record?.kind !== "event") return sentence || "Before the first record.";
  return `Step ${record.step}, ${record.phase}: ${eventSentence(record)}`;
}

/**
 * In the middle of a phase: how far it has come, and so whose figures these are.
 * @param {Store} store
 */
function insideHint(store) {
  const { cursor, records } = store;
  if (store.clock.playing || records[cursor]?.kind !== "event") return "";
  const at = store.phaseAt(cursor);
  if (!at || records[at.last]?.kind !== "patch") return "";
  const here = store.eventsOfPhase(at).length;
  const all = store.eventsOfPhase(at, at.last).length;
  const where = at.phase === "command" ? "Outside of the steps" : `Inside ${at.phase}`;
  const after = all === 1 ? "the only event" : `event ${here} of ${all}`;
  return `${where}, after ${after}: figures are those of this moment.`;
}

/** @param {Store} store */
function savedHint(store) {
  return store.atHead
    ? "End of the saved trace."
    : `A saved trace of ${plural(store.head + 1, "record")}.`;
}

/** @param {Store} store */
function connectionHint(store) {
  return store.connection === "lost"
    ? "The connection is lost; trying again."
    : "Connecting to the engine.";
}

/** @param {any} status */
function loadingHint(status) {
  if (!status?.stage) return "Waiting for the engine.";
  if (status.stage === "failed") return `There is no model: ${status.message}`;
  const share = status.total > 1 ? ` (${Math.floor((100 * status.done) / status.total)} %)` : "";
  return `${capital(status.message || "the model is not ready yet")}${share}.`;
}

/**
 * What there is to do, said next to the buttons that do it.
 * @param {Store} store
 */
function engineHint(store) {
  const requests = store.state.requests ?? {};
  let submitted = 0;
  let inside = 0;
  for (const id in requests) {
    if (requests[id].status === "submitted") submitted += 1;
    else if (requests[id].status !== "finished") inside += 1;
  }
  const next = store.headEngine.next_phase ?? "arrive";
  if (store.headEngine.mode === "running") {
    const slow = store.overlaps && !runsAtOnce(store.headEngine) ? BY_PHASES : "";
    return {
      kind: "",
      text: submitted + inside ? slow : "The engine runs and has nothing to do. Send a prompt.",
    };
  }
  const clients = clientsWaiting(store);
  if (submitted) {
    const who = does(submitted, "request", "waits", "wait") + " for the next step";
    const act = next === "arrive" ? ": press Step or Run." : `; paused before ${next}.`;
    return { kind: "call", text: who + act + clients };
  }
  const last = store.log.newestAt(store.head);
  const inFlight = store.inFlight;
  const kind = clients ? "call" : "";
  if (inFlight.length) {
    const text = `${pausedWords(inFlight, nextOf(store))}: press Phase, Step or Run.${clients}`;
    return { kind, text };
  }
  const after = next === "arrive" && last ? `after step ${last.step}` : `before ${next}`;
  if (inside || next !== "arrive")
    return { kind, text: `Paused ${after}: press Phase, Step or Run.${clients}` };
  const idle = "The engine has nothing to do. Send a prompt.";
  return { kind: "", text: last ? `Paused ${after}. ${idle}` : idle };
}

/**
 * Who holds a connection open for an answer of the paused engine; "" where nobody does. Nobody
 * does for what a restored engine has from before its log: that was never submitted in it.
 * @param {Store} store
 */
function clientsWaiting(store) {
  const requests = store.state.requests ?? {};
  const { rows } = traceIndex(store);
  const asked = new Set();
  for (const [id, row] of rows) {
    const request = requests[id];
    if (request?.source !== "http" || request.status === "finished" || !row.submitted) continue;
    asked.add(request.parent || id);
  }
  return asked.size ? ` ${does(asked.size, "HTTP client", "waits", "wait")} for an answer.` : "";
}
