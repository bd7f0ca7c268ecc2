// @ts-check
/**
 * The cells of a large pool, kept as a picture of their own: a frame paints those anew that are
 * not what they were, however many blocks there are.
 *
 * A picture is good for one layout and one palette; where either changes, all cells are painted.
 * So they always are on a screen that has no whole number of points to a pixel, where neighbours
 * share some. Cells must be boxes out of which nothing sticks, on whole pixels.
 */
import { USED } from "./blocks_model.js";
import { Plane } from "./canvas.js";

/** @import { Pool } from "./blocks_model.js" */
/** @import { Palette } from "./canvas.js" */

/**
 * @typedef {{pool: Pool, hues: string[], colours: Palette, layout: string}} Painted what cells were
 *   painted of
 */

export class Cells {
  constructor() {
    this.plane = new Plane("");
    /** @type {Painted|null} */
    this.before = null;
    /** How many cells the last painting painted. */
    this.count = 0;
  }

  /**
   * Paint what has changed.
   * @param {Painted} now @param {{width: number, height: number, side: number}} size of all, and
   *   of a cell
   * @param {(id: number) => {x: number, y: number}} corner of a cell
   * @param {(c: CanvasRenderingContext2D, id: number) => void} paint
   * @returns {HTMLCanvasElement} the picture
   */
  paint(now, { width, height, side }, corner, paint) {
    const { before, plane } = this;
    const isKept = before?.layout === now.layout && before.colours === now.colours;
    const whole = !isKept || !Number.isInteger(plane.ratio);
    const c = whole ? plane.begin(width, height) : plane.context;
    this.before = now;
    this.count = 0;
    for (let id = 0; id < now.pool.size; id += 1) {
      if (!whole && isSame(before, now, id)) continue;
      const { x, y } = corner(id);
      if (!whole) c.clearRect(x, y, side, side);
      paint(c, id);
      this.count += 1;
    }
    c.globalAlpha = 1;
    return plane.canvas;
  }
}

/** Whether a block is drawn as it was. @param {Painted} a @param {Painted} b @param {number} id */
function isSame({ pool: a, hues: before }, { pool: b, hues: now }, id) {
  if (a.kind[id] !== b.kind[id] || a.uncomputed[id] !== b.uncomputed[id]) return false;
  if (a.kind[id] !== USED) return true;
  return (
    a.fill[id] === b.fill[id] &&
    a.scheduled[id] === b.scheduled[id] &&
    a.stale[id] === b.stale[id] &&
    before[a.owner[id]] === now[b.owner[id]] &&
    sharersOf(a, before, id) === sharersOf(b, now, id)
  );
}

/** @param {Pool} pool @param {string[]} hues @param {number} id */
function sharersOf({ sharers }, hues, id) {
  return sharers.get(id)?.map((place) => hues[place]).join();
}
