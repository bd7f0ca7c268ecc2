// @ts-check
/** What there is to do, or to know, in one line beside the transport's buttons. */
import { nextOf, runsAtOnce } from "../core/lanes.js";
import { does, plural } from "../words/format.js";
import { BY_PHASES, pausedWords } from "../words/lanes.js";

/** @import { Store } from "../core/store.js" */

/** @param {Store} store @returns {{kind: string, text: string}} */
export function hintOf(store) {
  if (store.notice) return { kind: store.notice.kind, text: store.notice.text };
  if (!store.live) return { kind: "", text: savedHint(store) };
  if (!store.header && store.modelStatus)
    return {
      kind: store.modelStatus.stage === "failed" ? "error" : "",
      text: loadingHint(store.modelStatus),
    };
  if (store.connection !== "open") return { kind: "", text: connectionHint(store) };
  if (!store.header) return { kind: "", text: loadingHint(store.modelStatus) };
  if (store.clock.playing) return { kind: "", text: "Playing what was recorded." };
  if (!store.following && !store.atHead) {
    const back = plural(store.head - store.cursor, "record");
    return { kind: "", text: `You look at the past: ${back} before the newest.` };
  }
  if (store.engine === "shared")
    return { kind: "", text: "The shared engine of this server, as its clients drive it." };
  if (store.failure) return { kind: "error", text: "The engine failed: reset it to go on." };
  return engineHint(store);
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
  return `The model is being made ready: ${status.message || status.stage}${share}`;
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
  if (submitted) {
    const who = does(submitted, "request", "waits", "wait") + " for the next step";
    return {
      kind: "call",
      text: next === "arrive" ? `${who}: press Step or Run.` : `${who}; paused before ${next}.`,
    };
  }
  const last = store.log.newestAt(store.head);
  const inFlight = store.inFlight;
  if (inFlight.length)
    return { kind: "", text: `${pausedWords(inFlight, nextOf(store))}: press Phase, Step or Run.` };
  const after = next === "arrive" && last ? `after step ${last.step}` : `before ${next}`;
  if (inside || next !== "arrive")
    return { kind: "", text: `Paused ${after}: press Phase, Step or Run.` };
  const idle = "The engine has nothing to do. Send a prompt.";
  return { kind: "", text: last ? `Paused ${after}. ${idle}` : idle };
}
