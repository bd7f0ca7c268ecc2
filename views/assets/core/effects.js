// @ts-check
/**
 * What each event does to the state by its own words. The log tells the whole state where a phase
 * ends; inside one, the state before it with the effects of its events so far is where the engine
 * stands. What no event tells of waits for the end.
 *
 * `given` is in no patch: the tokens that the step being scheduled has given each request. They
 * count as computed once its batch is closed.
 */

/** @import { Reason } from "./records.js" */
/** @import { Reversible } from "./reversible.js" */

/** @type {Record<string, (to: Reversible, facts: any, reason?: Reason) => void>} */
export const EFFECTS = {
  // -- requests
  request_arrived(to, { request, ahead }) {
    to.set(to.request(request), "status", "waiting");
    to.link("waiting", request, to.memberAt("waiting", ahead));
  },
  request_scheduled(to, { request: id, kind, num_tokens, num_computed_tokens }) {
    if (kind !== "running") admit(to, id, kind, num_computed_tokens);
    to.add(to.map(to.state, "given"), id, num_tokens);
  },
  batch_scheduled(to) {
    const { given = {} } = to.state;
    for (const id of Object.keys(given)) to.add(to.request(id), "num_computed_tokens", given[id]);
    to.set(to.state, "given", null);
  },
  request_preempted(to, { request: id, ahead }) {
    const request = to.request(id);
    to.unlink("running", id);
    to.set(request, "status", "preempted");
    to.link("waiting", id, to.memberAt("waiting", ahead));
    to.set(request, "num_computed_tokens", 0);
    to.add(request, "num_preemptions");
    to.set(to.map(to.state, "given"), id, null);
    to.count("num_preemptions");
  },
  request_finished(to, { request: id, finish_reason }) {
    const request = to.request(id);
    to.unlink(request.status === "running" ? "running" : "waiting", id);
    to.set(request, "status", "finished");
    to.set(request, "finish_reason", finish_reason);
    for (const name of IN_FLIGHT) to.set(request, name, null);
    to.count("requests_finished");
  },
  token_appended(to, { request: id, token, num_tokens }) {
    const request = to.request(id);
    const place = num_tokens - 1 - (request.num_prompt_tokens ?? 0);
    to.set(to.map(request, "output_token_ids"), place, token);
    to.set(request, "num_tokens", num_tokens);
    countDown(to, request, "num_output_placeholders");
    to.count("generation_tokens");
  },
  token_dropped(to, { request: id }, reason) {
    if (reason?.code === "reset_requested")
      countDown(to, to.request(id), "async_tokens_to_discard");
  },
  text_emitted(to, { request: id, text, output_index }) {
    to.set(to.map(to.request(id), "output_pieces"), output_index, text);
  },

  // -- drafts
  drafts_scheduled(to, { request: id, tokens }) {
    to.set(to.request(id), "spec_token_ids", null);
    to.set(to.request(id), "num_draft_tokens", tokens.length || null);
  },
  drafts_dropped(to, { request: id }) {
    for (const name of DRAFTS) to.set(to.request(id), name, null);
  },
  drafts_settled(to, { request: id, num_drafts, num_accepted, num_computed_tokens }) {
    to.set(to.request(id), "num_computed_tokens", num_computed_tokens);
    for (const name of DRAFTS) to.set(to.request(id), name, null);
    to.count("num_drafts");
    to.count("num_draft_tokens", num_drafts);
    to.count("num_accepted_tokens", num_accepted);
  },

  // -- blocks
  prefix_looked_up(to, { num_tokens, hit_tokens }) {
    to.count("prefix_requests");
    to.count("prefix_queries", num_tokens);
    to.count("prefix_hits", hit_tokens);
  },
  blocks_hit(to, { request, blocks }) {
    for (const id of blocks) hold(to, id);
    addToTable(to, request, blocks);
  },
  // It was the head of the queue: what stood before it has been given to the same request.
  block_evicted(to, { block, request }) {
    to.set(to.block(block), "hash", null);
    to.set(to.block(block), "uncomputed", null);
    take(to, request, headUpTo(to, block));
  },
  blocks_allocated(to, { request, blocks }) {
    const evicted = (/** @type {number} */ id) => to.block(id).ref_cnt > 0; // and so given
    take(
      to,
      request,
      blocks.filter((/** @type {number} */ id) => !evicted(id)),
    );
  },
  blocks_cached(to, { blocks, hashes }) {
    blocks.forEach((/** @type {number} */ id, /** @type {number} */ k) =>
      to.set(to.block(id), "hash", hashes[k]),
    );
  },
  blocks_uncached(to, { blocks }) {
    for (const id of blocks) forget(to, to.block(id));
  },
  blocks_left_uncomputed(to, { blocks }) {
    for (const id of blocks) to.set(to.block(id), "uncomputed", true);
  },
  blocks_freed(to, { request, blocks, returned }) {
    for (const id of blocks) to.add(to.block(id), "ref_cnt", -1);
    to.set(to.request(request), "block_table", null);
    const isCached = (/** @type {number} */ id) => to.block(id).hash !== undefined;
    for (const id of returned) if (isCached(id)) to.link("free", id);
    const { head } = to.queue("free");
    for (const id of returned) if (!isCached(id)) to.link("free", id, head);
  },
  prefix_cache_reset(to, { done }) {
    if (done) for (const block of Object.values(to.state.blocks ?? {})) forget(to, block);
  },

  // -- graphs
  graph_captured(to, facts) {
    to.set(to.map(to.state, "graphs"), `${facts.mode} ${facts.size}`, facts);
  },
};

const DRAFTS = ["spec_token_ids", "num_draft_tokens"];
const IN_FLIGHT = ["num_output_placeholders", "async_tokens_to_discard", ...DRAFTS];

/** A seat for a waiting request. @param {Reversible} to @param {string} id @param {string} kind
 * @param {number} hit tokens */
function admit(to, id, kind, hit) {
  const request = to.request(id);
  to.unlink("waiting", id);
  to.link("running", id);
  to.set(request, "status", "running");
  to.set(request, "num_computed_tokens", hit);
  to.set(request, "hit_tokens", hit);
  if (kind === "new") to.count("prompt_tokens", request.num_prompt_tokens ?? 0);
}

/** @param {Reversible} to @param {any} request @param {string} name of a number; none where 0 */
function countDown(to, request, name) {
  if (request[name]) to.set(request, name, request[name] - 1 || null);
}

/** @param {Reversible} to @param {any} block its content is not known any more */
function forget(to, block) {
  if (block.hash === undefined) return;
  to.set(block, "hash", null);
  to.set(block, "uncomputed", null);
}

/** One holder more. @param {Reversible} to @param {number} id */
function hold(to, id) {
  to.unlink("free", id);
  to.add(to.block(id), "ref_cnt");
}

/** Free blocks become a request's. @param {Reversible} to @param {string} request
 * @param {number[]} blocks */
function take(to, request, blocks) {
  for (const id of blocks) hold(to, id);
  addToTable(to, request, blocks);
}

/** @param {Reversible} to @param {string} request @param {number[]} blocks */
function addToTable(to, request, blocks) {
  if (blocks.length === 0) return;
  const table = to.map(to.request(request), "block_table");
  let place = Object.keys(table).length;
  for (const id of blocks) to.set(table, place++, id);
}

/** The free queue from its head to a block. @param {Reversible} to @param {number} block */
function headUpTo(to, block) {
  const { head, length = 0 } = to.queue("free");
  const found = [];
  for (let id = head; id !== undefined && found.length < length; id = to.block(id).next) {
    found.push(id);
    if (id === block) return found;
  }
  return [];
}
