// @ts-check
/** Virtual KV-cache allocation: a request's logical blocks beside the physical pool. */
import { USED_HOW } from "../core/pool.js";
import { el, reconcile, setAttribute } from "../page/dom.js";
import { Parts } from "../page/pace.js";
import { setTruth, truth } from "../page/truth.js";
import { requestColour } from "../words/colours.js";
import { eventPhrase } from "../words/events.js";
import { bytes, count, percent, plural } from "../words/format.js";
import { PrecisionView } from "./blocks_fp32.js";
import { Holders } from "./blocks_holders.js";
import { USED, blockFacts, model, sentence, waste } from "./blocks_model.js";
import { PoolPlane } from "./blocks_pool.js";
import { FreeQueue } from "./blocks_queue.js";
import { LogicalTable } from "./blocks_table.js";
import { Touches } from "./blocks_touches.js";
import { WaysView } from "./blocks_ways.js";
import { factRows } from "./blocks_words.js";
import { Plane } from "./canvas.js";
import { momentKey } from "./cursor.js";
import { Sentence, Twin, legend, redrawOnChange, remake } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { TruthKind } from "../page/truth.js" */
/** @import { LogicalBlock, Model } from "./blocks_model.js" */

const WASTE_HOW =
  "(blocks × block_size − tokens) / (blocks × block_size); tokens with KV, or scheduled in " +
  "this step; shared blocks count once";

/** @typedef {"blocks"|"ways"|"fp32"} Shown */

/** @type {Record<Shown, string>} */
const SHOWN = { blocks: "Blocks", ways: "Beside the old ways", fp32: "Beside fp32" };

/** What is on show: of the page, so that it outlasts a change of the view. @type {Shown} */
let shown = "blocks";

class BlocksPanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.sentence = new Sentence(store);
    this.element = el("div", { class: "gbp gbp-blocks" });
    this.pool = new PoolPlane(store, this.element);
    this.table = new LogicalTable(store);
    this.ways = new WaysView(store, this.element);
    this.precision = new PrecisionView(store);
    this.holders = new Holders(store);
    this.stats = el("dl", { class: "gbp-stats" });
    this.choices = /** @type {[Shown, string][]} */ (Object.entries(SHOWN)).map(([name, text]) =>
      el("button", {
        type: "button",
        class: "gbp-choice",
        "data-shows": name,
        text,
        onclick: () => this.choose(name),
      }),
    );
    this.dtype = el("span", { class: "gbp-dtype" });
    this.touches = new Touches();
    this.queue = new FreeQueue(store);
    this.detail = el("section", { class: "gbp-section gbp-detail" });
    this.waste = el("section", { class: "gbp-section gbp-waste" });
    this.links = new Plane("", "gbp-links");
    this.links.canvas.setAttribute("role", "presentation");
    this.links.canvas.removeAttribute("aria-label");
    const pool = el(
      "section",
      { class: "gbp-section gbp-poolside" },
      el(
        "div",
        { class: "gbp-poolhead" },
        el("h3", { class: "gbp-title" }, "Physical pool", this.dtype),
        el("span", { class: "gbp-now-label", text: "in this step" }),
        this.touches.element,
      ),
      this.pool.plane.canvas,
      poolLegend(),
    );
    this.poolside = pool;
    this.columns = el("div", { class: "gbp-columns" }, this.table.element, pool, this.links.canvas);
    this.below = el(
      "div",
      { class: "gbp-below" },
      this.queue.element,
      this.detail,
      this.waste,
    );
    this.twin = new Twin(
      "Blocks in use, at the cursor",
      ["Block", "Owner", "References", "Tokens", "Hash"],
      () => this.twinRows(),
    );
    this.element.append(
      this.sentence.element,
      el(
        "div",
        { class: "gbp-blockshead" },
        this.stats,
        this.ways.sentence,
        this.precision.sentence,
        el("div", { class: "gbp-choices", role: "group", "aria-label": "Show" }, ...this.choices),
      ),
      this.holders.element,
      this.columns,
      this.below,
      this.ways.element,
      this.precision.element,
      this.twin.element,
    );
    root.append(this.element);
    this.words = new Parts(store, [
      () => this.drawOpening(),
      () => this.drawBelow(),
      () => this.drawTable(),
    ]);
    this.chosen = "";
    this.key = "";
    this.redraw = redrawOnChange(
      this.element,
      (force) => this.update(force),
      [this.poolside, this.ways.gauge],
      [this.columns],
    );
    this.pool.redraw = () => this.drawPool();
    this.linesKey = "";
    this.pointed = -1;
    this.table.scroll.addEventListener("scroll", () => {
      this.linesKey = "";
      this.drawLinks();
    });
    this.table.body.addEventListener("mouseover", (event) =>
      this.point(/** @type {Element} */ (event.target)),
    );
    this.table.body.addEventListener("mouseleave", () => this.point(null));
    this.show();
  }

  /** @param {Shown} name */
  choose(name) {
    shown = name;
    this.show();
    this.update(true);
  }

  /** The blocks, or what the same requests would take the old ways, or what rounding does. */
  show() {
    for (const element of [this.stats, this.columns, this.below])
      element.hidden = shown !== "blocks";
    this.ways.sentence.hidden = this.ways.element.hidden = shown !== "ways";
    this.precision.sentence.hidden = this.precision.element.hidden = shown !== "fp32";
    for (const choice of this.choices)
      setAttribute(choice, "aria-pressed", String(choice.dataset.shows === shown));
  }

  update(force = false) {
    const { store } = this;
    const { request, block } = store.selection ?? {};
    const { busy } = this.precision;
    const chosen = `${request} ${block} ${busy} ${store.whyNoCommand}`;
    const key = `${momentKey(store)} ${chosen} ${store.clock.walking}`;
    if (!force && key === this.key && !this.words.waits) return;
    this.key = key;
    const colours = this.redraw.colours.get();
    if (shown !== "blocks") {
      this.sentence.update(sentence(store));
      this.holders.update(colours.theme);
      if (shown === "fp32") this.precision.update();
      else this.ways.update(colours, this.redraw.size(this.ways.gauge).width);
      return;
    }
    this.data = model(store);
    // Canvases first: a font set on a canvas makes the browser work through changed elements.
    this.drawPool();
    if (force) this.linesKey = "";
    if (force || chosen !== this.chosen) this.words.now();
    else this.words.update();
    this.chosen = chosen;
    this.twin.later();
  }

  /** What stands above the pool. */
  drawOpening() {
    if (!this.data || shown !== "blocks") return;
    this.sentence.update(this.data.sentence);
    this.drawStats(this.data);
    this.drawDtype();
    this.holders.update(this.redraw.colours.get().theme, this.data.pool);
    this.element.classList.toggle("speculates", this.store.speculates);
    this.poolside.classList.toggle("caches-uncomputed", this.data.cachesUncomputed);
    this.pool.plane.label(
      `The pool: ${this.data.pool.used} of ${this.data.pool.size} blocks in use, ` +
        `${this.data.pool.free} free. Arrow keys move from block to block.`,
    );
  }

  /** What the step did to blocks, the free queue, and a block's own facts. */
  drawBelow() {
    if (!this.data || shown !== "blocks") return;
    this.touches.update(this.data.touched);
    this.queue.update(this.data);
    this.drawDetail(this.data);
    this.drawWaste(this.data);
  }

  /** A request's table, and the lines from it: measured, so they come when all else is drawn. */
  drawTable() {
    if (!this.data || shown !== "blocks") return;
    this.table.update(this.data, this.redraw.colours.get().theme);
    this.drawLinks();
  }

  drawPool() {
    const { width } = this.redraw.size(this.poolside);
    if (width > 0 && this.data) this.pool.draw(this.data, this.redraw.colours.get(), width);
  }

  /** The row under the pointer. @param {Element | null} target */
  point(target) {
    const row = target?.closest("tr");
    const place = row ? Array.prototype.indexOf.call(this.table.body.children, row) : -1;
    if (place === this.pointed) return;
    this.pointed = place;
    this.drawLinks();
  }

  /** @param {Model} data */
  drawStats(data) {
    const { pool, counters } = data;
    const asked = counters.prefix_queries ?? 0;
    const hits = counters.prefix_hits ?? 0;
    const hitAside = asked ? `${count(hits)} of ${plural(asked, "token")}` : "";
    /** @type {{name: string, value: string, truth: TruthKind, how: string, aside?: string}[]} */
    const items = [
      {
        name: "in use",
        value: count(pool.used),
        truth: "derived",
        how: `used blocks = ${USED_HOW}`,
        aside: `of ${plural(Math.max(0, pool.size - 1), "block")}`,
      },
      {
        name: "shared",
        value: count(pool.shared),
        truth: "measured",
        how: "blocks with a reference count above 1",
      },
      {
        name: "free",
        value: count(pool.free),
        truth: "measured",
        how: `length of the free queue; ${count(pool.freeCached)} of its blocks have a hash`,
        aside: pool.freeCached ? `${count(pool.freeCached)} still cached` : "",
      },
      { name: "waste", value: percent(data.waste.share), truth: "derived", how: WASTE_HOW },
      {
        name: "prefix hits",
        value: asked ? percent(hits / asked) : "–",
        truth: "derived",
        how: `prefix_hits ÷ prefix_queries = ${count(hits)} ÷ ${count(asked)} tokens`,
        aside: data.caching ? hitAside : "caching is off",
      },
    ];
    reconcile(
      this.stats,
      items,
      (item) => item.name,
      (item) =>
        el(
          "div",
          {},
          el("dt", { text: item.name }),
          el("dd", {}, el("span", { class: "gbp-num" }), el("small")),
        ),
      (node, item) => {
        const [number, small] = node.lastChild.children;
        setTruth(number, item.truth, item.how, item.value);
        setTruth(small, item.truth, item.how, item.aside ?? "");
      },
    );
  }

  drawDtype() {
    const { kv_cache_dtype: dtype, kv_bytes_per_token: size } = this.store.header?.model ?? {};
    const how = "dtype of the pool's tensors; K and V of all layers, with their scales";
    setTruth(this.dtype, "measured", how, dtype && size ? `${dtype}, ${bytes(size)} a token` : "");
  }

  /** @param {Model} data */
  drawDetail(data) {
    const id = this.store.selection?.block;
    if (typeof id !== "number" || id >= data.pool.size) {
      remake(this.detail, [], () => [
        el("h3", { class: "gbp-title", text: "Block" }),
        el("p", {
          class: "gbp-more",
          text: "Select a block to see whose it is, what it holds and what happened to it last.",
        }),
      ]);
      return;
    }
    const facts = blockFacts(this.store, data.pool, id);
    remake(this.detail, [id, facts, data.pool.blockSize], () => this.detailParts(id, facts, data));
  }

  /** @param {number} id @param {ReturnType<typeof blockFacts>} facts @param {Model} data */
  detailParts(id, facts, data) {
    const list = el("dl", { class: "gbp-facts" });
    for (const row of factRows(facts, data.pool.blockSize)) {
      list.append(el("dt", { text: row.name }), el("dd", {}, truth(row.truth, row.how, row.value)));
    }
    if (facts.last) {
      const link = el("button", {
        type: "button",
        class: "gbp-link",
        text: `step ${facts.last.step}: ${eventPhrase(facts.last)}`,
      });
      link.addEventListener("click", () => this.store.jump(facts.lastIndex));
      list.append(el("dt", { text: "last event" }), el("dd", {}, link));
    }
    return [el("h3", { class: "gbp-title", text: `Block ${id}` }), list];
  }

  /** @param {Model} data */
  drawWaste(data) {
    const { id, waste: own } = data.request ?? {};
    remake(this.waste, [data.waste, id, own], () => this.wasteParts(data));
  }

  /** @param {Model} data */
  wasteParts(data) {
    const formula = (/** @type {string} */ who, /** @type {ReturnType<typeof waste>} */ part) => {
      const room = `${count(part.blocks)} × ${part.blockSize}`;
      const sum = `(${room} − ${count(part.tokens)}) / (${room}) = ${percent(part.share)}`;
      return el(
        "p",
        { class: "gbp-formula" },
        el("b", { text: who }),
        " ",
        part.blocks === 0 ? "holds no blocks" : truth("derived", WASTE_HOW, sum),
      );
    };
    const lines = [formula("pool", data.waste)];
    if (data.request) lines.push(formula(data.request.id, data.request.waste));
    return [
      el("h3", { class: "gbp-title", text: "Waste: held, but without a token" }),
      ...lines,
      el("p", {
        class: "gbp-more",
        text:
          "(blocks × block size − tokens) / (blocks × block size). Only the last block of a " +
          "request can be part empty.",
      }),
    ];
  }

  /** Where lines begin and the pool lies: measured only where the table or the sizes changed. */
  measureLines() {
    const rows = this.data?.request?.blocks ?? [];
    const key = `${this.data?.request?.id} ${rows.length} ${rows[0]?.logical}`;
    if (key === this.linesKey) return;
    this.linesKey = key;
    const frame = this.columns.getBoundingClientRect();
    const pool = this.pool.plane.canvas.getBoundingClientRect();
    this.lines = {
      width: Math.floor(frame.width),
      height: Math.floor(frame.height),
      left: pool.left - frame.left,
      top: pool.top - frame.top,
      anchors: this.table.anchors(frame),
    };
  }

  drawLinks() {
    this.measureLines();
    const { data, lines } = this;
    const beside = lines !== undefined && lines.left > 120;
    const c = this.links.begin(beside ? lines.width : 0, beside ? lines.height : 0);
    if (!beside || !data?.request) return;
    c.strokeStyle = requestColour(data.request.id, this.redraw.colours.get().theme);
    c.lineJoin = "round";
    for (const strong of [false, true]) {
      c.globalAlpha = strong ? 0.95 : 0.4;
      c.lineWidth = strong ? 2 : 1.4;
      c.beginPath();
      for (const anchor of lines.anchors) {
        const item = data.request.blocks[anchor.place];
        if (item && this.isStrong(item, anchor.place) === strong)
          this.link(c, anchor, item.block, lines);
      }
      c.stroke();
    }
    c.globalAlpha = 1;
  }

  /**
   * Lines of this step, of the selection and under the pointer stand out.
   * @param {LogicalBlock} item @param {number} place
   */
  isStrong(item, place) {
    return item.touch !== 0 || place === this.pointed || item.block === this.store.selection?.block;
  }

  /**
   * From a row of the table into the lane above the block's cell, along it, and down.
   * @param {CanvasRenderingContext2D} c @param {{x: number, y: number}} anchor
   * @param {number} block @param {{left: number, top: number}} lines
   */
  link(c, anchor, block, { left, top }) {
    const { cell, lane: height } = this.pool;
    const corner = this.pool.corner(block);
    const y = top + corner.y - Math.max(1.5, height / 2 - 1);
    const x = left + corner.x + cell / 2;
    const enter = left + 2;
    const r = Math.max(0, Math.min(4, height / 2));
    c.moveTo(anchor.x + 1, anchor.y);
    c.bezierCurveTo(
      anchor.x + (enter - anchor.x) * 0.6,
      anchor.y,
      anchor.x + (enter - anchor.x) * 0.45,
      y,
      enter,
      y,
    );
    c.lineTo(Math.max(enter, x - r), y);
    c.quadraticCurveTo(x, y, x, y + r);
    c.lineTo(x, top + corner.y + 2);
  }

  twinRows() {
    const { data } = this;
    if (!data) return [];
    const rows = [];
    for (let id = 0; id < data.pool.size && rows.length < 60; id += 1) {
      if (data.pool.kind[id] !== USED) continue;
      rows.push([
        String(id),
        data.pool.owners[data.pool.owner[id]] ?? "",
        String(data.pool.refs[id]),
        String(data.pool.fill[id]),
        this.store.state.blocks?.[id]?.hash ?? "none",
      ]);
    }
    return rows;
  }

  destroy() {
    this.redraw.destroy();
    this.words.stop();
    this.twin.destroy();
    this.element.remove();
  }
}

function poolLegend() {
  return legend([
    ["is-used", "in use, filled from below, in its owner's colour; of ten more requests, notched"],
    ["is-scheduled", "scheduled, not computed yet"],
    ["is-stale", "K and V of rejected drafts, to be overwritten"],
    ["is-shared", "shared: how many hold it, and their colours"],
    ["is-hashed", "corner: content is hashed"],
    ["is-uncomputed", "hashed, but never computed"],
    ["is-freecached", "free, still cached"],
    ["is-free", "free, empty"],
    ["is-null", "block 0, null"],
    ["is-nextblock", "given next"],
  ]);
}

/**
 * @param {HTMLElement} root @param {Store} store
 * @returns {import("../page/panel_place.js").Panel & {panel: object}}
 */
export function mount(root, store) {
  const panel = new BlocksPanel(root, store);
  panel.update(true);
  return {
    update: () => panel.update(),
    back: () => panel.update(true),
    destroy: () => panel.destroy(),
    panel,
  };
}
