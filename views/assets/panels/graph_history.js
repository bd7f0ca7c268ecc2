// @ts-check
/** Steps and how they ran: the time of each, eager or replayed. */
import { micros, plural } from "../words/format.js";
import { Plane, roundRect } from "./canvas.js";
import { seekStep } from "./cursor.js";
import { LABELS } from "./graph_batch.js";
import { FUTURE, FUTURE_FILL } from "./lifecycle_cells.js";
import { Tip } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { Model } from "./graph_model.js" */

const HISTORY = 62;

export class HistoryStrip {
  /** @param {Store} store @param {HTMLElement} root */
  constructor(store, root) {
    this.store = store;
    this.plane = new Plane("Steps and how they ran", "gbp-history");
    this.plane.canvas.tabIndex = 0;
    this.tip = new Tip(root);
    this.column = 10;
    this.from = 0;
    /** @type {Model["history"]} */
    this.shown = [];
    const { canvas } = this.plane;
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => this.tip.hide());
    canvas.addEventListener("click", (event) => {
      const item = this.find(event);
      if (item) seekStep(store, item.step);
    });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (move === undefined) return;
      seekStep(store, this.step + move);
      event.preventDefault();
      event.stopPropagation();
    });
    this.step = 0;
  }

  /** @param {Model} data @param {any} colours @param {number} width */
  draw(data, colours, width) {
    const { history } = data;
    this.step = data.step;
    const c = this.plane.begin(width, history.length ? HISTORY + 22 : 0);
    if (!history.length) return;
    const room = width - LABELS - 4;
    this.column = Math.max(6, Math.min(28, Math.floor(room / Math.max(1, history.length))));
    const fits = Math.floor(room / this.column);
    const at = history.findIndex((item) => item.step === data.step);
    this.from = Math.max(0, Math.min(history.length - fits, at - Math.round(fits * 0.7)));
    this.shown = history.slice(this.from, this.from + fits);
    const largest = this.shown.reduce((most, item) => Math.max(most, item.us), 1);
    c.textBaseline = "middle";
    this.drawScale(c, largest, colours, width);
    this.shown.forEach((item, i) =>
      this.drawStep(c, item, LABELS + i * this.column, largest, colours, data),
    );
    c.globalAlpha = 1;
    const x = LABELS + (at - this.from + data.share) * this.column;
    if (at < 0 || x < LABELS) return;
    c.strokeStyle = colours.event;
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(x, 0);
    c.lineTo(x, HISTORY);
    c.stroke();
    c.lineWidth = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {number} largest @param {any} colours
   * @param {number} width
   */
  drawScale(c, largest, colours, width) {
    c.font = `10.5px ${colours.mono}`;
    c.fillStyle = colours.muted;
    c.textAlign = "left";
    c.fillText(micros(largest), 0, 10);
    c.fillText("0", 0, HISTORY - 6);
    c.strokeStyle = colours.border;
    c.beginPath();
    c.moveTo(LABELS, 4.5);
    c.lineTo(width, 4.5);
    c.moveTo(LABELS, HISTORY + 0.5);
    c.lineTo(width, HISTORY + 0.5);
    c.stroke();
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model["history"][0]} item @param {number} x
   * @param {number} largest @param {any} colours @param {Model} data
   */
  drawStep(c, item, x, largest, colours, data) {
    const h = Math.max(1.5, (item.us / largest) * (HISTORY - 6));
    const graph = item.mode !== null && item.mode !== "NONE";
    c.globalAlpha = item.future ? FUTURE_FILL : 1;
    c.fillStyle = graph ? colours.cloud : item.mode === null ? colours.border : colours.backend;
    roundRect(c, x + 1, HISTORY - h, Math.max(1.5, this.column - 2.5), h, this.column > 8 ? 2 : 0);
    c.fill();
    if (item.future) {
      c.globalAlpha = FUTURE;
      c.fillRect(x + 1, HISTORY - h, Math.max(1.5, this.column - 2.5), Math.min(h, 1.5));
      c.globalAlpha = FUTURE_FILL;
    }
    this.drawCapture(c, item, x, h, colours);
    const now = item.step === data.step;
    const every = this.column >= 20 ? 1 : this.column >= 12 ? 5 : 10;
    if (item.step % every && !now) return;
    c.globalAlpha = 1;
    c.font = `${now ? 700 : 400} 10px ${colours.mono}`;
    c.textAlign = "center";
    c.fillStyle = now ? colours.event : colours.muted;
    if (!now && every > 1 && Math.abs(item.step - data.step) * this.column < 20) return;
    c.fillText(String(item.step), x + this.column / 2, HISTORY + 12);
  }

  /**
   * What capturing a graph took, at the foot of its step: it comes before the replay, and once.
   * @param {CanvasRenderingContext2D} c @param {Model["history"][0]} item @param {number} x
   * @param {number} height of the whole step @param {any} colours
   */
  drawCapture(c, item, x, height, colours) {
    if (item.captureUs === 0) return;
    const h = (item.captureUs / item.us) * height;
    c.fillStyle = colours.panel;
    c.globalAlpha *= 0.72;
    c.fillRect(x + 2, HISTORY - h, Math.max(1, this.column - 4.5), h - 1);
    c.globalAlpha = item.future ? FUTURE_FILL : 1;
  }

  /** @param {MouseEvent} event */
  find(event) {
    return this.shown[Math.floor((this.plane.at(event).x - LABELS) / this.column)];
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const item = this.find(event);
    if (!item) return this.tip.hide();
    this.tip.show(event, [
      `Step ${item.step}`,
      `${plural(item.tokens, "token")} in ${micros(item.us)}`,
      item.mode === null
        ? "no forward was dispatched"
        : item.mode === "NONE"
          ? "eager"
          : `graph: ${item.mode}`,
      ...(item.captureUs ? [`${micros(item.captureUs)} of it for the capture, once`] : []),
      "derived: the sum of the measured times of its phases",
    ]);
  }
}
