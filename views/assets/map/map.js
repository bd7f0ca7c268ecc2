// @ts-check
/**
 * The map: boxes, frames and arrows of the document, lit by what the engine did at the cursor.
 *
 * The picture is built once a document and size; an update only moves classes, texts and packets.
 */
import { Moment, liveOf } from "../boxes/live.js";
import { el, icon, reconcile, setAttribute, setText, svg } from "../page/dom.js";
import { eventPhrase } from "../words/events.js";
import { packetsOf } from "./packets.js";
import {
  DRAWER,
  boundsOf,
  boxIdOf,
  centreOf,
  clamp,
  cut,
  drawerPath,
  frameAt,
  hullOf,
  labelSpot,
  legendEntry,
  lineTitle,
  makeFrame,
  overlap,
  place,
  round,
  roundedPath,
  segmentsOf,
  spinePath,
  textArea,
  textWidth,
  tipPath,
  titleOf,
} from "./shapes.js";

/** @import { Live } from "../boxes/live.js" */
/** @import { Area, Component, Connection, PageDocument } from "../core/document.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Packet } from "./packets.js" */

const FLIGHT_MS = 430;
const MOST_FLIGHTS = 6;
const MOST_GROWTH = 22; // by which a box may be drawn wider on a side, for its words
const LEAST_PX = 11.2; // no letter of the fitted map is smaller than this on the screen
const ZOOM_STEP = 1.3;
const ZOOM_MOST = 6;

/** @type {Record<string, string>} paths in a square of 16 */
const ICONS = {
  plus: "M7 2h2v5h5v2H9v5H7V9H2V7h5z",
  minus: "M2 7h12v2H2z",
  fit: "M2 2h5v2H4v3H2zM9 2h5v5h-2V4H9zM2 9h2v3h3v2H2zM12 9h2v5H9v-2h3z",
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
    this.zoom = { k: 1, x: 0, y: 0 };
    /** The document that is drawn. */
    this.page = /** @type {PageDocument} */ (/** @type {unknown} */ (null));
    this.bounds = { x: 0, y: 0, w: 1, h: 1 };
    /** Sizes of letters, in the map's units. */
    this.sizes = { small: 12.5, big: 14 };
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
    this.tabStop = "";
    this.dragged = false;
    this.scale = 0;
    this.layouts = 0; // counts how often the texts were fitted
    this.lastCursor = -2;
    this.lastHeader = null;
    /** What the live lines and the packets were drawn of. */
    this.liveVersion = -1;
    this.liveHeader = null;
    this.liveLayout = -1;
    this.eventLayout = -1;
    /** @type {{line: any, began: number, node: SVGElement, rest: boolean}[]} */
    this.flights = [];
    this.frame = 0;
    this.stage = /** @type {SVGSVGElement} */ (svg("svg", { class: "gb-stage", role: "group" }));
    this.scroll = el("div", { class: "gb-map-scroll" }, this.stage);
    this.foot = el("div", { class: "gb-map-foot" });
    this.zoomer = this.zoomButtons();
    root.append(this.scroll, this.foot);
    this.resize = new ResizeObserver(() => {
      this.fitText();
      store.changed();
    });
    this.resize.observe(this.stage);
    this.listen();
    // Letters are measured to fit their boxes: measure again once the page's own have come.
    Promise.all(["400 16px Inter", "650 16px Inter"].map((font) => document.fonts.load(font))).then(
      () => {
        this.scale = 0;
        this.fitText();
        this.store.changed();
      },
      () => {},
    );
  }

  destroy() {
    this.resize.disconnect();
    cancelAnimationFrame(this.frame);
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
      svg("g", {}, ...this.page.components.map((item) => this.boxes.get(item.id).node)),
      svg("g", {}, ...this.lines.map((line) => line.texts)),
      this.packetLayer,
    );
    this.stage.replaceChildren(this.viewport);
    this.zoom = { k: 1, x: 0, y: 0 };
    this.applyZoom();
    this.buildFoot();
    this.scale = 0;
    this.fitText();
    this.lastCursor = -2;
    this.tabStop = "";
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
        tabindex: -1,
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
    const shaft = /** @type {SVGPathElement} */ (svg("path", { class: "shaft" }));
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
    return { item, node, hover, hit, shaft, tip, name, quantity, texts, length: 0 };
  }

  /**
   * Where a line runs: its ends stay on the sides of their boxes, however wide these are drawn, and
   * what leaves or enters from below does so at the drawer's lower edge.
   * @param {Connection} item
   */
  trimmed(item) {
    const points = item.points.map(([x, y]) => [x, y]);
    if (points.length < 2) return points;
    /** @type {[number[], number[], string][]} */
    const ends = [
      [points[0], points[1], item.from],
      [points[points.length - 1], points[points.length - 2], item.to],
    ];
    for (const [end, next, id] of ends) {
      const box = this.boxes.get(id);
      if (!box) continue;
      const { x, y, w, h } = box.item;
      if (Math.abs(end[0] - x) < 0.6) end[0] = box.geo.x;
      else if (Math.abs(end[0] - x - w) < 0.6) end[0] = box.geo.x + box.geo.w;
      else if (Math.abs(end[1] - y - h) < 0.6 && next[1] > end[1] + DRAWER + 6) end[1] += DRAWER;
    }
    return points;
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

  /** Letters keep a least size on the screen; what does not fit its box is cut with an ellipsis. */
  fitText() {
    if (!this.page) return;
    const width = this.stage.clientWidth;
    const height = this.stage.clientHeight;
    if (!width || !height) return;
    const scale = Math.min(width / this.bounds.w, height / this.bounds.h);
    if (Math.abs(scale - this.scale) < 0.004) return;
    this.scale = scale;
    this.layouts += 1;
    const small = Math.min(16, Math.max(12.2, LEAST_PX / scale));
    const big = Math.min(16, Math.max(14, (LEAST_PX + 0.3) / scale));
    this.sizes = { small, big };
    for (const box of this.boxes.values()) box.geo = this.widened(box.item);
    for (const box of this.boxes.values()) this.layBox(box);
    for (const line of this.lines) this.layLine(line);
    for (const line of this.lines) this.layQuantity(line);
    for (const frame of this.frames) frame.text.setAttribute("font-size", String(round(small)));
  }

  /**
   * A box as wide as its words need, where its neighbours and the labels between leave room: on a
   * small screen letters shrink less than boxes do.
   * @param {Component} item
   * @returns {Area}
   */
  widened(item) {
    const { small, big } = this.sizes;
    const words = Math.max(
      textWidth(item.label, big, 650),
      textWidth(item.sublabel ?? "", small, 400),
      textWidth(item.tag ?? "", small, 600),
    );
    const missing = words + 19 - item.w;
    if (missing <= 0) return item;
    const left = this.roomBeside(item, -1);
    const right = this.roomBeside(item, 1);
    const part = Math.min(1, missing / (left + right || 1));
    return {
      x: round(item.x - left * part),
      y: item.y,
      w: round(item.w + (left + right) * part),
      h: item.h,
    };
  }

  /** @param {Component} item @param {-1|1} side @returns {number} by how much a box may grow there */
  roomBeside(item, side) {
    const edge = side < 0 ? item.x : item.x + item.w;
    const rim = side < 0 ? this.bounds.x : this.bounds.x + this.bounds.w;
    let room = Math.min(MOST_GROWTH, side * (rim - edge) - 7);
    for (const other of this.page.components) {
      if (
        other === item ||
        other.y > item.y + item.h + DRAWER ||
        other.y + other.h + DRAWER < item.y
      )
        continue;
      const gap = side < 0 ? edge - (other.x + other.w) : other.x - edge;
      if (gap < 0) continue;
      room = Math.min(room, (gap - this.widestLabelBetween(item, other) - 22) / 2);
    }
    for (const frame of this.page.boundaries) {
      const wall = side < 0 ? frame.x : frame.x + frame.w;
      const gap = side * (wall - edge);
      if (gap > 0 && item.y >= frame.y && item.y <= frame.y + frame.h)
        room = Math.min(room, gap - 6);
    }
    return Math.max(0, room);
  }

  /** @param {Component} a @param {Component} b */
  widestLabelBetween(a, b) {
    const between = this.page.connections.filter(
      (each) =>
        (each.from === a.id && each.to === b.id) || (each.from === b.id && each.to === a.id),
    );
    return Math.max(
      0,
      ...between.map((each) => textWidth(each.label ?? "", this.sizes.small, 500)),
    );
  }

  /** @param {any} box */
  layBox(box) {
    const { item, geo } = box;
    const { small, big } = this.sizes;
    const { x, y, w, h } = geo;
    frameAt(box.ring, x - 5, y - 5, w + 10, h + DRAWER + 9);
    frameAt(box.pulse, x - 4, y - 4, w + 8, h + 8);
    frameAt(box.card, x, y, w, h);
    box.drawer.setAttribute("d", drawerPath(x, y + h, w));
    box.spine.setAttribute("d", spinePath(x, y, h));
    frameAt(box.rail, x + 1, y + h - 1.5, w - 2, 3);
    box.fill.setAttribute("x", String(x + 1));
    box.fill.setAttribute("y", String(y + h - 1.5));
    box.spark.setAttribute("cx", String(x + w - 3));
    box.spark.setAttribute("cy", String(y + 3));
    const lines = [
      { node: box.tag, text: item.tag, size: small, weight: 600 },
      { node: box.title, text: item.label, size: big, weight: 650 },
      { node: box.sub, text: item.sublabel, size: small, weight: 400 },
    ].filter((line) => line.text);
    const room = Math.max(1, Math.floor(h / (small + 3)));
    while (lines.length > room)
      lines.splice(
        lines.findIndex((line) => line.node !== box.title),
        1,
      );
    for (const node of [box.tag, box.title, box.sub]) node.textContent = "";
    const step = Math.min(big + 5, h / lines.length);
    const top = y + h / 2 - ((lines.length - 1) * step) / 2;
    lines.forEach((line, row) => {
      place(line.node, x + 12, top + row * step + line.size * 0.36, line.size);
      line.node.textContent = cut(line.text, w - 17, line.size, line.weight);
    });
    place(box.live, x + 11, y + h + DRAWER / 2 + 1 + small * 0.36, small);
    box.shown = "";
  }

  /** @param {any} line */
  layLine(line) {
    const { small } = this.sizes;
    const { item, name, quantity } = line;
    const points = this.trimmed(item);
    const path = roundedPath(points);
    line.hit.setAttribute("d", path);
    line.shaft.setAttribute("d", path);
    line.tip.setAttribute("d", tipPath(points));
    line.length = line.shaft.getTotalLength();
    line.points = points;
    const wide = Math.max(textWidth(item.label ?? "", small, 500), small * 3.4);
    line.spot = labelSpot(item, points, wide, small);
    place(name, line.spot.x, line.spot.y, small);
    for (const node of [name, quantity]) node.setAttribute("text-anchor", line.spot.anchor);
  }

  /**
   * What travels is written beside the label, on the first of four places that hides nothing.
   * @param {any} line
   */
  layQuantity(line) {
    const { small } = this.sizes;
    const { spot, item } = line;
    const step = small + 2.5;
    const rows = item.label ? [spot.away, -spot.away, 2 * -spot.away, 2 * spot.away] : [0];
    const areas = rows.map((row) => textArea(spot, spot.y + row * step, small * 4.6, small));
    const free = areas.findIndex((area) => !this.hidesSomething(area, line));
    place(line.quantity, spot.x, spot.y + rows[Math.max(0, free)] * step, small);
  }

  /** @param {{x: number, y: number, w: number, h: number}} area @param {any} own */
  hidesSomething(area, own) {
    for (const box of this.boxes.values()) {
      const { x, y, w, h } = box.geo;
      if (overlap(area, { x, y, w, h: h + DRAWER })) return true;
    }
    return this.lines.some((line) => {
      if (line !== own && line.item.label) {
        const wide = textWidth(line.item.label, this.sizes.small, 500);
        if (overlap(area, textArea(line.spot, line.spot.y, wide, this.sizes.small))) return true;
      }
      return segmentsOf(line.points).some(({ a, b }) => overlap(area, hullOf(a, b)));
    });
  }

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
    const stop = chosen ?? this.tabStop;
    for (const [id, box] of this.boxes) {
      box.node.classList.toggle("is-selected", id === chosen);
      setAttribute(box.node, "aria-pressed", id === chosen ? "true" : "false");
      setAttribute(box.node, "tabindex", id === stop ? "0" : "-1");
    }
    if (!this.boxes.has(stop)) {
      const first = this.boxes.values().next().value;
      if (first) setAttribute(first.node, "tabindex", "0");
    }
  }

  showLive() {
    const { store } = this;
    if (
      this.liveVersion === store.version &&
      this.liveHeader === store.header &&
      this.liveLayout === this.layouts
    )
      return;
    this.liveVersion = store.version;
    this.liveHeader = store.header;
    this.liveLayout = this.layouts;
    const now = new Moment(store);
    for (const box of this.boxes.values()) {
      const live = store.header ? liveOf(box.item.live, now) : null;
      this.showLine(box, live);
    }
  }

  /** @param {any} box @param {Live|null} live */
  showLine(box, live) {
    const { item, geo, rail, fill, node } = box;
    const { small } = this.sizes;
    const line = live?.line ?? (item.live ? "no log yet" : "static");
    if (box.shown !== line) {
      box.shown = line;
      const room = geo.w - 20;
      const fits = !live?.short || textWidth(line, small, 550) <= room;
      setText(box.live, cut(fits ? line : /** @type {string} */ (live?.short), room, small, 550));
      setAttribute(
        node,
        "aria-label",
        `${item.label}. ${item.sublabel || item.type}. ${item.live ? line : "Static: no live counterpart"}`,
      );
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
    if (!moved && this.eventLayout === this.layouts) return;
    if (this.eventLayout !== this.layouts) this.packetLayer.replaceChildren();
    this.eventLayout = this.layouts;
    const record = store.records[store.cursor];
    const now = record?.kind === "event" ? record : null;
    const events = store.phaseEvents();
    const packets = packetsOf(events, now).filter((packet) =>
      this.lineByLive.has(packet.connection),
    );
    this.showPackets(packets);
    this.showSparks(events, now);
    if (moved) this.fly(now);
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
    const { x, y } = line.shaft.getPointAtLength(rest);
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

  /** Boxes at which events of this phase happened. @param {any[]} events @param {any} now */
  showSparks(events, now) {
    const touched = new Set();
    for (const event of events) touched.add(event.component);
    for (const [name, box] of this.boxByLive) {
      setAttribute(box.spark, "visibility", touched.has(name) ? null : "hidden");
      box.node.classList.toggle("is-now", now !== null && now.component === name);
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
      const live = this.store.header ? liveOf(box.item.live, new Moment(this.store)) : null;
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
    const travelled = this.store
      .phaseEvents()
      .filter((event) => event.connection === line.item.live);
    const phrases = travelled.slice(-8).map((event) => `event ${event.seq}: ${eventPhrase(event)}`);
    if (phrases.length) phrases.push("measured: events of this phase in the engine's log");
    setText(line.hover, [lineTitle(line.item, this.boxes), ...phrases].join("\n"));
  }

  // -- motion ------------------------------------------------------------------------------------

  /**
   * Let the events that the cursor just passed travel: a few a frame, never behind.
   * @param {any} now
   */
  fly(now) {
    const { store } = this;
    const forward = store.cursor > this.lastCursor && store.header === this.lastHeader;
    if (!forward || this.reduced.matches) return;
    const entry = store.stepAt(store.cursor);
    const from = Math.max(this.lastCursor + 1, entry?.first ?? 0, store.cursor - 400);
    const passed = new Map();
    for (const event of store.eventsBetween(from, store.cursor)) {
      passed.set(event.connection ?? `at ${event.component}`, event);
    }
    const last = [...passed.values()].slice(-MOST_FLIGHTS);
    for (const event of last) {
      const line = event.connection && this.lineByLive.get(event.connection);
      if (line) this.launch(line);
      else if (event === now || last.length <= 2) this.pulse(this.boxByLive.get(event.component));
    }
  }

  /** @param {any} line */
  launch(line) {
    if (this.flights.some((flight) => flight.line === line)) return;
    if (this.flights.length >= MOST_FLIGHTS * 2) return;
    const node = svg("circle", { class: "gb-flight", r: 5 });
    this.viewport.append(node);
    this.flights.push({ line, began: performance.now(), node, rest: false });
    if (!this.frame) this.frame = requestAnimationFrame((time) => this.tick(time));
  }

  /** @param {number} time */
  tick(time) {
    this.frame = 0;
    this.flights = this.flights.filter((flight) => {
      const part = Math.max(0, Math.min(1, (time - flight.began) / FLIGHT_MS));
      if (part >= 1 || !flight.node.isConnected) {
        flight.node.remove();
        return false;
      }
      const eased = part < 0.5 ? 2 * part * part : 1 - (2 - 2 * part) ** 2 / 2;
      const { x, y } = flight.line.shaft.getPointAtLength(eased * flight.line.length);
      flight.node.setAttribute("transform", `translate(${round(x)} ${round(y)})`);
      return true;
    });
    if (this.flights.length) this.frame = requestAnimationFrame((next) => this.tick(next));
  }

  /** @param {any} box */
  pulse(box) {
    if (!box || box.pulse.getAnimations().length) return;
    box.pulse.animate([{ opacity: 0.9 }, { opacity: 0 }], { duration: 480, easing: "ease-out" });
  }

  // -- hands -------------------------------------------------------------------------------------

  listen() {
    this.stage.addEventListener("click", (event) => this.clicked(event));
    this.stage.addEventListener("keydown", (event) => this.pressed(event));
    this.stage.addEventListener("focusin", (event) => {
      const id = boxIdOf(event.target);
      if (id) this.tabStop = id;
    });
    this.stage.addEventListener("pointerover", (event) =>
      this.explain(/** @type {Element} */ (event.target)),
    );
    this.stage.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    this.stage.addEventListener("pointerdown", (event) => this.grabbed(event));
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    if (this.dragged) return;
    const id = boxIdOf(event.target);
    this.choose(id === this.store.selection.component ? null : id);
  }

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
    } else if (id && event.key.startsWith("Arrow")) this.goTo(id, event.key);
    else if (event.key === "+" || event.key === "=") this.zoomBy(ZOOM_STEP);
    else if (event.key === "-") this.zoomBy(1 / ZOOM_STEP);
    else if (event.key === "0") this.fit();
    else return;
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

  /** @param {WheelEvent} event a pinch on a trackpad, or the wheel with Ctrl */
  wheeled(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoomBy(Math.exp(-event.deltaY * 0.0022), this.pointOf(event));
  }

  /** @param {PointerEvent} event */
  grabbed(event) {
    this.dragged = false;
    if (event.button !== 0 || (event.pointerType === "touch" && this.zoom.k === 1)) return;
    const start = { x: event.clientX, y: event.clientY, zoom: { ...this.zoom } };
    const perPx = 1 / this.pxPerUnit();
    const move = (/** @type {PointerEvent} */ next) => {
      const dx = next.clientX - start.x;
      const dy = next.clientY - start.y;
      if (!this.dragged && Math.hypot(dx, dy) < 5) return;
      this.dragged = true;
      this.stage.classList.add("is-dragging");
      this.zoom = { ...start.zoom, x: start.zoom.x + dx * perPx, y: start.zoom.y + dy * perPx };
      this.applyZoom();
    };
    const end = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      this.stage.classList.remove("is-dragging");
      setTimeout(() => (this.dragged = false));
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  }

  pxPerUnit() {
    const { width, height } = this.stage.getBoundingClientRect();
    return Math.min(width / this.bounds.w, height / this.bounds.h) || 1;
  }

  /** @param {MouseEvent} event @returns {{x: number, y: number}} in units of the map */
  pointOf(event) {
    const matrix = this.stage.getScreenCTM();
    if (!matrix) return { x: 0, y: 0 };
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
  }

  /** @param {number} factor @param {{x: number, y: number}} [at] */
  zoomBy(factor, at) {
    const { x, y, w, h } = this.bounds;
    const point = at ?? { x: x + w / 2, y: y + h / 2 };
    const k = Math.min(ZOOM_MOST, Math.max(1, this.zoom.k * factor));
    const ratio = k / this.zoom.k;
    this.zoom = {
      k,
      x: point.x - (point.x - this.zoom.x) * ratio,
      y: point.y - (point.y - this.zoom.y) * ratio,
    };
    this.applyZoom();
  }

  fit() {
    this.zoom = { k: 1, x: 0, y: 0 };
    this.applyZoom();
  }

  applyZoom() {
    const { k } = this.zoom;
    const { x, y, w, h } = this.bounds;
    // Some of the map always stays in sight.
    const slack = 0.25;
    this.zoom.x = clamp(this.zoom.x, x + w * slack - k * (x + w), x + w * (1 - slack) - k * x);
    this.zoom.y = clamp(this.zoom.y, y + h * slack - k * (y + h), y + h * (1 - slack) - k * y);
    this.viewport.setAttribute("transform", `translate(${this.zoom.x} ${this.zoom.y}) scale(${k})`);
    this.stage.classList.toggle("is-zoomed", k !== 1 || this.zoom.x !== 0 || this.zoom.y !== 0);
  }

  zoomButtons() {
    const button = (
      /** @type {string} */ name,
      /** @type {string} */ label,
      /** @type {() => void} */ act,
    ) =>
      el(
        "button",
        { class: "gb-button", type: "button", title: label, "aria-label": label, onclick: act },
        icon(ICONS[name]),
      );
    return el(
      "div",
      { class: "gb-zoom" },
      button("plus", "Zoom in (Ctrl and wheel, or + on the map)", () => this.zoomBy(ZOOM_STEP)),
      button("minus", "Zoom out", () => this.zoomBy(1 / ZOOM_STEP)),
      button("fit", "Fit the map", () => this.fit()),
    );
  }
}
