// @ts-check
/**
 * What this engine's log says of a claim, at the cursor. Numbers only: how they are told is in
 * words/claims.js.
 */
import { PAGED, memoryAt } from "./memory_parts.js";
import { atOrBefore } from "./sorted.js";

/** @import { EventRecord } from "./records.js" */
/** @import { Store } from "./store.js" */

/** @typedef {{i: number, value: number}} Sum up to a record, all told */

/** What of a log is counted once, whatever the cursor. @type {WeakMap<Store, Tally>} */
const tallies = new WeakMap();

/** Sums over a log, by what they are of, and the latest event of some types. */
class Tally {
  /** @param {Store} store */
  constructor(store) {
    this.traceId = store.header?.trace_id;
    this.first = store.records[0];
    this.length = 0;
    /** @type {Map<string, Sum[]>} */
    this.sums = new Map();
    /** @type {Map<string, number[]>} indexes of events by type */
    this.events = new Map();
    /** @type {Map<string, number>} by request, computed tokens as it was preempted */
    this.lost = new Map();
  }

  /** @param {Store} store */
  continues({ header, records }) {
    const same = this.length === 0 || records[0] === this.first;
    return header?.trace_id === this.traceId && records.length >= this.length && same;
  }

  /** @param {Store} store */
  read({ records }) {
    if (this.length === 0) this.first = records[0];
    for (; this.length < records.length; this.length += 1) {
      const record = records[this.length];
      if (record.kind === "event") this.take(record, this.length);
    }
  }

  /** @param {EventRecord} event @param {number} i */
  take({ type, facts, reason }, i) {
    if (LATEST.has(type)) {
      const list = this.events.get(type);
      if (list) list.push(i);
      else this.events.set(type, [i]);
    }
    if (type === "request_preempted") this.lost.set(facts.request, facts.num_computed_tokens);
    if (type === "request_scheduled" && facts.kind === "resumed") {
      const again = (this.lost.get(facts.request) ?? 0) - facts.num_computed_tokens;
      this.add("recomputed", i, Math.max(0, again));
    }
    if (type === "prefix_looked_up") {
      this.add("looked_up", i, 1);
      if (reason?.code === "last_token_needed") this.add("last_token_needed", i, 1);
    }
    if (type === "step_dispatched") this.add(`mode ${facts.mode}`, i, 1);
    if (type === "batch_scheduled" && facts.prefill_tokens > 0 && facts.decode_tokens > 0)
      this.add("mixed", i, 1);
  }

  /** @param {string} name @param {number} i @param {number} value */
  add(name, i, value) {
    const sums = this.sums.get(name) ?? [];
    sums.push({ i, value: value + (sums[sums.length - 1]?.value ?? 0) });
    this.sums.set(name, sums);
  }

  /** @param {string} name @param {number} cursor */
  upTo(name, cursor) {
    const sums = this.sums.get(name) ?? [];
    const place = atOrBefore(sums.length, (k) => sums[k].i, cursor);
    return place < 0 ? 0 : sums[place].value;
  }
}

const LATEST = new Set([
  "memory_sized",
  "prefix_looked_up",
  "graph_replayed",
  "attention_run",
  "inputs_prepared",
  "batch_scheduled",
]);

/** @param {Store} store */
function tallyOf(store) {
  let tally = tallies.get(store);
  if (!tally?.continues(store)) {
    tally = new Tally(store);
    tallies.set(store, tally);
  }
  tally.read(store);
  return tally;
}

/** How often or how much, up to the cursor. @param {Store} store @param {string} name */
export function sumOf(store, name) {
  return tallyOf(store).upTo(name, store.cursor);
}

/**
 * The latest event of a type at or before the cursor.
 * @param {Store} store @param {string} type @returns {EventRecord|null}
 */
export function latestOf(store, type) {
  const list = tallyOf(store).events.get(type) ?? [];
  const place = atOrBefore(list.length, (k) => list[k], store.cursor);
  return place < 0 ? null : /** @type {EventRecord} */ (store.records[list[place]]);
}

/**
 * The blocks that running requests hold, each once, and the tokens in them.
 * @param {Store} store
 */
export function heldBlocks(store) {
  const { ways, blockSize } = memoryAt(store.state, store.header.config);
  const { pieces } = ways[ways.findIndex((way) => way.name === PAGED)];
  const tokens = pieces.reduce((sum, piece) => sum + Math.min(piece.tokens, piece.length), 0);
  return { blocks: pieces.length, blockSize, tokens };
}

/** Of each contiguous way, what of its arena holds tokens. @param {Store} store */
export function contiguousWays(store) {
  if (!store.state.contiguous) return [];
  const { config } = store.header;
  const { ways, size } = store.atPhaseEnd((state) => memoryAt(state, config));
  return ways
    .filter((way) => way.name !== PAGED)
    .map(({ name, parts }) => ({ name, tokens: parts.tokens, held: size - parts.free }));
}

/** How many blocks more than one request holds now. @param {Store} store */
export function sharedBlocks(store) {
  /** @type {Map<number, number>} */
  const holders = new Map();
  for (const request of Object.values(store.state.requests ?? {}))
    for (const block of Object.values(/** @type {any} */ (request).block_table ?? {}))
      holders.set(block, (holders.get(block) ?? 0) + 1);
  return [...holders.values()].filter((count) => count > 1).length;
}
