// @ts-check
/**
 * The map: boxes, frames and arrows of the document, lit by what the engine did at the cursor.
 *
 * The picture is built once a document and size; an update only moves classes, texts and packets.
 */
import { liveOf } from "../boxes/live.js";
import { moments } from "../boxes/moment.js";
import { el, setAttribute, setText, svg } from "../page/dom.js";
import { Pace, READ_MS } from "../page/pace.js";
import { MAP, mapText } from "../words/map.js";
import { PHONE, fillFoot, placeFoot } from "./foot.js";
import { Gestures } from "./gestures.js";
import { Hands } from "./hands.js";
import { Motion } from "./motion.js";
import { MovedTable } from "./moved.js";
import { PATH_SIGN, pathOf } from "./path.js";
import { makeBox, makeLine } from "./pieces.js";
import { cut, makeFrame, placesOf, round, textWidth } from "./shapes.js";
import { TextFit } from "./text_fit.js";
import { Traffic } from "./traffic.js";

/** @import { Live } from "../boxes/live.js" */
/** @import { PageDocument } from "../core/document.js" */
/** @import { Store } from "../core/store.js" */
/** @import { RoomFrame } from "../rooms/frame.js" */
/** @import { Drawing } from "./path.js" */

/** @type {Drawing} */
const NOTHING = {
  bounds: { x: 0, y: 0, w: 1, h: 1 },
  components: [],
  boundaries: [],
  connections: [],
  order: [],
  isPath: false,
};

export class ArchitectureMap {
  /**
   * @param {HTMLElement} root
   * @param {Store} store
   */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    this.reduced = matchMedia("(prefers-reduced-motion: reduce)");
    /** The document that is drawn. */
    this.page = /** @type {PageDocument} */ (/** @type {unknown} */ (null));
    /** What of it, and where. */
    this.drawn = NOTHING;
    this.shape = "";
    /** @type {Map<string, any>} by the document's id */
    this.boxes = new Map();
    /** @type {Map<string, any>} by the engine's name */
    this.boxByLive = new Map();
    /** @type {any[]} */
    this.lines = [];
    /** @type {Map<string, any[]>} by the engine's name: several where there are stops between */
    this.linesByLive = new Map();
    /** @type {ReturnType<typeof makeFrame>[]} */
    this.frames = [];
    this.viewport = svg("g", { class: "gb-viewport" });
    /** @type {any} the view and the boxes that were dimmed for it */
    this.dimmed = [null, null];
    /** What the live lines were drawn of. */
    this.liveVersion = -1;
    this.liveHeader = null;
    this.liveLayout = -1;
    this.stage = /** @type {SVGSVGElement} */ (svg("svg", { class: "gb-stage", role: "group" }));
    this.foot = el("div", { class: "gb-map-foot" });
    this.text = new TextFit(this);
    this.live = new Pace(store, () => this.showLive(), READ_MS);
    this.motion = new Motion(this);
    this.scroll = el("div", { class: "gb-map-scroll" }, this.stage, this.motion.sky);
    this.traffic = new Traffic(this);
    this.hands = new Hands(this);
    this.gestures = new Gestures(this);
    this.zoomer = this.gestures.zoomButtons();
    this.moved = new MovedTable(store);
    this.zoomer.prepend(this.moved.toggle());
    /** The room that may be open in the map's place; its modules come with the first one. */
    this.frame = /** @type {RoomFrame|null} */ (null);
    this.loading = /** @type {Promise<void>|null} */ (null);
    const upper = el("div", { class: "gb-map-upper" }, this.scroll, this.foot);
    root.append(upper, this.moved.element);
    this.resize = new ResizeObserver(() => {
      this.text.fit();
      placeFoot(this);
      store.changed();
    });
    this.resize.observe(this.stage);
    /** Widths of map and page as they were laid out last: asking anew lays the page out at once. */
    this.widths = /** @type {{map: number, page: number}|null} */ (null);
    this.widthsChange = new ResizeObserver(() => {
      const { widths } = this;
      this.widths = this.measured();
      const { map, page } = this.widths;
      if (map !== widths?.map || page !== widths.page) store.changed();
    });
    for (const each of [this.scroll, root.parentElement ?? root]) this.widthsChange.observe(each);
    // Readers may space letters and lines otherwise.
    this.footResize = new ResizeObserver(() => placeFoot(this));
    this.footResize.observe(this.foot);
    // Letters are measured to fit their boxes: measure again once the page's own have come.
    Promise.all(["400 16px Inter", "650 16px Inter"].map((font) => document.fonts.load(font))).then(
      () => {
        this.text.anew();
        placeFoot(this);
        this.store.changed();
      },
      () => {},
    );
  }

  destroy() {
    this.resize.disconnect();
    this.footResize.disconnect();
    this.widthsChange.disconnect();
    this.motion.stop();
    this.live.stop();
    this.frame?.destroy();
    this.moved.destroy();
  }

  // -- building ----------------------------------------------------------------------------------

  /** Draw the document of the store, wide or as a path. */
  build() {
    const page = this.store.document;
    const other = this.page !== page;
    this.page = page;
    this.shape = this.shapeNow();
    this.drawn = this.narrow ? pathOf(page, this.store.currentView, this.wide) : placesOf(page);
    const { x, y, w, h } = this.bounds;
    this.stage.setAttribute("viewBox", `${x} ${y} ${w} ${h}`);
    this.motion.begin(`${x} ${y} ${w} ${h}`);
    this.stage.style.aspectRatio = `${w} / ${h}`;
    this.root.classList.toggle("is-path", this.drawn.isPath);
    setAttribute(this.stage, "aria-label", mapText(page.meta?.title ?? MAP.untitled));
    this.boxes = new Map(this.drawn.components.map((item) => [item.id, makeBox(item)]));
    this.boxByLive = new Map();
    for (const box of this.boxes.values())
      if (box.item.live) this.boxByLive.set(box.item.live, box);
    this.lines = this.drawn.connections.map((item) => makeLine(item, this.boxes));
    this.linesByLive = new Map();
    for (const line of this.lines) {
      const { live } = line.item;
      if (live) this.linesByLive.set(live, [...(this.linesByLive.get(live) ?? []), line]);
    }
    this.frames = this.drawn.boundaries.map(makeFrame);
    this.traffic.layer.replaceChildren();
    this.viewport = svg(
      "g",
      { class: "gb-viewport" },
      svg("g", {}, ...this.frames.map((frame) => frame.node)),
      svg("g", {}, ...this.lines.map((line) => line.node)),
      svg("g", {}, ...this.frames.map((frame) => frame.title)),
      svg(
        "g",
        {},
        ...this.drawn.order.flatMap((id) => {
          const { node, opener, flag } = this.boxes.get(id);
          return [node, opener, flag].filter(Boolean);
        }),
      ),
      svg("g", {}, ...this.lines.map((line) => line.texts)),
      this.traffic.layer,
    );
    this.stage.replaceChildren(this.viewport);
    this.gestures.fit();
    if (other) fillFoot(this);
    this.text.anew();
    placeFoot(this);
    if (other) this.traffic.forget();
  }

  /** Where the picture ends. */
  get bounds() {
    return this.drawn.bounds;
  }

  /** The width that there is, in pixels; 0: nothing is on show. */
  get wide() {
    return (this.widths ??= this.measured()).map;
  }

  measured() {
    return {
      map: this.scroll.clientWidth,
      page: this.root.parentElement?.clientWidth ?? 0,
    };
  }

  /** Whether the page has so little room that the boxes stand one below the other. */
  get narrow() {
    const { map, page } = (this.widths ??= this.measured());
    return map > 0 && page > 0 && page <= PHONE;
  }

  /** What the places of a path depend on; "" where the document gives them. */
  shapeNow() {
    if (!this.wide && this.drawn.order.length) return this.shape; // a room covers the map
    return this.narrow ? `${this.wide} ${this.store.view}` : "";
  }

  // -- updating ----------------------------------------------------------------------------------

  update() {
    if (!this.store.document) return;
    if (this.page !== this.store.document) this.build();
    this.moved.update();
    if (this.isCovered()) return;
    if (this.shape !== this.shapeNow()) this.build();
    this.showFocus();
    this.showSelection();
    if (!this.isLiveShown()) this.live.update();
    this.traffic.update();
  }

  /** Whether a room is open in the map's place; it is brought up to date then. */
  isCovered() {
    if (this.store.opened !== null) this.loading ??= this.loadFrame();
    return this.frame?.update() ?? false;
  }

  async loadFrame() {
    const { RoomFrame } = await import("../rooms/frame.js");
    this.frame = new RoomFrame(this);
    this.moved.element.before(this.frame.element);
    this.store.changed();
  }

  /** A room takes the map's place, or leaves it. @param {boolean} covered */
  cover(covered) {
    this.root.classList.toggle("has-room", covered);
  }

  showFocus() {
    const view = this.store.currentView;
    if (view === this.dimmed[0] && this.boxes === this.dimmed[1]) return;
    this.dimmed = [view, this.boxes];
    const inFocus = view?.focus?.length ? new Set(view.focus) : null;
    for (const [id, box] of this.boxes) {
      box.node.classList.toggle("is-dim", inFocus !== null && !inFocus.has(id));
    }
    for (const line of this.lines) {
      const dim = inFocus !== null && !(inFocus.has(line.item.from) && inFocus.has(line.item.to));
      line.node.classList.toggle("is-dim", dim);
      line.name.classList.toggle("is-dim", dim);
    }
  }

  /** Works on the page alone, so that a click shows in the same frame. */
  showSelection() {
    const chosen = this.store.selection.component;
    const faults = new Set(this.store.refused?.errors.map((error) => error.box));
    for (const [id, box] of this.boxes) {
      box.node.classList.toggle("is-selected", id === chosen);
      const pointed = this.store.pointed !== null && box.item.live === this.store.pointed;
      box.node.classList.toggle("is-pointed", pointed);
      setAttribute(box.node, "aria-pressed", id === chosen ? "true" : "false");
      box.node.classList.toggle("is-faulty", faults.has(id));
    }
  }

  /** Scroll the page so that the chosen box, or the map, is in sight. */
  showChosen() {
    const box = this.boxes.get(this.store.selection.component ?? "");
    if (box) box.node.scrollIntoView({ block: "center" });
    else this.root.scrollIntoView({ block: "start" });
  }

  /** A box was selected by hand. */
  onChosen = () => {};

  /** Whether the boxes' live lines are those of the moment. */
  isLiveShown() {
    const { store } = this;
    return (
      this.liveVersion === store.version &&
      this.liveHeader === store.header &&
      this.liveLayout === this.text.layouts
    );
  }

  showLive() {
    const { store } = this;
    this.liveVersion = store.version;
    this.liveHeader = store.header;
    this.liveLayout = this.text.layouts;
    const momentOf = moments(store);
    for (const box of this.boxes.values()) {
      const live = store.header ? liveOf(box.item.live, momentOf(box.item.live)) : null;
      this.showLine(box, live);
    }
  }

  /** @param {any} box @param {Live|null} live */
  showLine(box, live) {
    const { item, geo, rail, fill, node } = box;
    const { small } = this.text.sizes;
    const line = live?.line ?? (item.live ? "no log yet" : "static");
    if (box.shown !== line) {
      box.shown = line;
      const state = item.live ? line : MAP.staticBox;
      const sign = this.drawn.isPath ? PATH_SIGN : 21;
      const room = geo.w - (item.live ? sign + 12 : 20);
      const fits = !live?.short || textWidth(line, small, 550) <= room;
      setText(box.live, cut(fits ? line : /** @type {string} */ (live?.short), room, small, 550));
      setAttribute(node, "aria-label", `${item.label}. ${item.sublabel || item.type}. ${state}`);
    }
    box.live.classList.toggle("is-quiet", !live || live.quiet === true);
    const meter = live?.meter;
    setAttribute(rail, "visibility", meter === undefined ? "hidden" : null);
    setAttribute(fill, "visibility", meter === undefined ? "hidden" : null);
    if (meter !== undefined) {
      setAttribute(fill, "width", String(round(Math.max(0, Math.min(1, meter)) * (geo.w - 2))));
    }
  }
}
