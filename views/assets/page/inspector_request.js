// @ts-check
/** A request in the inspector: why it stands as it does, its texts, its figures and its blocks. */
import { RequestHistory } from "../core/history.js";
import { traceIndex } from "../core/trace_index.js";
import { requestColour } from "../words/colours.js";
import { INSPECTOR } from "../words/inspector.js";
import { el, setAttribute, setText } from "./dom.js";
import { CandidatesPart } from "./inspector_candidates.js";
import { codeLink } from "./inspector_code.js";
import { DraftsPart } from "./inspector_drafts.js";
import { HistoryPart } from "./inspector_history.js";
import { headOf } from "./inspector_parts.js";
import {
  chips,
  fillRows,
  outputText,
  promptText,
  requestRows,
  sequenceText,
  sourceText,
  statusText,
  tableText,
} from "./inspector_rows.js";
import { themeOf } from "./theme.js";
import { setTruth } from "./truth.js";

/** @import { Store } from "../core/store.js" */

/** @type {Record<string, string>} */
const STATUS_TONES = {
  finished: "ok",
  preempted: "warn",
  running: "backend",
  waiting: "external",
  submitted: "external",
};

/** @param {HTMLElement} body @param {Store} store @param {string} id @returns {() => void} */
export function showRequest(body, store, id) {
  const parts = partsOf(store, id);
  body.append(
    parts.head,
    parts.status,
    parts.gone,
    ...parts.history.elements,
    codeLink(),
    el("h3", { text: INSPECTOR.prompt }),
    parts.prompt,
    el("h3", { text: INSPECTOR.outputSoFar }),
    parts.output,
    parts.drafts.element,
    parts.candidates.element,
    el("h3", { text: INSPECTOR.liveState }),
    parts.rows,
    el("h3", { text: INSPECTOR.blockTable }),
    parts.table,
    el("p", {}, parts.abort),
  );
  return () => refresh(body, store, id, parts);
}

/** @param {Store} store @param {string} id */
function partsOf(store, id) {
  const colour = el("span", { class: "gb-swatch" });
  const head = headOf(store, id, "");
  head.querySelector("h2")?.prepend(colour);
  const box = (/** @type {string} */ name) =>
    el("pre", { class: "gb-text-box", tabindex: "0", "aria-label": name });
  const abort = el("button", {
    class: "gb-button is-danger",
    type: "button",
    text: INSPECTOR.abort,
    onclick: () => abortIt(store, id, abort),
  });
  const history = new RequestHistory(id);
  const read = (/** @type {number} */ most) => history.read(store, most);
  return {
    head,
    colour,
    abort,
    status: el("div", { class: "gb-chips" }),
    gone: el("p", { class: "gb-note-small" }),
    prompt: box(INSPECTOR.prompt),
    output: box(INSPECTOR.output),
    drafts: new DraftsPart(),
    candidates: new CandidatesPart(),
    rows: el("dl", { class: "gb-rows" }),
    table: el("p", { class: "gb-code" }),
    history: new HistoryPart(store, INSPECTOR.whyRequest, read, { request: id }),
  };
}

/**
 * @param {HTMLElement} body @param {Store} store @param {string} id
 * @param {ReturnType<typeof partsOf>} parts
 */
function refresh(body, store, id, parts) {
  const request = store.state.requests?.[id];
  parts.colour.style.background = requestColour(id, themeOf(body));
  parts.status.replaceChildren(
    ...chips(
      [STATUS_TONES[request?.status] ?? "", statusText(request)],
      request?.source && ["", sourceText(request.source)],
      request?.parent && ["", sequenceText(id, request.parent)],
    ).children,
  );
  setText(parts.gone, request ? "" : INSPECTOR.gone);
  setText(parts.prompt, promptText(request));
  setText(parts.output, outputText(request));
  fillRows(parts.rows, request ? requestRows(store, id, request) : []);
  setTruth(parts.table, "measured", INSPECTOR.tableHow, tableText(request));
  parts.abort.hidden = !store.live || !request || request.status === "finished";
  setAttribute(parts.abort, "disabled", store.canCommand ? null : "");
  parts.abort.title = store.whyNoCommand;
  parts.history.update();
  parts.drafts.update(store, id);
  const events = traceIndex(store).historyOf(store, id);
  parts.candidates.update(events.findLast((event) => event.type === "token_sampled"));
}

/** @param {Store} store @param {string} id @param {HTMLElement} button */
async function abortIt(store, id, button) {
  setAttribute(button, "disabled", "");
  await store.command("abort", { request: id });
  setAttribute(button, "disabled", null);
}
