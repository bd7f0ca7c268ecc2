// @ts-check
/** The blocks of the KV-cache manager's room: each a cell in its queue or table, or on its way. */
import {
  drawFree,
  drawFull,
  drawManyCached,
  drawUsed,
  hasName,
  isFull,
} from "../panels/blocks_cell.js";
import { CACHED_FREE, TOUCH, USED, blockFacts } from "../panels/blocks_model.js";
import { blockLines } from "../panels/blocks_words.js";
import { roundRect } from "../panels/canvas.js";
import * as words from "../words/rooms.js";

/** @import { Store } from "../core/store.js" */
/** @import { Palette } from "../panels/canvas.js" */
/** @import { Model } from "./blocks_model.js" */
/** @import { Board } from "./board.js" */
/** @import { Flights } from "./flights.js" */

const LEAST_FRAMED = 12; // pixels of a free block's cell that has a frame

export class BlockCells {
  /** @param {Store} store @param {Board} board @param {Flights} flights */
  constructor(store, board, flights) {
    this.store = store;
    this.board = board;
    this.flights = flights;
    this.data = /** @type {Model} */ (/** @type {unknown} */ (null));
    /** @type {string[]} of the pool's owners */
    this.hues = [];
  }

  /** @param {Model} data that the next picture is of @param {string[]} hues */
  begin(data, hues) {
    this.data = data;
    this.hues = hues;
  }

  /**
   * Blocks that are in their places, not on their way there.
   * @param {CanvasRenderingContext2D} c @param {BlockSpot[]} spots of one queue or table
   * @param {number} side @param {Palette} colours
   */
  put(c, spots, side, colours) {
    if (!spots.length) return;
    const { pool } = this.data;
    const [{ kind, key }] = spots;
    const name = key ? `${kind} ${key}` : kind;
    const there = spots.filter(
      ({ of: block, x, y }) => !this.flights.passes(name, block, x, y, side),
    );
    // Those of which there are many, and which look alike.
    const isPlain = !hasName(side) && side >= LEAST_FRAMED;
    const cached = there.filter(({ of }) => isPlain && pool.kind[of] === CACHED_FREE);
    const full = there.filter(({ of }) => isFull(pool, of, side));
    if (cached.length) drawManyCached(c, cached, side, colours);
    if (full.length) drawFull(c, pool, full, side, this.hues, colours);
    const done = new Set([...cached, ...full]);
    for (const spot of there) {
      if (!done.has(spot)) this.cell(c, spot.of, spot.x, spot.y, side, colours);
      this.board.spot(spot);
    }
    for (const { of: block, x, y } of there) this.mark(c, block, x, y, side, colours);
  }

  /** @param {number} block @param {number} place @param {string} [request] */
  lines(block, place, request) {
    const data = /** @type {any} */ (this.data);
    const lines = blockLines(blockFacts(this.store, data.pool, block), data);
    if (request !== undefined) lines.splice(1, 0, words.logicalOf(request, place));
    return lines;
  }

  /**
   * A block on its way.
   * @param {CanvasRenderingContext2D} c @param {number} id @param {number} x @param {number} y
   * @param {number} side @param {Palette} colours
   */
  flying(c, id, x, y, side, colours) {
    this.cell(c, id, x, y, side, colours);
    this.mark(c, id, x, y, side, colours);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {number} id @param {number} x @param {number} y
   * @param {number} side @param {Palette} colours
   */
  cell(c, id, x, y, side, colours) {
    const { pool } = this.data;
    const kind = pool.kind[id];
    if (kind === USED) drawUsed(c, pool, id, x, y, side, this.hues, colours);
    else if (side >= LEAST_FRAMED) drawFree(c, id, kind, x, y, side, colours);
    else {
      c.globalAlpha = kind === CACHED_FREE ? 0.7 : 1;
      c.fillStyle = kind === CACHED_FREE ? colours.ok : colours.border;
      c.fillRect(x, y, side, side);
    }
    c.globalAlpha = 1;
  }

  /**
   * What this step did to a block, and whether it is chosen.
   * @param {CanvasRenderingContext2D} c @param {number} id @param {number} x @param {number} y
   * @param {number} side @param {Palette} colours
   */
  mark(c, id, x, y, side, colours) {
    const bits = this.data.marks.get(id) ?? 0;
    if (bits) ring(c, x, y, side, bits, colours);
    if (this.store.selection.block === id) {
      c.strokeStyle = colours.text;
      c.lineWidth = 2;
      roundRect(c, x - 2, y - 2, side + 4, side + 4, 5);
      c.stroke();
    }
  }
}

/** Where a block stands in the free queue or in a table. */
export class BlockSpot {
  /**
   * @param {BlockCells} cells @param {"free" | "table"} kind @param {number} block
   * @param {{x: number, y: number, side: number}} where @param {number} place in it, from its head
   * @param {string} [request] whose table it is
   */
  constructor(cells, kind, block, { x, y, side }, place, request) {
    this.cells = cells;
    this.kind = kind;
    this.key = request ?? "";
    this.of = block;
    this.x = x;
    this.y = y;
    this.w = this.h = side;
    this.place = place;
  }

  lines() {
    const { cells, kind, key, of: block, place } = this;
    return cells.lines(block, place, kind === "table" ? key : undefined);
  }

  choose() {
    this.cells.store.select({ block: this.of });
  }
}

/**
 * What this step did to a block.
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
 * @param {number} bits @param {Palette} colours
 */
function ring(c, x, y, side, bits, colours) {
  const { allocated, hit, freed, evicted } = TOUCH;
  const gone = bits & freed ? colours.text : "";
  const colour = bits & allocated ? colours.event : bits & hit ? colours.accent : gone;
  if (colour) {
    c.strokeStyle = colour;
    c.lineWidth = side >= 22 ? 2 : 1.25;
    c.setLineDash(bits & (allocated | hit) ? [] : [3, 2.5]);
    roundRect(c, x - 1, y - 1, side + 2, side + 2, side >= 12 ? 5 : 1);
    c.stroke();
    c.setLineDash([]);
  }
  if (!(bits & evicted) || side < 16) return;
  c.strokeStyle = colours.bad;
  c.lineWidth = 1.75;
  c.beginPath();
  c.moveTo(x + side - 6, y + 1);
  c.lineTo(x + side - 1, y + 6);
  c.moveTo(x + side - 1, y + 1);
  c.lineTo(x + side - 6, y + 6);
  c.stroke();
}
