// @ts-check
/**
 * Virtual KV-cache allocation: a request's logical blocks beside the physical pool.
 *
 * Owners, counts and hashes are the state at the cursor; what this step took, hit, cached, evicted
 * and freed are its events. `model` joins the two, the rest of the file draws it.
 */

import { el, reconcile, setAttribute, setText } from "./dom.js";
import {
  count,
  onRequestColour,
  percent,
  plural,
  quote,
  requestColour,
  truth,
  visible,
} from "./format.js";
import {
  Plane,
  Sentence,
  Tip,
  Twin,
  atCursor,
  legend,
  redrawOnChange,
  roundRect,
  sentenceOf,
  shownRequest,
  stepOf,
} from "./panel_parts.js";
import { eventPhrase } from "./sentences.js";
import { traceIndex } from "./trace_index.js";

export const VIEW = "block-allocation";

const QUEUE_SHOWN = 40;
const MAX_LOGICAL = 160;

/** What a block is. */
export const EMPTY = 0;
export const CACHED_FREE = 1;
export const USED = 2;
export const NULL_BLOCK = 3;

/** What this step did to a block. */
export const TOUCH = { allocated: 1, hit: 2, cached: 4, evicted: 8, freed: 16, uncached: 32 };

/** @type {Record<string, keyof typeof TOUCH>} */
const TOUCH_OF_EVENT = {
  blocks_allocated: "allocated",
  blocks_hit: "hit",
  blocks_cached: "cached",
  block_evicted: "evicted",
  blocks_freed: "freed",
  blocks_uncached: "uncached",
};

// --- model --------------------------------------------------------------------------------------

/**
 * @typedef {Object} Pool the blocks, an array for each property, by block id
 * @property {number} size
 * @property {number} blockSize
 * @property {Uint8Array} kind
 * @property {Uint16Array} refs
 * @property {Uint16Array} fill tokens with KV in a block that is used
 * @property {Uint8Array} hashed
 * @property {Int32Array} owner index into `owners`, -1: nobody
 * @property {Int32Array} second another owner of a shared block
 * @property {string[]} owners
 * @property {number} used
 * @property {number} free
 * @property {number} freeCached
 * @property {number} shared
 * @property {number} tokens in used blocks
 */
/**
 * @typedef {{logical: number, block: number, from: number, to: number, fill: number, refs: number, hash: string, text: string, touch: number}} LogicalBlock
 */

/** @param {any} store */
export function model(store) {
  const { events } = atCursor(store);
  const state = store.state ?? {};
  const touched = touchedBy(events);
  const marks = marksOf(touched);
  const pool = poolOf(state, store.header?.config ?? {});
  return {
    view: VIEW,
    sentence: sentenceOf(store, VIEW),
    step: stepOf(store),
    pool,
    touched,
    marks,
    request: requestOf(state, shownRequest(store), pool, marks),
    queue: queueOf(state),
    waste: waste(pool.used, pool.blockSize, pool.tokens),
    counters: state.counters ?? {},
    caching: store.header?.config?.enable_prefix_caching !== false,
  };
}

/** @typedef {ReturnType<typeof model>} Model */

/**
 * The blocks each kind of event named in this step, in order.
 * @param {import("./sentences.js").EngineEvent[]} events
 * @returns {Record<keyof typeof TOUCH, number[]>}
 */
function touchedBy(events) {
  /** @type {Record<keyof typeof TOUCH, number[]>} */
  const touched = { allocated: [], hit: [], cached: [], evicted: [], freed: [], uncached: [] };
  for (const event of events) {
    const what = TOUCH_OF_EVENT[event.type];
    if (what) touched[what].push(...(event.facts.blocks ?? [event.facts.block]));
  }
  return touched;
}

/**
 * @param {Record<keyof typeof TOUCH, number[]>} touched
 * @returns {Map<number, number>} bits of TOUCH
 */
function marksOf(touched) {
  const marks = new Map();
  for (const [what, blocks] of Object.entries(touched)) {
    const bit = TOUCH[/** @type {keyof typeof TOUCH} */ (what)];
    for (const block of blocks) marks.set(block, (marks.get(block) ?? 0) | bit);
  }
  return marks;
}

/** @param {any} state @param {any} config @returns {Pool} */
function poolOf(state, config) {
  const size = config.num_gpu_blocks ?? Object.keys(state.blocks ?? {}).length;
  const blockSize = config.block_size ?? 16;
  /** @type {Pool} */
  const pool = {
    size,
    blockSize,
    kind: new Uint8Array(size),
    refs: new Uint16Array(size),
    fill: new Uint16Array(size),
    hashed: new Uint8Array(size),
    owner: new Int32Array(size).fill(-1),
    second: new Int32Array(size).fill(-1),
    owners: [],
    used: 0,
    free: 0,
    freeCached: 0,
    shared: 0,
    tokens: 0,
  };
  addOwners(pool, state.requests ?? {});
  addBlocks(pool, state.blocks ?? {});
  return pool;
}

/** @param {Pool} pool @param {Record<string, any>} requests */
function addOwners(pool, requests) {
  for (const id of Object.keys(requests)) {
    const { block_table: table, num_computed_tokens: computed = 0 } = requests[id];
    if (!table) continue;
    const place = pool.owners.push(id) - 1;
    for (const logical of Object.keys(table)) {
      const block = table[logical];
      const fill = Math.max(
        0,
        Math.min(pool.blockSize, computed - Number(logical) * pool.blockSize),
      );
      if (fill > pool.fill[block]) pool.fill[block] = fill;
      if (pool.owner[block] < 0) pool.owner[block] = place;
      else if (pool.second[block] < 0) pool.second[block] = place;
    }
  }
}

/** @param {Pool} pool @param {Record<string, any>} blocks */
function addBlocks(pool, blocks) {
  for (let id = 0; id < pool.size; id += 1) {
    const block = blocks[id];
    if (!block) continue;
    pool.refs[id] = block.ref_cnt;
    pool.hashed[id] = block.hash ? 1 : 0;
    if (block.null_block) pool.kind[id] = NULL_BLOCK;
    else if (block.ref_cnt > 0) {
      pool.kind[id] = USED;
      pool.used += 1;
      pool.tokens += pool.fill[id];
      if (block.ref_cnt > 1) pool.shared += 1;
    } else {
      pool.free += 1;
      if (block.hash) {
        pool.kind[id] = CACHED_FREE;
        pool.freeCached += 1;
      }
    }
  }
}

/**
 * Claim 2's formula: the share of held memory that holds no token.
 * @param {number} blocks @param {number} blockSize @param {number} tokens
 */
export function waste(blocks, blockSize, tokens) {
  const room = blocks * blockSize;
  return { blocks, blockSize, tokens, room, share: room ? (room - tokens) / room : 0 };
}

/**
 * @param {any} state @param {string | null} id @param {Pool} pool
 * @param {Map<number, number>} marks
 */
function requestOf(state, id, pool, marks) {
  const request = id === null ? null : state.requests?.[id];
  if (!request || id === null) return null;
  const table = request.block_table ?? {};
  const places = Object.keys(table).map(Number);
  const pieces = piecesOf(request);
  const size = pool.blockSize;
  const computed = request.num_computed_tokens ?? 0;
  /** @type {LogicalBlock[]} */
  const blocks = places.slice(-MAX_LOGICAL).map((logical) => {
    const block = table[logical];
    const from = logical * size;
    const to = Math.min(from + size, Math.max(request.num_tokens ?? 0, computed));
    return {
      logical,
      block,
      from,
      to,
      fill: Math.max(0, Math.min(size, computed - from)),
      refs: pool.refs[block],
      hash: state.blocks?.[block]?.hash ?? "",
      text: pieces(from, to),
      touch: marks.get(block) ?? 0,
    };
  });
  return {
    id,
    status: request.status,
    tokens: request.num_tokens ?? 0,
    computed,
    hit: request.hit_tokens ?? 0,
    held: places.length,
    left: places.length - blocks.length,
    blocks,
    waste: waste(places.length, size, Math.min(computed, places.length * size)),
  };
}

/**
 * Text of a request's tokens from one place to another.
 * @param {any} request @returns {(from: number, to: number) => string}
 */
function piecesOf(request) {
  const prompt = request.num_prompt_tokens ?? 0;
  const asText = Boolean(request.prompt_pieces);
  return (from, to) => {
    const words = [];
    for (let k = from; k < to; k += 1) {
      if (k < prompt) words.push(asText ? request.prompt_pieces[k] : request.prompt_token_ids?.[k]);
      else
        words.push(
          asText ? request.output_pieces?.[k - prompt] : request.output_token_ids?.[k - prompt],
        );
    }
    return words.filter((word) => word !== undefined).join(asText ? "" : " ");
  };
}

/** @param {any} state */
function queueOf(state) {
  const free = state.queues?.free ?? { length: 0 };
  const first = [];
  for (
    let id = free.head;
    id !== undefined && first.length < QUEUE_SHOWN;
    id = state.blocks?.[id]?.next
  ) {
    first.push({ block: id, hashed: Boolean(state.blocks?.[id]?.hash) });
  }
  return { length: free.length ?? 0, first };
}

/**
 * One block in words.
 * @param {any} store @param {Pool} pool @param {number} id
 */
export function blockFacts(store, pool, id) {
  const requests = store.state?.requests ?? {};
  const block = store.state?.blocks?.[id];
  const owners = [];
  let text = "";
  for (const name of pool.owners) {
    const table = requests[name]?.block_table ?? {};
    for (const logical of Object.keys(table)) {
      if (table[logical] !== id) continue;
      const from = Number(logical) * pool.blockSize;
      owners.push({ request: name, logical: Number(logical) });
      if (!text)
        text = piecesOf(requests[name])(
          from,
          Math.min(from + pool.blockSize, requests[name].num_tokens ?? 0),
        );
      break;
    }
  }
  const last = traceIndex(store).lastAbout(id, store.cursor);
  return {
    id,
    kind: pool.kind[id],
    owners,
    refs: pool.refs[id],
    hash: block?.hash ?? "",
    fill: pool.fill[id],
    text,
    place:
      pool.kind[id] === EMPTY || pool.kind[id] === CACHED_FREE ? placeInQueue(store.state, id) : -1,
    last: last < 0 ? null : store.records[last],
    lastIndex: last,
  };
}

/** Blocks before this one in the free queue. @param {any} state @param {number} id */
function placeInQueue(state, id) {
  let place = 0;
  for (let at = state.blocks?.[id]?.prev; at !== undefined; at = state.blocks[at]?.prev) place += 1;
  return place;
}

// --- the pool on a canvas -----------------------------------------------------------------------

const MAX_CELL = 42;
const POOL_HEIGHT = 340;

/** @type {[number, string, string, string][]} bit, name, CSS colour, line or badge */
const OUTLINES = [
  [TOUCH.allocated, "allocated", "event", "line"],
  [TOUCH.hit, "hit", "accent", "line"],
  [TOUCH.cached, "cached", "ok", "+"],
  [TOUCH.evicted, "evicted", "bad", "×"],
  [TOUCH.freed, "freed", "text", "dash"],
  [TOUCH.uncached, "uncached", "warn", "−"],
];

const LINED = TOUCH.allocated | TOUCH.hit | TOUCH.freed;

/** Height of the lane above a row of cells in which lines run. @param {number} cell */
function lane(cell) {
  return cell >= 20 ? 7 : cell >= 10 ? 4 : 0;
}

class PoolPlane {
  /** @param {any} store @param {HTMLElement} root */
  constructor(store, root) {
    this.store = store;
    this.plane = new Plane("The pool of KV-cache blocks", "gbp-pool");
    this.plane.canvas.tabIndex = 0;
    this.tip = new Tip(root);
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
    this.left = 18 + 6.5 * String(size).length;
    const room = width - this.left;
    let cell = MAX_CELL;
    while (
      cell > 4 &&
      Math.ceil(size / Math.floor(room / cell)) * (cell + lane(cell)) > POOL_HEIGHT
    )
      cell -= cell > 12 ? 1 : 0.5;
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
    this.drawLabels(c, pool, colours);
    const gap = this.cell >= 20 ? 3 : this.cell >= 10 ? 2 : this.cell >= 6 ? 1 : 0.75;
    const hues = pool.owners.map((id) => requestColour(id, colours.theme));
    for (let id = 0; id < pool.size; id += 1) this.drawBlock(c, pool, id, gap, hues, colours);
    c.globalAlpha = 1;
    for (const [id, bits] of model.marks) this.outline(c, id, bits, gap, colours);
    const chosen = this.store.selection?.block;
    if (typeof chosen === "number" && chosen < pool.size) this.ring(c, chosen, colours.text, 2.5);
    if (this.hovered >= 0 && this.hovered < pool.size)
      this.ring(c, this.hovered, colours.text, 1.25);
    if (model.queue.first.length) this.next(c, model.queue.first[0].block, colours);
  }

  /** @param {CanvasRenderingContext2D} c @param {Pool} pool @param {any} colours */
  drawLabels(c, pool, colours) {
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
    if (kind === USED) this.drawUsed(c, pool, id, x, y, side, hues, colours);
    else if (side < 12) {
      c.globalAlpha = kind === CACHED_FREE ? 0.45 : kind === NULL_BLOCK ? 0.8 : 0.55;
      c.fillStyle =
        kind === CACHED_FREE ? colours.ok : kind === NULL_BLOCK ? colours.muted : colours.border;
      c.fillRect(x, y, side, side);
    } else this.drawFree(c, id, kind, x, y, side, colours);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {number} id @param {number} kind @param {number} x
   * @param {number} y @param {number} side @param {any} colours
   */
  drawFree(c, id, kind, x, y, side, colours) {
    c.globalAlpha = 1;
    c.lineWidth = 1;
    if (kind === NULL_BLOCK) {
      c.fillStyle = colours.border;
      roundRect(c, x, y, side, side, 4);
      c.fill();
      c.strokeStyle = colours.muted;
      c.beginPath();
      c.moveTo(x + side * 0.28, y + side * 0.72);
      c.lineTo(x + side * 0.72, y + side * 0.28);
      c.stroke();
      return;
    }
    if (kind === CACHED_FREE) {
      c.globalAlpha = 0.13;
      c.fillStyle = colours.ok;
      roundRect(c, x, y, side, side, 4);
      c.fill();
      c.globalAlpha = 0.75;
      c.strokeStyle = colours.ok;
    } else {
      c.strokeStyle = colours.border;
    }
    roundRect(c, x + 0.5, y + 0.5, side - 1, side - 1, 4);
    c.stroke();
    c.globalAlpha = 1;
    if (kind === CACHED_FREE) this.hashMark(c, x, y, side, colours.ok);
    this.name(c, id, x, y, side, kind === CACHED_FREE ? colours.ok : colours.faint, colours);
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Pool} pool @param {number} id @param {number} x
   * @param {number} y @param {number} side @param {string[]} hues @param {any} colours
   */
  drawUsed(c, pool, id, x, y, side, hues, colours) {
    const hue = hues[pool.owner[id]] ?? colours.muted;
    const share = pool.fill[id] / pool.blockSize;
    const radius = side < 12 ? 0 : 4;
    c.globalAlpha = share < 1 ? 0.26 : 1;
    c.fillStyle = hue;
    box(c, x, y, side, side, radius);
    c.globalAlpha = 1;
    if (share > 0 && share < 1) {
      c.save();
      c.beginPath();
      c.rect(x, y + side * (1 - share), side, side * share);
      c.clip();
      box(c, x, y, side, side, radius);
      c.restore();
    }
    if (pool.second[id] >= 0)
      this.drawSecond(c, x, y, side, radius, hues[pool.second[id]] ?? colours.muted);
    if (side < 12) return;
    const on = onRequestColour(colours.theme);
    if (share === 1) this.name(c, id, x, y, side, on, colours);
    else this.splitName(c, id, x, y, side, share, hue, on, colours);
    if (pool.hashed[id]) this.hashMark(c, x, y, side, share === 1 ? on : hue);
    if (pool.refs[id] > 1) this.count(c, pool.refs[id], x, y, side, colours);
  }

  /**
   * The corner of a shared block has its second owner's colour.
   * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
   * @param {number} radius @param {string} hue
   */
  drawSecond(c, x, y, side, radius, hue) {
    c.save();
    c.beginPath();
    c.moveTo(x + side, y);
    c.lineTo(x + side, y + side);
    c.lineTo(x, y + side);
    c.clip();
    c.fillStyle = hue;
    box(c, x, y, side, side, radius);
    c.restore();
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {number} id @param {number} x @param {number} y
   * @param {number} side @param {string} colour @param {any} colours
   */
  name(c, id, x, y, side, colour, colours) {
    if (side < 20) return;
    c.font = `${side >= 30 ? 11 : 9}px ${colours.mono}`;
    c.textAlign = "center";
    c.fillStyle = colour;
    c.fillText(String(id), x + side / 2, y + side / 2 + 0.5);
  }

  /**
   * The name over the edge between filled and empty.
   * @param {CanvasRenderingContext2D} c @param {number} id @param {number} x @param {number} y
   * @param {number} side @param {number} share @param {string} hue @param {string} on
   * @param {any} colours
   */
  splitName(c, id, x, y, side, share, hue, on, colours) {
    const edge = side * (1 - share);
    for (const [top, height, colour] of /** @type {[number, number, string][]} */ ([
      [0, edge, colours.text],
      [edge, side - edge, on],
    ])) {
      c.save();
      c.beginPath();
      c.rect(x, y + top, side, height);
      c.clip();
      this.name(c, id, x, y, side, colour, colours);
      c.restore();
    }
  }

  /**
   * Its content has a hash.
   * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} side
   * @param {string} colour
   */
  hashMark(c, x, y, side, colour) {
    const size = side >= 24 ? 6 : 4;
    c.fillStyle = colour;
    c.beginPath();
    c.moveTo(x + 3, y + 3);
    c.lineTo(x + 3 + size, y + 3);
    c.lineTo(x + 3, y + 3 + size);
    c.fill();
  }

  /**
   * How many requests hold it.
   * @param {CanvasRenderingContext2D} c @param {number} refs @param {number} x @param {number} y
   * @param {number} side @param {any} colours
   */
  count(c, refs, x, y, side, colours) {
    if (side < 16) return;
    const r = side >= 26 ? 7 : 5.5;
    c.fillStyle = colours.panel;
    c.beginPath();
    c.arc(x + side - r * 0.75, y + side - r * 0.75, r, 0, 7);
    c.fill();
    c.font = `700 ${r + 2}px ${colours.mono}`;
    c.textAlign = "center";
    c.fillStyle = colours.text;
    c.fillText(String(refs), x + side - r * 0.75, y + side - r * 0.75 + 0.5);
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

/**
 * @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} w
 * @param {number} h @param {number} r
 */
function box(c, x, y, w, h, r) {
  if (r === 0) {
    c.fillRect(x, y, w, h);
    return;
  }
  roundRect(c, x, y, w, h, r);
  c.fill();
}

const KIND_WORDS = [
  "free and empty",
  "free, content still cached",
  "in use",
  "the null block, never given",
];

/** @param {ReturnType<typeof blockFacts>} facts @param {Model} model @returns {string[]} */
function blockLines(facts, model) {
  const lines = [`Block ${facts.id}: ${KIND_WORDS[facts.kind]}`];
  for (const owner of facts.owners.slice(0, 4))
    lines.push(`${owner.request}, logical block ${owner.logical}`);
  if (facts.kind === USED)
    lines.push(`${facts.fill} of ${model.pool.blockSize} tokens, held by ${facts.refs}`);
  if (facts.place >= 0)
    lines.push(
      facts.place === 0
        ? "first in the free queue: given next"
        : `${plural(facts.place, "block")} before it in the free queue`,
    );
  if (facts.hash) lines.push(`hash ${facts.hash}`);
  const bits = model.marks.get(facts.id) ?? 0;
  const did = OUTLINES.filter(([bit]) => bits & bit).map(([, name]) => name);
  if (did.length) lines.push(`in this step: ${did.join(", ")}`);
  lines.push(
    "measured: the engine's state at the cursor; fill is derived from num_computed_tokens",
  );
  return lines;
}

// --- the logical table --------------------------------------------------------------------------

class LogicalTable {
  /** @param {any} store */
  constructor(store) {
    this.store = store;
    this.title = el("h3", { class: "gbp-title" });
    this.body = el("tbody");
    this.table = el(
      "table",
      { class: "gbp-logical" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ...["logical", "tokens", "content", "fill", "block"].map((name) =>
            el("th", { scope: "col", text: name }),
          ),
        ),
      ),
      this.body,
    );
    this.scroll = el("div", { class: "gbp-logical-scroll" }, this.table);
    this.note = el("p", { class: "gbp-more" });
    this.element = el(
      "section",
      { class: "gbp-section gbp-table" },
      this.title,
      this.scroll,
      this.note,
    );
  }

  /** @param {Model} model @param {string} theme */
  update(model, theme) {
    const { request, pool } = model;
    this.scroll.hidden = !request || request.held === 0;
    if (!request) {
      setText(this.title, "Block table");
      setText(this.note, "No request yet.");
      return;
    }
    this.element.style.setProperty("--gbp-hue", requestColour(request.id, theme));
    setText(
      this.title,
      `Block table of ${request.id} (${request.status}): ${plural(request.held, "block")}`,
    );
    setText(
      this.note,
      request.held === 0
        ? this.emptyWords(request)
        : request.left > 0
          ? `${plural(request.left, "block")} before these`
          : "",
    );
    this.note.hidden = this.note.textContent === "";
    reconcile(
      this.body,
      request.blocks,
      (item) => String(item.logical),
      () => this.row(),
      (row, item) => this.fillRow(row, item, pool),
    );
  }

  /** @param {{id: string, status: string}} request */
  emptyWords(request) {
    return request.status === "finished"
      ? `${request.id} is finished and has let go of its blocks.`
      : `${request.id} is ${request.status} and holds no blocks.`;
  }

  row() {
    const button = el("button", { type: "button", class: "gbp-to" });
    const row = el(
      "tr",
      {},
      el("th", { scope: "row" }),
      el("td", { class: "gbp-range" }),
      el("td", { class: "gbp-content" }),
      el("td", {}, el("span", { class: "gbp-fill" }, el("i"))),
      el("td", {}, button),
    );
    row.addEventListener("click", () => this.store.select({ block: Number(button.dataset.block) }));
    return row;
  }

  /** @param {any} row @param {LogicalBlock} item @param {Pool} pool */
  fillRow(row, item, pool) {
    const chosen = this.store.selection?.block === item.block;
    const key = `${item.block} ${item.to} ${item.fill} ${item.refs} ${item.hash} ${item.text.length} ${item.touch} ${chosen}`;
    if (row.__shown === key) return;
    row.__shown = key;
    const [logical, range, content, fill, block] = row.children;
    setText(logical, `L${item.logical}`);
    setText(range, item.to > item.from ? `${item.from}–${item.to - 1}` : `${item.from}–`);
    setText(content, visible(item.text));
    content.title = item.text;
    fill.firstChild.firstChild.style.width = `${(item.fill / pool.blockSize) * 100}%`;
    fill.title = `derived: ${item.fill} of ${pool.blockSize} tokens, num_computed_tokens - ${item.logical} × ${pool.blockSize}`;
    const button = block.firstChild;
    button.dataset.block = String(item.block);
    setText(button, item.refs > 1 ? `${item.block} ×${item.refs}` : String(item.block));
    button.title = `measured: physical block ${item.block}${item.refs > 1 ? `, held by ${item.refs} requests` : ""}${item.hash ? `, hash ${item.hash}` : ", no hash yet"}`;
    setAttribute(row, "data-touch", OUTLINES.find(([bit]) => item.touch & bit)?.[1] ?? null);
    row.classList.toggle("is-hashed", item.hash !== "");
    row.classList.toggle("is-selected", chosen);
  }

  /**
   * Where the lines of the rows in view begin, relative to `frame`.
   * @param {DOMRect} frame @returns {{place: number, x: number, y: number}[]}
   */
  anchors(frame) {
    const view = this.scroll.getBoundingClientRect();
    const head = this.table.tHead?.getBoundingClientRect().height ?? 0;
    const anchors = [];
    for (let place = 0; place < this.body.children.length; place += 1) {
      const edge = this.body.children[place].getBoundingClientRect();
      const y = edge.top + edge.height / 2;
      if (y < view.top + head || y > view.bottom) continue;
      anchors.push({ place, x: view.right - frame.left, y: y - frame.top });
    }
    return anchors;
  }
}

// --- panel --------------------------------------------------------------------------------------

class BlocksPanel {
  /** @param {HTMLElement} root @param {any} store */
  constructor(root, store) {
    this.store = store;
    this.sentence = new Sentence(store, VIEW);
    this.element = el("div", { class: "gbp gbp-blocks" });
    this.pool = new PoolPlane(store, this.element);
    this.table = new LogicalTable(store);
    this.stats = el("dl", { class: "gbp-stats" });
    this.touches = el("ul", { class: "gbp-touches" });
    this.queue = el("ol", { class: "gbp-queue" });
    this.queueTitle = el("h3", { class: "gbp-title" });
    this.detail = el("section", { class: "gbp-section gbp-detail" });
    this.waste = el("section", { class: "gbp-section gbp-waste" });
    this.links = new Plane("", "gbp-links");
    this.links.canvas.setAttribute("role", "presentation");
    this.links.canvas.removeAttribute("aria-label");
    const pool = el(
      "section",
      { class: "gbp-section gbp-poolside" },
      el(
        "div",
        { class: "gbp-poolhead" },
        el("h3", { class: "gbp-title", text: "Physical pool" }),
        el("span", { class: "gbp-now-label", text: "in this step" }),
        this.touches,
      ),
      this.pool.plane.canvas,
      poolLegend(),
    );
    this.poolside = pool;
    this.columns = el("div", { class: "gbp-columns" }, this.table.element, pool, this.links.canvas);
    this.below = el(
      "div",
      { class: "gbp-below" },
      el("section", { class: "gbp-section" }, this.queueTitle, this.queue),
      this.detail,
      this.waste,
    );
    this.twin = new Twin(
      "Blocks in use, at the cursor",
      ["Block", "Owner", "References", "Tokens", "Hash"],
      () => this.twinRows(),
    );
    this.element.append(
      this.sentence.element,
      this.stats,
      this.columns,
      this.below,
      this.twin.element,
    );
    root.append(this.element);
    this.key = "";
    this.redraw = redrawOnChange(this.element, (force) => this.update(force), [
      this.poolside,
      this.columns,
    ]);
    this.pool.redraw = () => this.drawPool();
    this.linesKey = "";
    this.pointed = -1;
    this.table.scroll.addEventListener("scroll", () => {
      this.linesKey = "";
      this.drawLinks();
    });
    this.table.body.addEventListener("mouseover", (event) =>
      this.point(/** @type {Element} */ (event.target)),
    );
    this.table.body.addEventListener("mouseleave", () => this.point(null));
  }

  update(force = false) {
    const { store } = this;
    const { request, block } = store.selection ?? {};
    const key = `${traceIndex(store).traceId} ${store.records.length} ${store.cursor} ${request} ${block}`;
    if (!force && key === this.key) return;
    this.key = key;
    this.data = model(store);
    const colours = this.redraw.colours.get();
    // Canvases first: a font set on a canvas makes the browser work through changed elements.
    this.drawPool();
    this.sentence.update();
    this.drawStats(this.data);
    this.table.update(this.data, colours.theme);
    if (force) this.linesKey = "";
    this.drawTouches(this.data);
    this.drawQueue(this.data);
    this.drawDetail(this.data);
    this.drawWaste(this.data);
    this.drawLinks();
    this.pool.plane.label(
      `The pool: ${this.data.pool.used} of ${this.data.pool.size} blocks in use, ${this.data.pool.free} free. Arrow keys move from block to block.`,
    );
    this.twin.later();
  }

  drawPool() {
    const { width } = this.redraw.size(this.poolside);
    if (width > 0 && this.data) this.pool.draw(this.data, this.redraw.colours.get(), width);
  }

  /** The row under the pointer. @param {Element | null} target */
  point(target) {
    const row = target?.closest("tr");
    const place = row ? Array.prototype.indexOf.call(this.table.body.children, row) : -1;
    if (place === this.pointed) return;
    this.pointed = place;
    this.drawLinks();
  }

  /** @param {Model} data */
  drawStats(data) {
    const { pool, counters } = data;
    const asked = counters.prefix_queries ?? 0;
    /** @type {[string, string, string, string][]} */
    const items = [
      [
        "in use",
        count(pool.used),
        `measured: blocks with a reference count above 0, of ${count(pool.size)}; block 0 is never given`,
        `of ${count(Math.max(0, pool.size - 1))} blocks`,
      ],
      ["shared", count(pool.shared), "measured: blocks with a reference count above 1", ""],
      [
        "free",
        count(pool.free),
        "measured: blocks in the free queue",
        pool.freeCached ? `${count(pool.freeCached)} still cached` : "",
      ],
      [
        "waste",
        percent(data.waste.share),
        "derived: (blocks × block_size − tokens) / (blocks × block_size)",
        "",
      ],
      [
        "prefix hits",
        asked ? percent((counters.prefix_hits ?? 0) / asked) : "–",
        `derived: ${count(counters.prefix_hits ?? 0)} of ${count(asked)} tokens looked up so far`,
        asked
          ? `${count(counters.prefix_hits ?? 0)} of ${count(asked)} tokens`
          : data.caching
            ? ""
            : "caching is off",
      ],
    ];
    reconcile(
      this.stats,
      items,
      ([name]) => name,
      ([name]) =>
        el(
          "div",
          {},
          el("dt", { text: name }),
          el("dd", {}, el("span", { class: "gbp-num gb-truth" }), el("small")),
        ),
      (node, [, value, how, aside]) => {
        const [number, small] = node.lastChild.children;
        setText(number, value);
        number.title = how;
        number.dataset.truth = how.split(":")[0];
        setText(small, aside);
      },
    );
  }

  /** @param {Model} data */
  drawTouches(data) {
    reconcile(
      this.touches,
      OUTLINES.filter(([, name]) => name !== "uncached" || data.touched.uncached.length),
      ([, name]) => name,
      ([, name]) =>
        el(
          "li",
          {},
          el("i", { class: `gbp-mark is-${name}`, "aria-hidden": "true" }),
          el("b", { class: "gbp-num" }),
          ` ${name}`,
        ),
      (node, [, name]) => {
        const blocks = data.touched[/** @type {keyof typeof TOUCH} */ (name)];
        setText(node.children[1], String(blocks.length));
        node.classList.toggle("is-none", blocks.length === 0);
        node.title = `measured: ${plural(blocks.length, "block")} named by this step's events${blocks.length ? `: ${blocks.slice(0, 24).join(", ")}` : ""}`;
      },
    );
  }

  /** @param {Model} data */
  drawQueue(data) {
    setText(this.queueTitle, `Free queue, in order: ${plural(data.queue.length, "block")}`);
    reconcile(
      this.queue,
      data.queue.first,
      (item) => `${item.block}`,
      (item) => {
        const button = el("button", { type: "button", class: "gbp-chip", text: item.block });
        button.addEventListener("click", () => this.store.select({ block: item.block }));
        return el("li", {}, button);
      },
      (node, item) => {
        const chip = node.firstChild;
        chip.classList.toggle("is-cached", item.hashed);
        chip.classList.toggle("is-next", item === data.queue.first[0]);
        chip.classList.toggle("is-selected", this.store.selection?.block === item.block);
        chip.title = `measured: block ${item.block}${item === data.queue.first[0] ? ", given next" : ""}${item.hashed ? ", its content is still cached; giving it evicts that" : ", empty"}`;
      },
    );
    const more = data.queue.length - data.queue.first.length;
    this.queue.dataset.more = more > 0 ? `+${count(more)} more` : "";
  }

  /** @param {Model} data */
  drawDetail(data) {
    const id = this.store.selection?.block;
    if (typeof id !== "number" || id >= data.pool.size) {
      this.detail.replaceChildren(
        el("h3", { class: "gbp-title", text: "Block" }),
        el("p", {
          class: "gbp-more",
          text: "Select a block to see whose it is, what it holds and what happened to it last.",
        }),
      );
      return;
    }
    const facts = blockFacts(this.store, data.pool, id);
    const rows = [
      ["state", KIND_WORDS[facts.kind]],
      [
        "owners",
        facts.owners.map((owner) => `${owner.request} L${owner.logical}`).join(", ") || "nobody",
      ],
      ["references", String(facts.refs)],
      ["hash", facts.hash || "none"],
    ];
    if (facts.kind === USED) rows.push(["fill", `${facts.fill} of ${data.pool.blockSize} tokens`]);
    if (facts.place >= 0)
      rows.push([
        "free queue",
        facts.place === 0 ? "first: given next" : `${plural(facts.place, "block")} before it`,
      ]);
    if (facts.text) rows.push(["content", quote(facts.text, 140)]);
    const list = el("dl", { class: "gbp-facts" });
    for (const [name, value] of rows) {
      const how =
        name === "fill"
          ? truth("derived", "num_computed_tokens of its owner − logical index × block size", value)
          : truth("measured", "the engine's state at the cursor", value);
      list.append(el("dt", { text: name }), el("dd", {}, how));
    }
    if (facts.last) {
      const link = el("button", {
        type: "button",
        class: "gbp-link",
        text: `step ${facts.last.step}: ${eventPhrase(facts.last)}`,
      });
      link.addEventListener("click", () => this.store.seek(facts.lastIndex));
      list.append(el("dt", { text: "last event" }), el("dd", {}, link));
    }
    this.detail.replaceChildren(el("h3", { class: "gbp-title", text: `Block ${id}` }), list);
  }

  /** @param {Model} data */
  drawWaste(data) {
    const formula = (/** @type {string} */ who, /** @type {ReturnType<typeof waste>} */ part) =>
      el(
        "p",
        { class: "gbp-formula" },
        el("b", { text: who }),
        " ",
        part.blocks === 0
          ? "holds no blocks"
          : truth(
              "derived",
              "(blocks × block_size − tokens) / (blocks × block_size); shared blocks count once",
              `(${count(part.blocks)} × ${part.blockSize} − ${count(part.tokens)}) / (${count(part.blocks)} × ${part.blockSize}) = ${percent(part.share)}`,
            ),
      );
    const lines = [formula("pool", data.waste)];
    if (data.request) lines.push(formula(data.request.id, data.request.waste));
    this.waste.replaceChildren(
      el("h3", { class: "gbp-title", text: "Waste: held, but without a token" }),
      ...lines,
      el("p", {
        class: "gbp-more",
        text: "(blocks × block size − tokens) / (blocks × block size). Only the last block of a request can be part empty.",
      }),
    );
  }

  /** Where lines begin and the pool lies: measured only where the table or the sizes changed. */
  measureLines() {
    const rows = this.data?.request?.blocks ?? [];
    const key = `${this.data?.request?.id} ${rows.length} ${rows[0]?.logical}`;
    if (key === this.linesKey) return;
    this.linesKey = key;
    const frame = this.columns.getBoundingClientRect();
    const pool = this.pool.plane.canvas.getBoundingClientRect();
    this.lines = {
      width: Math.floor(frame.width),
      height: Math.floor(frame.height),
      left: pool.left - frame.left,
      top: pool.top - frame.top,
      anchors: this.table.anchors(frame),
    };
  }

  drawLinks() {
    this.measureLines();
    const { data, lines } = this;
    const beside = lines !== undefined && lines.left > 120;
    const c = this.links.begin(beside ? lines.width : 0, beside ? lines.height : 0);
    if (!beside || !data?.request) return;
    c.strokeStyle = requestColour(data.request.id, this.redraw.colours.get().theme);
    c.lineJoin = "round";
    for (const strong of [false, true]) {
      c.globalAlpha = strong ? 0.95 : 0.4;
      c.lineWidth = strong ? 2 : 1.4;
      c.beginPath();
      for (const anchor of lines.anchors) {
        const item = data.request.blocks[anchor.place];
        if (item && this.isStrong(item, anchor.place) === strong)
          this.link(c, anchor, item.block, lines);
      }
      c.stroke();
    }
    c.globalAlpha = 1;
  }

  /**
   * Lines of this step, of the selection and under the pointer stand out.
   * @param {LogicalBlock} item @param {number} place
   */
  isStrong(item, place) {
    return item.touch !== 0 || place === this.pointed || item.block === this.store.selection?.block;
  }

  /**
   * From a row of the table into the lane above the block's cell, along it, and down.
   * @param {CanvasRenderingContext2D} c @param {{x: number, y: number}} anchor
   * @param {number} block @param {{left: number, top: number}} lines
   */
  link(c, anchor, block, { left, top }) {
    const { cell, lane: height } = this.pool;
    const corner = this.pool.corner(block);
    const y = top + corner.y - Math.max(1.5, height / 2 - 1);
    const x = left + corner.x + cell / 2;
    const enter = left + 2;
    const r = Math.max(0, Math.min(4, height / 2));
    c.moveTo(anchor.x + 1, anchor.y);
    c.bezierCurveTo(
      anchor.x + (enter - anchor.x) * 0.6,
      anchor.y,
      anchor.x + (enter - anchor.x) * 0.45,
      y,
      enter,
      y,
    );
    c.lineTo(Math.max(enter, x - r), y);
    c.quadraticCurveTo(x, y, x, y + r);
    c.lineTo(x, top + corner.y + 2);
  }

  twinRows() {
    const { data } = this;
    if (!data) return [];
    const rows = [];
    for (let id = 0; id < data.pool.size && rows.length < 60; id += 1) {
      if (data.pool.kind[id] !== USED) continue;
      rows.push([
        String(id),
        data.pool.owners[data.pool.owner[id]] ?? "",
        String(data.pool.refs[id]),
        String(data.pool.fill[id]),
        this.store.state.blocks?.[id]?.hash ?? "none",
      ]);
    }
    return rows;
  }

  destroy() {
    this.redraw.destroy();
    this.twin.destroy();
    this.element.remove();
  }
}

function poolLegend() {
  return legend([
    ["is-used", "in use, filled from below, in its owner's colour"],
    ["is-shared", "shared, with its count"],
    ["is-hashed", "corner: content is hashed"],
    ["is-freecached", "free, still cached"],
    ["is-free", "free, empty"],
    ["is-null", "block 0, null"],
    ["is-nextblock", "given next"],
  ]);
}

/**
 * @param {HTMLElement} root @param {any} store
 * @returns {{update(): void, destroy(): void, panel: object}}
 */
export function mount(root, store) {
  const panel = new BlocksPanel(root, store);
  panel.update(true);
  return { update: () => panel.update(), destroy: () => panel.destroy(), panel };
}
