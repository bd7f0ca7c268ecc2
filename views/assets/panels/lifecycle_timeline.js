// @ts-check
/** Requests over steps, below the bars of each step's tokens. */
import { traceIndex } from "../core/trace_index.js";
import { el } from "../page/dom.js";
import { requestColour } from "../words/colours.js";
import { senderOf } from "../words/events.js";
import { Plane, fit, haloText, roundRect } from "./canvas.js";
import { seekStep, stepOf } from "./cursor.js";
import { BARS_WHOLE, GUTTER, RIGHT, StepBars } from "./lifecycle_bars.js";
import {
  CELLS,
  FUTURE,
  cellLines,
  dot,
  drawDecodes,
  drawFlight,
  line,
  ring,
  triangle,
} from "./lifecycle_cells.js";
import { Tip } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { Palette } from "./canvas.js" */
/** @import { Cell, Model } from "./lifecycle_model.js" */

const ROW = 24;

export class Timeline {
  /** @param {Store} store @param {HTMLElement} root */
  constructor(store, root) {
    this.store = store;
    this.bars = new StepBars(this);
    this.plane = new Plane("Requests over steps", "gbp-rows");
    this.plane.canvas.tabIndex = 0;
    this.plane.canvas.style.top = `${BARS_WHOLE}px`;
    /** As high as all rows; the canvas in it is as high as what is in sight, and stays there. */
    this.space = el("div", {}, this.plane.canvas);
    this.scroll = el("div", { class: "gbp-scroll" }, this.bars.plane.canvas, this.space);
    this.tip = new Tip(root);
    this.from = 0;
    this.lastStep = -1;
    this.pan = 0;
    this.top = 0;
    /** How far down the rows were when they were drawn. */
    this.shownTop = 0;
    this.inside = false;
    this.column = 20;
    /** @type {{id: string, step: number} | null} */
    this.hovered = null;
    /** @type {Model | null} */
    this.model = null;
    this.listen();
  }

  /** Which steps fit, so that the cursor's is among them. @param {number} width */
  window(width) {
    const index = traceIndex(this.store);
    const steps = Math.max(1, index.lastStep - index.firstStep + 1);
    const room = Math.max(60, width - GUTTER - RIGHT);
    this.column = Math.max(18, Math.min(34, Math.floor(room / Math.max(steps, 1))));
    const fits = Math.max(4, Math.floor(room / this.column));
    const step = stepOf(this.store);
    const first = index.steps.size ? index.firstStep : 0;
    const latest = Math.max(first, index.lastStep - fits + 1);
    if (step !== this.lastStep) this.pan = 0;
    this.lastStep = step;
    if (step < this.from + 1 || step > this.from + fits - 2)
      this.from = step - Math.round(fits * 0.72);
    this.from = Math.max(first, Math.min(latest, this.from));
    const from = Math.max(first, Math.min(latest, this.from + Math.round(this.pan)));
    return { from, to: from + fits - 1 };
  }

  /** @param {number} step */
  x(step) {
    return GUTTER + (step - this.shownFrom) * this.column;
  }

  shownFrom = 0;

  /**
   * @param {Model} model @param {Palette} colours @param {number} width
   * @param {{from: number, to: number}} window @param {number} height of what is in view
   */
  draw(model, colours, width, window, height) {
    this.model = model;
    this.shownFrom = window.from;
    this.shownTo = window.to;
    this.colours = colours;
    this.bars.draw(model, colours, width);
    const whole = Math.max(2, model.rows.length) * ROW + 8;
    const space = `${whole}px`;
    if (this.space.style.height !== space) this.space.style.height = space;
    if (!this.inside) this.showAlive(model, height);
    this.drawRows(model, colours, width, whole, height - BARS_WHOLE);
  }

  /**
   * Scroll so that those who are alive at the cursor are in view.
   * @param {Model} model @param {number} height
   */
  showAlive(model, height) {
    const last = model.rows.findLastIndex((row) => row.alive);
    const wanted = Math.max(0, (last + 2) * ROW - (height - BARS_WHOLE));
    const first = Math.max(0, model.rows.findIndex((row) => row.alive) * ROW);
    if (last < 0 || (this.top >= wanted && this.top <= first)) return;
    this.top = Math.min(wanted, first);
    this.scroll.scrollTop = this.top;
  }

  /**
   * The rows in sight.
   * @param {Model} model @param {any} colours @param {number} width
   * @param {number} whole height of all rows @param {number} room height of what is in sight
   */
  drawRows(model, colours, width, whole, room) {
    const height = Math.min(whole, Math.max(room, 2 * ROW));
    this.shownTop = Math.max(0, Math.min(this.top, whole - height));
    const c = this.plane.begin(width, height);
    this.band(c, model, colours, 0, height);
    c.textBaseline = "middle";
    // Behind the rows: no line through a number.
    if (model.rows.length) this.playhead(c, model, colours, 0, height);
    const first = Math.max(0, Math.floor((this.shownTop - 2) / ROW));
    const last = Math.min(model.rows.length, Math.ceil((this.shownTop + height) / ROW));
    for (let place = first; place < last; place += 1)
      this.drawRow(c, model.rows[place], place * ROW + 2 - this.shownTop, colours, width);
    c.globalAlpha = 1;
  }

  /**
   * The cursor's step as a faint column.
   * @param {CanvasRenderingContext2D} c @param {Model} model @param {any} colours @param {number} y
   * @param {number} height
   */
  band(c, model, colours, y, height) {
    if (this.store.cursor < 0 || model.command) return;
    c.globalAlpha = 0.1;
    c.fillStyle = colours.event;
    c.fillRect(this.x(model.step), y, this.column, height);
    c.globalAlpha = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model} model @param {any} colours @param {number} y
   * @param {number} height
   */
  playhead(c, model, colours, y, height) {
    if (this.store.cursor < 0) return;
    const x = this.x(model.step) + model.share * this.column;
    if (x < GUTTER - 1 || x > this.bars.plane.width) return;
    c.globalAlpha = 1;
    c.strokeStyle = colours.event;
    c.lineWidth = 2;
    line(c, x, y, x, height);
    c.lineWidth = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model["rows"][0]} row @param {number} y
   * @param {any} colours @param {number} width
   */
  drawRow(c, row, y, colours, width) {
    const colour = requestColour(row.id, colours.theme);
    const middle = y + ROW / 2;
    if (row.selected) {
      c.globalAlpha = 0.13;
      c.fillStyle = colour;
      roundRect(c, 2, y + 1, width - 4, ROW - 2, 5);
      c.fill();
    }
    c.globalAlpha = 1;
    c.strokeStyle = colours.border;
    c.lineWidth = 1;
    line(c, GUTTER, y + ROW - 0.5, width - 4, y + ROW - 0.5);
    const font = `${row.selected ? 700 : 500} 12px ${colours.mono}`;
    c.font = font;
    c.textAlign = "right";
    c.fillStyle = colour;
    const name = senderOf(this.store.state.requests?.[row.id]?.source);
    c.fillText(fit(c, name ? `${row.id} ${name}` : row.id, GUTTER - 18, font), GUTTER - 12, middle);
    for (const future of [false, true]) {
      const isOne = (/** @type {Cell} */ cell) => cell.kind === "decode" && cell.future === future;
      const places = row.cells.filter(isOne).map(({ step }) => this.x(step));
      c.globalAlpha = future ? FUTURE : 1;
      if (places.length) drawDecodes(c, places, middle, this.column, colour);
    }
    for (const cell of row.cells) this.drawCell(c, cell, row.id, colour, middle, colours);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Cell} cell @param {string} id
   * @param {string} colour @param {number} y @param {any} colours
   */
  drawCell(c, cell, id, colour, y, colours) {
    const x = this.x(cell.step);
    const w = this.column;
    c.globalAlpha = cell.future ? FUTURE : 1;
    const draw = CELLS[cell.kind ?? ""];
    if (draw) draw(c, x, y, w, cell, colour, colours);
    drawFlight(c, x, y, w, cell, colour, colours);
    if (cell.stopped !== undefined) {
      dot(c, x + w / 2, y, 4.6, colours.panel);
      dot(c, x + w / 2, y, 3.1, colours.text);
    }
    if (cell.passedOver !== undefined) ring(c, x + w / 2, y, 3.2, colours.text);
    if (cell.lost !== undefined) triangle(c, x + w / 2, y, colours.bad);
    if (cell.end) this.drawEnd(c, cell, x, y, colour, colours);
    if (this.hovered?.id === id && this.hovered.step === cell.step && cell.kind) {
      c.globalAlpha = 1;
      c.strokeStyle = colours.text;
      c.lineWidth = 1.25;
      roundRect(c, x + 0.5, y - 9.5, w - 1, 19, 4);
      c.stroke();
    }
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Cell} cell @param {number} x @param {number} y
   * @param {string} colour @param {any} colours
   */
  drawEnd(c, cell, x, y, colour, colours) {
    const at = x + this.column;
    c.globalAlpha = 1;
    c.fillStyle = cell.end?.finish === "abort" ? colours.bad : colour;
    roundRect(c, at - 1, y - 8, 3, 16, 1.5);
    c.fill();
    c.font = `11px ${colours.font}`;
    c.textAlign = "left";
    c.fillStyle = cell.end?.finish === "abort" ? colours.bad : colours.muted;
    const label = at + (cell.end?.late ?? 0) * this.column + 6;
    haloText(c, cell.end?.finish ?? "", label, y + 0.5, colours.panel);
  }

  // -- pointer and keys --------------------------------------------------------------------------

  listen() {
    const canvas = this.plane.canvas;
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => this.leave());
    canvas.addEventListener("click", (event) => this.click(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.scroll.addEventListener(
      "scroll",
      () => {
        this.top = this.scroll.scrollTop;
        if (this.top !== this.shownTop) this.redraw?.();
      },
      { passive: true },
    );
    this.scroll.addEventListener("mouseenter", () => {
      this.inside = true;
    });
    this.scroll.addEventListener("mouseleave", () => {
      this.inside = false;
    });
    this.scroll.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  /** @param {number} x */
  stepAt(x) {
    return this.shownFrom + Math.floor((x - GUTTER) / this.column);
  }

  /** @param {MouseEvent} event */
  find(event) {
    const { x, y } = this.plane.at(event);
    const row = this.model?.rows[Math.floor((y + this.shownTop - 2) / ROW)];
    const step = x < GUTTER ? null : this.stepAt(x);
    return { row, cell: row?.cells.find((cell) => cell.step === step) };
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const { row, cell } = this.find(event);
    const shown = row && cell && (cell.kind || cell.end);
    const before = this.hovered;
    this.hovered = shown ? { id: row.id, step: cell.step } : null;
    if (shown) this.tip.show(event, cellLines(row.id, cell));
    else this.tip.hide();
    this.plane.canvas.style.cursor = row ? "pointer" : "";
    if (before?.id !== this.hovered?.id || before?.step !== this.hovered?.step) this.redraw?.();
  }

  leave() {
    this.tip.hide();
    if (!this.hovered) return;
    this.hovered = null;
    this.redraw?.();
  }

  /** @type {(() => void) | undefined} */
  redraw;

  /** @param {MouseEvent} event */
  click(event) {
    const { row, cell } = this.find(event);
    if (!row) return;
    this.store.select({ request: row.id });
    if (cell && (cell.kind || cell.end)) seekStep(this.store, cell.step);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const rows = this.model?.rows ?? [];
    const step = stepOf(this.store);
    const place = rows.findIndex((row) => row.selected);
    if (event.key === "ArrowLeft") seekStep(this.store, step - 1);
    else if (event.key === "ArrowRight") seekStep(this.store, step + 1);
    else if (event.key === "ArrowDown" && rows.length) {
      this.store.select({ request: rows[Math.min(rows.length - 1, place + 1)].id });
    } else if (event.key === "ArrowUp" && rows.length) {
      this.store.select({ request: rows[Math.max(0, place < 0 ? rows.length - 1 : place - 1)].id });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Sideways: other steps. @param {WheelEvent} event */
  wheel(event) {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) < 1 || (!event.shiftKey && Math.abs(event.deltaY) > Math.abs(sideways)))
      return;
    event.preventDefault();
    this.pan += sideways / this.column;
    this.redraw?.();
  }
}
