// @ts-check
/** Requests over steps, below the bars of each step's tokens against the budget. */
import { traceIndex } from "../core/trace_index.js";
import { el } from "../page/dom.js";
import { requestColour } from "../words/colours.js";
import { senderOf } from "../words/events.js";
import { count } from "../words/format.js";
import { Plane, fit, haloText, roundRect } from "./canvas.js";
import { seekStep, stepOf } from "./cursor.js";
import {
  CELLS,
  FUTURE,
  FUTURE_FILL,
  cellLines,
  dot,
  drawFlight,
  line,
  ring,
  triangle,
} from "./lifecycle_cells.js";
import { Tip } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { Palette } from "./canvas.js" */
/** @import { Cell, Model } from "./lifecycle_model.js" */

export const GUTTER = 84;
export const RIGHT = 44;
const ROW = 24;
/** Where the bars stand on their canvas. */
export const BARS = { top: 16, height: 66 };
const AXIS = 22;
const BARS_WHOLE = BARS.top + BARS.height + AXIS + 2;

export class Timeline {
  /** @param {Store} store @param {HTMLElement} root */
  constructor(store, root) {
    this.store = store;
    this.bars = new Plane("Tokens of each step against the budget", "gbp-bars");
    this.plane = new Plane("Requests over steps", "gbp-rows");
    this.plane.canvas.tabIndex = 0;
    this.plane.canvas.style.top = `${BARS_WHOLE}px`;
    /** As high as all rows; the canvas in it is as high as what is in sight, and stays there. */
    this.space = el("div", {}, this.plane.canvas);
    this.scroll = el("div", { class: "gbp-scroll" }, this.bars.canvas, this.space);
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
    this.drawBars(model, colours, width);
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

  /** @param {Model} model @param {any} colours @param {number} width */
  drawBars(model, colours, width) {
    const { top, height } = BARS;
    const bottom = top + height;
    const c = this.bars.begin(width, BARS_WHOLE);
    const right = width - 4;
    this.band(c, model, colours, 0, BARS_WHOLE);
    c.font = `11px ${colours.font}`;
    c.textBaseline = "middle";
    c.textAlign = "right";
    c.fillStyle = colours.muted;
    c.fillText("budget", GUTTER - 12, top + 1);
    c.font = `600 12px ${colours.mono}`;
    c.fillStyle = colours.text;
    c.fillText(count(model.budget), GUTTER - 12, top + 16);
    c.strokeStyle = colours.border;
    c.lineWidth = 1;
    line(c, GUTTER, bottom + 0.5, right, bottom + 0.5);
    this.playhead(c, model, colours, top, bottom + 5);
    for (const bar of model.steps) this.drawBar(c, bar, model, colours, top, height);
    c.globalAlpha = 1;
    c.strokeStyle = colours.muted;
    c.setLineDash([5, 4]);
    line(c, GUTTER, top + 0.5, right, top + 0.5);
    c.setLineDash([]);
    this.drawAxis(c, model, colours, bottom, right);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model["steps"][0]} bar @param {Model} model
   * @param {any} colours @param {number} top @param {number} height
   */
  drawBar(c, bar, model, colours, top, height) {
    const w = Math.max(3, this.column - 3);
    const x = this.x(bar.step) + (this.column - w) / 2;
    const scale = height / Math.max(1, model.budget);
    const given = bar.segments.reduce(
      (sum, segment) => sum + (segment.future ? 0 : segment.tokens),
      0,
    );
    let y = top + height;
    let slivers = 0;
    for (const segment of bar.segments) {
      const h = segment.tokens * scale;
      y -= h;
      if (h < 1) {
        slivers += h; // too thin to be told apart: drawn as one, at its true height
        continue;
      }
      this.drawSegment(
        c,
        x,
        y,
        w,
        h,
        slivers,
        segment.future,
        requestColour(segment.request, colours.theme),
        colours,
      );
      slivers = 0;
    }
    if (slivers > 0) this.drawSegment(c, x, y, w, 0, slivers, bar.future, "", colours);
    if (bar.inFlight && given > 0) this.drawInFlight(c, x, top + height, w, colours);
    if (bar.step !== model.step || given === 0) return;
    c.globalAlpha = 1;
    c.font = `600 11px ${colours.mono}`;
    c.textAlign = "center";
    c.fillStyle = colours.text;
    haloText(c, count(given), x + w / 2, top - 8, colours.panel);
  }

  /**
   * A dashed foot: the step is scheduled, and its output has not gone out.
   * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} w
   * @param {any} colours
   */
  drawInFlight(c, x, y, w, colours) {
    c.globalAlpha = 1;
    c.strokeStyle = colours.event;
    c.lineWidth = 2;
    c.setLineDash([3, 2]);
    line(c, x - 1, y + 2, x + w + 1, y + 2);
    c.setLineDash([]);
    c.lineWidth = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} w
   * @param {number} h @param {number} slivers height of those below it @param {boolean} future
   * @param {string} colour @param {any} colours
   */
  drawSegment(c, x, y, w, h, slivers, future, colour, colours) {
    c.globalAlpha = future ? FUTURE : 1;
    if (slivers > 0) {
      c.fillStyle = colours.muted;
      c.fillRect(x, y + h, w, slivers);
    }
    if (h === 0) return;
    c.fillStyle = colour;
    c.globalAlpha = future ? FUTURE_FILL : 1;
    c.fillRect(x, y, w, h > 3 ? h - 0.75 : h);
    if (!future) return;
    c.globalAlpha = FUTURE;
    c.fillRect(x, y, w, Math.min(h, 1.5)); // its height is still to be read
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Model} model @param {any} colours @param {number} y
   * @param {number} right
   */
  drawAxis(c, model, colours, y, right) {
    const every = this.column >= 28 ? 2 : this.column >= 18 ? 5 : 10;
    c.font = `10.5px ${colours.mono}`;
    c.textAlign = "center";
    for (let step = model.from; step <= model.to; step += 1) {
      if (step % every || step === model.step) continue;
      const x = this.x(step) + this.column / 2;
      if (x > right || Math.abs(step - model.step) * this.column < 26) continue;
      c.fillStyle = colours.muted;
      c.fillText(String(step), x, y + 14);
    }
    c.textAlign = "right";
    c.font = `11px ${colours.font}`;
    c.fillStyle = colours.muted;
    c.fillText("step", GUTTER - 12, y + 14);
    if (this.store.cursor < 0) return;
    const text = String(model.step);
    c.font = `600 10.5px ${colours.mono}`;
    const w = c.measureText(text).width + 12;
    const x = Math.max(
      GUTTER - w / 2,
      Math.min(right - w / 2, this.x(model.step) + this.column / 2 - w / 2),
    );
    c.fillStyle = colours.event;
    roundRect(c, x, y + 5, w, 17, 5);
    c.fill();
    c.fillStyle = colours.panel;
    c.textAlign = "center";
    c.fillText(text, x + w / 2, y + 14);
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
    if (x < GUTTER - 1 || x > this.bars.width) return;
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
    c.font = `${row.selected ? 700 : 500} 12px ${colours.mono}`;
    c.textAlign = "right";
    c.fillStyle = colour;
    const name = senderOf(this.store.state.requests?.[row.id]?.source);
    c.fillText(fit(c, name ? `${row.id} ${name}` : row.id, GUTTER - 18), GUTTER - 12, middle);
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
    this.bars.canvas.addEventListener("mousemove", (event) => this.hoverBar(event));
    this.bars.canvas.addEventListener("mouseleave", () => this.leave());
    this.bars.canvas.addEventListener("click", (event) => {
      seekStep(this.store, this.stepAt(this.bars.at(event).x));
    });
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

  /** @param {MouseEvent} event */
  hoverBar(event) {
    const step = this.stepAt(this.bars.at(event).x);
    const bar = this.model?.steps.find((item) => item.step === step);
    if (!bar || !bar.segments.length) return this.tip.hide();
    const total = bar.segments.reduce((sum, segment) => sum + segment.tokens, 0);
    const lines = bar.segments
      .slice(0, 10)
      .map((segment) => `${segment.request}: ${segment.tokens} ${segment.kind}`);
    if (bar.segments.length > 10) lines.push(`and ${bar.segments.length - 10} more`);
    this.tip.show(event, [
      `Step ${step}: ${total} of ${count(this.model?.budget ?? 0)} tokens`,
      ...lines,
      "measured: request_scheduled events",
    ]);
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
