// @ts-check
/** PagedAttention's inside: the rows of each request, and the pages they read, in reading order. */
import { fit, haloText, linesIn, roundRect } from "../panels/canvas.js";
import { onRequestColour, requestColour } from "../words/colours.js";
import { orNobodyAsked } from "../words/empty.js";
import { bytes, count } from "../words/format.js";
import * as words from "../words/rooms.js";
import { Board } from "./board.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Palette } from "../panels/canvas.js" */

/**
 * @typedef {{request: string, rows: number, blocks: number[], tokens: number, bytes: number,
 *   seq: number, now: boolean}} Read
 */

/** @param {Store} store @param {Moment} now */
export function model(store, now) {
  const prepared = now.last("inputs_prepared");
  const run = now.all("attention_run").at(-1);
  const at = store.records[store.cursor];
  /** @type {Read[]} */
  const reads = now.all("pages_read").map((event) => ({
    request: event.facts.request,
    rows: rowsOf(prepared, event.facts.request),
    blocks: event.facts.blocks,
    tokens: event.facts.num_tokens,
    bytes: event.facts.num_bytes,
    seq: event.seq,
    now: event === at,
  }));
  return {
    reads,
    empty: emptyText(store, now),
    backend: run ? `${run.facts.backend}` : "",
    written: now.last("kv_written"),
    blockSize: now.config.block_size ?? 16,
  };
}

/** @typedef {ReturnType<typeof model>} Model */

/** Why no page was read. @param {Store} store @param {Moment} now */
function emptyText(store, now) {
  const batch = now.last("batch_scheduled");
  const none = batch && batch.prefill_tokens + batch.decode_tokens === 0;
  return none ? words.EMPTY_BATCH : orNobodyAsked(store, now.state, words.NOT_READ);
}

/** Rows of a request in the step's batch. @param {any} prepared @param {string} id */
function rowsOf(prepared, id) {
  const place = prepared?.requests.indexOf(id) ?? -1;
  if (place < 0) return 0;
  return prepared.query_start_loc[place + 1] - prepared.query_start_loc[place];
}

const HEAD = 26;
const LINE = 18; // pixels from line to line of what stands there while nothing is read
const COLUMNS = { id: 58, rows: 92, sum: 150 };
const SIDES = [26, 22, 18, 14, 10];
const GAP = 3;
const MOST_PITCH = 44; // from row to row

class AttentionRoom {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    /** @type {Model|null} */
    this.data = null;
    this.drawn = "";
    this.board = new Board(root, words.READS, (c, size, colours) => this.draw(c, size, colours), {
      caption: words.READS,
      columns: words.READ_COLUMNS,
      rows: () =>
        (this.data?.reads ?? []).map((read) => [
          read.request,
          count(read.rows),
          read.blocks.join(", "),
          count(read.tokens),
          bytes(read.bytes),
        ]),
    });
  }

  destroy() {
    this.board.destroy();
  }

  /** @param {Moment} now */
  update(now) {
    const at = this.store.records[this.store.cursor];
    const here = at?.kind === "event" && at.type === "pages_read" ? at.seq : "";
    const key = `${now.key("inputs_prepared", "attention_run", "pages_read")} ${here}`;
    if (key === this.drawn) return;
    this.drawn = key;
    this.data = model(this.store, now);
    this.board.update();
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {{w: number, h: number}} size
   * @param {Palette} colours
   */
  draw(c, { w, h }, colours) {
    const { data } = this;
    if (!data) return;
    const narrow = w < 420;
    const columns = narrow ? { id: 40, rows: 34, sum: 62 } : COLUMNS;
    const left = columns.id + columns.rows;
    const room = w - left - columns.sum;
    this.heads(c, left, w, columns, narrow, colours);
    if (!data.reads.length) {
      c.font = `400 13px ${colours.font}`;
      c.fillStyle = colours.muted;
      c.textAlign = "center";
      linesIn(c, data.empty, w).forEach((line, i) => c.fillText(line, w / 2, h / 2 + i * LINE));
      return;
    }
    const side = sideOf(data.reads, room, h - HEAD);
    const roomy = Math.floor((h - HEAD) / data.reads.length);
    const pitch = Math.max(side + 9, Math.min(MOST_PITCH, roomy));
    const fits = Math.max(1, Math.floor((h - HEAD + 9) / pitch));
    const shown = data.reads.length > fits ? data.reads.slice(0, fits - 1) : data.reads;
    shown.forEach((read, i) => {
      const y = HEAD + 4 + i * pitch;
      this.row(c, read, { y, side, left, room, w, columns, narrow }, colours);
    });
    if (shown.length === data.reads.length) return;
    c.font = `500 12px ${colours.font}`;
    c.fillStyle = colours.muted;
    c.textAlign = "left";
    const y = HEAD + 4 + shown.length * pitch + side / 2;
    c.fillText(words.moreOf(data.reads.length - shown.length), 2, y);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {number} left @param {number} w
   * @param {typeof COLUMNS} columns @param {boolean} narrow @param {Palette} colours
   */
  heads(c, left, w, columns, narrow, colours) {
    c.font = `600 12px ${colours.font}`;
    c.fillStyle = colours.muted;
    c.textAlign = "left";
    c.fillText(narrow ? words.ROWS_SHORT : words.QUERY_ROWS, columns.id, 8);
    const { backend } = /** @type {Model} */ (this.data);
    c.fillText(fit(c, words.pagesHead(backend, narrow), w - left - columns.sum), left, 8);
    c.textAlign = "right";
    c.fillText(narrow ? words.CONTEXT_SHORT : words.CONTEXT, w - 2, 8);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Read} read
   * @param {{y: number, side: number, left: number, room: number, w: number,
   *   columns: typeof COLUMNS, narrow: boolean}} at @param {Palette} colours
   */
  row(c, read, { y, side, left, room, w, columns, narrow }, colours) {
    const hue = requestColour(read.request, colours.theme);
    const middle = y + side / 2;
    if (read.now) {
      c.fillStyle = colours.event;
      c.globalAlpha = 0.1;
      roundRect(c, 0, y - 4, w, side + 8, 6);
      c.fill();
      c.globalAlpha = 1;
    }
    c.textAlign = "left";
    c.font = `700 12px ${colours.mono}`;
    c.fillStyle = hue;
    c.fillText(fit(c, read.request, columns.id - 6), 4, middle);
    this.rows(c, read, columns, middle, narrow, hue, colours);
    const fits = Math.max(3, Math.floor((room + GAP) / (side + GAP)));
    const whole = read.blocks.length <= fits;
    const first = whole ? read.blocks.length : Math.floor((fits - 1) / 2);
    const last = whole ? 0 : fits - 1 - first;
    for (let place = 0; place < first + last; place += 1) {
      const logical = place < first ? place : read.blocks.length - (first + last - place);
      const x = left + (place < first ? place : place + 1) * (side + GAP);
      this.page(c, read, logical, x, y, side, hue, colours);
    }
    if (!whole) {
      c.textAlign = "center";
      c.fillStyle = colours.muted;
      c.fillText("…", left + first * (side + GAP) + side / 2, middle);
    }
    c.textAlign = "right";
    c.font = `500 12px ${colours.mono}`;
    c.fillStyle = colours.text;
    const sum = narrow ? bytes(read.bytes) : `${count(read.tokens)} tok  ${bytes(read.bytes)}`;
    c.fillText(sum, w - 4, middle);
  }

  /**
   * So many rows of the batch are this request's, and each of them reads all of its pages.
   * @param {CanvasRenderingContext2D} c @param {Read} read @param {typeof COLUMNS} columns
   * @param {number} middle @param {boolean} narrow @param {string} hue @param {Palette} colours
   */
  rows(c, read, columns, middle, narrow, hue, colours) {
    c.fillStyle = colours.text;
    c.font = `600 12px ${colours.mono}`;
    c.textAlign = "left";
    c.fillText(count(read.rows), columns.id, middle);
    if (narrow) return;
    const from = columns.id + 26;
    const to = columns.id + columns.rows - 8;
    c.strokeStyle = hue;
    c.fillStyle = hue;
    c.lineWidth = Math.min(7, 1 + Math.log2(Math.max(1, read.rows)));
    c.beginPath();
    c.moveTo(from, middle);
    c.lineTo(to - 6, middle);
    c.stroke();
    c.beginPath();
    c.moveTo(to, middle);
    c.lineTo(to - 8, middle - 5);
    c.lineTo(to - 8, middle + 5);
    c.fill();
    c.lineWidth = 1;
  }

  /**
   * A page, filled as far as it has tokens of the context.
   * @param {CanvasRenderingContext2D} c @param {Read} read @param {number} logical
   * @param {number} x @param {number} y @param {number} side @param {string} hue
   * @param {Palette} colours
   */
  page(c, read, logical, x, y, side, hue, colours) {
    const { blockSize } = /** @type {Model} */ (this.data);
    const block = read.blocks[logical];
    const tokens = Math.max(0, Math.min(blockSize, read.tokens - logical * blockSize));
    const share = tokens / blockSize;
    c.fillStyle = hue;
    c.globalAlpha = 0.22;
    roundRect(c, x, y, side, side, 4);
    c.fill();
    c.globalAlpha = 1;
    c.save();
    c.beginPath();
    c.rect(x, y + side * (1 - share), side, side * share);
    c.clip();
    roundRect(c, x, y, side, side, 4);
    c.fill();
    c.restore();
    if (side >= 18) {
      c.font = `600 ${side >= 24 ? 11 : 9.5}px ${colours.mono}`;
      c.textAlign = "center";
      c.fillStyle = share === 1 ? onRequestColour(colours.theme) : colours.text;
      if (share === 1) c.fillText(String(block), x + side / 2, y + side / 2 + 0.5);
      else haloText(c, String(block), x + side / 2, y + side / 2 + 0.5, colours.panel);
    }
    if (read.now) {
      c.strokeStyle = colours.event;
      c.lineWidth = 2;
      roundRect(c, x - 1, y - 1, side + 2, side + 2, 5);
      c.stroke();
      c.lineWidth = 1;
    }
    this.board.spot({
      kind: "page",
      key: read.request,
      of: block,
      x,
      y,
      w: side,
      h: side,
      lines: () => words.pageLines(read, logical, block, tokens, blockSize),
      choose: () => this.store.select({ block }),
    });
  }
}

/** @param {Read[]} reads @param {number} w @param {number} h */
function sideOf(reads, w, h) {
  const longest = Math.max(...reads.map(({ blocks }) => blocks.length));
  for (const side of SIDES)
    if (reads.length * (side + 9) <= h && longest * (side + GAP) <= w + GAP) return side;
  return reads.length * 27 <= h ? 18 : 14;
}

/** @param {HTMLElement} root @param {Store} store */
export function mount(root, store) {
  return new AttentionRoom(root, store);
}
