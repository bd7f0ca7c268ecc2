// @ts-check
/** Why a decision fell as it did: a clause for each reason of the log, with its numbers. */
import { does, plural } from "./format.js";

/** @import { Reason } from "../core/records.js" */

/** @type {Record<string, (r: any) => string>} */
export const REASON_PHRASES = {
  seats_full: (r) => `${r.running} of ${r.max_num_seqs} seats are taken`,
  budget_spent: (r) => `the step's ${does(r.max_num_batched_tokens, "token", "is", "are")} spent`,
  fits: (r) => `${needsWords(r)}, ${r.free} ${are(r.free)} free`,
  does_not_fit: (r) =>
    `${needsWords(r)}${r.watermark > 0 ? "," : ""} and ${r.free} ${are(r.free)} free`,
  preempted_this_step: (r) =>
    `this step preempted ${plural(r.preempted, "request")}, so it gives out no more`,
  moved_up: (r) =>
    `${r.victim}, passed over before it, left the list of those running, and by number it was ` +
    "asked already",
  chunking_off: (r) =>
    `chunked prefill is off: its ${plural(r.wants, "token")} must go at once, and the budget has ` +
    `${r.budget_left} left`,
  model_length_reached: (r) =>
    `the longest length, ${plural(r.max_model_len, "token")}, is reached`,
  whole_request: (r) => `${does(r.wanted, "token", "is", "are")} all it wanted`,
  budget_left: (r) => `it wanted ${r.wanted}, the budget had ${r.budget_left} left`,
  long_prefill_threshold: (r) =>
    `it wanted ${r.wanted}, one request gets at most ${r.long_prefill_token_threshold} a step`,
  first_miss: (r) => `its logical block ${r.block} (content ${r.hash.slice(0, 8)}) is not cached`,
  block_not_full: (r) =>
    `its logical block ${r.block} has ${plural(r.num_tokens, "token")}, and only full blocks hit`,
  last_token_needed: (r) =>
    `at least one token must be computed, so at most ${plural(r.limit, "token")} may hit`,
  last_hit_given_up: (r) =>
    `its logical block ${r.block} is cached, and the drafter (eagle) needs it computed`,
  padded_to_uniform: (r) =>
    `made as long as the decodes beside it: ${plural(r.num_speculative_tokens, "draft")} of ` +
    "padding for the one token it wanted",
  padding_does_not_fit: (r) =>
    `with its padding it wants ${plural(r.wants, "token")}: the budget has ${r.budget_left} ` +
    `left, and ${r.num_computed_tokens} of at most ${r.max_model_len} are computed`,
  free_queue_head: (r) =>
    r.free === 1
      ? "the only block in the free queue"
      : `first of the ${plural(r.free, "block")} in the free queue`,
  block_filled: (r) => `full, ${plural(r.num_tokens, "token")} known and scheduled`,
  never_computed: (r) =>
    `its step goes on without it, and only its first ${plural(r.num_computed_tokens, "token")} ` +
    `${are(r.num_computed_tokens)} computed`,
  last_running: (r) => `the last of ${r.running} running`,
  lowest_priority: (r) =>
    `the last in order of priority of ${r.running} running, with ${r.priority}` +
    (r.same_priority > 1 ? ` the one of ${r.same_priority} that arrived last` : ""),
  max_tokens_reached: (r) =>
    `it has ${r.max_tokens === 1 ? "the" : "all"} ${plural(r.max_tokens, "token")} it asked for`,
  last_token_in_flight: (r) =>
    `the ${r.max_tokens === 1 ? "" : "last of the "}${plural(r.max_tokens, "token")} ` +
    "it asked for is on its way",
  eos_token: (r) => `the model ended the text (token ${r.token})`,
  stop_token: (r) => `token ${r.token} is one of its stop tokens`,
  stop_string: (r) => `its stop string (stop[${r.stop_index}]) appeared`,
  client_aborted: () => "the client took it back",
  uncomputed_dependency: (r) =>
    `it shares block ${r.block}, which an aborted request would have computed in this step`,
  reset_requested: () =>
    "the prefix cache is reset: nobody may hold blocks, nothing in flight counts",
  prompt_too_long: (r) =>
    `${does(r.num_prompt_tokens, "prompt token", "leaves", "leave")} no room for one more within ` +
    `${r.max_model_len}`,
  prompt_text_too_long: (r) =>
    `its text has ${plural(r.num_characters, "character")}, and with at most ` +
    `${r.longest_token} a token that leaves no room for one more token within ${r.max_model_len}`,
  uniform_decode: (r) =>
    r.num_requests === 1
      ? `its one request has ${rows(r.query_len)}, as a full graph takes`
      : `each of its ${r.num_requests} requests has ${rows(r.query_len)}, as a full graph takes`,
  not_uniform_decode: (r) =>
    `a full graph takes ${rows(r.query_len)} of each request; ` +
    (r.num_requests === 1
      ? `one request has ${r.num_tokens}`
      : `${r.num_requests} requests have ${r.num_tokens} in all`),
  mode_for_any_batch: (r) => `cudagraph_mode is ${r.mode}, for every batch`,
  above_largest_size: (r) =>
    `${does(r.batch, "token", "is", "are")} more than the largest captured size, ${r.largest}`,
  above_largest_decode_size: (r) =>
    `${does(r.batch, "row", "is", "are")} more than the largest full graph has, ${r.largest}, ` +
    "and the next size is more than all seats fill",
  enforce_eager: () => "the engine was told never to use a graph",
  cannot_capture: (r) => `no graph of this batch can be had: ${r.message}`,
  cache_limits_length: (r) =>
    `the model knows ${plural(r.model_max_len, "position")}, and the cache holds ` +
    plural(r.holds, "token"),
  blocks_in_use: (r) => `${does(r.used, "block", "is", "are")} in use`,
};

/** What is asked of the pool. @param {any} r */
function needsWords(r) {
  const beside = r.watermark > 0 ? ` beside ${r.watermark} that must stay free` : "";
  const ahead = r.lookahead > 0 ? `, ${plural(r.lookahead, "slot")} for the drafter included` : "";
  return `it needs ${plural(r.needs, "block")}${ahead}${beside}`;
}

/** Of a full graph's request: one, or one and its drafts. @param {number} n */
function rows(n) {
  return n === 1 ? "one row" : plural(n, "row");
}

/** @param {number} n */
export function are(n) {
  return n === 1 ? "is" : "are";
}

/**
 * Why a decision fell as it did, with its numbers, as a clause.
 * @param {Reason | null | undefined} reason
 * @returns {string}
 */
export function reasonPhrase(reason) {
  if (!reason) return "";
  const phrase = Object.hasOwn(REASON_PHRASES, reason.code) ? REASON_PHRASES[reason.code] : null;
  return phrase ? phrase(reason) : unfamiliar(reason.code, reason);
}

/** A name this page does not know yet, with its numbers. @param {string} name @param {any} facts */
export function unfamiliar(name, facts) {
  const numbers = Object.entries(facts)
    .filter(([key, value]) => key !== "code" && typeof value !== "object")
    .map(([key, value]) => `${key} ${value}`);
  return [name.replaceAll("_", " "), numbers.join(", ")].filter(Boolean).join(": ");
}

/** ` (reason)`, or nothing. @param {Reason | null | undefined} reason */
export function because(reason) {
  return reason ? ` (${reasonPhrase(reason)})` : "";
}

/** `: reason`, or nothing. @param {Reason | null | undefined} reason */
export function colon(reason) {
  return reason ? `: ${reasonPhrase(reason)}` : "";
}
