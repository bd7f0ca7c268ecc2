// @ts-check
/** What happened: a phrase for each event of the log, its reason and numbers included. */
import {
  blockList,
  bytes,
  capital,
  count,
  does,
  list,
  micros,
  plural,
  quote,
  tokenName,
} from "./format.js";
import { are, because, colon, reasonPhrase, unfamiliar } from "./reasons.js";

/** @import { EventRecord, Reason } from "../core/records.js" */

/** A Map, since of a saved trace the source may be any word. */
const SOURCES = new Map([
  ["page", " from the page"],
  ["http", " over HTTP"],
  ["workload", " by the workload"],
]);
const NAMED = "class:"; // begins the source of a learner's requests; what follows is the name

/** The name under which somebody of a class sent a request, "" where it has none.
 * @param {string|undefined} source */
export function senderOf(source) {
  const isNamed = typeof source === "string" && source.startsWith(NAMED);
  return isNamed ? source.slice(NAMED.length) : "";
}

/** Where a request comes from, with a space before it. @param {string|undefined} source */
export function fromWhom(source) {
  const name = senderOf(source);
  // Isolated: a name that is written from the right turns nothing beside it.
  return name ? ` by \u2068${name}\u2069` : (SOURCES.get(source ?? "") ?? "");
}

/** What it means that a block has a hash and no KV. */
export const UNCOMPUTED = "never computed, so a hit reads what stood there before";

/** @type {Record<string, (f: any, e: EventRecord) => string>} */
export const EVENT_PHRASES = {
  memory_sized: (f, e) =>
    `the KV cache gets ${plural(f.num_blocks, "block")} of ${plural(f.block_size, "token")} ` +
    `(${bytes(f.num_blocks * f.bytes_per_block)}), by ${f.set_by}; a request may have ` +
    `${plural(f.max_model_len, "token")}${because(e.reason)}`,
  request_submitted: (f) =>
    `${f.request} is submitted${fromWhom(f.source)}: ` +
    `${plural(f.num_prompt_tokens, "prompt token")}, at most ${f.max_tokens} to generate`,
  request_refused: (f, e) => `${f.request} is refused${colon(e.reason)}`,
  request_arrived: (f) =>
    `${f.request} joins the waiting queue with ${plural(f.num_prompt_tokens, "prompt token")}, ` +
    `${f.waiting} in it now${f.ahead === f.waiting - 1 ? "" : `, ${f.ahead} ahead of it`}`,
  request_aborted: (f, e) => `${f.request} is aborted while ${f.status}${because(e.reason)}`,
  prefix_cache_reset: (f, e) =>
    f.done
      ? `the prefix cache is reset: ${plural(f.dropped, "hash")} dropped`
      : `the prefix cache is not reset, ${f.dropped} dropped${colon(e.reason)}`,
  prefix_looked_up: (f, e) =>
    `${f.hit_tokens} of ${f.request}'s ${plural(f.num_tokens, "token")} ${are(f.hit_tokens)} ` +
    (f.hit_tokens > 0
      ? `${f.preempted ? "still " : ""}cached, in ${blockList(f.hit_blocks)}${because(e.reason)}`
      : `cached${because(e.reason)}`),
  blocks_hit: (f) =>
    `${f.request} shares cached ${blockList(f.blocks)} ` +
    `(${f.taken_from_free} taken out of the free queue)${uncomputedWords(f)}`,
  block_evicted: (f) =>
    `block ${f.block} loses its cached content ${f.hash.slice(0, 8)} and goes to ${f.request}`,
  blocks_allocated: (f, e) => `${f.request} gets ${blockList(f.blocks)}${because(e.reason)}`,
  allocation_failed: (f, e) => `no blocks for ${f.request}${colon(e.reason)}`,
  blocks_cached: (f, e) =>
    `${f.request}'s ${blockList(f.blocks)}, logical from ${f.first_index}, ` +
    `${f.blocks.length === 1 ? "enters" : "enter"} the prefix cache${because(e.reason)}`,
  blocks_uncached: (f, e) =>
    `${f.request}'s ${blockList(f.blocks)} ${f.blocks.length === 1 ? "leaves" : "leave"} the ` +
    `prefix cache, never computed${because(e.reason)}`,
  blocks_left_uncomputed: (f, e) =>
    `${f.request}'s ${blockList(f.blocks)} ${f.blocks.length === 1 ? "stays" : "stay"} in the ` +
    `prefix cache, ${UNCOMPUTED}${because(e.reason)}`,
  blocks_freed: (f) =>
    `${f.request} lets go of ${blockList(f.blocks)}; ${
      f.returned.length === f.blocks.length ? "all" : count(f.returned.length)
    } free now`,
  request_scheduled: (f, e) =>
    `${f.request} (${f.kind}) gets ${plural(f.num_tokens, "token")} from position ` +
    `${f.num_computed_tokens} of ${f.num_known_tokens}, ${f.budget_left} of the budget left` +
    because(e.reason),
  drafts_scheduled: (f) => `${draftWords(f)} of ${f.request} ${are(f.tokens.length)} in the step`,
  drafts_dropped: (f) =>
    `${f.request} loses ${plural(f.num_drafts, "draft")} and will resume without`,
  drafts_settled: (f) =>
    `${settledWords(f)} of ${f.request}'s ${plural(f.num_drafts, "draft")}: ` +
    `${plural(f.num_computed_tokens, "token")} of it ${are(f.num_computed_tokens)} computed`,
  request_passed_over: (f, e) => passedOverWords(f, e.reason),
  request_preempted: (f, e) =>
    `${f.request} is preempted${causeWords(f)}${because(e.reason)}; ` +
    `its blocks (${plural(f.num_computed_tokens, "computed token")}) are given back` +
    (f.ahead ? `, and it waits behind ${f.ahead}` : ""),
  admission_stopped: (f, e) =>
    `${f.request} is not admitted, ${f.waiting} waiting${colon(e.reason)}`,
  batch_scheduled: (f) =>
    `a batch of ${plural(f.num_requests, "request")}: ${f.prefill_tokens} prefill and ` +
    `${plural(f.decode_tokens, "decode token")} of ${f.max_num_batched_tokens}` +
    (f.finished.length > 0 ? `; the runner may forget ${list(f.finished)}` : ""),
  block_tables_updated: (f) =>
    `the runner takes over ${plural(f.new_blocks, "new block")} of ${list(f.requests) || "nobody"}`,
  inputs_prepared: (f) =>
    `${plural(f.input_ids.length, "row")} laid out for ${list(f.requests) || "nobody"}`,
  step_dispatched: (f, e) =>
    f.mode === "NONE"
      ? `${does(f.num_tokens, "token", "runs", "run")} eagerly${colon(e.reason)}`
      : `${does(f.num_tokens, "token", "replays", "replay")} the ${f.mode} graph of ` +
        `${f.num_padded_tokens}${because(e.reason)}`,
  graph_captured: (f, e) =>
    (f.shared
      ? `the ${f.mode} graph of ${plural(f.size, "row")} is there already, captured for another ` +
        "engine"
      : `a ${f.mode} graph of ${plural(f.size, "row")} is captured${took(e)}`) +
    `: ${plural(f.recorded, "operation")}, ` +
    (f.backend.includes("inductor")
      ? `which inductor made ${count(f.replayed)} to replay`
      : `${count(f.replayed)} of them to replay`) +
    (f.pieces > 1 ? `, in ${plural(f.pieces, "piece")} with attention between` : ""),
  graph_replayed: (f, e) =>
    `the ${f.mode} graph of ${plural(f.num_padded_tokens, "row")} is replayed for ` +
    `${plural(f.num_tokens, "token")}: ${plural(f.operations, "operation")}` +
    `${f.pieces > 1 ? ` in ${plural(f.pieces, "piece")}` : ""}${took(e)}`,
  forward_run: (f, e) =>
    `${plural(f.num_tokens, "token")} of ${plural(f.num_requests, "request")} went through ` +
    `${plural(f.num_layers, "layer")}${took(e)}`,
  weights_read: (f) => `the weights were read once, ${bytes(f.num_bytes)}`,
  modules_timed: (f) =>
    `time by module: ${list(timesByKind(f).map((item) => `${item.kind} ${micros(item.us)}`))}`,
  attention_run: (f, e) =>
    `attention (${f.backend}) ran over ${plural(f.num_tokens, "token")} in ` +
    `${plural(f.num_layers, "layer")}${took(e)}`,
  kv_written: (f) => `K and V of ${plural(f.num_tokens, "token")} written, ${bytes(f.num_bytes)}`,
  pages_read: (f) =>
    `attention read ${blockList(f.blocks)} for ${f.request}: ${plural(f.num_tokens, "token")} of ` +
    `context, ${bytes(f.num_bytes)}`,
  heads_grouped: (f) =>
    `${does(f.num_attention_heads, "query head", "shares", "share")} ` +
    `${plural(f.num_kv_heads, "KV head")}, ${bytes(f.kv_bytes_per_token)} of KV a token`,
  drafts_verified: (f) =>
    `${f.num_accepted} of ${f.request}'s ${plural(f.drafts.length, "draft")} ` +
    `${are(f.num_accepted)} accepted${verdictWords(f)}`,
  token_sampled: (f) => `${sampledToken(f)} ${howSampled(f)} for ${f.request}`,
  drafts_proposed: (f, e) =>
    `${plural(f.drafts.length, "draft")} for ${f.request}: ${quote(f.texts.join(""))} followed ` +
    `its last ${plural(f.num_matched, "token")} before, at position ${f.matched_at}; ` +
    `found${took(e)}`,
  tokens_returned: (f) =>
    `${does(f.num_tokens, "sampled token", "goes", "go")} back to the scheduler`,
  token_appended: (f) =>
    `${f.request} grows by token ${f.token} to ${plural(f.num_tokens, "token")}`,
  token_dropped: (f, e) => `token ${f.token} of ${f.request} came too late${colon(e.reason)}`,
  request_finished: (f, e) =>
    `${f.request} finishes (${f.finish_reason}) after ` +
    `${plural(f.num_output_tokens, "token")}${colon(e.reason)}`,
  outputs_returned: (f) =>
    `the outcome of ${plural(f.num_requests, "request")} goes to the front end, ` +
    `${f.num_finished} finished`,
  text_emitted: (f) =>
    `${f.request} says ${quote(f.text)} (token ${f.token}, output ${f.output_index})`,
  request_completed: (f) => `${f.request}'s client is told: ${f.finish_reason}`,
  stats_logged: (f) =>
    `the periodic line over ${f.seconds.toFixed(1)} s: ${f.prompt_throughput.toFixed(1)} prompt ` +
    `and ${f.generation_throughput.toFixed(1)} generated tokens a second, ${f.running} running, ` +
    `${f.waiting} waiting`,
  spec_decoding_logged: (f) =>
    `the periodic line of drafts over ${f.seconds.toFixed(1)} s: ` +
    `${f.num_accepted_tokens} of ${plural(f.num_draft_tokens, "draft")} accepted`,
  integrity_checked: (f, e) =>
    (f.num_violations
      ? `${does(f.num_violations, "place", "breaks", "break")} the engine's rules`
      : `all ${f.rules.length} rules of the engine hold`) + took(e),
  kv_cache_compared: (f, e) =>
    `${f.request} was compared with fp32: ${comparedText(f)}${took(e)}`,
  moment_restored: (f) => `the engine goes on from a saved moment of trace ${restoredText(f)}`,
  engine_failed: (f) => stoppedWords(f.message),
};

/** The drafts of a share, and those it had no room for. @param {any} f of drafts_scheduled */
export function draftWords(f) {
  const padding = f.tokens.length > 0 && f.tokens.every((/** @type {number} */ t) => t === -1);
  const drafts = padding
    ? plural(f.tokens.length, "padding draft")
    : plural(f.tokens.length, "draft");
  return f.cut > 0 ? `${drafts} (${count(f.cut)} cut off and lost)` : drafts;
}

/** How many drafts stay, and how many are taken back. @param {any} f of drafts_settled */
export function settledWords(f) {
  const rejected = f.num_drafts - f.num_accepted;
  if (rejected === 0) return "the model accepts all";
  const none = f.num_accepted === 0 ? "the model accepts none" : "";
  return none || `the model accepts ${count(f.num_accepted)} and rejects ${count(rejected)}`;
}

/** @param {any} f of kv_cache_compared */
function comparedText(f) {
  if (!f.num_outputs) return "it has written nothing yet";
  return f.differs_at < 0
    ? `its ${plural(f.num_outputs, "token")} are the same`
    : `its token ${f.differs_at} is another one`;
}

/** What of a hit was never computed. @param {any} f of blocks_hit */
export function uncomputedWords(f) {
  if (f.uncomputed.length === 0) return "";
  const all = f.uncomputed.length === f.blocks.length;
  const which = `${blockList(f.uncomputed)} ${f.uncomputed.length === 1 ? "was" : "were"}`;
  return all ? ", never computed" : `, of which ${which} never computed`;
}

/**
 * What was kept, and what ended it. @param {any} f of drafts_verified
 */
function verdictWords(f) {
  const kept = f.texts.slice(0, f.num_accepted).join("");
  const words = kept ? [quote(kept)] : [];
  if (f.num_accepted >= f.drafts.length) words.push("and there is a bonus token");
  else if (f.drafts[f.num_accepted] < 0) words.push("the next is padding");
  else words.push(`${quote(tokenName(f.texts[f.num_accepted]))} is not what the model chooses`);
  return `: ${words.join(", ")}`;
}

/** By number and, where it is among the candidates, in words. @param {any} f of token_sampled */
export function sampledToken(f) {
  const text = f.texts[f.candidates.indexOf(f.token)];
  return text === undefined ? `token ${f.token}` : `token ${f.token} ${quote(tokenName(text))}`;
}

/** Bias and penalties can make another token the largest. @param {any} f of token_sampled */
export function howSampled(f) {
  if (!f.greedy) return "is drawn";
  return f.candidates[0] === f.token
    ? "is the likeliest"
    : "has the largest logit after bias, penalties and forbidden ends";
}

/** @param {any} f of moment_restored */
export function restoredText(f) {
  const others = f.other_versions.length
    ? `; it was saved with other packages (${list(f.other_versions)}), so that what it writes ` +
      "may differ"
    : "";
  return (
    `${f.trace}: ${plural(f.num_requests, "unfinished request")}, ` +
    `${plural(f.num_blocks, "block")} with K and V (${bytes(f.num_bytes)})${others}`
  );
}

/**
 * What a failed engine says of itself, without a full stop. @param {string} message
 * @returns {string}
 */
function stoppedWords(message) {
  const text = message.replace(/\.$/, "");
  return text.startsWith("the engine stopped") ? text : `the engine stopped: ${text}`;
}

/** @param {any} facts of modules_timed @returns {{kind: string, us: number}[]} */
export function timesByKind({ kinds, durations_us: times }) {
  return kinds.map((/** @type {string} */ kind, /** @type {number} */ i) => ({
    kind,
    us: times[i],
  }));
}

/** For whom, and for how many blocks. @param {any} f of request_preempted */
export function causeWords(f) {
  if (!f.by) return "";
  const shortage = `needs ${plural(f.needs, "block")} with ${f.free} free`;
  if (f.by === f.request) return ` by its own need: it ${shortage}`;
  return ` for ${f.by}, which ${shortage}`;
}

/**
 * A request's own length stops only itself; a spent budget stops those behind it too.
 * @param {any} f @param {Reason | undefined} reason
 */
export function passedOverWords(f, reason) {
  const who = f.behind ? `${f.request} and the ${f.behind} behind it get` : `${f.request} gets`;
  return `${who} nothing in this step${colon(reason)}`;
}

/** ` in 61.2 ms`, or nothing. @param {EventRecord} e */
function took(e) {
  return e.duration_us === undefined ? "" : ` in ${micros(e.duration_us)}`;
}

/**
 * One short phrase for an event, its reason and numbers included.
 * @param {EventRecord} event
 * @returns {string}
 */
export function eventPhrase(event) {
  const phrase = EVENT_PHRASES[event.type];
  const text = phrase ? phrase(event.facts, event) : unfamiliar(event.type, event.facts);
  const why = reasonPhrase(event.reason);
  return why === "" || text.includes(why) ? text : `${text} (${why})`;
}

/** The phrase as a sentence; a request keeps its name. @param {EventRecord} event */
export function eventSentence(event) {
  const phrase = eventPhrase(event);
  const { request } = event.facts;
  return `${request && phrase.startsWith(request) ? phrase : capital(phrase)}.`;
}
