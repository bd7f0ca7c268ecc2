// @ts-check
/** What the frame of a room says: the ways out of it, and what is not there yet. */
import { fromWhom } from "./events.js";
import { count, paceText, plural } from "./format.js";

/** @import { Reason } from "../core/records.js" */
/** @import { MemoryPart } from "./memory.js" */
/** @import { Stream } from "../rooms/streams_model.js" */

/** @param {string} label */
export const insideOf = (label) => `Inside ${label}`;

/** @param {string} label */
export const openText = (label) => `Open ${label}: see what is inside, live`;

export const BACK = "Map";
export const BACK_HINT = "Back to the map (Esc)";
export const COMES_IN = "Comes in";
export const GOES_OUT = "Goes out";

/** What a step decided about a request, on its card. @type {Record<string, string>} */
const MARKS = {
  admitted: "admitted",
  stopped: "not admitted",
  preempted: "preempted",
  passed: "passed over",
  finished: "finished",
};

/** Why, in the few words that a card has room for. @type {Record<string, (r: any) => string>} */
const WHY_SHORT = {
  seats_full: () => "no seat",
  budget_spent: () => "budget spent",
  does_not_fit: (r) => `needs ${count(r.needs)}, ${count(r.free)} free`,
  preempted_this_step: () => "one was preempted",
  chunking_off: () => "too long for the rest",
  padding_does_not_fit: () => "too long for the rest",
  model_length_reached: () => "longest length",
};

/** @param {string} mark @param {Reason} [reason] */
export function noteOf(mark, reason) {
  const why = reason && Object.hasOwn(WHY_SHORT, reason.code) ? WHY_SHORT[reason.code](reason) : "";
  return (mark === "stopped" || mark === "passed") && why ? why : MARKS[mark];
}

export const WAITING = "Waiting, the next first";
export const RUNNING = "Running";
export const WAITING_HOW = "the waiting queue of the log's state, from its head";
export const RUNNING_HOW = "the running list of the log's state, and max_num_seqs";
export const BUDGET = "Token budget of this step";
export const BUDGET_HOW =
  "sum of num_tokens over this step's request_scheduled events, of max_num_batched_tokens";
export const NOBODY_WAITS = "Nobody waits for a seat.";
export const NOBODY_RUNS = "Nobody has a seat.";
export const NOTHING_GIVEN = "Nobody has been given tokens so far in this step.";

/** @param {number} n requests that there is no room for */
export const moreOf = (n) => `+ ${count(n)} more`;

/** @param {{tokens: number, kind: string, why: string, request: string}} share */
export const shareText = ({ request, tokens, kind, why }) =>
  `${request}: ${plural(tokens, "token")}, ${kind}${why ? `: ${why}` : ""}`;

/** @param {{id: string, given: number, hit: number, why: string}} seat @param {string} progress */
export function seatText({ id, given, hit, why }, progress) {
  const parts = [`${id}: ${progress} tokens computed`];
  if (hit) parts.push(`${count(hit)} of them hit in the prefix cache`);
  if (given) parts.push(`${plural(given, "token")} of this step's budget`);
  if (why) parts.push(why);
  parts.push("measured: its record in the log's state, and this step's events");
  return parts.join("\n");
}

export const BLOCKS = "Free queue, prefix cache and block tables";
export const BLOCK_COLUMNS = ["Where", "Place or request", "Blocks", "Hash"];
export const FREE_QUEUE = "Free queue, given next first";
export const HASH_MAP = "Prefix cache: hash → block";
export const BLOCK_TABLES = "Block tables";
export const NO_CACHING = "off";
export const NONE_FREE = "No block is free: who needs one waits, or another is preempted for it.";
export const NONE_CACHED =
  "No block is cached. One that is full enters with its hash, and is found by it.";
export const NO_TABLES =
  "Nobody holds blocks. The scheduler takes them for a request as it admits it.";
export const LEFT_OUT_HOW = "measured: the length of the queue or table in the log's state";

/** @param {number} n */
export const leftOut = (n) => `${plural(n, "block")} between, not drawn`;

/** @param {string} request @param {number} place */
export const logicalOf = (request, place) => `logical block ${place} of ${request}`;

/** @param {number} n @param {{cached: number[], evicted: number[], uncached: number[]}} touched */
export function entriesText(n, { cached, evicted, uncached }) {
  const gone = evicted.length + uncached.length;
  const parts = [count(n)];
  if (cached.length) parts.push(`+${count(cached.length)}`);
  if (gone) parts.push(`−${count(gone)}`);
  return parts.join("  ");
}

// -- the runner ----------------------------------------------------------------------------------

export const BATCH = "The flattened batch: a column a row";
export const ROWS_HOW = "input_ids of this step's inputs_prepared; padding: step_dispatched";
export const NO_BATCH =
  "No batch so far in this step: its phase prepare lays it out. Press Phase to get there.";
export const EMPTY_BATCH = "This step gave no tokens: there is no batch.";
export const SAMPLER = "Sampler";
export const CANDIDATES = "Candidates of the token that is shown here";
export const NOTHING_SAMPLED =
  "No token has been chosen so far in this step. Its phase sample does that, and what each was " +
  "chosen from stands here.";
export const SAMPLING_HOW = "measured: the sampling parameters of the request's record";

/** What leaves the logits as they are is not told. @type {Record<string, number>} */
export const NEUTRAL = {
  top_p: 1,
  top_k: 0,
  min_p: 0,
  repetition_penalty: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  min_tokens: 0,
};

/** What a request asked of the sampler. @param {Record<string, any>} sampling */
export function samplingText(sampling) {
  const { temperature, logit_bias: bias } = sampling;
  const parts = temperature === undefined ? [] : [`temperature ${temperature}`];
  if (temperature === 0) parts[0] += ": greedy";
  for (const [name, neutral] of Object.entries(NEUTRAL)) {
    const value = sampling[name];
    if (typeof value === "number" && value !== neutral) parts.push(`${name} ${value}`);
  }
  if (bias && Object.keys(bias).length)
    parts.push(`logit_bias of ${plural(Object.keys(bias).length, "token")}`);
  return parts.join(" · ");
}

// -- attention -----------------------------------------------------------------------------------

export const READS = "The pages that each request's rows read";
export const READ_COLUMNS = ["Request", "Rows", "Blocks read", "Tokens of context", "Bytes"];
export const QUERY_ROWS = "rows";
export const ROWS_SHORT = "rows";
export const CONTEXT = "context, bytes of all layers";
export const CONTEXT_SHORT = "bytes";
export const NOT_READ =
  "Attention has not run so far in this step: it does in its phase execute. Press Phase.";

/** @param {string} backend @param {boolean} narrow whether there is room for a few words only */
export const pagesHead = (backend, narrow) =>
  `pages read${narrow ? "" : ", in logical order"}${backend ? ` (${backend})` : ""}`;

/**
 * @param {{request: string, seq: number, rows: number}} read @param {number} logical
 * @param {number} block @param {number} tokens @param {number} size
 */
export const pageLines = (read, logical, block, tokens, size) => [
  `Block ${block}: logical block ${logical} of ${read.request}`,
  `${tokens} of ${plural(size, "token")} are context of this step`,
  `read by ${plural(read.rows, "row")} of the batch`,
  `derived: the block table, as event ${read.seq} has it`,
];

// -- graphs --------------------------------------------------------------------------------------

export const NO_GRAPHS =
  "This engine has no graph sizes, so every batch runs eagerly: enforce_eager, cudagraph_mode " +
  "and the capture sizes decide that (Engine).";
export const FOR_DECODES = "uniform decodes";
export const FOR_ANY = "any batch";
export const ROWS = "rows of the batch";
export const PADDING = "rows of padding";
export const PADDING_HOW = "num_padded_tokens - num_tokens, of step_dispatched";
export const NOT_DISPATCHED =
  "No batch has been dispatched so far in this step: its phase prepare finds a graph for it.";
export const OPERATIONS = "operations replayed";
export const REPLAY = "replay";
export const PIECES = "pieces";
export const BUFFERS = "static buffers";
export const AGAINST_EAGER = "replay : eager";
export const AGAINST_EAGER_HOW =
  "a forward of this size each, right after the capture, as graph_captured has them";
export const CAPTURED = "captured in this step";

/** @param {string} device */
export const replayHow = (device) => `wall time of graph_replayed${device ? ` on ${device}` : ""}`;

/** @param {number} size */
export const sharedText = (size) => `${plural(size, "row")}, there already`;

/** @param {number} size @param {boolean} captured @param {number} tokens */
export function rungText(size, captured, tokens) {
  const state = captured ? "captured" : "captured when it is first needed";
  const taken = tokens ? `; this step: ${tokens} + ${size - tokens} of padding` : "";
  return `${plural(size, "row")}: ${state}${taken}\nmeasured: the dispatcher in the log's state`;
}

/**
 * How the step's batch ran.
 * @param {{eager: boolean, mode: string, tokens: number, padding: number, why: string}} d
 * @returns {string[]}
 */
export function dispatchParts(d) {
  const why = d.why ? `: ${d.why}` : "";
  if (d.eager) return [`${plural(d.tokens, "row")} run eagerly${why}.`];
  const fill = d.padding ? `, ${d.padding} of them padding` : "";
  return [`The ${d.mode} graph of ${plural(d.tokens + d.padding, "row")}${fill}${why}.`];
}

// -- memory --------------------------------------------------------------------------------------

export const MEMORY = "This engine's memory, to scale";
export const POOL = "Its KV cache now, block by block";
export const MOVED = "Moved in this step";
export const USED_BLOCKS_HOW = "num_gpu_blocks - 1 (the null block) - free";
export const CACHED_BLOCKS_HOW = "blocks that nobody holds and that have a hash, counted";
export const EMPTY_BLOCKS_HOW = "length of the free queue - free blocks with a hash";
export const NOT_YET_SHORT = "not yet";

/** @param {string} type */
export const movedHow = (type) => `sum of num_bytes over this step's ${type} events`;

/**
 * What is known of a log that does not begin with memory_sized.
 * @param {any} model @param {any} config @returns {MemoryPart[]}
 */
export function memoryOfHeader(model, config) {
  const pool = (model.kv_bytes_per_token ?? 0) * (config.block_size ?? 0);
  return [
    {
      name: "weights",
      bytes: model.weight_bytes ?? 0,
      truth: "measured",
      how: "bytes of the loaded model's parameters",
    },
    {
      name: "KV cache",
      bytes: pool * (config.num_gpu_blocks ?? 0),
      truth: "derived",
      how: "kv_bytes_per_token × block_size × num_gpu_blocks",
    },
  ];
}

// -- heads ---------------------------------------------------------------------------------------

export const HEADS = "Query heads that share a KV head";
export const SAVED = "KV pages read in this step";
export const READ_NOW = "as grouped";
export const READ_UNGROUPED = "a KV head for each query head";

/** @param {string} ratio */
export const ungroupedHow = (ratio) => `bytes read × query heads ÷ KV heads (${ratio})`;

// -- front end and clients -----------------------------------------------------------------------

export const REQUESTS = "Requests, open ones first";
export const STREAMS = "Streams: the text that went out";
export const OPEN_HOW = "requests whose status is not finished, and those whose is, counted";
export const NO_TEXT = "no text yet";
export const ARRIVING = "Submitted: the next step takes them in";
export const ARRIVING_HOW = "requests whose status is submitted, counted";
export const LOOP = "loop";
export const LOOP_HOW = "the mode the front end set";
export const NEXT_PHASE = "next phase";
export const NEXT_PHASE_HOW = "where the engine stood at the cursor";
export const GENERATED = "tokens generated";
export const GENERATED_HOW = "the engine's counter";
export const IN_FLIGHT = "steps in flight";
export const IN_FLIGHT_HOW = "engine.in_flight: each with its next phase";

/** @param {{mode?: string, rate?: number}} engine */
export function modeText({ mode = "paused", rate }) {
  return mode === "running" && rate ? paceText(rate) : mode;
}

/** @param {number} open @param {number} ended */
export const openAndDone = (open, ended) => `${count(open)} open, ${count(ended)} done`;

/** @param {Stream} s */
export function streamNote(s) {
  const held = s.held ? `, ${count(s.held)} held` : "";
  return `${count(s.output)} / ${count(s.most)}${held}`;
}

/** @param {Stream} s */
export function clientNote(s) {
  const from = fromWhom(s.source).trim();
  const of = s.parent ? `of ${s.parent}` : "";
  const state =
    s.status === "finished"
      ? `done: ${s.finish}`
      : s.output
        ? `${count(s.output)} of at most ${plural(s.most, "token")}`
        : "waits for its first token";
  return [from, of, state].filter(Boolean).join(" · ");
}

/** @param {Stream} s */
export function streamText(s) {
  const parts = [
    `${s.id}: ${plural(s.prompt, "prompt token")}, ${plural(s.output, "token")} generated`,
    "text: measured, the text_emitted events up to the cursor; marked: this step's",
  ];
  if (s.held) parts.push(`${plural(s.held, "token")} whose text has not gone out: derived`);
  return parts.join("\n");
}
