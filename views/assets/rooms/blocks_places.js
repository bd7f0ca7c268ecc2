// @ts-check
/** Where the free queue, the hash map and the block tables lie in a room, with what cells. */

/** @import { Model } from "./blocks_model.js" */

/**
 * @typedef {{x: number, y: number, w: number, h: number}} Area
 * @typedef {{side: number, gap: number, apart: number, columns: number, wraps: boolean}} TableGrid
 *   pixels of a cell, between cells and between tables; cells in a line; whether there are more
 */

export const HEAD = 24; // pixels of a title
export const GAP = 3;
const SIDES = [26, 22, 18, 13, 9, 6]; // of a block's cell, the largest that fits is taken
const TABLE_SIDES = [28, 25, 22, 20, 18, 11];
const WIDE = 480;

/**
 * The whole pool fits in the free queue's place where it can, so that nothing moves as it empties.
 * @param {number} w @param {number} h @param {Model} data
 * @returns {{free: Area, map: Area, tables: Area}}
 */
export function areasOf(w, h, { pool, caching }) {
  const wide = w >= WIDE;
  const left = wide ? Math.floor(w * 0.37) : w;
  const high = wide ? h : Math.floor(h * 0.56);
  const most = { x: 2, y: 0, w: left - 4, h: Math.floor(high * (caching ? 0.5 : 0.8)) };
  const { side, columns, fits } = cellsIn(most, pool.size - 1);
  const rows = Math.ceil(Math.min(fits, pool.size - 1) / columns);
  const top = HEAD + rows * (side + GAP) + 16;
  const below = wide ? 0 : high + 6;
  return {
    free: { ...most, h: top - 16 },
    map: { x: 2, y: top, w: left - 4, h: high - top },
    tables: wide
      ? { x: left + 24, y: 0, w: w - left - 26, h }
      : { x: 2, y: below, w: w - 4, h: h - below },
  };
}

/** The largest cells with which so many fit. @param {Area} area @param {number} n */
export function cellsIn(area, n) {
  let found = { side: 0, columns: 1, fits: 1 };
  for (const side of SIDES) {
    const columns = Math.max(3, Math.floor((area.w + GAP) / (side + GAP)));
    const rows = Math.max(1, Math.floor((area.h - HEAD + GAP) / (side + GAP)));
    found = { side, columns, fits: columns * rows };
    if (found.fits >= n) break;
    // Below this a block's number cannot be read: the middle is left out instead.
    if (side <= 13 && n > 2000) break;
  }
  return found;
}

/**
 * The largest cells with which all tables are in sight whole, a long one in several lines; where
 * there are none, cells in which a block's number can be read, with the middles left out.
 * @param {{blocks: number[]}[]} tables @param {number} w @param {number} h @returns {TableGrid}
 */
export function tableGrid(tables, w, h) {
  const readable = tables.length * 27 <= h ? 20 : 11;
  for (const side of [...TABLE_SIDES, 0]) {
    const wraps = side > 0;
    const cell = side || readable;
    const gap = cell >= 25 ? GAP : 2;
    const apart = cell >= 18 ? 7 : 4;
    const columns = Math.max(3, Math.floor((w + gap) / (cell + gap)));
    const grid = { side: cell, gap, apart, columns, wraps };
    const lines = tables.reduce((sum, table) => sum + linesOf(table, grid), 0);
    if (!wraps || lines * (cell + gap) + tables.length * (apart - gap) <= h + apart) return grid;
  }
  throw new Error("unreachable: the last one is always taken");
}

/** @param {{blocks: number[]}} table @param {TableGrid} grid */
export function linesOf({ blocks }, { columns, wraps }) {
  return wraps ? Math.max(1, Math.ceil(blocks.length / columns)) : 1;
}
