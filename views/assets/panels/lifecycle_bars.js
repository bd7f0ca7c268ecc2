// @ts-check
/** The bars of each step's tokens against the budget, above the rows of requests. */
import { requestColour } from "../words/colours.js";
import { count } from "../words/format.js";
import { Plane, haloText, roundRect } from "./canvas.js";
import { seekStep } from "./cursor.js";
import { FUTURE, FUTURE_FILL, line } from "./lifecycle_cells.js";

/** @import { Model } from "./lifecycle_model.js" */
/** @import { Timeline } from "./lifecycle_timeline.js" */

/** What stands before the first step and behind the last, in pixels. */
export const GUTTER = 84;
export const RIGHT = 44;
/** Where the bars stand on their canvas. */
export const BARS = { top: 16, height: 66 };
const AXIS = 22;
export const BARS_WHOLE = BARS.top + BARS.height + AXIS + 2;

export class StepBars {
  /** @param {Timeline} timeline whose steps they are of */
  constructor(timeline) {
    this.timeline = timeline;
    this.plane = new Plane("Tokens of each step against the budget", "gbp-bars");
    const { canvas } = this.plane;
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => timeline.leave());
    canvas.addEventListener("click", (event) => {
      seekStep(timeline.store, timeline.stepAt(this.plane.at(event).x));
    });
  }

  /** @param {Model} model @param {any} colours @param {number} width */
  draw(model, colours, width) {
    const { top, height } = BARS;
    const bottom = top + height;
    const c = this.plane.begin(width, BARS_WHOLE);
    const right = width - 4;
    this.timeline.band(c, model, colours, 0, BARS_WHOLE);
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
    this.timeline.playhead(c, model, colours, top, bottom + 5);
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
    const w = Math.max(3, this.timeline.column - 3);
    const x = this.timeline.x(bar.step) + (this.timeline.column - w) / 2;
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
    const every = this.timeline.column >= 28 ? 2 : this.timeline.column >= 18 ? 5 : 10;
    c.font = `10.5px ${colours.mono}`;
    c.textAlign = "center";
    for (let step = model.from; step <= model.to; step += 1) {
      if (step % every || step === model.step) continue;
      const x = this.timeline.x(step) + this.timeline.column / 2;
      if (x > right || Math.abs(step - model.step) * this.timeline.column < 26) continue;
      c.fillStyle = colours.muted;
      c.fillText(String(step), x, y + 14);
    }
    c.textAlign = "right";
    c.font = `11px ${colours.font}`;
    c.fillStyle = colours.muted;
    c.fillText("step", GUTTER - 12, y + 14);
    if (this.timeline.store.cursor < 0) return;
    const text = String(model.step);
    c.font = `600 10.5px ${colours.mono}`;
    const w = c.measureText(text).width + 12;
    const x = Math.max(
      GUTTER - w / 2,
      Math.min(right - w / 2, this.timeline.x(model.step) + this.timeline.column / 2 - w / 2),
    );
    c.fillStyle = colours.event;
    roundRect(c, x, y + 5, w, 17, 5);
    c.fill();
    c.fillStyle = colours.panel;
    c.textAlign = "center";
    c.fillText(text, x + w / 2, y + 14);
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const step = this.timeline.stepAt(this.plane.at(event).x);
    const bar = this.timeline.model?.steps.find((item) => item.step === step);
    if (!bar || !bar.segments.length) return this.timeline.tip.hide();
    const total = bar.segments.reduce((sum, segment) => sum + segment.tokens, 0);
    const lines = bar.segments
      .slice(0, 10)
      .map((segment) => `${segment.request}: ${segment.tokens} ${segment.kind}`);
    if (bar.segments.length > 10) lines.push(`and ${bar.segments.length - 10} more`);
    this.timeline.tip.show(event, [
      `Step ${step}: ${total} of ${count(this.timeline.model?.budget ?? 0)} tokens`,
      ...lines,
      "measured: request_scheduled events",
    ]);
  }
}
