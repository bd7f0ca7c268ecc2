// @ts-check
/** The sizes there are, and the captured graphs: what each holds, saves and consists of. */
import { el, setText } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { bytes, count, micros, plural } from "../words/format.js";
import { OperationList } from "./graph_operations.js";
import { sizesParts } from "./graph_sizes.js";
import { remake } from "./parts.js";

/** @import { CapturedSize, Model } from "./graph_model.js" */

const LIST_HOW = "graph_captured";
const NEVER = "This engine was told never to use a graph (enforce_eager).";
const NO_GRAPHS = "This engine uses no graphs.";
const NONE_YET = "No graph is captured yet: each is when a batch first needs it.";
const LAUNCHED = "A graph is launched as a whole, whatever number of kernels it holds.";
const LISTED =
  "On a CPU a graph is a list: the operations of one forward, recorded once and run again " +
  "without the decoder's modules. A GPU launches such a list at once, as a CUDA graph.";
const COMPILED =
  " Inductor has compiled small operations that follow each other into one kernel, which is " +
  "called by all of them (pow+mean+add) and counts once among those replayed. It sums in another " +
  "order, hence the difference.";
const INDUCTOR = "list compiled by inductor";
const COLUMNS = [
  "graph",
  "pieces",
  "recorded",
  "replayed",
  "folded",
  "views",
  "buffers",
  "eager",
  "replay",
  "eager ÷ replay",
  "difference",
  "replays so far",
];

/** The dispatcher's sizes, what is captured, and the operations of the graph taken. */
export class CapturedGraphs {
  constructor() {
    this.none = el("p", { class: "gbp-more" });
    this.summary = el("summary");
    this.words = el("p", { class: "gbp-more" });
    this.table = el("div", {
      class: "gbp-captured-sizes",
      role: "region",
      tabindex: "0", // it scrolls where it is wider than the page
      "aria-label": "Captured graphs by size",
    });
    this.dispatcher = el("div");
    this.operations = new OperationList();
    this.soFar = el("details", { class: "gbp-fold" }, this.summary, this.words, this.table);
    this.element = el(
      "div",
      {},
      this.dispatcher,
      this.none,
      this.soFar,
      this.operations.element,
    );
  }

  /** @param {Model} data */
  draw({ graphs, dispatcher, enforceEager, device }) {
    const { sizes, shown } = graphs;
    remake(this.dispatcher, dispatcher, sizesParts);
    const never = enforceEager ? NEVER : NO_GRAPHS;
    setText(this.none, dispatcher.modes.length ? NONE_YET : never);
    this.none.hidden = shown !== null;
    this.soFar.hidden = shown === null;
    const captured = `${plural(sizes.length, "captured graph")}: what each holds and saves`;
    setText(this.summary, captured);
    const compiled = sizes.some(({ backend }) => backend === INDUCTOR) ? COMPILED : "";
    setText(this.words, device === "cuda" ? LAUNCHED : LISTED + compiled);
    remake(this.table, { sizes, device }, sizesTable);
    this.operations.draw(shown);
  }
}

/** @param {{sizes: CapturedSize[], device: string}} view @returns {Node[]} */
function sizesTable({ sizes, device }) {
  if (!sizes.length) return [];
  const head = COLUMNS.map((name) => el("th", { scope: "col", text: name }));
  return [
    el(
      "table",
      { class: "gbp-graphs" },
      el("thead", {}, el("tr", {}, ...head)),
      el("tbody", {}, ...sizes.map((item) => sizeRow(item, device))),
    ),
  ];
}

/** @param {CapturedSize} item @param {string} device */
function sizeRow(item, device) {
  const where = device === "cpu" || device === "" ? "the CPU" : device;
  const once = `right after the capture, on ${where}`;
  const cells = [
    truth("measured", "attention runs between them", count(item.pieces)),
    truth("measured", LIST_HOW, count(item.recorded)),
    truth("measured", LIST_HOW, count(item.replayed)),
    truth("measured", "operations on constants alone, computed at capture", count(item.folded)),
    truth("measured", "another look at a buffer: nothing to run", count(item.views)),
    truth("measured", "static buffers: one memory for all graphs", bytes(item.bytes)),
    truth("measured", `the model's modules, ${once}`, micros(item.eagerUs)),
    truth("measured", `the same by replay, ${once}`, micros(item.replayUs)),
    truth("derived", "eager ÷ replay", `${(item.eagerUs / item.replayUs).toFixed(2)} ×`),
    truth("measured", "of a logit between the two, at most", difference(item.maxDifference)),
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

/** Of a list or a CUDA graph it is none, to the bit. @param {number} value */
function difference(value) {
  return value === 0 ? "none" : value.toExponential(1);
}

/** @param {CapturedSize} item @param {string} where */
function runsCell(item, where) {
  if (!item.runs) return truth("measured", "graph_replayed up to the cursor", "0");
  const how = `graph_replayed up to the cursor, on ${where}; the time is their median`;
  return truth("measured", how, `${count(item.runs)}, ${micros(item.medianUs)} each`);
}
