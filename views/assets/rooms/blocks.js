// @ts-check
/**
 * The KV-cache manager's inside: the free queue, the hash map and the block tables on one canvas,
 * so that a block that leaves one of them can be seen on its way to another.
 */
import { TOUCH, USED } from "../panels/blocks_model.js";
import { Touches } from "../panels/blocks_touches.js";
import { fit, linesIn, roundRect } from "../panels/canvas.js";
import { Pace } from "../page/pace.js";
import { requestColour } from "../words/colours.js";
import { count } from "../words/format.js";
import * as words from "../words/rooms.js";
import { BlockCells, BlockSpot } from "./blocks_cells.js";
import { entriesOf, freeFrom, model } from "./blocks_model.js";
import { GAP, HEAD, areasOf, cellsIn, linesOf, tableGrid } from "./blocks_places.js";
import { Board } from "./board.js";
import { Flights } from "./flights.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Palette } from "../panels/canvas.js" */
/** @import { Model } from "./blocks_model.js" */
/** @import { Area, TableGrid } from "./blocks_places.js" */

const ENTRY = { w: 104, h: 19 };
const LINE = 17; // pixels from line to line of a note
const NAME = 42; // pixels for a request's name before its table
const GAP_CELLS = 2; // cells that stand for those that are left out

/** Events that change what is drawn; the rest is the state. */
const DRAWN_OF = [
  "blocks_allocated",
  "blocks_hit",
  "blocks_cached",
  "block_evicted",
  "blocks_freed",
  "blocks_uncached",
  "blocks_left_uncomputed",
  "request_scheduled",
  "forward_run",
];

class BlocksRoom {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    /** @type {Model|null} */
    this.data = null;
    /** @type {string[]} */
    this.hues = [];
    this.drawn = "";
    this.board = new Board(root, words.BLOCKS, (c, size, colours) => this.draw(c, size, colours), {
      caption: words.BLOCKS,
      columns: words.BLOCK_COLUMNS,
      rows: () => this.twinRows(),
    });
    this.touches = new Touches();
    this.board.place.before(this.touches.element);
    this.flights = new Flights(() => this.board.paint());
    this.cells = new BlockCells(store, this.board, this.flights);
    this.words = new Pace(store, () => {
      if (this.data) this.touches.update(this.data.touched);
    });
  }

  destroy() {
    this.flights.stop();
    this.words.stop();
    this.board.destroy();
  }

  /** Whether it has not drawn what is new yet. */
  get waits() {
    return this.words.waits;
  }

  /** @param {Moment} now */
  update(now) {
    const key = `${now.key(...DRAWN_OF)} ${this.store.changedAt} ${this.store.selection.block}`;
    if (key === this.drawn) {
      if (this.words.waits) this.words.update();
      return;
    }
    this.drawn = key;
    this.data = model(this.store, now);
    // Canvases first: a font set on a canvas makes the browser work through changed elements.
    this.flights.begin();
    this.board.update();
    this.flights.end();
    this.words.update();
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {{w: number, h: number}} size
   * @param {Palette} colours
   */
  draw(c, { w, h }, colours) {
    const { data } = this;
    if (!data) return;
    this.hues = data.pool.owners.map((id) => requestColour(id, colours.theme));
    this.cells.begin(data, this.hues);
    const { free, map, tables } = areasOf(w, h, data);
    this.drawQueue(c, free, data, colours);
    this.drawMap(c, map, data, colours);
    this.drawTables(c, tables, data, colours);
    this.flights.draw((block, x, y, side) => this.cells.flying(c, block, x, y, side, colours));
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Area} area @param {string} name
   * @param {string} size @param {Palette} colours
   */
  head(c, area, name, size, colours) {
    c.textAlign = "left";
    const plain = `600 12px ${colours.font}`;
    c.font = plain;
    c.fillStyle = colours.muted;
    const title = fit(c, name, area.w - 60, plain);
    c.fillText(title, area.x, area.y + 8);
    const at = area.x + c.measureText(title).width + 8;
    const mono = `600 12px ${colours.mono}`;
    c.font = mono;
    c.fillStyle = colours.text;
    c.fillText(fit(c, size, area.x + area.w - at, mono), at, area.y + 8);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Area} area @param {string} text
   * @param {Palette} colours
   */
  note(c, area, text, colours) {
    c.font = `400 12.5px ${colours.font}`;
    c.fillStyle = colours.muted;
    c.textAlign = "left";
    linesIn(c, text, area.w).forEach((line, i) => {
      c.fillText(line, area.x, area.y + HEAD + 12 + i * LINE);
    });
  }

  // -- the free queue ----------------------------------------------------------------------------

  /**
   * @param {CanvasRenderingContext2D} c @param {Area} area @param {Model} data
   * @param {Palette} colours
   */
  drawQueue(c, area, data, colours) {
    const all = data.pool.size - 1;
    this.head(c, area, words.FREE_QUEUE, `${count(data.free)} / ${count(all)}`, colours);
    if (!data.free) this.note(c, area, words.NONE_FREE, colours);
    const { side, columns, fits } = cellsIn(area, all);
    const whole = data.free <= fits;
    const first = whole ? data.free : Math.max(1, fits - columns - GAP_CELLS);
    const last = whole ? 0 : fits - first - GAP_CELLS;
    const cells = [
      ...freeFrom(data.state, "head", first),
      ...freeFrom(data.state, "tail", last).reverse(),
    ];
    const spots = cells.map((block, i) => {
      const place = i < first ? i : i + GAP_CELLS;
      const x = area.x + (place % columns) * (side + GAP);
      const y = area.y + HEAD + Math.floor(place / columns) * (side + GAP);
      const from = i < first ? i : data.free - (cells.length - i);
      return new BlockSpot(this.cells, "free", block, { x, y, side }, from);
    });
    this.cells.put(c, spots, side, colours);
    if (data.free && side >= 9) this.arrow(c, area.x, area.y + HEAD, side, colours);
    if (!whole) this.leftOut(c, area, first, columns, side, data.free - first - last, colours);
  }

  /**
   * The block that is given next.
   * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
   * @param {Palette} colours
   */
  arrow(c, x, y, side, colours) {
    c.fillStyle = colours.text;
    c.beginPath();
    c.moveTo(x + side / 2 - 4, y - 5);
    c.lineTo(x + side / 2 + 4, y - 5);
    c.lineTo(x + side / 2, y - 0.5);
    c.fill();
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Area} area @param {number} place
   * @param {number} columns @param {number} side @param {number} n @param {Palette} colours
   */
  leftOut(c, area, place, columns, side, n, colours) {
    const x = area.x + (place % columns) * (side + GAP);
    const y = area.y + HEAD + Math.floor(place / columns) * (side + GAP);
    c.font = `600 10.5px ${colours.mono}`;
    c.textAlign = "left";
    c.fillStyle = colours.muted;
    c.fillText("…", x + 2, y + side / 2);
    this.board.spot({
      kind: "left out",
      key: "free",
      of: n,
      x,
      y,
      w: GAP_CELLS * (side + GAP),
      h: side,
      lines: () => [words.leftOut(n), words.LEFT_OUT_HOW],
    });
  }

  // -- the hash map ------------------------------------------------------------------------------

  /**
   * @param {CanvasRenderingContext2D} c @param {Area} area @param {Model} data
   * @param {Palette} colours
   */
  drawMap(c, area, data, colours) {
    const size = data.caching ? words.entriesText(data.entries, data.touched) : words.NO_CACHING;
    this.head(c, area, words.HASH_MAP, size, colours);
    if (data.caching && !data.entries) this.note(c, area, words.NONE_CACHED, colours);
    const columns = Math.max(1, Math.floor((area.w + 6) / (ENTRY.w + 6)));
    const w = (area.w + 6) / columns - 6;
    const fits = columns * Math.max(1, Math.floor((area.h - HEAD + 3) / (ENTRY.h + 3)));
    const most = data.entries > fits ? fits - 1 : fits;
    const entries = entriesOf(data, most);
    entries.forEach((entry, i) => {
      const x = area.x + (i % columns) * (w + 6);
      const y = area.y + HEAD + Math.floor(i / columns) * (ENTRY.h + 3);
      this.entry(c, entry, x, y, w, data, colours);
    });
    if (data.entries <= entries.length) return;
    const x = area.x + (entries.length % columns) * (w + 6);
    const y = area.y + HEAD + Math.floor(entries.length / columns) * (ENTRY.h + 3);
    c.font = `500 11.5px ${colours.font}`;
    c.fillStyle = colours.muted;
    c.textAlign = "left";
    c.fillText(words.moreOf(data.entries - entries.length), x + 4, y + ENTRY.h / 2);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {{block: number, hash: string}} entry
   * @param {number} x @param {number} y @param {number} w @param {Model} data
   * @param {Palette} colours
   */
  entry(c, { block, hash }, x, y, w, { pool, marks, evicted }, colours) {
    const bits = marks.get(block) ?? 0;
    const held = pool.kind[block] === USED;
    const own = pool.sharers.has(block) ? colours.text : this.hues[pool.owner[block]];
    const hue = held ? (own ?? colours.muted) : colours.ok;
    c.globalAlpha = held ? 0.16 : 0.08;
    c.fillStyle = hue;
    roundRect(c, x, y, w, ENTRY.h, 4);
    c.fill();
    c.globalAlpha = 1;
    const goes = evicted.has(hash);
    const cached = !goes && bits & TOUCH.cached;
    const hit = bits & TOUCH.hit;
    if (cached || hit) {
      c.strokeStyle = cached ? colours.event : colours.accent;
      c.lineWidth = 1.5;
      roundRect(c, x + 0.75, y + 0.75, w - 1.5, ENTRY.h - 1.5, 4);
      c.stroke();
    }
    c.font = `500 11px ${colours.mono}`;
    c.textAlign = "left";
    c.fillStyle = colours.text;
    c.fillText(hash.slice(0, 6), x + 6, y + ENTRY.h / 2 + 0.5);
    c.fillStyle = colours.muted;
    c.fillText("→", x + 51, y + ENTRY.h / 2 + 0.5);
    c.fillStyle = hue;
    c.font = `700 11px ${colours.mono}`;
    c.fillText(String(block), x + 64, y + ENTRY.h / 2 + 0.5);
    if (goes) {
      c.fillStyle = colours.bad;
      c.fillRect(x + 4, y + ENTRY.h / 2, 44, 1.5);
    }
    this.board.spot({
      kind: "entry",
      key: hash,
      of: block,
      x,
      y,
      w,
      h: ENTRY.h,
      lines: () => this.cells.lines(block, 0),
      choose: () => this.store.select({ block }),
    });
  }

  // -- the block tables --------------------------------------------------------------------------

  /**
   * @param {CanvasRenderingContext2D} c @param {Area} area @param {Model} data
   * @param {Palette} colours
   */
  drawTables(c, area, { tables }, colours) {
    this.head(c, area, words.BLOCK_TABLES, count(tables.length), colours);
    if (!tables.length) this.note(c, area, words.NO_TABLES, colours);
    const room = area.h - HEAD;
    const grid = tableGrid(tables, area.w - NAME, room);
    const { side, apart } = grid;
    const fits = Math.max(1, Math.floor((room + apart) / (side + apart)));
    const shown = grid.wraps || tables.length <= fits ? tables : tables.slice(0, fits - 1);
    let y = area.y + HEAD;
    for (const table of shown) {
      this.row(c, table, area, y, grid, colours);
      y += linesOf(table, grid) * (side + grid.gap) - grid.gap + apart;
    }
    if (shown.length === tables.length) return;
    c.font = `500 11.5px ${colours.font}`;
    c.fillStyle = colours.muted;
    c.textAlign = "left";
    c.fillText(words.moreOf(tables.length - shown.length), area.x, y + side / 2);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {{id: string, blocks: number[]}} table
   * @param {Area} area @param {number} y @param {TableGrid} grid @param {Palette} colours
   */
  row(c, { id, blocks }, area, y, { side, gap, columns, wraps }, colours) {
    const hue = requestColour(id, colours.theme);
    c.textAlign = "left";
    const font = `700 ${side >= 16 ? 12 : 10.5}px ${colours.mono}`;
    c.font = font;
    c.fillStyle = hue;
    c.fillText(fit(c, id, NAME - 6, font), area.x, y + side / 2 + 0.5);
    const whole = wraps || blocks.length <= columns;
    const first = whole ? blocks.length : Math.floor((columns - 1) / 3);
    const last = whole ? 0 : columns - 1 - first;
    const spots = [];
    for (let place = 0; place < first + last; place += 1) {
      const logical = place < first ? place : blocks.length - (first + last - place);
      const at = place < first ? place : place + 1;
      const x = area.x + NAME + (at % columns) * (side + gap);
      const line = y + Math.floor(at / columns) * (side + gap);
      const spot = { x, y: line, side };
      spots.push(new BlockSpot(this.cells, "table", blocks[logical], spot, logical, id));
    }
    this.cells.put(c, spots, side, colours);
    if (whole) return;
    c.fillStyle = colours.muted;
    c.textAlign = "center";
    c.fillText("…", area.x + NAME + first * (side + gap) + side / 2, y + side / 2);
    this.board.spot({
      kind: "left out",
      key: id,
      of: blocks.length - first - last,
      x: area.x + NAME + first * (side + gap),
      y,
      w: side,
      h: side,
      lines: () => [words.leftOut(blocks.length - first - last), words.LEFT_OUT_HOW],
    });
  }

  /** @returns {string[][]} */
  twinRows() {
    const { data } = this;
    if (!data) return [];
    const queue = freeFrom(data.state, "head", 12).map((block, i) => [
      words.FREE_QUEUE,
      count(i + 1),
      `${block}`,
      data.state.blocks[block].hash ?? "",
    ]);
    const tables = data.tables.map(({ id, blocks }) => [
      words.BLOCK_TABLES,
      id,
      blocks.join(", "),
      "",
    ]);
    return [...tables, ...queue];
  }
}

/** @param {HTMLElement} root @param {Store} store */
export function mount(root, store) {
  return new BlocksRoom(root, store);
}
