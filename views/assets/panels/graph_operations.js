// @ts-check
/** What a captured graph consists of: its buffers, and its operations, which can be searched. */
import { el } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { count, plural } from "../words/format.js";
import { kindMark } from "./graph_times.js";

/** @import { CapturedSize, Operation, OperationBlock } from "./graph_model.js" */

const LIST_HOW = "graph_captured";

/** The list of one graph, which stays open, and searched, while steps pass. */
export class OperationList {
  constructor() {
    this.summary = el("summary");
    this.search = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "search",
        class: "gbp-ksearch",
        placeholder: "Search: mm, norm, layer 3, [8,576]",
        "aria-label": "Search the operations",
        oninput: () => this.find(),
      })
    );
    this.hits = el("span", { class: "gbp-more", role: "status" });
    this.list = el("div", { class: "gbp-operations" });
    this.buffers = el("div");
    this.element = el(
      "details",
      { class: "gbp-oplist" },
      this.summary,
      el("div", { class: "gbp-kfind" }, this.search, this.hits),
      this.list,
      this.buffers,
    );
    /** @type {CapturedSize | null} */
    this.shown = null;
    this.key = "";
  }

  /** @param {CapturedSize | null} shown */
  draw(shown) {
    this.element.hidden = shown === null;
    this.shown = shown;
    const key = shown ? `${shown.key} ${shown.replayed} ${shown.buffers[0]?.address}` : "";
    if (key === this.key || !shown) return;
    this.key = key;
    const pieces =
      shown.pieces > 1 ? `, in ${plural(shown.pieces, "piece")} with attention between them` : "";
    this.summary.replaceChildren(
      `What a replay of ${shown.key} runs, in order: `,
      truth("measured", LIST_HOW, plural(shown.replayed, "operation")),
      pieces,
    );
    this.buffers.replaceChildren(...buffersParts(shown));
    this.find();
  }

  /** Show the operations that have all the words of the search in them. */
  find() {
    if (!this.shown) return;
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { blocks } = this.shown;
    const found = blocks.map((block) => ({ ...block, rows: matching(block, words) }));
    const hits = found.reduce((sum, block) => sum + operationsOf(block), 0);
    this.hits.textContent = words.length
      ? `${count(hits)} of ${plural(this.shown.replayed, "operation")}`
      : "";
    this.list.replaceChildren(
      ...found.flatMap((item, i) => (item.rows.length ? [block(item, i === 0)] : [])),
    );
  }
}

/**
 * The rows of a block with the operations that match: by name, result, module or layer.
 * @param {OperationBlock} block @param {string[]} words
 */
function matching({ first, last, rows }, words) {
  const layer = first < 0 ? "" : first === last ? `layer ${first}` : `layers ${first} to ${last}`;
  const number = words.indexOf("layer") + 1;
  const asked = number ? Number(words[number]) : NaN;
  const rest = words.filter((_, i) => i !== number && i + 1 !== number);
  const left = Number.isNaN(asked) ? words : rest;
  if (!Number.isNaN(asked) && !(first <= asked && asked <= last)) return [];
  return rows.flatMap((row) => {
    const operations = row.operations.filter(({ name, result }) => {
      const text = `${name} ${result} ${row.kind} ${layer}`.toLowerCase();
      return left.every((word) => text.includes(word));
    });
    return operations.length ? [{ ...row, operations }] : [];
  });
}

/** @param {OperationBlock} block */
function operationsOf({ first, last, rows }) {
  return rows.reduce((sum, row) => sum + row.operations.length, 0) * (last - first + 1);
}

/** @param {OperationBlock} item @param {boolean} before whether no layer has come yet */
function block(item, before) {
  const { first, last, rows } = item;
  const layers = last - first + 1;
  const each = operationsOf(item) / layers;
  const title =
    first < 0
      ? `${before ? "Before" : "After"} the layers: ${plural(each, "operation")}`
      : layers === 1
        ? `Layer ${first}: ${plural(each, "operation")}`
        : `Layers ${first} to ${last}, one after the other: ${count(layers)} × ` +
          plural(each, "operation");
  return el(
    "section",
    { class: "gbp-opblock" },
    el("h4", {}, truth("measured", LIST_HOW, title)),
    el("dl", {}, ...rows.flatMap((row) => [el("dt", {}, kindMark(row.kind), row.kind), ops(row)])),
  );
}

/** In order; the same one several times in a row is written once. @param {any} row */
function ops({ operations }) {
  /** @type {{name: string, result: string, times: number}[]} */
  const runs = [];
  operations.forEach((/** @type {Operation} */ { name, result }) => {
    const last = runs[runs.length - 1];
    if (last?.name === name && last.result === result) last.times += 1;
    else runs.push({ name, result, times: 1 });
  });
  const items = runs.map(({ name, result, times }) =>
    el("code", {}, times > 1 ? `${name} ×${times}` : name, el("small", { text: shape(result) })),
  );
  return el("dd", {}, ...items);
}

/** The dtype that almost all have goes without saying. @param {string} result */
function shape(result) {
  return result.replaceAll("float32", "");
}

/** @param {CapturedSize} shown */
function buffersParts({ buffers, key, backend }) {
  const head = ["buffer", "holds", "address"].map((name) => el("th", { scope: "col", text: name }));
  const rows = buffers.map(({ name, holds, address }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", text: name }),
      el("td", {}, truth("measured", LIST_HOW, holds)),
      el("td", {}, truth("measured", LIST_HOW, address)),
    ),
  );
  return [
    el("h4", { text: `Static buffers of ${key}, a ${backend}` }),
    el(
      "div",
      { class: "gbp-captured-sizes" },
      el(
        "table",
        { class: "gbp-graphs gbp-buffers" },
        el("thead", {}, el("tr", {}, ...head)),
        el("tbody", {}, ...rows),
      ),
    ),
  ];
}
