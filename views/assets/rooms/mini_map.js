// @ts-check
/** The whole map, small, beside an open room: where one is, and where something happens now. */
import { boundsOf } from "../map/shapes.js";
import { setAttribute, svg } from "../page/dom.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */

/** What it shows is on the map, and its boxes are at the room's edges: it is for the eye. */
export class MiniMap {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.element = svg("svg", { class: "gb-mini", "aria-hidden": "true", focusable: "false" });
    /** @type {Map<string, SVGElement>} by the engine's name */
    this.boxes = new Map();
    /** @type {Map<string, SVGElement>} by the engine's name */
    this.lines = new Map();
  }

  /** @param {string} id of the box whose room is open */
  build(id) {
    const page = this.store.document;
    const { x, y, w, h } = boundsOf(page);
    setAttribute(this.element, "viewBox", `${x} ${y} ${w} ${h}`);
    this.boxes.clear();
    this.lines.clear();
    const lines = page.connections.map((line) => {
      const points = line.points.map((point) => point.join(",")).join(" ");
      const node = svg("polyline", { points });
      if (line.live) this.lines.set(line.live, node);
      return node;
    });
    const boxes = page.components.map((item) => {
      const node = svg("rect", {
        x: item.x,
        y: item.y,
        width: item.w,
        height: item.h,
        rx: 10,
        "data-type": item.type,
        class: item.id === id ? "is-open" : "",
        onclick: () => this.store.openBox(item.id),
      });
      node.append(svg("title", { text: item.label }));
      if (item.live) this.boxes.set(item.live, node);
      return node;
    });
    this.element.replaceChildren(...lines, ...boxes);
  }

  /** @param {EventRecord[]} events under way @param {EventRecord|null} now */
  update(events, now) {
    const busy = new Set(events.map((event) => event.component));
    const lit = new Set(events.map((event) => event.connection));
    for (const [name, node] of this.boxes) {
      node.classList.toggle("is-busy", busy.has(name));
      node.classList.toggle("is-now", now?.component === name);
    }
    for (const [name, node] of this.lines) {
      node.classList.toggle("is-busy", lit.has(name));
      node.classList.toggle("is-now", now?.connection === name);
    }
  }
}
