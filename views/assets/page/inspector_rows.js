// @ts-check
/** What the inspector says of a request, a block or a source, as rows and texts. */
import { count, micros, plural, ranges, truth } from "../words/format.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";

/** @import { LiveRow } from "../boxes/live.js" */
/** @import { EventRecord } from "../core/records.js" */
/** @import { StepEntry } from "../core/store.js" */

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
      const span = node.lastElementChild.firstElementChild;
      setText(span, row.value);
      setAttribute(span, "title", `${row.truth}: ${row.how}`);
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

/** @param {Element} node */
export function themeOf(node) {
  return node.closest("[data-theme]")?.getAttribute("data-theme") ?? "light";
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
  return source === "http" ? "sent over HTTP" : source === "page" ? "sent from this page" : source;
}

/** @param {any} request */
export function promptText(request) {
  if (!request) return "";
  if (request.prompt) return request.prompt;
  if (request.prompt_pieces) return request.prompt_pieces.join("");
  return `token ids ${(request.prompt_token_ids ?? []).slice(0, 200).join(" ")}`;
}

/** @param {any} request */
export function outputText(request) {
  const ids = Object.values(request?.output_token_ids ?? {});
  if (request?.output_pieces) return Object.values(request.output_pieces).join("");
  return ids.length ? `token ids ${ids.slice(-200).join(" ")}` : "(nothing yet)";
}

/** @param {any} request */
export function tableText(request) {
  const blocks = Object.values(request?.block_table ?? {});
  if (!blocks.length) return "holds no blocks";
  return `${plural(blocks.length, "block")}: ${ranges(/** @type {number[]} */ (blocks), 24)}`;
}

/** @param {any} block @returns {LiveRow[]} */
export function blockRows(block) {
  const how = "the block's record in the engine's state";
  const free = block.ref_cnt === 0;
  /** @type {LiveRow[]} */
  const rows = [
    {
      name: "held by",
      value: block.null_block ? "the null block" : plural(block.ref_cnt, "request"),
      truth: "measured",
      how: `ref_cnt: ${how}`,
    },
  ];
  rows.push({
    name: "content",
    value: block.hash ? `cached ${block.hash}` : "not in the prefix cache",
    truth: "measured",
    how,
  });
  if (free)
    rows.push({
      name: "in the free queue",
      value: `after ${block.prev ?? "nobody"}, before ${block.next ?? "nobody"}`,
      truth: "measured",
      how,
    });
  return rows;
}

/** @param {any} request @param {EventRecord[]} events @returns {LiveRow[]} */
export function requestRows(request, events) {
  const how = "the request's record in the engine's state";
  const outputs = Object.keys(request.output_token_ids ?? {}).length;
  /** @type {LiveRow[]} */
  const rows = [
    { name: "prompt tokens", value: count(request.num_prompt_tokens), truth: "measured", how },
    {
      name: "output tokens",
      value: `${outputs} / ${request.max_tokens}`,
      truth: "measured",
      how: "tokens generated, and max_tokens",
    },
    {
      name: "computed",
      value: `${request.num_computed_tokens} / ${request.num_tokens}`,
      truth: "measured",
      how: "num_computed_tokens / num_tokens",
    },
    {
      name: "prefix hit",
      value: plural(request.hit_tokens ?? 0, "token"),
      truth: "measured",
      how: "hit at the latest admission",
    },
    { name: "preempted", value: `${request.num_preemptions ?? 0} ×`, truth: "measured", how },
    ...timeRows(events),
  ];
  if (request.priority)
    rows.push({ name: "priority", value: String(request.priority), truth: "measured", how });
  return rows;
}

/** @param {EventRecord[]} events of one request @returns {LiveRow[]} */
function timeRows(events) {
  const began = events.find((event) => event.type === "request_submitted");
  const texts = events.filter((event) => event.type === "text_emitted");
  const note = "from the log's clock; time in which the engine stood paused counts";
  /** @type {LiveRow[]} */
  const rows = [];
  if (began && texts.length) {
    rows.push({
      name: "time to first token",
      value: micros(texts[0].t_us - began.t_us),
      truth: "measured",
      how: `first text_emitted - request_submitted, ${note}`,
    });
  }
  if (texts.length > 1) {
    const mean = (texts[texts.length - 1].t_us - texts[0].t_us) / (texts.length - 1);
    rows.push({
      name: "mean time between tokens",
      value: micros(mean),
      truth: "derived",
      how: `(last - first text_emitted) ÷ ${texts.length - 1}, ${note}`,
    });
  }
  return rows;
}
