// @ts-check
/**
 * What the panel of the KV cache shows.
 *
 * Owners, counts and hashes are the state at the cursor; what this step took, hit, cached, evicted
 * and freed are its events.
 */
import { computedAt } from "../core/computed.js";
import { once } from "../core/once.js";
import { countedTokens, poolUse } from "../core/pool.js";
import { textBetween } from "../core/tokens.js";
import { traceIndex } from "../core/trace_index.js";
import { blockParts } from "../words/blocks.js";
import { atCursor, sentenceOf, shownRequest, stepOf } from "./cursor.js";

/** @import { Computed } from "../core/computed.js" */
/** @import { EventRecord } from "../core/records.js" */
/** @import { Store } from "../core/store.js" */

const QUEUE_SHOWN = 40;
const MAX_LOGICAL = 160;

/** What a block is. */
const EMPTY = 0;
export const CACHED_FREE = 1;
export const USED = 2;
export const NULL_BLOCK = 3;

/** What this step did to a block. */
export const TOUCH = {
  allocated: 1,
  hit: 2,
  cached: 4,
  evicted: 8,
  freed: 16,
  uncached: 32,
  uncomputed: 64,
};

/** @type {Record<string, keyof typeof TOUCH>} */
const TOUCH_OF_EVENT = {
  blocks_allocated: "allocated",
  blocks_hit: "hit",
  blocks_cached: "cached",
  block_evicted: "evicted",
  blocks_freed: "freed",
  blocks_uncached: "uncached",
  blocks_left_uncomputed: "uncomputed",
};

/**
 * @typedef {Object} Pool the blocks, an array for each property, by block id
 * @property {number} size
 * @property {number} blockSize
 * @property {Uint8Array} kind
 * @property {Uint16Array} refs
 * @property {Uint16Array} fill tokens with KV in a block that is used
 * @property {Uint16Array} scheduled tokens that get theirs when this step's forward has run
 * @property {Uint16Array} stale slots behind these with K and V of rejected drafts
 * @property {Uint8Array} hashed
 * @property {Uint8Array} uncomputed hashed, though nobody wrote its KV
 * @property {Int32Array} owner index into `owners`, -1: nobody
 * @property {Map<number, number[]>} sharers the owners of each block that several hold
 * @property {string[]} owners
 * @property {number} used
 * @property {number} free
 * @property {number} freeCached
 * @property {number} shared
 * @property {number} tokens in used blocks, with KV or scheduled
 */
/**
 * @typedef {{logical: number, block: number, from: number, to: number, fill: number,
 *   scheduled: number, stale: number, refs: number, hash: string, uncomputed: boolean,
 *   text: string, touch: number}} LogicalBlock
 */

/**
 * Who shares blocks with whom, those with the most blocks first.
 * @param {Pool} pool @returns {{requests: string[], blocks: number[]}[]}
 */
export function sharing({ sharers, owners }) {
  /** @type {Map<string, {requests: string[], blocks: number[]}>} */
  const found = new Map();
  for (const [block, places] of sharers) {
    const key = places.join();
    const group = found.get(key);
    if (group) group.blocks.push(block);
    else found.set(key, { requests: places.map((place) => owners[place]), blocks: [block] });
  }
  return [...found.values()].sort((a, b) => b.blocks.length - a.blocks.length);
}

/**
 * Sentence and request are made when they are asked for: words are drawn more seldom than pictures.
 * @param {Store} store
 */
export function model(store) {
  const { events } = atCursor(store);
  const state = store.state ?? {};
  const touched = touchedBy(events);
  const marks = marksOf(touched);
  const pool = poolAt(store);
  const parts = once(() => sentence(store));
  const request = once(() => requestOf(state, shownRequest(store), pool, marks));
  return {
    get sentence() {
      return parts();
    },
    step: stepOf(store),
    pool,
    touched,
    marks,
    get request() {
      return request();
    },
    queue: queueOf(state),
    waste: waste(pool.used, pool.blockSize, pool.tokens),
    counters: state.counters ?? {},
    caching: store.header?.config?.enable_prefix_caching !== false,
    cachesUncomputed: store.header?.config?.cache_uncomputed_blocks === true,
  };
}

/** The sentence that the panel opens with. @param {Store} store */
export function sentence(store) {
  return sentenceOf(store, blockParts);
}

/** The pool at the cursor. @param {Store} store */
export function poolAt(store) {
  return poolOf(store.state ?? {}, store.header?.config ?? {}, computedAt(store));
}

/** @typedef {ReturnType<typeof model>} Model */

/**
 * The blocks each kind of event named in this step, in order.
 * @param {EventRecord[]} events
 * @returns {Record<keyof typeof TOUCH, number[]>}
 */
export function touchedBy(events) {
  /** @type {Record<keyof typeof TOUCH, number[]>} */
  const touched = {
    allocated: [],
    hit: [],
    cached: [],
    evicted: [],
    freed: [],
    uncached: [],
    uncomputed: [],
  };
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
export function marksOf(touched) {
  const marks = new Map();
  for (const [what, blocks] of Object.entries(touched)) {
    const bit = TOUCH[/** @type {keyof typeof TOUCH} */ (what)];
    for (const block of blocks) marks.set(block, (marks.get(block) ?? 0) | bit);
  }
  return marks;
}

/**
 * @param {any} state @param {any} config @param {(id: string) => Computed} computed
 * @returns {Pool}
 */
function poolOf(state, config, computed) {
  const size = config.num_gpu_blocks ?? Object.keys(state.blocks ?? {}).length;
  const blockSize = config.block_size ?? 16;
  const { used, free } = poolUse(state, config);
  /** @type {Pool} */
  const pool = {
    size,
    blockSize,
    kind: new Uint8Array(size),
    refs: new Uint16Array(size),
    fill: new Uint16Array(size),
    scheduled: new Uint16Array(size),
    stale: new Uint16Array(size),
    hashed: new Uint8Array(size),
    uncomputed: new Uint8Array(size),
    owner: new Int32Array(size).fill(-1),
    sharers: new Map(),
    owners: [],
    used,
    free,
    freeCached: 0,
    shared: 0,
    tokens: 0,
  };
  addOwners(pool, state.requests ?? {}, computed);
  addBlocks(pool, state.blocks ?? {});
  return pool;
}

/**
 * @param {Pool} pool @param {Record<string, any>} requests
 * @param {(id: string) => Computed} computed
 */
function addOwners(pool, requests, computed) {
  for (const id of Object.keys(requests)) {
    const table = requests[id].block_table;
    if (!table) continue;
    const { done, scheduled, stale } = computed(id);
    const place = pool.owners.push(id) - 1;
    for (const logical of Object.keys(table)) {
      const block = table[logical];
      const from = Number(logical) * pool.blockSize;
      const given = within(done + scheduled - from, pool.blockSize);
      const waits = given - within(done - from, pool.blockSize);
      // Who hits a block that another request computes in this step has to wait for it as well.
      const whole = Math.max(pool.fill[block] + pool.scheduled[block], given);
      pool.scheduled[block] = Math.max(pool.scheduled[block], waits);
      pool.fill[block] = whole - pool.scheduled[block];
      // Only its owner's tokens come to a block that is not full, so that nobody shares it.
      pool.stale[block] = within(done + scheduled + stale - from, pool.blockSize) - given;
      const first = pool.owner[block];
      const sharers = pool.sharers.get(block);
      if (first < 0) pool.owner[block] = place;
      else if (sharers) sharers.push(place);
      else pool.sharers.set(block, [first, place]);
    }
  }
}

/** No fewer than none, no more than fit. @param {number} tokens @param {number} size */
function within(tokens, size) {
  return Math.max(0, Math.min(size, tokens));
}

/** @param {Pool} pool @param {Record<string, any>} blocks */
function addBlocks(pool, blocks) {
  for (let id = 0; id < pool.size; id += 1) {
    const block = blocks[id];
    if (!block) continue;
    pool.refs[id] = block.ref_cnt;
    pool.hashed[id] = block.hash ? 1 : 0;
    pool.uncomputed[id] = block.uncomputed ? 1 : 0;
    if (block.null_block) pool.kind[id] = NULL_BLOCK;
    else if (block.ref_cnt > 0) {
      pool.kind[id] = USED;
      pool.tokens += pool.fill[id] + pool.scheduled[id];
      if (block.ref_cnt > 1) pool.shared += 1;
    } else if (block.hash) {
      pool.kind[id] = CACHED_FREE;
      pool.freeCached += 1;
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
  const size = pool.blockSize;
  const given = countedTokens(state, id);
  /** @type {LogicalBlock[]} */
  const blocks = places.slice(-MAX_LOGICAL).map((logical) => {
    const block = table[logical];
    const from = logical * size;
    // The newest sampled token is known, but its KV comes with the step that it is given to.
    const to = Math.max(from, Math.min(from + size, given));
    return {
      logical,
      block,
      from,
      to,
      fill: pool.fill[block],
      scheduled: pool.scheduled[block],
      stale: pool.stale[block],
      refs: pool.refs[block],
      hash: state.blocks?.[block]?.hash ?? "",
      uncomputed: pool.uncomputed[block] === 1,
      text: textBetween(request, from, to),
      touch: marks.get(block) ?? 0,
    };
  });
  return {
    id,
    status: request.status,
    tokens: request.num_tokens ?? 0,
    held: places.length,
    left: places.length - blocks.length,
    blocks,
    waste: waste(places.length, size, Math.min(given, places.length * size)),
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
    const { hash, uncomputed } = state.blocks?.[id] ?? {};
    first.push({ block: id, hashed: Boolean(hash), uncomputed: uncomputed === true });
  }
  return { length: free.length ?? 0, first };
}

/**
 * One block in words.
 * @param {Store} store @param {Pool} pool @param {number} id
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
      if (!text) {
        const end = Math.min(from + pool.blockSize, countedTokens(store.state, name));
        text = textBetween(requests[name], from, end);
      }
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
    uncomputed: pool.uncomputed[id] === 1,
    fill: pool.fill[id],
    scheduled: pool.scheduled[id],
    stale: pool.stale[id],
    text,
    place:
      pool.kind[id] === EMPTY || pool.kind[id] === CACHED_FREE ? placeInQueue(store.state, id) : -1,
    last: last < 0 ? null : /** @type {EventRecord} */ (store.records[last]),
    lastIndex: last,
  };
}

/** Blocks before this one in the free queue. @param {any} state @param {number} id */
function placeInQueue(state, id) {
  const longest = state.queues?.free?.length ?? 0;
  let place = 0;
  let at = state.blocks?.[id]?.prev;
  for (; at !== undefined && place < longest; at = state.blocks[at]?.prev) place += 1;
  return place;
}
