// @ts-check
/**
 * The kernel room: the real kernel over the real pages, watched in Triton's interpreter and played
 * page by page. The engine does it when asked (POST /api/engine/kernel_trace); the log has nothing
 * of it.
 */
import { el, setText } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { orNobodyAsked } from "../words/empty.js";
import { bytes } from "../words/format.js";
import { GRAPH } from "../words/graph.js";
import { bytesOf, bytesRows, differenceText, tracedWords } from "../words/kernel.js";
import { Chart, MEASURES, rangeText } from "./kernel_charts.js";
import { Listings } from "./kernel_listing.js";
import { Player } from "./kernel_player.js";
import { ReductionTable } from "./kernel_reduction.js";
import { WalkPicture } from "./kernel_walk.js";
import { MOST_ROWS, Twin, remake } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { KernelTrace, Program } from "../words/kernel.js" */
/** @import { Measure } from "./kernel_charts.js" */
/** @import { Model } from "./graph_model.js" */
/** @import { Palette } from "./canvas.js" */

export class KernelRoom {
  /** @param {Store} store @param {() => void} redraw the panel with this room in it */
  constructor(store, redraw) {
    this.store = store;
    this.redraw = redraw;
    /** @type {Palette | null} */
    this.colours = null;
    this.widths = { left: 0, right: 0 };
    /** @type {KernelTrace | null} */
    this.trace = null;
    this.log = ""; // that the trace is of
    this.busy = false;
    this.failedAt = -1; // the step that could not be traced
    this.step = 0;
    this.request = select("Request");
    this.layer = select("Layer");
    this.head = select("KV head");
    this.ask = /** @type {HTMLButtonElement} */ (
      el("button", {
        class: "gb-button is-primary",
        type: "button",
        text: "Trace the kernel",
        onclick: () => void this.run(),
      })
    );
    this.status = el("p", { class: "gbp-more", role: "status" });
    this.words = el("p", { class: "gbp-ksaid" });
    this.how = el("p", { class: "gbp-more" });
    this.player = new Player(() => this.draw());
    this.picture = new WalkPicture();
    this.reduction = new ReductionTable((head) => {
      this.player.head = head;
      this.player.show();
    });
    this.charts = /** @type {Measure[]} */ (Object.keys(MEASURES)).map((name) => new Chart(name));
    this.bytes = el("div", { class: "gbp-kbytes" });
    this.listings = new Listings(store);
    this.twin = new Twin(
      "The walk, page by page",
      ["Turn", "Entry of the block table", "Block", "Bytes", "Maximum", "Sum", "Norm"],
      () => this.twinRows(),
    );
    this.left = el("div", { class: "gbp-kleft" }, this.picture.plane.canvas);
    this.lines = el("p", { class: "gbp-more" });
    this.right = el(
      "div",
      { class: "gbp-kright" },
      ...this.charts.map((chart) => chart.element),
      this.lines,
    );
    this.walk = el("div", { class: "gbp-columns gbp-kcolumns" }, this.left, this.right);
    this.scene = el(
      "div",
      { class: "gbp-kscene", hidden: true },
      this.words,
      this.how,
      this.player.element,
      this.walk,
      this.reduction.element,
      this.bytes,
      this.twin.element,
    );
    this.element = el(
      "div",
      { class: "gbp-kroom" },
      el(
        "div",
        { class: "gbp-kask" },
        ...[this.request, this.layer, this.head].map(({ label }) => label),
        this.ask,
      ),
      this.status,
      this.scene,
      this.listings.element,
    );
  }

  /** The program that is shown. @returns {Program | null} */
  get program() {
    return this.trace?.programs[this.player.program] ?? null;
  }

  // -- what is asked -----------------------------------------------------------------------------

  /** @param {Model} data @param {Palette} colours @param {{left: number, right: number}} widths */
  update(data, colours, widths) {
    this.step = data.step;
    this.colours = colours;
    this.widths = widths;
    if (this.trace && this.log !== this.store.header?.trace_id) this.clear();
    const { all, shown } = data.pages;
    this.request.offer(
      all.map((item) => item.request),
      shown?.request,
    );
    this.layer.offer(numbers(data.heads?.layers ?? 0));
    this.head.offer(numbers(data.heads?.kv ?? 0));
    const why = this.store.whyNoLook || (all.length ? "" : notYet(this.store, data));
    this.ask.disabled = Boolean(why) || this.busy;
    this.ask.title = why || "Run the kernel over this step's pages in Triton's interpreter";
    if (!this.busy && why && !this.trace) setText(this.status, why);
    else if (!this.busy && this.failedAt !== this.step) setText(this.status, this.older());
    this.draw();
  }

  /** Where the cursor has left the step that was traced. */
  older() {
    if (!this.trace || this.trace.step === this.step) return "";
    return `This is step ${this.trace.step}; the cursor is in step ${this.step}.`;
  }

  /** The engine was reset, or another log is opened. */
  clear() {
    this.player.stop();
    this.trace = null;
    this.failedAt = -1;
    this.scene.hidden = true;
  }

  async run() {
    const { link, header } = this.store;
    if (!link) return;
    this.busy = true;
    this.failedAt = -1;
    this.ask.disabled = true;
    setText(this.status, "Running the kernel in Triton's interpreter …");
    try {
      const trace = await link.command("kernel_trace", {
        request: this.request.value,
        layer: Number(this.layer.value),
        kv_head: Number(this.head.value),
        step: this.step,
      });
      this.log = header?.trace_id;
      this.show(trace);
    } catch (error) {
      this.failedAt = this.step;
      setText(this.status, error instanceof Error ? error.message : String(error));
    }
    this.busy = false;
    this.redraw();
  }

  /** @param {KernelTrace} trace */
  show(trace) {
    this.trace = trace;
    setText(this.status, "");
    this.scene.hidden = false;
    setText(this.words, tracedWords(trace));
    this.how.replaceChildren(...howParts(trace));
    this.bytes.replaceChildren(...bytesParts(trace));
    const each = trace.num_rows === 1 ? "query head" : "token and query head";
    setText(this.lines, `A line for each ${each} of the program.`);
    this.player.open(trace);
  }

  // -- how it is drawn ---------------------------------------------------------------------------

  draw() {
    const { trace, program, colours, widths, player } = this;
    if (!trace) return;
    this.walk.hidden = player.reduces;
    this.reduction.element.hidden = !player.reduces;
    if (player.reduces) this.reduction.update(trace, player.head, player.at);
    if (!program || !colours || widths.left <= 0) return;
    const { at } = this.player;
    this.picture.draw(trace, program, at, colours, widths.left);
    for (const chart of this.charts) chart.draw(program, at, colours, widths.right);
    this.twin.later();
  }

  /** As many as a table has, about where the walk stands. */
  twinRows() {
    const { trace, program } = this;
    if (!trace || !program) return [];
    const from = Math.max(0, this.player.at - MOST_ROWS);
    return program.visits
      .slice(from, from + MOST_ROWS)
      .map((visit, i) => [
        String(from + i + 1),
        String(trace.blocks.indexOf(visit.block)),
        String(visit.block),
        bytes(bytesOf(visit)),
        ...["maximum", "total", "norm"].map((name) =>
          rangeText(visit[/** @type {Measure} */ (name)].filter((value) => value !== null)),
        ),
      ]);
  }

  destroy() {
    this.player.destroy();
    this.twin.destroy();
  }
}

/** @param {Store} store @param {Model} data */
function notYet(store, data) {
  return data.nothingRan ? GRAPH.noPages : orNobodyAsked(store, store.state, GRAPH.noTraceYet);
}

/** @param {number} n */
const numbers = (n) => Array.from({ length: n }, (_, i) => String(i));

/**
 * A choice with its name, which keeps what was chosen while that is offered.
 * @param {string} name
 */
function select(name) {
  const node = /** @type {HTMLSelectElement} */ (
    el("select", { class: "gb-select", "aria-label": name })
  );
  const label = el("label", { class: "gbp-kchoice" }, el("span", { text: name }), node);
  return {
    label,
    get value() {
      return node.value;
    },
    /** @param {string[]} values @param {string} [preferred] taken where the choice is gone */
    offer(values, preferred) {
      const { value } = node;
      remake(node, values, () => values.map((text) => el("option", { value: text, text })));
      if (values.includes(value)) node.value = value;
      else if (preferred !== undefined) node.value = preferred;
      node.disabled = values.length === 0;
    },
  };
}

/**
 * How the trace came about, and how far it is from what the engine computed.
 * @param {KernelTrace} trace
 */
function howParts(trace) {
  const rounding = trace.scale_bytes ? "; what is rounded away in the pool is part of it" : "";
  const kv = `largest |K or V now − in the pool|, over these rows and all KV heads${rounding}`;
  const own = `largest |kernel − ${trace.backend}|, both over the same query and pages`;
  return [
    `The query is the real one, computed again: the rows went through the model once more up to ` +
      `layer ${trace.layer}, over the live pages; their K and V differ from those in the pool by `,
    truth("measured", kv, differenceText(trace.kv_difference)),
    " at most. Triton's interpreter then ran the kernel on the CPU over a copy of the pages. Its " +
      `output differs from that of the engine's own attention (${trace.backend}) by `,
    truth("measured", own, differenceText(trace.difference)),
    " at most.",
  ];
}

/** @param {KernelTrace} trace */
function bytesParts(trace) {
  const rows = bytesRows(trace);
  const most = Math.max(...rows.map((row) => row.bytes), 1);
  return [
    el("h4", { text: "Bytes of K and V read in this layer, for these pages" }),
    el(
      "ul",
      {},
      ...rows.map((row) => {
        const bar = el("i", { "aria-hidden": "true" });
        bar.style.width = `${Math.max(0.5, (row.bytes / most) * 100)}%`;
        return el(
          "li",
          { class: row.own ? "is-own" : row.kind === "measured" ? "is-measured" : "" },
          el("span", { text: row.own ? `${row.name}: this model` : row.name }),
          el("b", {}, bar),
          truth(row.kind, row.how, bytes(row.bytes)),
        );
      }),
    ),
  ];
}
