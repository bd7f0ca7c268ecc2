// @ts-check
/** Zoom and pan of the map, by wheel, pinch, drag, buttons and keys. */
import { el, icon } from "../page/dom.js";
import { MAP } from "../words/map.js";
import { clamp } from "./shapes.js";

/** @import { ArchitectureMap } from "./map.js" */

const ZOOM_STEP = 1.3;
const ZOOM_MOST = 6;
const LEAST_MOST_PX = 1.5; // a map of many boxes is zoomed until a unit of it is so many pixels

/** @type {Record<string, string>} paths in a square of 16 */
const ICONS = {
  plus: "M7 2h2v5h5v2H9v5H7V9H2V7h5z",
  minus: "M2 7h12v2H2z",
  fit: "M2 2h5v2H4v3H2zM9 2h5v5h-2V4H9zM2 9h2v3h3v2H2zM12 9h2v5H9v-2h3z",
};

export class Gestures {
  /** @param {ArchitectureMap} map */
  constructor(map) {
    this.map = map;
    this.zoom = { k: 1, x: 0, y: 0 };
    /** Whether the pointer that goes up now has moved the map: then it is no click. */
    this.dragged = false;
    map.stage.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    map.stage.addEventListener("pointerdown", (event) => this.grabbed(event));
  }

  /** @param {string} key @returns {boolean} whether the key was one of these */
  key(key) {
    if (key === "+" || key === "=") this.zoomBy(ZOOM_STEP);
    else if (key === "-") this.zoomBy(1 / ZOOM_STEP);
    else if (key === "0") this.fit();
    else return false;
    return true;
  }

  /** @param {WheelEvent} event a pinch on a trackpad, or the wheel with Ctrl */
  wheeled(event) {
    if (this.map.drawn.isPath || (!event.ctrlKey && !event.metaKey)) return;
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
      this.map.stage.classList.add("is-dragging");
      this.zoom = { ...start.zoom, x: start.zoom.x + dx * perPx, y: start.zoom.y + dy * perPx };
      this.applyZoom();
    };
    const end = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      this.map.stage.classList.remove("is-dragging");
      setTimeout(() => (this.dragged = false));
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  }

  pxPerUnit() {
    const { width, height } = this.map.stage.getBoundingClientRect();
    return Math.min(width / this.map.bounds.w, height / this.map.bounds.h) || 1;
  }

  /** @param {MouseEvent} event @returns {{x: number, y: number}} in units of the map */
  pointOf(event) {
    const matrix = this.map.stage.getScreenCTM();
    if (!matrix) return { x: 0, y: 0 };
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
  }

  /** @param {number} factor @param {{x: number, y: number}} [at] */
  zoomBy(factor, at) {
    if (this.map.drawn.isPath) return; // it is read by scrolling the page
    const { x, y, w, h } = this.map.bounds;
    const point = at ?? { x: x + w / 2, y: y + h / 2 };
    const most = Math.max(ZOOM_MOST, LEAST_MOST_PX / this.pxPerUnit());
    const k = Math.min(most, Math.max(1, this.zoom.k * factor));
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
    const { x, y, w, h } = this.map.bounds;
    // Some of the map always stays in sight.
    const slack = 0.25;
    this.zoom.x = clamp(this.zoom.x, x + w * slack - k * (x + w), x + w * (1 - slack) - k * x);
    this.zoom.y = clamp(this.zoom.y, y + h * slack - k * (y + h), y + h * (1 - slack) - k * y);
    const transform = `translate(${this.zoom.x} ${this.zoom.y}) scale(${k})`;
    for (const each of [this.map.viewport, this.map.motion.viewport])
      each.setAttribute("transform", transform);
    this.map.stage.classList.toggle("is-zoomed", k !== 1 || this.zoom.x !== 0 || this.zoom.y !== 0);
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
      button("plus", MAP.zoomIn, () => this.zoomBy(ZOOM_STEP)),
      button("minus", MAP.zoomOut, () => this.zoomBy(1 / ZOOM_STEP)),
      button("fit", MAP.fit, () => this.fit()),
    );
  }
}
