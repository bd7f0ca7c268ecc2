// @ts-check
/**
 * What the slots of the KV cache are used for: paged, and under each contiguous way. The same sums
 * as engine/memory_parts.py, over the same state.
 *
 * @typedef {{tokens: number, reserved: number, internal: number, external: number,
 *   free: number}} Parts in slots; together they are the arena
 * @typedef {{request: string, start: number, length: number, tokens: number, fills: number}} Piece
 *   memory that a request holds in one piece: so many slots have tokens, so many will have
 * @typedef {{name: string, parts: Parts, pieces: Piece[], room: string[],
 *   batch: number}} Way room: which of those that run have their memory; batch: the largest
 */

/**
 * @typedef {{state: any, size: number, blockSize: number, modelLength: number, running: string[],
 *   waiting: string[], tokens: number}} Known size: slots of the arena; tokens of those that run
 * @typedef {Known & {ways: Way[]}} Memory
 */

import { countedTokens } from "./pool.js";

/** In the order in which they are shown. */
const CONTIGUOUS = ["max", "pow2", "oracle"];
export const PAGED = "paged";

/**
 * @param {any} state @param {any} config
 * @returns {Memory}
 */
export function memoryAt(state, config) {
  const blockSize = config.block_size ?? 16;
  const size = Math.max(0, (config.num_gpu_blocks ?? 1) - 1) * blockSize;
  const running = queueOf(state, "running");
  const waiting = queueOf(state, "waiting");
  /** @type {Known} */
  const known = {
    state,
    size,
    blockSize,
    running,
    waiting,
    modelLength: config.max_model_len ?? size,
    tokens: running.reduce((sum, id) => sum + tokensOf(state, id).tokens, 0),
  };
  const ways = CONTIGUOUS.map((name) => contiguous(known, name));
  return { ...known, ways: [...ways, paged(known)] };
}

/**
 * The requests that run, or wait, in order.
 * @param {any} state @param {"running" | "waiting"} name @returns {string[]}
 */
export function queueOf(state, name) {
  const { head, length = 0 } = state.queues?.[name] ?? {};
  const found = [];
  for (let id = head; id !== undefined && found.length < length; id = state.requests?.[id]?.next)
    found.push(id);
  return found;
}

/** @param {Known} known @param {string} name @returns {Way} */
function contiguous({ state, size, running, waiting }, name) {
  const lengths = state.contiguous?.[name] ?? {};
  const room = running.filter((id) => lengths[id]?.start !== undefined);
  const pieces = room.map((id) => ({
    request: id,
    start: lengths[id].start,
    length: lengths[id].length,
    ...tokensOf(state, id),
  }));
  const rest = size - held(pieces);
  const line = room.length < running.length;
  return {
    name,
    parts: { ...sums(pieces), external: line ? rest : 0, free: line ? 0 : rest },
    pieces: pieces.sort((a, b) => a.start - b.start),
    room,
    batch: fitting(
      [...running, ...waiting].map((id) => lengths[id]?.length ?? 0),
      size,
    ),
  };
}

/** @param {Known} known @returns {Way} */
function paged({ state, size, blockSize, running, waiting }) {
  /** @type {Map<number, Piece>} */
  const blocks = new Map();
  for (const id of running) {
    const table = state.requests[id].block_table ?? {};
    const { tokens, fills } = tokensOf(state, id);
    for (const logical of Object.keys(table)) {
      const block = table[logical];
      const before = Number(logical) * blockSize;
      const shared = blocks.get(block);
      blocks.set(block, {
        request: shared?.request ?? id,
        start: (block - 1) * blockSize,
        length: blockSize,
        tokens: Math.max(shared?.tokens ?? 0, within(tokens - before, blockSize)),
        fills: Math.max(shared?.fills ?? 0, within(fills - before, blockSize)),
      });
    }
  }
  const pieces = [...blocks.values()].sort((a, b) => a.start - b.start);
  const needs = waiting.map((id) => Math.ceil((state.requests[id]?.num_tokens ?? 0) / blockSize));
  return {
    name: PAGED,
    parts: { ...sums(pieces), external: 0, free: size - held(pieces) },
    pieces,
    room: running,
    batch: running.length + fitting(needs, state.queues?.free?.length ?? 0),
  };
}

/**
 * What a request has stored, and will have where it goes on for as long as it may.
 * @param {any} state @param {string} id
 */
function tokensOf(state, id) {
  return {
    tokens: countedTokens(state, id),
    fills: state.contiguous?.oracle?.[id]?.length ?? 0,
  };
}

/** @param {Piece[]} pieces */
function sums(pieces) {
  const parts = { tokens: 0, reserved: 0, internal: 0 };
  for (const piece of pieces) {
    const split = splitOf(piece);
    parts.tokens += split.tokens;
    parts.reserved += split.reserved;
    parts.internal += split.internal;
  }
  return parts;
}

/** The parts of one piece. @param {Piece} piece */
export function splitOf({ length, tokens, fills }) {
  const used = Math.min(tokens, length);
  const filled = Math.max(used, Math.min(fills, length));
  return { tokens: used, reserved: filled - used, internal: length - filled };
}

/** @param {Piece[]} pieces */
function held(pieces) {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}

/**
 * How many of these, in order, find room side by side.
 * @param {number[]} needs @param {number} room
 */
function fitting(needs, room) {
  let left = room;
  const first = needs.findIndex((need) => (left -= need) < 0);
  return first < 0 ? needs.length : first;
}

/** @param {number} tokens @param {number} size */
function within(tokens, size) {
  return Math.max(0, Math.min(size, tokens));
}
