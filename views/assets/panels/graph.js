// @ts-check
/** CUDA graph & kernel execution: how a step's batch ran and why, and where its time went. */
import { el, setText } from "../page/dom.js";
import { micros, plural } from "../words/format.js";
import { momentKey } from "./cursor.js";
import { BatchStrip } from "./graph_batch.js";
import { CapturedGraphs } from "./graph_captured.js";
import { dispatchParts } from "./graph_dispatch.js";
import { headsParts } from "./graph_heads.js";
import { HistoryStrip } from "./graph_history.js";
import { model } from "./graph_model.js";
import { pagesParts } from "./graph_pages.js";
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
    this.pages = el("div");
    this.heads = el("div");
    this.kernel = new KernelRoom(store, () => this.redraw.again());
    this.stripEmpty = el("p", { class: "gbp-more" });
    this.batch = section(
      "The batch: one row a token, requests one after the other",
      "batchside",
      this.strip.plane.canvas,
      this.stripEmpty,
    );
    this.past = section(
      "Steps: time of each, eager or replayed; pale is the capture of a graph",
      "past",
      this.history.plane.canvas,
    );
    this.twin = new Twin("Steps and how they ran", ["Step", "Mode", "Tokens", "Time"], () =>
      this.twinRows(),
    );
    this.element.append(
      this.sentence.element,
      el(
        "div",
        { class: "gbp-columns gbp-top" },
        section("How it was dispatched", "dispatch", this.dispatch),
        section("Where the forward's time went", "clocks", this.times),
      ),
      this.batch,
      section("Which graph there is for it", "captured", this.graphs.element),
      el(
        "div",
        { class: "gbp-columns gbp-mid" },
        section("What attention read", "pages", this.pages),
        section("Query heads that share a KV head", "heads", this.heads),
      ),
      section("Kernel room: one layer's attention, page by page", "kernel", this.kernel.element),
      this.past,
      this.twin.element,
    );
    root.append(this.element);
    this.key = "";
    this.redraw = redrawOnChange(this.element, (force) => this.update(force), [
      this.pages,
      this.heads,
      this.kernel.left,
      this.kernel.right,
    ]);
  }

  update(force = false) {
    const { store } = this;
    const key = `${momentKey(store)} ${store.selection?.request} ${store.whyNoCommand}`;
    if (!force && key === this.key) return;
    this.key = key;
    const data = model(store);
    this.data = data;
    const colours = this.redraw.colours.get();
    const { width } = this.redraw.size(this.element);
    // Canvases first: a font set on a canvas makes the browser work through changed elements.
    if (width > 0) this.strip.draw(data.batch, colours, width, data.dispatch?.padding ?? 0);
    if (width > 0) this.history.draw(data, colours, width);
    this.sentence.update(data.sentence);
    const { dispatch, replay, captured, modules, forward, phases, nothingRan, device } = data;
    remake(this.dispatch, { dispatch, replay, captured, nothingRan }, dispatchParts);
    remake(this.times, { modules, forward, replay, phases, nothingRan, device }, timesParts);
    this.graphs.draw(data);
    const none = data.nothingRan
      ? "No batch was laid out in this step."
      : "No batch has been laid out in this step so far.";
    setText(this.stripEmpty, data.batch ? "" : none);
    this.stripEmpty.hidden = data.batch !== null;
    this.drawPages(data, colours);
    this.drawHeads(data, colours);
    this.kernel.update(data, colours, {
      left: this.redraw.size(this.kernel.left).width,
      right: this.redraw.size(this.kernel.right).width,
    });
    this.strip.plane.label(batchLabel(data));
    this.history.plane.label(
      `${plural(data.history.length, "step")}, the cursor is in step ${data.step}. ` +
        "Arrow keys move through steps.",
    );
    this.twin.later();
  }

  /** @param {Model} data @param {any} colours */
  drawPages(data, colours) {
    const width = Math.max(240, this.redraw.size(this.pages).width || 600);
    const { pages, heads, nothingRan } = data;
    const trace = this.store.header?.trace_id; // its requests' colours are its own
    remake(this.pages, [trace, pages, heads, nothingRan, colours.theme, width], () =>
      pagesParts(this.store, data, colours, width),
    );
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
    this.kernel.destroy();
    this.twin.destroy();
    this.element.remove();
  }
}

/** @param {Model} data */
function batchLabel({ batch, step, dispatch }) {
  if (!batch) return "No batch";
  const rows = plural(batch.ids.length, "row");
  const padding = dispatch?.padding ? ` and ${plural(dispatch.padding, "row")} of padding` : "";
  const requests = plural(batch.requests.length, "request");
  return `The batch of step ${step}: ${rows} of ${requests}${padding}`;
}

/**
 * @param {HTMLElement} root @param {Store} store
 * @returns {{update(): void, destroy(): void, panel: object}}
 */
export function mount(root, store) {
  const panel = new GraphPanel(root, store);
  panel.update(true);
  return { update: () => panel.update(), destroy: () => panel.destroy(), panel };
}
