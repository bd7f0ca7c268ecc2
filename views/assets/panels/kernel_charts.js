// @ts-check
/** What a program holds while it walks: the three numbers of the online softmax, row by row. */
import { el } from "../page/dom.js";
import { setTruth } from "../page/truth.js";
import { Plane } from "./canvas.js";

/** @import { Program, Visit } from "../words/kernel.js" */
/** @import { Palette } from "./canvas.js" */

/** @typedef {"maximum" | "total" | "norm"} Measure */

const HEIGHT = 64;
const ROOM = 46; // for the scale

/** @type {Record<Measure, {name: string, how: string}>} */
export const MEASURES = {
  maximum: {
    name: "Running maximum",
    how: "the largest score so far: by it all weights are measured, so that none overflows",
  },
  total: {
    name: "Running sum",
    how: "the weights so far, shrunk whenever a larger score comes; the output is divided by it",
  },
  norm: {
    name: "Norm of the output so far",
    how: "length of the weighted sum of values ÷ running sum: the output, if the walk ended here",
  },
};

/** One measure over the walk, a line for each row of the program. */
export class Chart {
  /** @param {Measure} measure */
  constructor(measure) {
    this.measure = measure;
    this.plane = new Plane(MEASURES[measure].name, "gbp-kchart");
    this.value = el("span", { class: "gbp-num" });
    this.element = el(
      "div",
      { class: "gbp-kmeasure" },
      el("p", {}, el("span", { text: MEASURES[measure].name }), this.value),
      this.plane.canvas,
    );
  }

  /** @param {Program} program @param {number} at @param {Palette} colours @param {number} width */
  draw(program, at, colours, width) {
    const { visits } = program;
    const c = this.plane.begin(width, HEIGHT);
    const values = visits.flatMap((visit) => known(visit, this.measure));
    const [low, high] = [Math.min(...values, Infinity), Math.max(...values, -Infinity)];
    const text = at ? rangeText(known(visits[at - 1], this.measure)) : "–";
    setTruth(
      this.value,
      "measured",
      `noted by the kernel after each page; ${MEASURES[this.measure].how}`,
      text,
    );
    this.plane.label(
      `${MEASURES[this.measure].name} after ${at} of ${visits.length} pages: ${text}`,
    );
    if (!values.length) return;
    const x = (/** @type {number} */ i) =>
      ROOM + ((i + 0.5) / Math.max(1, visits.length)) * (width - ROOM - 4);
    const y = (/** @type {number} */ value) =>
      high === low ? HEIGHT / 2 : 6 + ((high - value) / (high - low)) * (HEIGHT - 12);
    scale(c, low, high, colours, width);
    const rows = visits[0]?.[this.measure].length ?? 0;
    c.strokeStyle = c.fillStyle = colours.cloud;
    c.globalAlpha = Math.max(0.22, Math.min(1, 3 / rows));
    for (let row = 0; row < rows; row += 1)
      line(c, visits.slice(0, at), (visit) => visit[this.measure][row], x, y);
    c.globalAlpha = 1;
    if (at) mark(c, x(at - 1), colours);
  }
}

/** @param {Visit} visit @param {Measure} measure @returns {number[]} of the rows that have one */
function known(visit, measure) {
  return /** @type {number[]} */ (visit[measure].filter((value) => value !== null));
}

/** @param {number[]} values */
export function rangeText(values) {
  if (!values.length) return "–";
  const [low, high] = [Math.min(...values), Math.max(...values)].map((value) => short(value));
  return low === high ? low : `${low} to ${high}`;
}

/** @param {number} value */
function short(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

/**
 * @param {CanvasRenderingContext2D} c @param {number} low @param {number} high
 * @param {Palette} colours @param {number} width
 */
function scale(c, low, high, colours, width) {
  c.font = `10px ${colours.mono}`;
  c.textAlign = "right";
  c.textBaseline = "middle";
  c.fillStyle = colours.muted;
  c.strokeStyle = colours.border;
  c.lineWidth = 1;
  for (const [value, y] of high === low
    ? [[low, HEIGHT / 2]]
    : [
        [high, 6],
        [low, HEIGHT - 6],
      ]) {
    c.fillText(short(value), ROOM - 6, y);
    c.beginPath();
    c.moveTo(ROOM, y);
    c.lineTo(width, y);
    c.stroke();
  }
}

/**
 * @param {CanvasRenderingContext2D} c @param {Visit[]} visits
 * @param {(visit: Visit) => number | null} value @param {(i: number) => number} x
 * @param {(value: number) => number} y
 */
function line(c, visits, value, x, y) {
  let last = null;
  c.lineWidth = 1.6;
  c.beginPath();
  for (const [i, visit] of visits.entries()) {
    const here = value(visit);
    if (here === null) continue;
    if (last === null) c.moveTo(x(i), y(here));
    else c.lineTo(x(i), y(here));
    last = { x: x(i), y: y(here) };
  }
  c.stroke();
  if (!last) return;
  c.beginPath();
  c.arc(last.x, last.y, 2.4, 0, 2 * Math.PI);
  c.fill();
}

/** @param {CanvasRenderingContext2D} c @param {number} x @param {Palette} colours */
function mark(c, x, colours) {
  c.strokeStyle = colours.event;
  c.lineWidth = 1.5;
  c.beginPath();
  c.moveTo(x, 0);
  c.lineTo(x, HEIGHT);
  c.stroke();
}
