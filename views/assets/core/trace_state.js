// @ts-check
/**
 * What the page relies on in a trace's settings and in its state, checked once when a file is
 * opened: types, sizes, and that the free queue is one. What a live engine sends needs no check.
 */
import {
  anyKey,
  anything,
  flag,
  index,
  listOf,
  mapOf,
  number,
  oneOf,
  shape,
  text,
  whole,
} from "./checks.js";
import { STEP_PHASES } from "./records.js";
import { mergePatch } from "./state.js";

/** @import { Check } from "./checks.js" */

const MAX_BLOCKS = 65_536;
const MAX_REQUESTS = 20_000;

/** @type {Check} */
export const CONFIG = shape({
  num_gpu_blocks: whole(1, MAX_BLOCKS),
  block_size: whole(1, 4096),
  max_num_batched_tokens: whole(1),
  max_num_seqs: whole(1),
  max_model_len: whole(1),
  enable_prefix_caching: flag,
  async_scheduling: flag,
});

/** @type {Check} */
export const MODEL = shape({
  num_layers: whole(0, 100_000),
  num_attention_heads: whole(0, 100_000),
  num_kv_heads: whole(0, 100_000),
  head_dim: whole(0, 1_000_000),
  kv_bytes_per_token: number,
  weight_bytes: number,
  quantization: text,
  quantized_layers: whole(0, 1_000_000),
  linear_layers: whole(0, 1_000_000),
  device: text,
});

/** @type {Record<string, Check>} */
const REQUEST = {
  status: oneOf("submitted", "waiting", "running", "preempted", "finished"),
  num_tokens: whole(0),
  num_prompt_tokens: whole(0),
  num_computed_tokens: whole(0),
  num_preemptions: whole(0),
  num_output_placeholders: whole(0),
  async_tokens_to_discard: whole(0),
  hit_tokens: whole(0),
  max_tokens: whole(0),
  priority: number,
  cache_salt: text,
  prompt: text,
  source: text,
  finish_reason: text,
  prompt_token_ids: listOf(number),
  prompt_pieces: listOf(text),
  output_token_ids: mapOf(index, number),
  output_pieces: mapOf(index, text),
};

/** What a record must have, once it is there. */
const NEEDED = { requests: "status", blocks: "ref_cnt" };

/** @param {number} blocks in the pool @returns {Check} */
function stateOf(blocks) {
  const block = whole(0, blocks - 1);
  const blockKey = (/** @type {string} */ name, /** @type {string} */ place) =>
    index(name, place) || block(Number(name), place);
  const queue = (/** @type {Check} */ member) =>
    shape({ length: whole(0), head: member, tail: member });
  return shape({
    blocks: mapOf(
      blockKey,
      shape({
        ref_cnt: whole(0, 65_535),
        null_block: flag,
        hash: text,
        uncomputed: flag,
        prev: block,
        next: block,
      }),
    ),
    requests: mapOf(anyKey, shape({ ...REQUEST, block_table: mapOf(index, block) })),
    queues: shape({ free: queue(block), waiting: queue(text), running: queue(text) }),
    counters: mapOf(anyKey, number),
    contiguous: mapOf(anyKey, mapOf(anyKey, shape({ length: whole(0), start: whole(0) }))),
    engine: shape({
      mode: text,
      rate: number,
      step: whole(0),
      next_phase: text,
      in_flight: mapOf(index, oneOf(...STEP_PHASES)),
    }),
  });
}

/** The state of a file that is being read, patch by patch. */
export class CheckedState {
  /** @param {any} config */
  constructor(config) {
    this.check = stateOf(config.num_gpu_blocks ?? MAX_BLOCKS);
    /** @type {any} */
    this.state = Object.create(null);
    /** @type {Set<string>} ids of all requests so far */
    this.requests = new Set();
  }

  /** Merge a patch in. @param {any} changes @returns {string} what is wrong with it, or "" */
  take(changes) {
    const problem = this.check(changes, "");
    if (problem) return problem;
    mergePatch(this.state, changes);
    for (const id of Object.keys(changes.requests ?? {})) this.requests.add(id);
    if (this.requests.size > MAX_REQUESTS) {
      return `more than ${MAX_REQUESTS.toLocaleString("en-US")} requests; this page shows no more`;
    }
    return this.missing(changes) || this.brokenLink(changes);
  }

  /** @param {any} changes */
  missing(changes) {
    for (const [kind, field] of Object.entries(NEEDED)) {
      for (const id of Object.keys(changes[kind] ?? {})) {
        const made = this.state[kind][id];
        if (made && made[field] === undefined) return `${kind}.${id} needs its ${field}`;
      }
    }
    return "";
  }

  /** Neighbours in the free queue name each other. @param {any} changes */
  brokenLink(changes) {
    const { blocks } = this.state;
    for (const id of Object.keys(changes.blocks ?? {})) {
      const { prev, next } = blocks[id] ?? {};
      if (next !== undefined && blocks[next]?.prev !== Number(id))
        return unlinked(id, "next", next);
      if (prev !== undefined && blocks[prev]?.next !== Number(id))
        return unlinked(id, "prev", prev);
    }
    return "";
  }

  /** At the end: the free queue is as long as it says, and nothing runs in a circle beside it. */
  brokenQueue() {
    const { blocks = {}, queues } = this.state;
    const length = queues?.free?.length ?? 0;
    const linked = Object.keys(blocks).filter(
      (id) => blocks[id].prev !== undefined || blocks[id].next !== undefined,
    ).length;
    let walked = 0;
    let at = queues?.free?.head;
    for (; at !== undefined && walked <= length; at = blocks[at]?.next) walked += 1;
    // One block alone has no neighbour.
    if (walked === length && linked === (length < 2 ? 0 : length)) return "";
    return (
      `the free queue holds ${length} blocks as it says; ${linked} are linked, and from its head ` +
      `${walked > length ? "there are more" : `${walked} are reached`}`
    );
  }
}

/** @param {string} id @param {string} way @param {number} other */
function unlinked(id, way, other) {
  return `blocks.${id}.${way} is ${other}, and block ${other} does not know of it: no free queue`;
}

/** Reasons and other flat facts: numbers, texts, yes or no. @type {Check} */
export const flat = (value, place) =>
  Object.values(value).some((each) => typeof each === "object" && each !== null)
    ? `${place} must hold numbers and texts`
    : anything(value, place);
