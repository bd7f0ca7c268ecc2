// @ts-check
/** CUDA graph & kernel execution: how a step's batch ran and why, and where its time went. */
import { el, setText } from "../page/dom.js";
import { Parts } from "../page/pace.js";
import { isUnseen, watched } from "../page/sight.js";
import { micros } from "../words/format.js";
import { GRAPH, batchText, stepsText } from "../words/graph.js";
import { momentKey } from "./cursor.js";
import { BatchStrip, batchRows } from "./graph_batch.js";
import { CapturedGraphs } from "./graph_captured.js";
import { dispatchParts } from "./graph_dispatch.js";
import { headsParts } from "./graph_heads.js";
import { HistoryStrip } from "./graph_history.js";
import { model } from "./graph_model.js";
import { PagesRead } from "./graph_pages.js";
import { timesParts } from "./graph_times.js";
import { KernelRoom } from "./kernel_room.js";
import { Sentence, Twin, redrawOnChange, remake, section } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { Model } from "./graph_model.js" */

class GraphPanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.sentence = new Sentence(store);
    this.element = el("div", { class: "gbp gbp-graph" });
    this.strip = new BatchStrip(store, this.element);
    this.history = new HistoryStrip(store, this.element);
    this.dispatch = el("div");
    this.graphs = new CapturedGraphs();
    this.times = el("div", { class: "gbp-where" });
    this.pages = new PagesRead(store);
    this.heads = el("div");
    this.kernel = new KernelRoom(store, () => this.redraw.again());
    this.stripEmpty = el("p", { class: "gbp-more" });
    this.batch = section(
      GRAPH.batch,
      "batchside",
      el("div", { class: "gb-strip" }, this.strip.plane.canvas, this.stripEmpty),
    );
    this.noPast = el("p", { class: "gbp-more", text: GRAPH.noPast });
    this.past = section(GRAPH.past, "past", this.history.plane.canvas, this.noPast);
    this.batchTwin = new Twin(GRAPH.flattened, GRAPH.columns, () =>
      batchRows(this.data?.batch ?? null),
    );
    this.twin = new Twin(GRAPH.steps, GRAPH.stepColumns, () => this.twinRows());
    this.element.append(
      this.sentence.element,
      el(
        "div",
        { class: "gbp-columns gbp-top" },
        section(GRAPH.dispatch, "dispatch", this.dispatch),
        section(GRAPH.times, "clocks", this.times),
      ),
      this.batch,
      section(GRAPH.captured, "captured", this.graphs.element),
      el(
        "div",
        { class: "gbp-columns gbp-mid" },
        section(GRAPH.pages, "pages", this.pages.element),
        section(GRAPH.heads, "heads", this.heads),
      ),
      section(GRAPH.kernel, "kernel", this.kernel.element),
      this.past,
      this.batchTwin.element,
      this.twin.element,
    );
    root.append(this.element);
    this.words = new Parts(store, [
      () => this.drawRun(),
      () => this.drawGraphs(),
      () => this.drawPages(),
    ]);
    for (const { element } of [this.graphs, this.pages, this.kernel]) watched(element);
    for (const picture of [this.batch, this.past]) watched(picture);
    this.chosen = "";
    this.key = "";
    this.redraw = redrawOnChange(this.element, (force) => this.update(force), [
      this.pages.element,
      this.heads,
      this.kernel.left,
      this.kernel.right,
    ]);
  }

  update(force = false) {
    const { store } = this;
    const chosen = `${store.selection?.request} ${store.whyNoLook}`;
    const key = `${momentKey(store)} ${chosen} ${store.clock.walking}`;
    if (!force && key === this.key && !this.words.waits) return;
    this.key = key;
    const data = model(store);
    this.data = data;
    const colours = this.redraw.colours.get();
    const { width } = this.redraw.size(this.element);
    // Canvases first: a font set on a canvas makes the browser work through changed elements.
    if (width > 0 && !isUnseen(store, this.batch))
      this.strip.draw(data.batch, colours, width, data.dispatch?.padding ?? 0);
    if (width > 0 && !isUnseen(store, this.past))
      this.history.draw(data, colours, width);
    if (force || chosen !== this.chosen) this.words.now();
    else this.words.update();
    this.chosen = chosen;
    this.batchTwin.later();
    this.twin.later();
  }

  /** How the batch ran, and what the pictures are of. */
  drawRun() {
    const { data } = this;
    if (!data) return;
    this.sentence.update(data.sentence);
    const { dispatch, replay, captured, modules, forward, phases, nothingRan, device } = data;
    const { none } = data;
    remake(this.dispatch, { dispatch, replay, captured, nothingRan, none }, dispatchParts);
    remake(this.times, { modules, forward, replay, phases, nothingRan, device }, timesParts);
    setText(this.stripEmpty, nothingRan ? GRAPH.noBatch : GRAPH.noBatchYet);
    this.stripEmpty.hidden = data.batch !== null;
    this.strip.plane.label(batchText(data.batch, data.step, data.dispatch?.padding ?? 0));
    this.history.plane.label(stepsText(data.history.length, data.step));
    this.noPast.hidden = data.history.length > 0;
    this.history.plane.canvas.hidden = !this.noPast.hidden;
  }

  /** Which graphs there are, and the kernel room. */
  drawGraphs() {
    const { data } = this;
    if (!data) return;
    const colours = this.redraw.colours.get();
    if (!isUnseen(this.store, this.graphs.element)) this.graphs.draw(data);
    if (isUnseen(this.store, this.kernel.element)) return;
    this.kernel.update(data, colours, {
      left: this.redraw.size(this.kernel.left).width,
      right: this.redraw.size(this.kernel.right).width,
    });
  }

  /** What attention read, and with which heads. */
  drawPages() {
    if (!this.data || isUnseen(this.store, this.pages.element)) return;
    const colours = this.redraw.colours.get();
    const width = Math.max(240, this.redraw.size(this.pages.element).width || 600);
    this.pages.update(this.data, colours, width);
    this.drawHeads(this.data, colours);
  }

  /** @param {Model} data @param {any} colours */
  drawHeads(data, colours) {
    const width = Math.max(240, Math.min(460, this.redraw.size(this.heads).width || 420));
    remake(this.heads, [data.heads, colours.theme, width], () =>
      headsParts(data.heads, colours, width),
    );
  }

  twinRows() {
    return (this.data?.history ?? [])
      .filter((item) => !item.future)
      .slice(-60)
      .map((item) => [
        String(item.step),
        item.mode === null ? "none" : item.mode === "NONE" ? "eager" : item.mode,
        String(item.tokens),
        micros(item.us),
      ]);
  }

  destroy() {
    this.redraw.destroy();
    this.words.stop();
    this.kernel.destroy();
    this.batchTwin.destroy();
    this.twin.destroy();
    this.element.remove();
  }
}

/**
 * @param {HTMLElement} root @param {Store} store
 * @returns {import("../page/panel_place.js").Panel & {panel: object}}
 */
export function mount(root, store) {
  const panel = new GraphPanel(root, store);
  panel.update(true);
  return {
    update: () => panel.update(),
    back: () => panel.update(true),
    leave: () => panel.kernel.player.stop(),
    destroy: () => panel.destroy(),
    panel,
  };
}
