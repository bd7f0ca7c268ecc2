// @ts-check
/**
 * The map: boxes, frames and arrows of the document, lit by what the engine did at the cursor.
 *
 * The picture is built once a document and size; an update only moves classes, texts and packets.
 */
import { liveOf, moments } from "../boxes/live.js";
import { PHASE_BOXES, eventsUnderWay, lanesAt } from "../core/lanes.js";
import { el, reconcile, setAttribute, setText, svg } from "../page/dom.js";
import { eventPhrase } from "../words/events.js";
import { placeFoot } from "./foot.js";
import { Gestures } from "./gestures.js";
import { Motion } from "./motion.js";
import { packetsOf } from "./packets.js";
import {
  boundsOf,
  boxIdOf,
  centreOf,
  cut,
  legendEntry,
  lineTitle,
  makeFrame,
  round,
  textWidth,
  titleOf,
} from "./shapes.js";
import { TextFit } from "./text_fit.js";

/** @import { Live } from "../boxes/live.js" */
/** @import { Component, Connection, PageDocument } from "../core/document.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Packet } from "./packets.js" */

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
    this.bounds = { x: 0, y: 0, w: 1, h: 1 };
    /** @type {Map<string, any>} by the document's id */
    this.boxes = new Map();
    /** @type {Map<string, any>} by the engine's name */
    this.boxByLive = new Map();
    /** @type {any[]} */
    this.lines = [];
    /** @type {Map<string, any>} by the engine's name */
    this.lineByLive = new Map();
    /** @type {{node: SVGElement, text: SVGElement}[]} */
    this.frames = [];
    this.packetLayer = svg("g", { class: "gb-packets" });
    this.viewport = svg("g", { class: "gb-viewport" });
    /** @type {any} the view and the boxes that were dimmed for it */
    this.dimmed = [null, null];
    this.lastCursor = -2;
    this.lastHeader = null;
    /** What the live lines and the packets were drawn of. */
    this.liveVersion = -1;
    this.liveHeader = null;
    this.liveLayout = -1;
    this.eventLayout = -1;
    this.stage = /** @type {SVGSVGElement} */ (svg("svg", { class: "gb-stage", role: "group" }));
    this.scroll = el("div", { class: "gb-map-scroll" }, this.stage);
    this.foot = el("div", { class: "gb-map-foot" });
    this.text = new TextFit(this);
    this.motion = new Motion(this);
    this.gestures = new Gestures(this);
    this.zoomer = this.gestures.zoomButtons();
    root.append(this.scroll, this.foot);
    this.resize = new ResizeObserver(() => {
      this.text.fit();
      placeFoot(this);
      store.changed();
    });
    this.resize.observe(this.stage);
    this.listen();
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
    this.motion.stop();
  }

  // -- building ----------------------------------------------------------------------------------

  build() {
    const page = this.store.document;
    this.page = page;
    this.bounds = boundsOf(page);
    const { x, y, w, h } = this.bounds;
    this.stage.setAttribute("viewBox", `${x} ${y} ${w} ${h}`);
    this.stage.style.aspectRatio = `${w} / ${h}`;
    setAttribute(this.stage, "aria-label", `Map: ${page.meta?.title ?? "architecture"}`);
    this.boxes = new Map(page.components.map((item) => [item.id, this.makeBox(item)]));
    this.boxByLive = new Map();
    for (const box of this.boxes.values())
      if (box.item.live) this.boxByLive.set(box.item.live, box);
    this.lines = page.connections.map((item) => this.makeLine(item));
    this.lineByLive = new Map();
    for (const line of this.lines) if (line.item.live) this.lineByLive.set(line.item.live, line);
    this.frames = page.boundaries.map(makeFrame);
    this.packetLayer = svg("g", { class: "gb-packets" });
    this.viewport = svg(
      "g",
      { class: "gb-viewport" },
      svg("g", {}, ...this.frames.map((frame) => frame.node)),
      svg("g", {}, ...this.lines.map((line) => line.node)),
      svg("g", {}, ...this.walkingOrder().map((id) => this.boxes.get(id).node)),
      svg("g", {}, ...this.lines.map((line) => line.texts)),
      this.packetLayer,
    );
    this.stage.replaceChildren(this.viewport);
    this.gestures.fit();
    this.buildFoot();
    this.text.anew();
    placeFoot(this);
    this.lastCursor = -2;
  }

  /** The keyboard and those who listen meet the boxes in the order in which a request does. */
  walkingOrder() {
    const path = (this.page.request_path ?? []).filter((id) => this.boxes.has(id));
    return [...new Set([...path, ...this.boxes.keys()])];
  }

  /** @param {Component} item */
  makeBox(item) {
    const parts = {
      hover: svg("title", { text: titleOf(item) }),
      ring: svg("rect", { class: "ring", rx: 12 }),
      pulse: svg("rect", { class: "pulse", rx: 12 }),
      drawer: svg("path", { class: "drawer" }),
      card: svg("rect", { class: "card", rx: 8 }),
      spine: svg("path", { class: "spine" }),
      rail: svg("rect", { class: "rail", height: 3 }),
      fill: svg("rect", { class: "fill", height: 3, width: 0 }),
      tag: svg("text", { class: "tag" }),
      title: svg("text", { class: "title" }),
      sub: svg("text", { class: "sub" }),
      live: svg("text", { class: "live" }),
      spark: svg("circle", { class: "spark", r: 5.5, visibility: "hidden" }),
    };
    const node = svg(
      "g",
      {
        class: item.live ? "gb-box" : "gb-box is-static",
        "data-component": item.id,
        "data-type": item.type,
        role: "button",
        tabindex: 0,
        "aria-pressed": "false",
      },
      parts.hover,
      ...Object.values(parts).slice(1),
    );
    return { item, node, ...parts, geo: item, shown: "" };
  }

  /** @param {Connection} item */
  makeLine(item) {
    const hover = svg("title", { text: lineTitle(item, this.boxes) });
    const hit = svg("path", { class: "hit" });
    const shaft = svg("path", { class: "shaft" });
    // Beside the page: asked for a point, a path in it makes the browser lay out the whole page.
    const track = svg("path");
    const tip = svg("path", { class: "tip" });
    const node = svg(
      "g",
      { class: "gb-line", "data-connection": item.id, "data-variant": item.variant ?? "default" },
      hover,
      hit,
      shaft,
      tip,
    );
    if (item.width) node.style.setProperty("--width", String(item.width));
    const name = svg("text", { class: "gb-name", text: item.label ?? "" });
    const quantity = svg("text", { class: "gb-quantity" });
    const texts = svg("g", { "pointer-events": "none" }, name, quantity);
    return { item, node, hover, hit, shaft, track, tip, name, quantity, texts, length: 0 };
  }

  buildFoot() {
    const { page } = this;
    const types = new Set(page.components.map((item) => item.type));
    const kinds = new Set(page.boundaries.map((item) => item.kind));
    const entries = [...types, ...kinds].map((kind) => legendEntry(kind));
    const live = page.components.some((item) => item.live);
    if (live) entries.push(legendEntry("event"));
    this.foot.replaceChildren();
    if (page.meta?.subtitle) {
      this.foot.append(el("p", { class: "gb-subtitle", text: page.meta.subtitle }));
    }
    if (!live) {
      this.foot.append(
        el("p", {
          text: "No part of this document has a counterpart in the engine: the map is static.",
        }),
      );
    }
    const legend = el("ul", { class: "gb-legend", "aria-label": "Legend" }, ...entries);
    this.foot.append(el("div", { class: "gb-map-bar" }, legend, this.zoomer));
  }

  // -- text that fits ----------------------------------------------------------------------------

  // -- updating ----------------------------------------------------------------------------------

  update() {
    if (!this.store.document) return;
    if (this.page !== this.store.document) this.build();
    this.showFocus();
    this.showSelection();
    this.showLive();
    this.showEvents();
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
    for (const [id, box] of this.boxes) {
      box.node.classList.toggle("is-selected", id === chosen);
      const pointed = this.store.pointed !== null && box.item.live === this.store.pointed;
      box.node.classList.toggle("is-pointed", pointed);
      setAttribute(box.node, "aria-pressed", id === chosen ? "true" : "false");
    }
  }

  showLive() {
    const { store } = this;
    if (
      this.liveVersion === store.version &&
      this.liveHeader === store.header &&
      this.liveLayout === this.text.layouts
    )
      return;
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
      const state = item.live ? line : "Static: no live counterpart";
      const room = geo.w - 20;
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

  showEvents() {
    const { store } = this;
    const moved = store.cursor !== this.lastCursor || store.header !== this.lastHeader;
    if (!moved && this.eventLayout === this.text.layouts) return;
    if (this.eventLayout !== this.text.layouts) this.packetLayer.replaceChildren();
    this.eventLayout = this.text.layouts;
    const record = store.records[store.cursor];
    const now = record?.kind === "event" ? record : null;
    const events = eventsUnderWay(store);
    const packets = packetsOf(events, now).filter((packet) =>
      this.lineByLive.has(packet.connection),
    );
    this.showPackets(packets);
    this.showSparks(events, now);
    if (moved) this.motion.fly(now, store.header === this.lastHeader ? this.lastCursor : Infinity);
    this.lastCursor = store.cursor;
    this.lastHeader = store.header;
  }

  /** @param {Packet[]} packets */
  showPackets(packets) {
    const lit = new Map(packets.map((packet) => [packet.connection, packet]));
    for (const line of this.lines) {
      const packet = lit.get(line.item.live);
      line.node.classList.toggle("is-lit", packet !== undefined);
      line.node.classList.toggle("is-now", packet?.now === true);
      line.name.classList.toggle("is-lit", packet !== undefined);
      setText(line.quantity, packet?.quantity ?? "");
    }
    reconcile(
      this.packetLayer,
      packets,
      (packet) => packet.connection,
      (packet) => this.makePacket(packet),
      (node, packet) => {
        setAttribute(node, "data-events", packet.events.map((event) => event.seq).join(" "));
        setAttribute(node, "data-quantity", packet.quantity);
        node.classList.toggle("is-now", packet.now);
        setAttribute(node.querySelector(".halo"), "r", packet.now ? "10" : "0");
        setAttribute(node.querySelector(".core"), "r", packet.now ? "5.5" : "4");
      },
    );
  }

  /** @param {Packet} packet it rests near the arrow's end, or midway */
  makePacket(packet) {
    const line = this.lineByLive.get(packet.connection);
    const rest = this.reduced.matches
      ? line.length / 2
      : Math.max(line.length - 15, line.length * 0.75);
    const { x, y } = line.track.getPointAtLength(rest);
    return svg(
      "g",
      {
        class: "gb-packet",
        "pointer-events": "none",
        "data-connection": packet.connection,
        transform: `translate(${round(x)} ${round(y)})`,
      },
      svg("circle", { class: "halo", r: 0 }),
      svg("circle", { class: "core", r: 4 }),
    );
  }

  /**
   * Boxes at which events of this phase happened, and the one that the other thread is at.
   * @param {any[]} events @param {any} now
   */
  showSparks(events, now) {
    const touched = new Set();
    for (const event of events) touched.add(event.component);
    const meanwhile = PHASE_BOXES[lanesAt(this.store)?.other?.phase ?? ""];
    for (const [name, box] of this.boxByLive) {
      box.node.classList.toggle("is-meanwhile", name === meanwhile);
      setAttribute(box.spark, "visibility", touched.has(name) ? null : "hidden");
      box.node.classList.toggle("is-now", now !== null && now.component === name);
      box.node.classList.toggle("is-busy", touched.has(name) || name === meanwhile);
    }
  }

  // -- what a hover says -------------------------------------------------------------------------

  /**
   * The browser shows a title after a moment: it is written when the pointer comes.
   * @param {Element|null} node
   */
  explain(node) {
    const box = this.boxes.get(
      node?.closest("[data-component]")?.getAttribute("data-component") ?? "",
    );
    if (box) {
      const { live: name } = box.item;
      const live = this.store.header ? liveOf(name, moments(this.store)(name)) : null;
      const rows = (live?.rows ?? []).map(
        (row) => `${row.name}: ${row.value}\n    ${row.truth}: ${row.how}`,
      );
      if (live?.meterHow) rows.push(`bar: ${live.meterHow}\n    derived: the part of the whole`);
      setText(box.hover, [titleOf(box.item), ...rows].join("\n"));
      return;
    }
    const id = node?.closest("[data-connection]")?.getAttribute("data-connection");
    const line = this.lines.find((each) => each.item.id === id || each.item.live === id);
    if (!line) return;
    const travelled = eventsUnderWay(this.store).filter(
      (event) => event.connection === line.item.live,
    );
    const phrases = travelled.slice(-8).map((event) => `event ${event.seq}: ${eventPhrase(event)}`);
    if (phrases.length) phrases.push("measured: events of this phase in the engine's log");
    setText(line.hover, [lineTitle(line.item, this.boxes), ...phrases].join("\n"));
  }

  // -- motion ------------------------------------------------------------------------------------

  // -- hands -------------------------------------------------------------------------------------

  listen() {
    this.stage.addEventListener("click", (event) => this.clicked(event));
    this.stage.addEventListener("keydown", (event) => this.pressed(event));
    this.stage.addEventListener("pointerover", (event) =>
      this.explain(/** @type {Element} */ (event.target)),
    );
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    if (this.gestures.dragged) return;
    const id = boxIdOf(event.target);
    this.choose(id === this.store.selection.component ? null : id);
    if (this.store.selection.component !== null) this.onChosen();
  }

  /** A box was selected by hand. */
  onChosen = () => {};

  /** @param {string|null} id */
  choose(id) {
    if (id === null && this.store.selection.component === null) return;
    this.store.select({ component: id, request: null, block: null });
    this.showSelection();
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const id = boxIdOf(event.target);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (id && (event.key === "Enter" || event.key === " ")) {
      this.choose(id === this.store.selection.component ? null : id);
      if (this.store.selection.component !== null) this.onChosen();
    } else if (id && event.key.startsWith("Arrow")) this.goTo(id, event.key);
    else if (!this.gestures.key(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Focus the nearest box in a direction. @param {string} id @param {string} key */
  goTo(id, key) {
    const from = centreOf(this.boxes.get(id).item);
    const across = key === "ArrowLeft" || key === "ArrowRight";
    const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
    let best = null;
    let least = Infinity;
    for (const box of this.boxes.values()) {
      const to = centreOf(box.item);
      const along = sign * (across ? to.x - from.x : to.y - from.y);
      const aside = Math.abs(across ? to.y - from.y : to.x - from.x);
      const cost = along + aside * 2.5;
      if (along > 1 && cost < least) [best, least] = [box, cost];
    }
    best?.node.focus();
  }
}
