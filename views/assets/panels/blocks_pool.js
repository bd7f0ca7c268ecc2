// @ts-check
/** The pool on a canvas: a cell for each block. */
import { requestColour } from "../words/colours.js";
import { drawFree, drawUncomputed, drawUsed } from "./blocks_cell.js";
import { Cells } from "./blocks_cells.js";
import { CACHED_FREE, NULL_BLOCK, TOUCH, USED, blockFacts } from "./blocks_model.js";
import { OUTLINES, blockLines } from "./blocks_words.js";
import { Plane, roundRect } from "./canvas.js";
import { Tip } from "./parts.js";

/** @import { Store } from "../core/store.js" */
/** @import { Model, Pool } from "./blocks_model.js" */

const MAX_CELL = 42;
const POOL_HEIGHT = 340;
/** Smaller cells are plain boxes: no names, no badges, no round corners. */
const PLAIN = 12;

const LINED = TOUCH.allocated | TOUCH.hit | TOUCH.freed;

/** Height of the lane above a row of cells in which lines run. @param {number} cell */
function lane(cell) {
  return cell >= 20 ? 7 : cell >= 10 ? 4 : 0;
}

export class PoolPlane {
  /** @param {Store} store @param {HTMLElement} root */
  constructor(store, root) {
    this.store = store;
    this.plane = new Plane("The pool of KV-cache blocks", "gbp-pool");
    this.plane.canvas.tabIndex = 0;
    this.tip = new Tip(root);
    this.cells = new Cells();
    this.labels = new Plane("");
    this.labelKey = "";
    this.cell = MAX_CELL;
    this.lane = 0;
    this.left = 40;
    this.top = 0;
    this.columns = 1;
    this.hovered = -1;
    /** @type {Model | null} */
    this.model = null;
    /** @type {(() => void) | undefined} */
    this.redraw = undefined;
    this.listen();
  }

  /** The largest cells with which the pool fits. @param {number} size @param {number} width */
  layout(size, width) {
    this.left = Math.ceil(18 + 6.5 * String(size).length);
    const room = width - this.left;
    let cell = MAX_CELL;
    while (
      cell > 4 &&
      Math.ceil(size / Math.floor(room / cell)) * (cell + lane(cell)) > POOL_HEIGHT
    )
      cell -= 1;
    let columns = Math.max(1, Math.floor(room / cell));
    if (columns > 10) columns -= columns % (columns >= 64 ? 16 : columns >= 24 ? 4 : 2);
    this.cell = cell;
    this.lane = lane(cell);
    this.columns = columns;
    this.top = Math.max(0, 6 - this.lane);
    return this.top + Math.ceil(size / columns) * (cell + this.lane);
  }

  /** Where a block's cell begins. @param {number} id */
  corner(id) {
    return {
      x: this.left + (id % this.columns) * this.cell,
      y: Math.floor(id / this.columns) * (this.cell + this.lane) + this.lane + this.top,
    };
  }

  /** Middle of a block's cell. @param {number} id */
  centre(id) {
    const { x, y } = this.corner(id);
    return { x: x + this.cell / 2, y: y + this.cell / 2 };
  }

  /** @param {Model} model @param {any} colours @param {number} width */
  draw(model, colours, width) {
    this.model = model;
    const { pool } = model;
    const height = this.layout(pool.size, width);
    const c = this.plane.begin(width, height + 2);
    c.textBaseline = "middle";
    c.drawImage(this.labelled(pool, height, colours), 0, 0, this.left, height);
    const gap = this.cell >= 20 ? 3 : this.cell >= 10 ? 2 : this.cell >= 6 ? 1 : 0.75;
    const hues = pool.owners.map((id) => requestColour(id, colours.theme));
    if (this.cell < PLAIN) this.drawCells(c, pool, gap, hues, colours);
    else
      for (let id = 0; id < pool.size; id += 1) this.drawBlock(c, pool, id, gap, hues, colours);
    c.globalAlpha = 1;
    for (const [id, bits] of model.marks) this.outline(c, id, bits, gap, colours);
    const chosen = this.store.selection?.block;
    if (typeof chosen === "number" && chosen < pool.size) this.ring(c, chosen, colours.text, 2.5);
    if (this.hovered >= 0 && this.hovered < pool.size)
      this.ring(c, this.hovered, colours.text, 1.25);
    if (model.queue.first.length) this.next(c, model.queue.first[0].block, colours);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Pool} pool @param {number} gap
   * @param {string[]} hues @param {any} colours
   */
  drawCells(c, pool, gap, hues, colours) {
    const { width, height, ratio } = this.plane;
    const { cell: side, columns, left, top, lane: above } = this;
    const sizes = [width, height, ratio, side, columns, left, top, above];
    const layout = [...sizes, pool.size, pool.blockSize].join(" ");
    const picture = this.cells.paint(
      { pool, hues, colours, layout },
      { width, height, side },
      (id) => this.corner(id),
      (on, id) => this.drawBlock(on, pool, id, gap, hues, colours),
    );
    c.drawImage(picture, 0, 0, width, height);
  }

  /**
   * The rows' names, kept as a picture: they stay while blocks come and go.
   * @param {Pool} pool @param {number} height @param {any} colours
   */
  labelled(pool, height, colours) {
    const { cell, columns, left, top, lane: above, plane } = this;
    const sizes = [plane.ratio, height, cell, columns, left, top, above, pool.size];
    const fonts = document.fonts.status; // the page's own may still be on their way
    const key = [...sizes, colours.theme, fonts].join(" ");
    if (key === this.labelKey) return this.labels.canvas;
    this.labelKey = key;
    this.drawLabels(this.labels.begin(left, height), pool, colours);
    return this.labels.canvas;
  }

  /** @param {CanvasRenderingContext2D} c @param {Pool} pool @param {any} colours */
  drawLabels(c, pool, colours) {
    c.textBaseline = "middle";
    c.font = `10.5px ${colours.mono}`;
    c.fillStyle = colours.muted;
    c.textAlign = "right";
    const every = Math.max(1, Math.ceil(14 / this.cell));
    for (let row = 0; row * this.columns < pool.size; row += every) {
      c.fillText(String(row * this.columns), this.left - 12, this.centre(row * this.columns).y);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Pool} pool @param {number} id @param {number} gap
   * @param {string[]} hues @param {any} colours
   */
  drawBlock(c, pool, id, gap, hues, colours) {
    const corner = this.corner(id);
    const lined = this.cell >= 20 && ((this.model?.marks.get(id) ?? 0) & LINED) !== 0;
    const inset = gap / 2 + (lined ? 3 : 0);
    const x = corner.x + inset;
    const y = corner.y + inset;
    const side = this.cell - 2 * inset;
    const kind = pool.kind[id];
    if (kind === USED) drawUsed(c, pool, id, x, y, side, hues, colours);
    else if (side < PLAIN) {
      c.globalAlpha = kind === CACHED_FREE ? 0.7 : kind === NULL_BLOCK ? 0.8 : 0.55;
      c.fillStyle =
        kind === CACHED_FREE ? colours.ok : kind === NULL_BLOCK ? colours.muted : colours.border;
      c.fillRect(x, y, side, side);
    } else drawFree(c, id, kind, x, y, side, colours);
    if (pool.uncomputed[id]) drawUncomputed(c, x, y, side, colours);
  }

  /**
   * What this step did: lines around the cell, and badges where there is room.
   * @param {CanvasRenderingContext2D} c @param {number} id @param {number} bits @param {number} gap
   * @param {any} colours
   */
  outline(c, id, bits, gap, colours) {
    const { x, y } = this.centre(id);
    const roomy = this.cell >= 20;
    let side = this.cell - gap - (roomy ? 0.5 : -1);
    for (const [bit, , name, how] of OUTLINES) {
      if (!(bits & bit)) continue;
      if (roomy && how !== "line" && how !== "dash") {
        this.badge(c, x, y, how, colours[name], colours);
        continue;
      }
      if (side < 2) return;
      c.strokeStyle = colours[name];
      c.lineWidth = roomy ? 2.25 : 1.5;
      c.setLineDash(how === "dash" && this.cell >= 10 ? [3, 2.5] : []);
      roundRect(c, x - side / 2, y - side / 2, side, side, roomy ? 6 : this.cell >= 12 ? 2 : 0);
      c.stroke();
      side -= roomy ? 5 : 3.5;
    }
    c.setLineDash([]);
    c.lineWidth = 1;
  }

  /**
   * Entered in the cache: below left. Evicted from it: above right.
   * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {string} sign
   * @param {string} colour @param {any} colours
   */
  badge(c, x, y, sign, colour, colours) {
    const r = this.cell >= 32 ? 6.5 : 5;
    const reach = this.cell / 2 - r + 1;
    const [bx, by] = sign === "+" ? [x - reach, y + reach] : [x + reach, y - reach];
    c.fillStyle = colours.panel;
    c.beginPath();
    c.arc(bx, by, r + 1.5, 0, 7);
    c.fill();
    c.fillStyle = colour;
    c.beginPath();
    c.arc(bx, by, r, 0, 7);
    c.fill();
    c.strokeStyle = colours.panel;
    c.lineWidth = 1.6;
    c.beginPath();
    const a = r * 0.5;
    if (sign === "×") {
      c.moveTo(bx - a, by - a);
      c.lineTo(bx + a, by + a);
      c.moveTo(bx + a, by - a);
      c.lineTo(bx - a, by + a);
    } else if (sign === "!") {
      c.moveTo(bx, by - a - 0.5);
      c.lineTo(bx, by + a * 0.3);
      c.moveTo(bx, by + a);
      c.lineTo(bx, by + a + 1);
    } else {
      c.moveTo(bx - a, by);
      c.lineTo(bx + a, by);
      if (sign === "+") {
        c.moveTo(bx, by - a);
        c.lineTo(bx, by + a);
      }
    }
    c.stroke();
    c.lineWidth = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {number} id @param {string} colour
   * @param {number} width
   */
  ring(c, id, colour, width) {
    const { x, y } = this.centre(id);
    const side = this.cell + 2;
    c.strokeStyle = colour;
    c.lineWidth = width;
    roundRect(c, x - side / 2, y - side / 2, side, side, this.cell >= 14 ? 6 : 1);
    c.stroke();
    c.lineWidth = 1;
  }

  /**
   * The block that will be given next.
   * @param {CanvasRenderingContext2D} c @param {number} id @param {any} colours
   */
  next(c, id, colours) {
    const { x, y } = this.centre(id);
    const size = Math.max(3, this.cell * 0.14);
    const foot = y + this.cell / 2 - 1;
    c.fillStyle = colours.text;
    c.beginPath();
    c.moveTo(x - size, foot);
    c.lineTo(x + size, foot);
    c.lineTo(x, foot - size * 1.4);
    c.fill();
  }

  // -- pointer and keys --------------------------------------------------------------------------

  listen() {
    const { canvas } = this.plane;
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => this.setHover(-1));
    canvas.addEventListener("click", (event) => this.choose(this.find(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {MouseEvent} event */
  find(event) {
    const { x, y } = this.plane.at(event);
    const column = Math.floor((x - this.left) / this.cell);
    const id =
      Math.floor(Math.max(0, y - this.top - this.lane / 2) / (this.cell + this.lane)) *
        this.columns +
      column;
    return column < 0 || column >= this.columns || id >= (this.model?.pool.size ?? 0) ? -1 : id;
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const id = this.find(event);
    this.setHover(id);
    if (id >= 0 && this.model)
      this.tip.show(event, blockLines(blockFacts(this.store, this.model.pool, id), this.model));
  }

  /** @param {number} id */
  setHover(id) {
    if (id < 0) this.tip.hide();
    if (id === this.hovered) return;
    this.hovered = id;
    this.plane.canvas.style.cursor = id < 0 ? "" : "pointer";
    this.redraw?.();
  }

  /** @param {number} id */
  choose(id) {
    if (id < 0 || !this.model) return;
    const { pool } = this.model;
    const owner = pool.owners[pool.owner[id]];
    const keeps = pool.refs[id] !== 1 || owner === undefined;
    this.store.select(keeps ? { block: id } : { block: id, request: owner });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    const move = moves[event.key];
    if (move === undefined || !this.model) return;
    const from = this.store.selection?.block;
    const to = typeof from === "number" ? from + move : 0;
    if (to >= 0 && to < this.model.pool.size) this.store.select({ block: to });
    event.preventDefault();
    event.stopPropagation();
  }
}
