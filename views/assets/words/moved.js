// @ts-check
/** How much each event took along its connection, in all units that it is known in. */

/** @import { EventRecord } from "../core/records.js" */

/**
 * @typedef {{tokens?: number, blocks?: number, bytes?: number, requests?: number}} Amounts
 */

const utf8 = new TextEncoder();

/** @type {Record<string, (facts: any) => Amounts>} */
export const AMOUNTS = {
  request_submitted: (f) => ({ requests: 1, tokens: f.num_prompt_tokens }),
  request_refused: () => ({ requests: 1 }),
  request_arrived: (f) => ({ requests: 1, tokens: f.num_prompt_tokens }),
  request_aborted: () => ({ requests: 1 }),
  prefix_looked_up: (f) => ({ tokens: f.num_tokens, blocks: f.hit_blocks.length }),
  blocks_hit: (f) => ({ blocks: f.blocks.length }),
  blocks_allocated: (f) => ({ blocks: f.blocks.length }),
  allocation_failed: () => ({ blocks: 0 }),
  blocks_freed: (f) => ({ blocks: f.blocks.length }),
  batch_scheduled: (f) => ({
    requests: f.num_requests,
    tokens: f.prefill_tokens + f.decode_tokens,
  }),
  block_tables_updated: (f) => ({ requests: f.requests.length, blocks: f.new_blocks }),
  step_dispatched: (f) => ({ tokens: f.num_tokens }),
  weights_read: (f) => ({ bytes: f.num_bytes }),
  attention_run: (f) => ({ tokens: f.num_tokens }),
  kv_written: (f) => ({ tokens: f.num_tokens, bytes: f.num_bytes }),
  pages_read: (f) => ({ tokens: f.num_tokens, blocks: f.blocks.length, bytes: f.num_bytes }),
  heads_grouped: () => ({}),
  tokens_returned: (f) => ({ tokens: f.num_tokens }),
  outputs_returned: (f) => ({ requests: f.num_requests }),
  text_emitted: (f) => ({ tokens: 1, bytes: utf8.encode(f.text).length }),
  request_completed: () => ({ requests: 1 }),
};

/** @param {EventRecord} event that travels a connection @returns {Amounts} */
export function amountsOf({ type, facts }) {
  return Object.hasOwn(AMOUNTS, type) ? AMOUNTS[type](facts) : {};
}

export const MOVED = "What moved in this step";
export const MOVED_HINT = "What moved in this step: each crossing, in order, and how much";
export const MOVED_COLUMNS = [
  "Event",
  "From",
  "To",
  "What",
  "Requests",
  "Tokens",
  "Blocks",
  "Bytes",
];
export const NOTHING_MOVED =
  "Nothing has travelled between two boxes in this step so far: each crossing stands here, with " +
  "how much it was.";
export const AMOUNTS_HOW =
  "measured: the facts of the event; bytes of a text are its length in UTF-8, those of KV and " +
  "weights are derived, as their events say";

/** @param {number} n */
export const earlier = (n) => `${n} before these`;
