// @ts-check
/** What the inspector says of a request, a block or a source, as rows and texts. */
import { COMPUTED_HOW, computedAt } from "../core/computed.js";
import { meanLength, tallyOf } from "../core/speculation.js";
import { FIRST_HOW, LAST_HOW, meanHow, timingOf } from "../core/timing.js";
import { hasTexts, outputPieces, promptPieces } from "../core/tokens.js";
import { DRAFT_RATE_HOW, MEAN_LENGTH_HOW } from "../words/drafts.js";
import { UNCOMPUTED, fromWhom, senderOf } from "../words/events.js";
import {
  blockList,
  count,
  micros,
  percent,
  plural,
  quote,
  ranges,
  visible,
} from "../words/format.js";
import { NEUTRAL } from "../words/rooms.js";
import { el, reconcile } from "./dom.js";
import { setTruth, truth } from "./truth.js";

/** @import { LiveRow } from "../boxes/live.js" */
/** @import { PinnedSource } from "../core/document.js" */
/** @import { StepEntry } from "../core/steps.js" */
/** @import { Store } from "../core/store.js" */
/** @import { TruthKind } from "./truth.js" */

const LONGEST_TEXT = 50_000; // characters

/** @param {number} left */
export function moreItem(left) {
  const item = el("li", { class: "gb-note-small", text: `and ${count(left)} earlier` });
  /** @type {any} */ (item).__key = "more";
  return item;
}

/** @param {HTMLElement} list @param {LiveRow[]} rows */
export function fillRows(list, rows) {
  reconcile(
    list,
    rows,
    (row) => row.name,
    (row) =>
      el(
        "div",
        { class: "gb-row" },
        el("dt", { text: row.name }),
        el("dd", {}, truth(row.truth, row.how, row.value)),
      ),
    (node, row) => {
      setTruth(node.lastElementChild.firstElementChild, row.truth, row.how, row.value);
    },
  );
}

/** @param {...([string, string]|false|""|undefined|null)} items tone and text */
export function chips(...items) {
  const made = items.map((item) =>
    item ? el("span", { class: "gb-chip", "data-tone": item[0], text: item[1] }) : null,
  );
  return el("div", { class: "gb-chips" }, ...made);
}

/** @param {string} title @param {string} where @param {string|null} url */
export function sourceItem(title, where, url) {
  const name = url
    ? el("a", {
        href: url,
        target: "_blank",
        rel: "noreferrer noopener",
        class: "gb-code",
        text: title,
      })
    : el("span", { class: "gb-code", text: title });
  return el("li", { class: "gb-source" }, name, el("small", { text: where }));
}

/** @param {StepEntry} entry */
export function momentName(entry) {
  return entry.command ? `between steps` : `step ${entry.step}`;
}

export function truthLegend() {
  const rows = [
    ["measured", "from the running engine", "read from the engine's log"],
    [
      "derived",
      "computed from measured ones; the formula shows on hover",
      "the formula stands here",
    ],
    ["illustrative", "from the document, never from the engine", "a figure of the document"],
  ];
  return el(
    "ul",
    { class: "gb-list" },
    ...rows.map(([kind, text, how]) =>
      el("li", { class: "gb-source" }, truth(/** @type {any} */ (kind), how, kind), `: ${text}`),
    ),
  );
}

/** @param {any} request */
export function statusText(request) {
  if (!request) return "not in the state";
  return request.finish_reason ? `finished: ${request.finish_reason}` : request.status;
}

/** @param {string} symbol */
export function symbolText(symbol) {
  return `${/^[A-Z]/.test(symbol) ? "class" : "function"} ${symbol}`;
}

/** @param {string} source */
export function sourceText(source) {
  if (senderOf(source)) return `sent${fromWhom(source)}`;
  return source === "http" ? "sent over HTTP" : source === "page" ? "sent from this page" : source;
}

/**
 * `0_r3` is the first of the sequences that r3 asked for.
 * @param {string} id @param {string} parent
 */
export function sequenceText(id, parent) {
  return `sequence ${id.slice(0, -parent.length - 1)} of ${parent}`;
}

/** @param {any} request */
export function promptText(request) {
  if (!request) return "";
  if (request.prompt) return clipped(request.prompt);
  const pieces = promptPieces(request);
  return hasTexts(request)
    ? clipped(pieces.join(""))
    : `token ids ${pieces.slice(0, 200).join(" ")}`;
}

/** @param {any} request */
export function outputText(request) {
  if (!request) return "(nothing yet)";
  const pieces = outputPieces(request);
  if (!pieces.length) return "(nothing yet)";
  if (!hasTexts(request)) return `token ids ${pieces.slice(-200).join(" ")}`;
  const text = pieces.join("");
  if (text === "") return "(no text yet)"; // tokens are there; no text of theirs has been sent
  return clipped(text.trim() === "" ? visible(text) : text);
}

/** A browser takes seconds to lay a text of megabytes out. @param {string} text */
function clipped(text) {
  if (text.length <= LONGEST_TEXT) return text;
  const left = count(text.length - LONGEST_TEXT);
  return `${text.slice(0, LONGEST_TEXT)} … and ${left} characters more`;
}

/** @param {any} request */
export function tableText(request) {
  const blocks = Object.values(request?.block_table ?? {});
  if (!blocks.length) return "holds no blocks";
  return `${plural(blocks.length, "block")}: ${ranges(/** @type {number[]} */ (blocks), 24)}`;
}

/** @param {Store} store @param {string} id @param {any} request @returns {LiveRow[]} */
export function requestRows(store, id, request) {
  const how = "the request's record in the engine's state";
  const outputs = Object.keys(request.output_token_ids ?? {}).length;
  const { done, scheduled } = computedAt(store)(id);
  const next = scheduled ? `, ${scheduled} scheduled` : "";
  const measured = (/** @type {string} */ name, /** @type {string} */ value, from = how) =>
    /** @type {LiveRow} */ ({ name, value, truth: "measured", how: from });
  const rows = [
    measured("prompt tokens", count(request.num_prompt_tokens)),
    measured("output tokens", `${outputs} / ${request.max_tokens}`, "generated, and max_tokens"),
    /** @type {LiveRow} */ ({
      name: "computed",
      value: `${done} / ${request.num_tokens}${next}`,
      truth: "derived",
      how: COMPUTED_HOW,
    }),
    measured(
      "hit in the cache",
      plural(request.hit_tokens ?? 0, "token"),
      "at the latest admission",
    ),
    ...uncomputedRows(store, request),
    ...flightRows(request),
    ...draftRows(store, id),
    ...samplingRows(request.sampling),
    measured("preempted", `${request.num_preemptions ?? 0} ×`),
    ...timeRows(store, id),
  ];
  if (request.priority) rows.push(measured("priority", String(request.priority)));
  if (request.cache_salt) {
    const shared = "in the hash of the first block: blocks are shared under the same salt alone";
    rows.push(measured("cache_salt", quote(request.cache_salt, 40), shared));
  }
  return rows;
}

/** Blocks that the request reads and nobody wrote. @param {Store} store @param {any} request */
function uncomputedRows(store, request) {
  const held = /** @type {number[]} */ (Object.values(request.block_table ?? {}));
  const wrong = held.filter((block) => store.state?.blocks?.[block]?.uncomputed);
  if (!wrong.length) return [];
  const row = { name: "never computed", value: blockList(wrong), how: UNCOMPUTED };
  return [/** @type {LiveRow} */ ({ ...row, truth: "measured" })];
}

/** How many drafts were right. @param {Store} store @param {string} id @returns {LiveRow[]} */
function draftRows(store, id) {
  const tally = tallyOf(store, id);
  if (!tally.steps) return [];
  const { accepted, drafted } = tally;
  const rate = `${accepted} of ${drafted} (${percent(accepted / drafted)})`;
  const length = meanLength(tally).toFixed(2);
  return [
    { name: "drafts accepted", value: rate, truth: "derived", how: DRAFT_RATE_HOW },
    { name: "mean acceptance length", value: length, truth: "derived", how: MEAN_LENGTH_HOW },
  ];
}

/** Tokens that steps in flight bring. @param {any} request @returns {LiveRow[]} */
function flightRows(request) {
  const coming = request.num_output_placeholders ?? 0;
  const gone = request.async_tokens_to_discard ?? 0;
  /** @type {LiveRow[]} */
  const rows = [];
  const add = (/** @type {string} */ name, /** @type {number} */ n, /** @type {string} */ field) =>
    rows.push({ name, value: plural(n, "token"), truth: "measured", how: field });
  if (coming) add("coming, not known yet", coming, "num_output_placeholders of the request");
  if (gone) add("in flight and void", gone, "async_tokens_to_discard of the request");
  return rows;
}

/** @param {Record<string, any>|undefined} sampling @returns {LiveRow[]} */
function samplingRows(sampling) {
  if (!sampling) return [];
  const said = Object.entries(NEUTRAL)
    .filter(([name, neutral]) => (sampling[name] ?? neutral) !== neutral)
    .map(([name]) => `${name} ${sampling[name]}`);
  const biased = Object.keys(sampling.logit_bias ?? {}).length;
  if (biased) said.push(`logit_bias of ${plural(biased, "token")}`);
  if (sampling.prompt_logprobs !== undefined) said.push("prompt_logprobs: no prefix is looked up");
  const value = [`temperature ${sampling.temperature}`, ...said].join(", ");
  return [{ name: "sampling", value, truth: "measured", how: "as the request asked" }];
}

/** @param {Store} store @param {string} id @returns {LiveRow[]} */
function timeRows(store, id) {
  const { first, last, mean } = timingOf(store, id);
  const note = "; time in which the engine stood paused counts";
  /** @type {LiveRow[]} */
  const rows = [];
  const add = (
    /** @type {string} */ name,
    /** @type {number} */ us,
    /** @type {TruthKind} */ truth,
    /** @type {string} */ how,
  ) => rows.push({ name, value: micros(us), truth, how: how + note });
  if (first) add("time to first token", first.us, "measured", FIRST_HOW);
  if (last) add("latest time between tokens", last.us, "measured", LAST_HOW);
  if (mean) add("mean time between tokens", mean.us, "derived", meanHow(mean.gaps));
  return rows;
}

/** @param {PinnedSource} source */
export function pinnedWhere({ path, line, end_line: end, status }) {
  return `${path}${line ? ` ${line}–${end ?? line}` : ""} · ${status}`;
}
