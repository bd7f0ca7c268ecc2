// @ts-check
/** The captured graphs: what each size holds and saves, and the operations that a replay runs. */
import { el } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { bytes, count, micros, plural } from "../words/format.js";
import { kindMark } from "./graph_times.js";

/** @import { CapturedSize, Model, OperationBlock } from "./graph_model.js" */

const LIST_HOW = "graph_captured";
const COLUMNS = [
  "graph",
  "recorded",
  "replayed",
  "folded",
  "views",
  "buffers",
  "eager",
  "replay",
  "eager ÷ replay",
  "replays so far",
];

/** Sizes in a table; below it the operations of the one taken, which stay open while steps pass. */
export class CapturedGraphs {
  constructor() {
    this.words = el("p", { class: "gbp-more" });
    this.table = el("div", {
      class: "gbp-captured-sizes",
      role: "region",
      tabindex: "0", // it scrolls where it is wider than the page
      "aria-label": "Captured graphs by size",
    });
    this.summary = el("summary");
    this.list = el("div", { class: "gbp-operations" });
    this.details = el("details", { class: "gbp-oplist" }, this.summary, this.list);
    this.element = el("div", {}, this.words, this.table, this.details);
    this.key = "";
    this.listKey = "";
  }

  /** @param {Model} data */
  draw(data) {
    const { sizes, shown } = data.graphs;
    const key = JSON.stringify([sizes, data.enforceEager, data.device]);
    if (key === this.key) return;
    this.key = key;
    this.words.replaceChildren(...introduction(data));
    this.table.replaceChildren(...(sizes.length ? [sizesTable(sizes, data.device)] : []));
    this.table.hidden = this.details.hidden = shown === null;
    if (shown) this.drawList(shown);
  }

  /** @param {CapturedSize} shown */
  drawList(shown) {
    const key = `${shown.key} ${shown.replayed}`;
    if (key === this.listKey) return;
    this.listKey = key;
    this.summary.replaceChildren(
      "What a replay of ",
      plural(shown.size, "row"),
      " runs, in order: ",
      truth("measured", LIST_HOW, plural(shown.replayed, "operation")),
    );
    this.list.replaceChildren(...shown.blocks.map((item, i) => block(item, i === 0)));
  }
}

/** @param {Model} data @returns {(Node|string)[]} */
function introduction({ graphs, enforceEager, device }) {
  if (enforceEager) return ["This engine was told never to use a graph (enforce_eager)."];
  const what =
    device === "cuda"
      ? "A graph is launched as a whole, whatever number of kernels it holds."
      : "On a CPU a graph is a list: the operations of one forward, recorded once and run again " +
        "without the model's modules. A GPU launches such a list at once, as a CUDA graph.";
  if (graphs.sizes.length) return [what];
  return ["None yet: each is captured when a batch first needs it. ", what];
}

/** @param {CapturedSize[]} sizes @param {string} device */
function sizesTable(sizes, device) {
  const head = COLUMNS.map((name) => el("th", { scope: "col", text: name }));
  return el(
    "table",
    { class: "gbp-graphs" },
    el("thead", {}, el("tr", {}, ...head)),
    el("tbody", {}, ...sizes.map((item) => sizeRow(item, device))),
  );
}

/** @param {CapturedSize} item @param {string} device */
function sizeRow(item, device) {
  const where = device === "cpu" || device === "" ? "the CPU" : device;
  const once = `right after the capture, on ${where}`;
  const cells = [
    truth("measured", LIST_HOW, count(item.recorded)),
    truth("measured", LIST_HOW, count(item.replayed)),
    truth("measured", "operations on constants alone, computed at capture", count(item.folded)),
    truth("measured", "another look at a buffer: nothing to run", count(item.views)),
    truth("measured", "static buffers, shared where their lives do not overlap", bytes(item.bytes)),
    truth("measured", `the model's modules, ${once}`, micros(item.eagerUs)),
    truth("measured", `the same by replay, ${once}`, micros(item.replayUs)),
    truth("derived", "eager ÷ replay", `${(item.eagerUs / item.replayUs).toFixed(2)} ×`),
    runsCell(item, where),
  ];
  const rows = item.taken ? `${item.key}, taken now` : item.key;
  return el(
    "tr",
    item.taken ? { class: "is-taken" } : {},
    el("th", { scope: "row", text: rows }),
    ...cells.map((cell) => el("td", {}, cell)),
  );
}

/** @param {CapturedSize} item @param {string} where */
function runsCell(item, where) {
  if (!item.runs) return truth("measured", "graph_replayed up to the cursor", "0");
  const how = `graph_replayed up to the cursor, on ${where}; the time is their median`;
  return truth("measured", how, `${count(item.runs)}, ${micros(item.medianUs)} each`);
}

/** @param {OperationBlock} item @param {boolean} before whether no layer has come yet */
function block(item, before) {
  const { first, last, rows } = item;
  const each = rows.reduce((sum, row) => sum + row.operations.length, 0);
  const layers = last - first + 1;
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

/** The names, in order; the same one several times in a row is written once. @param {any} row */
function ops({ operations }) {
  /** @type {[string, number][]} */
  const runs = [];
  for (const name of operations) {
    const last = runs[runs.length - 1];
    if (last?.[0] === name) last[1] += 1;
    else runs.push([name, 1]);
  }
  const words = runs.map(([name, times]) => (times > 1 ? `${name} ×${times}` : name));
  return el("dd", {}, ...words.map((text) => el("code", { text })));
}
