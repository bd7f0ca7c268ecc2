// @ts-check
/**
 * What the KV-cache manager's room shows: the free queue in the order in which it gives, the hash
 * map of the prefix cache, the block tables; and what this step's events did to each block.
 *
 * @typedef {{id: string, blocks: number[], status: string}} Table logical blocks in order
 * @typedef {{block: number, hash: string}} Entry
 */
import { queueOf } from "../core/memory_parts.js";
import { marksOf, poolAt, touchedBy } from "../panels/blocks_model.js";

/** @import { Moment } from "../boxes/moment.js" */
/** @import { Store } from "../core/store.js" */

/** @param {Store} store @param {Moment} now */
export function model(store, now) {
  const { state, config, entry } = now;
  const touched = touchedBy(entry ? store.eventsOfStep(entry) : []);
  const pool = poolAt(store);
  return {
    state,
    pool,
    touched,
    marks: marksOf(touched),
    free: state.queues?.free?.length ?? 0,
    entries: countOf(pool.hashed),
    /** The hashes that this step's evictions drop. */
    evicted: new Set(now.all("block_evicted").map((event) => event.facts.hash)),
    caching: config.enable_prefix_caching !== false,
    tables: tablesOf(state),
  };
}

/** @typedef {ReturnType<typeof model>} Model */

/** @param {Uint8Array} flags */
function countOf(flags) {
  let n = 0;
  for (let i = 0; i < flags.length; i += 1) n += flags[i];
  return n;
}

/** Those that run first, in their order. @param {any} state @returns {Table[]} */
function tablesOf(state) {
  const running = queueOf(state, "running");
  const first = new Set(running);
  const others = Object.keys(state.requests ?? {}).filter((id) => !first.has(id));
  return [...running, ...others]
    .filter((id) => state.requests[id]?.block_table)
    .map((id) => {
      const { block_table: table, status } = state.requests[id];
      return { id, status, blocks: Object.values(table) };
    });
}

/**
 * The free queue from one of its ends, at most so many.
 * @param {any} state @param {"head" | "tail"} end @param {number} most @returns {number[]}
 */
export function freeFrom(state, end, most) {
  const { [end]: first, length = 0 } = state.queues?.free ?? {};
  const way = end === "head" ? "next" : "prev";
  const found = [];
  const size = Math.min(most, length);
  for (let id = first; id !== undefined && found.length < size; id = state.blocks?.[id]?.[way])
    found.push(id);
  return found;
}

/**
 * Entries of the hash map, at most so many: all by block, or where there are more, those that this
 * step touched before the others.
 * @param {Model} data @param {number} most @returns {Entry[]}
 */
export function entriesOf({ state, pool, marks, entries }, most) {
  /** @type {number[]} */
  const blocks = [];
  if (entries > most)
    for (const id of marks.keys()) if (pool.hashed[id] && blocks.length < most) blocks.push(id);
  const shown = new Set(blocks);
  for (let id = 0; id < pool.size && blocks.length < Math.min(most, entries); id += 1)
    if (pool.hashed[id] && !shown.has(id)) blocks.push(id);
  return blocks.map((block) => ({ block, hash: state.blocks[block].hash }));
}
