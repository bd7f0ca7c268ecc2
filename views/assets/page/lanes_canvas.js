// @ts-check
/**
 * Two threads in time, as they ran: the engine's above, the executor's below, in each the phases
 * of the steps where their patches say that they were, and lit between them when both were busy.
 * Time in which neither was is cut out.
 */
import { atOrBefore } from "../core/sorted.js";
import { traceIndex } from "../core/trace_index.js";
import { Plane, roundRect } from "../panels/canvas.js";
import { micros } from "../words/format.js";
import { THREADS } from "../words/lanes.js";

/** @import { Lanes } from "../core/lanes.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Run, TraceIndex } from "../core/trace_index.js" */
/** @import { Palette } from "../panels/canvas.js" */

const BAR = 20;
const GAP = 12;
const LANES_HEIGHT = 2 * BAR + GAP;
/** The cursor's place in the window, how many steps fit into it, and lines of its grid. */
const AT = 0.62;
const STEPS = 3;
const LINES = 10;
const LEAST = 2; // pixels
const FUTURE = 0.3;
const TOP = { engine: 0, executor: BAR + GAP };

/** @type {Record<string, number>} what takes the time stands out */
const WEIGHT = { schedule: 0.95, execute: 0.95, prepare: 0.7, sample: 0.7, update: 0.7 };

export class LanesCanvas {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.plane = new Plane(THREADS.name, "gb-lanes-canvas");
    this.whole = 0; // microseconds across
    this.zoom = 1;
    this.scale = 0; // microseconds across, as drawn
    /** @type {{run: Run, x: number, w: number}[]} */
    this.drawn = [];
    const { canvas } = this.plane;
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("click", (event) => {
      const found = this.find(event);
      if (found) store.seek(found.run.i);
    });
  }

  /** @param {Lanes} lanes @param {Palette} colours @param {number} width */
  draw(lanes, colours, width) {
    const index = traceIndex(this.store);
    const c = this.plane.begin(width, LANES_HEIGHT);
    const place = atOrBefore(index.runs.length, (k) => index.runs[k].i, this.store.cursor);
    this.fitScale(index, place);
    const now = index.engineTime(lanes.t);
    const from = now - AT * this.scale;
    const x = (/** @type {number} */ t) => ((index.engineTime(t) - from) / this.scale) * width;
    this.rails(c, colours, width, from);
    this.drawn = this.visible(index, place, from)
      .map((run) => ({ run, x: x(run.start), w: Math.max(LEAST, x(run.end) - x(run.start)) }))
      .filter((bar) => bar.x < width && bar.x + bar.w > 0);
    this.breaks(c, index, x, colours);
    this.light(c, colours, lanes.t, x);
    for (const bar of this.drawn) this.bar(c, bar, colours, x(lanes.t));
    this.handOver(c, colours);
    if (index.runs.length) this.playhead(c, colours, x(lanes.t));
  }

  /** Microseconds from one line to the next. */
  get grid() {
    return this.scale / LINES;
  }

  /**
   * So that a few steps fit; a window once chosen stays while they do.
   * @param {TraceIndex} index @param {number} place
   */
  fitScale(index, place) {
    const wanted = STEPS * stepTime(index, place);
    if (this.whole < wanted || this.whole > 2.5 * wanted) this.whole = roundUp(1.1 * wanted);
    this.scale = this.whole / this.zoom;
  }

  /** @param {TraceIndex} index @param {number} place @param {number} from @returns {Run[]} */
  visible({ runs, engineTime, ...index }, place, from) {
    const time = (/** @type {number} */ t) => engineTime.call(index, t);
    let first = Math.max(0, place);
    while (first > 0 && time(runs[first].end) > from) first -= 1;
    let end = place + 1;
    while (end < runs.length && time(runs[end].start) < from + this.scale) end += 1;
    // One that ends later may have begun before.
    return runs.slice(first, end + 4);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Palette} colours @param {number} width
   * @param {number} from
   */
  rails(c, colours, width, from) {
    c.fillStyle = colours["panel-2"];
    for (const top of Object.values(TOP)) {
      roundRect(c, 0, top, width, BAR, 4);
      c.fill();
    }
    c.fillStyle = colours.border;
    for (let line = Math.ceil(from / this.grid); line * this.grid < from + this.scale; line += 1) {
      const x = Math.round(((line * this.grid - from) / this.scale) * width);
      for (const top of Object.values(TOP)) c.fillRect(x, top, 1, BAR);
    }
  }

  /**
   * Where both threads are in a phase.
   * @param {CanvasRenderingContext2D} c @param {Palette} colours @param {number} now
   * @param {(t: number) => number} x
   */
  light(c, colours, now, x) {
    c.fillStyle = colours.ok;
    for (const { run: one } of this.drawn) {
      if (one.lane !== "engine") continue;
      for (const { run: other } of this.drawn) {
        const [start, end] = [Math.max(one.start, other.start), Math.min(one.end, other.end)];
        if (other.lane === "engine" || start >= end) continue;
        const w = Math.max(LEAST, x(end) - x(start));
        c.globalAlpha = start > now ? FUTURE : 1;
        c.fillRect(x(start), BAR + 2, w, GAP - 4);
      }
    }
    c.globalAlpha = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {{run: Run, x: number, w: number}} bar
   * @param {Palette} colours @param {number} now where the cursor is
   */
  bar(c, { run, x, w }, colours, now) {
    const top = TOP[run.lane];
    const weight = WEIGHT[run.phase] ?? 0.5;
    c.fillStyle = stepColour(run.step, colours);
    for (const [from, to, alpha] of [
      [x, Math.min(x + w, now), weight],
      [Math.max(x, now), x + w, weight * FUTURE],
    ]) {
      if (to <= from) continue;
      c.globalAlpha = alpha;
      roundRect(c, from, top, to - from - (w > 6 ? 0.75 : 0), BAR, 3);
      c.fill();
    }
    c.globalAlpha = 1;
    this.name(c, run, x, w, top, colours, now);
  }

  /**
   * In the part before or behind the cursor, whichever has more room.
   * @param {CanvasRenderingContext2D} c @param {Run} run @param {number} x @param {number} w
   * @param {number} top @param {Palette} colours @param {number} now
   */
  name(c, { phase, step }, x, w, top, colours, now) {
    const [from, to] = [Math.max(x, 0), Math.min(x + w, this.plane.width)];
    const behind = Math.min(to, now) - from < to - Math.max(from, now);
    const at = behind ? Math.max(from, now) : from;
    const room = (behind ? to : Math.min(to, now)) - at;
    c.font = `600 11px ${colours.font}`;
    const texts = [`${phase} ${step}`, String(step)];
    const text = texts.find((each) => c.measureText(each).width <= room - 8);
    if (!text) return;
    c.textBaseline = "middle";
    c.textAlign = "left";
    c.fillStyle = behind || (WEIGHT[phase] ?? 0) < 0.9 ? colours.text : colours.panel;
    c.fillText(text, at + 5, top + BAR / 2 + 0.5);
  }

  /**
   * A step goes to the executor once it is scheduled, and comes back once it has sampled.
   * @param {CanvasRenderingContext2D} c @param {Palette} colours
   */
  handOver(c, colours) {
    const at = (/** @type {string} */ phase, /** @type {number} */ step) =>
      this.drawn.find(({ run }) => run.phase === phase && run.step === step);
    c.lineWidth = 1.5;
    for (const { run, x, w } of this.drawn) {
      const down = run.phase === "schedule" ? at("prepare", run.step) : undefined;
      const up = run.phase === "sample" ? at("update", run.step) : undefined;
      const to = down ?? up;
      if (!to) continue;
      c.strokeStyle = stepColour(run.step, colours);
      const [y1, y2] = down ? [BAR, BAR + GAP] : [BAR + GAP, BAR];
      c.beginPath();
      c.moveTo(x + w - 1, y1);
      c.bezierCurveTo(x + w - 1, (y1 + y2) / 2, to.x + 1, (y1 + y2) / 2, to.x + 1, y2);
      c.stroke();
    }
    c.lineWidth = 1;
  }

  /**
   * Where neither thread was in a phase: time is cut out.
   * @param {CanvasRenderingContext2D} c @param {TraceIndex} index @param {(t: number) => number} x
   * @param {Palette} colours
   */
  breaks(c, { busy }, x, colours) {
    if (!this.drawn.length) return;
    const [first, last] = [this.drawn[0].run.start, this.drawn[this.drawn.length - 1].run.end];
    let k = atOrBefore(busy.length, (i) => busy[i].start, first);
    c.strokeStyle = colours.faint;
    c.setLineDash([2, 3]);
    for (k = Math.max(1, k); k < busy.length && busy[k].start <= last; k += 1) {
      if (busy[k].start - busy[k - 1].end < this.scale / 50) continue;
      const at = Math.round(x(busy[k].start)) + 0.5;
      c.beginPath();
      c.moveTo(at, BAR);
      c.lineTo(at, BAR + GAP);
      c.stroke();
    }
    c.setLineDash([]);
  }

  /** @param {CanvasRenderingContext2D} c @param {Palette} colours @param {number} x */
  playhead(c, colours, x) {
    c.fillStyle = colours.event;
    c.fillRect(x - 1, 0, 2, LANES_HEIGHT);
  }

  /** @param {MouseEvent} event */
  find(event) {
    const { x, y } = this.plane.at(event);
    const lane = y < BAR + GAP / 2 ? "engine" : "executor";
    return this.drawn.findLast(
      (bar) => bar.run.lane === lane && x >= bar.x - 1 && x <= bar.x + bar.w + 1,
    );
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const { canvas } = this.plane;
    const run = this.find(event)?.run;
    canvas.style.cursor = run ? "pointer" : "";
    canvas.title = run
      ? `${run.phase} of step ${run.step}: ${micros(run.end - run.start)}\n` +
        `measured: patch ${this.store.header.base_seq + run.i} of the log; click to go there`
      : "";
  }
}

/** Steps that follow each other differ. @param {number} step @param {Palette} colours */
function stepColour(step, colours) {
  return step % 2 ? colours.cloud : colours.backend;
}

/**
 * How long a step takes around a place: the median from one output to the next.
 * @param {TraceIndex} index @param {number} place
 */
function stepTime(index, place) {
  const ends = index.runs
    .slice(Math.max(0, place - 42), place + 21)
    .filter((run) => run.phase === "output")
    .map((run) => index.engineTime(run.end));
  const times = ends.slice(1).map((end, i) => end - ends[i]);
  if (!times.length) return index.engineTime(index.runs.at(-1)?.end ?? 0) || 10_000;
  return times.sort((a, b) => a - b)[times.length >> 1];
}

/** @param {number} us @returns {number} 1, 2 or 5 times a power of ten */
function roundUp(us) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, us)));
  return [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= us) ?? 10 * unit;
}
