// @ts-check
/**
 * A saved trace: JSON Lines in, header and records out, or one sentence that says which line is
 * wrong and why. The counterpart of `Trace.parse` in engine/trace.py.
 */
import { count, shortened } from "../words/format.js";
import { REASON_PHRASES } from "../words/reasons.js";
import { LONGEST_NAME, MOST_BOOKMARKS } from "./bookmarks.js";
import { flag, isObject, listOf, number, shape, text, whole } from "./checks.js";
import { hasKeyTwice } from "./json_keys.js";
import { STEP_PHASES } from "./records.js";
import { CONFIG, CheckedState, MODEL, flat } from "./trace_state.js";

/** @import { Check } from "./checks.js" */

const SCHEMA_VERSION = 6;
const LOGGED_PHASES = new Set([...STEP_PHASES, "command"]);
/** An engine keeps 100,000 records; what is longer or larger is no trace of one. */
export const MAX_FILE = 200_000_000; // bytes
const MAX_RECORDS = 240_000;
const LONGEST_LIST = 65_536; // of blocks, of tokens in a step

/**
 * The facts of every event type. s: text, n: number, b: yes or no, S: list of texts, N: list of
 * numbers. A test compares this table with engine/events.py.
 * @type {Record<string, Record<string, keyof typeof CHECKS>>}
 */
export const FACTS = {
  memory_sized: {
    set_by: "s",
    device_bytes: "n",
    budget_bytes: "n",
    weight_bytes: "n",
    activation_bytes: "n",
    profiled_tokens: "n",
    graph_bytes: "n",
    graph_sizes: "N",
    available_bytes: "n",
    pool_bytes: "n",
    bytes_per_block: "n",
    num_blocks: "n",
    block_size: "n",
    max_model_len: "n",
  },
  request_submitted: { request: "s", num_prompt_tokens: "n", max_tokens: "n", source: "s" },
  request_refused: { request: "s" },
  request_arrived: { request: "s", num_prompt_tokens: "n", waiting: "n", ahead: "n" },
  request_aborted: { request: "s", status: "s" },
  prefix_cache_reset: { done: "b", dropped: "n" },
  prefix_looked_up: {
    request: "s",
    num_tokens: "n",
    hit_tokens: "n",
    preempted: "b",
    hit_blocks: "N",
  },
  blocks_hit: { request: "s", blocks: "N", taken_from_free: "n", uncomputed: "N" },
  block_evicted: { block: "n", hash: "s", request: "s" },
  blocks_allocated: { request: "s", blocks: "N" },
  allocation_failed: { request: "s" },
  blocks_cached: { request: "s", first_index: "n", parent: "s", blocks: "N", hashes: "S" },
  blocks_uncached: { request: "s", blocks: "N" },
  blocks_left_uncomputed: { request: "s", blocks: "N" },
  blocks_freed: { request: "s", blocks: "N", returned: "N" },
  request_scheduled: {
    request: "s",
    kind: "s",
    num_tokens: "n",
    num_computed_tokens: "n",
    num_known_tokens: "n",
    budget_left: "n",
  },
  drafts_scheduled: { request: "s", tokens: "N", cut: "n" },
  drafts_dropped: { request: "s", num_drafts: "n" },
  drafts_settled: {
    request: "s",
    num_drafts: "n",
    num_accepted: "n",
    num_computed_tokens: "n",
  },
  request_passed_over: { request: "s", behind: "n" },
  request_preempted: {
    request: "s",
    by: "s",
    needs: "n",
    free: "n",
    num_computed_tokens: "n",
    ahead: "n",
  },
  admission_stopped: { request: "s", waiting: "n" },
  batch_scheduled: {
    num_requests: "n",
    prefill_tokens: "n",
    decode_tokens: "n",
    max_num_batched_tokens: "n",
    num_common_prefix_blocks: "n",
    finished: "S",
  },
  block_tables_updated: { requests: "S", new_blocks: "n" },
  inputs_prepared: {
    requests: "S",
    query_start_loc: "N",
    seq_lens: "N",
    input_ids: "N",
    positions: "N",
    slot_mapping: "N",
  },
  step_dispatched: { mode: "s", num_tokens: "n", num_padded_tokens: "n" },
  graph_captured: {
    mode: "s",
    size: "n",
    backend: "s",
    pieces: "n",
    shared: "b",
    recorded: "n",
    replayed: "n",
    folded: "n",
    views: "n",
    num_bytes: "n",
    eager_us: "n",
    replay_us: "n",
    max_difference: "n",
    buffer_names: "S",
    buffer_holds: "S",
    buffer_addresses: "S",
    first_layers: "N",
    last_layers: "N",
    kinds: "S",
    operations: "S",
    results: "S",
  },
  graph_replayed: {
    mode: "s",
    num_tokens: "n",
    num_padded_tokens: "n",
    pieces: "n",
    operations: "n",
  },
  forward_run: { num_tokens: "n", num_requests: "n", num_layers: "n" },
  weights_read: { num_bytes: "n" },
  modules_timed: { kinds: "S", calls: "N", durations_us: "N" },
  attention_run: { backend: "s", num_layers: "n", num_tokens: "n" },
  kv_written: { num_tokens: "n", num_bytes: "n" },
  pages_read: { request: "s", blocks: "N", num_tokens: "n", num_bytes: "n" },
  heads_grouped: { num_attention_heads: "n", num_kv_heads: "n", kv_bytes_per_token: "n" },
  drafts_verified: {
    request: "s",
    drafts: "N",
    texts: "S",
    position: "n",
    num_accepted: "n",
    probabilities: "N",
    drawn_from: "N",
  },
  token_sampled: {
    request: "s",
    token: "n",
    greedy: "b",
    candidates: "N",
    texts: "S",
    probabilities: "N",
    drawn_from: "N",
  },
  drafts_proposed: {
    request: "s",
    drafts: "N",
    texts: "S",
    position: "n",
    matched_at: "n",
    num_matched: "n",
  },
  tokens_returned: { num_tokens: "n" },
  token_appended: { request: "s", token: "n", num_tokens: "n" },
  token_dropped: { request: "s", token: "n" },
  request_finished: { request: "s", finish_reason: "s", num_output_tokens: "n" },
  outputs_returned: { num_requests: "n", num_finished: "n" },
  text_emitted: { request: "s", text: "s", token: "n", output_index: "n" },
  request_completed: { request: "s", finish_reason: "s" },
  spec_decoding_logged: {
    seconds: "n",
    num_drafts: "n",
    num_draft_tokens: "n",
    num_accepted_tokens: "n",
    accepted_per_pos: "N",
  },
  stats_logged: {
    seconds: "n",
    prompt_throughput: "n",
    generation_throughput: "n",
    running: "n",
    waiting: "n",
    preemptions: "n",
    kv_cache_usage: "n",
    prefix_cache_hit_rate: "n",
  },
  integrity_checked: {
    before: "s",
    rules: "S",
    checked: "N",
    num_violations: "n",
    broken: "S",
    messages: "S",
    blocks: "N",
    requests: "S",
  },
  kv_cache_compared: {
    request: "s",
    dtype: "s",
    weights: "s",
    logits_error: "n",
    num_tokens: "n",
    key_errors: "N",
    value_errors: "N",
    key_rounding: "N",
    value_rounding: "N",
    greedy: "b",
    num_outputs: "n",
    differs_at: "n",
    shown_from: "n",
    written: "S",
    in_fp32: "S",
  },
  moment_restored: {
    trace: "s",
    saved_at: "n",
    num_requests: "n",
    num_finished: "n",
    num_blocks: "n",
    num_bytes: "n",
    other_versions: "S",
  },
  engine_failed: { message: "s" },
};

const CHECKS = {
  s: text,
  n: number,
  b: flag,
  S: listOf(text, LONGEST_LIST),
  N: listOf(number, LONGEST_LIST),
};

/** @type {Record<string, string[]>} lists of one event that go together, item by item */
const PARALLEL = {
  drafts_proposed: ["drafts", "texts"],
  drafts_verified: ["drafts", "texts"],
  graph_captured: ["first_layers", "last_layers", "kinds", "operations", "results"],
  inputs_prepared: ["input_ids", "positions", "slot_mapping"],
  modules_timed: ["kinds", "calls", "durations_us"],
  token_sampled: ["candidates", "texts", "probabilities"],
};

/**
 * @param {string} content
 * @returns {{header: any, records: any[]}}
 */
export function parseTrace(content) {
  if (content.length > MAX_FILE) throw new Error(tooLarge());
  const lines = content.split("\n");
  while (lines.length && lines[lines.length - 1].trim() === "") lines.pop();
  if (!lines.length) throw new Error("line 1: the file is empty; a trace begins with its header");
  if (lines.length > MAX_RECORDS) {
    throw new Error(`the file has ${count(lines.length)} lines; a trace has ${count(MAX_RECORDS)}`);
  }
  const header = decode(lines[0], 1);
  const state = new CheckedState(header.config ?? {});
  const problem = headerProblem(header) || state.take(header.state);
  if (problem) throw new Error(`line 1: ${problem}`);
  header.base_seq ??= 0;
  return { header, records: readRecords(lines, header, state) };
}

/** What is said of a file that is not even read. */
export function tooLarge() {
  return `the file is larger than the ${MAX_FILE / 1_000_000} MB that this page takes`;
}

/** @param {string[]} lines @param {any} header @param {CheckedState} state */
function readRecords(lines, header, state) {
  /** @type {any[]} */
  const records = [];
  const order = new StepOrder(header.config.async_scheduling === true);
  for (let i = 1; i < lines.length; i += 1) {
    const record = decode(lines[i], i + 1);
    const problem =
      problemOf(record) ||
      sequenceProblem(record, header.base_seq + i - 1) ||
      order.problemOf(record) ||
      (record.kind === "patch" ? state.take(record.changes) : "");
    if (problem) throw new Error(`line ${i + 1}: ${problem}`);
    records.push(record);
  }
  const broken = state.brokenQueue();
  if (broken) throw new Error(`line ${lines.length}: ${broken}`);
  return records;
}

/** @param {string} line @param {number} number */
function decode(line, number) {
  let value;
  try {
    value = JSON.parse(line);
  } catch {
    throw new Error(`line ${number}: not JSON`);
  }
  if (!isObject(value)) throw new Error(`line ${number}: a JSON object is expected`);
  if (hasKeyTwice(line, value)) throw new Error(`line ${number}: a key is there more than once`);
  return value;
}

/** @param {any} header @returns {string} */
function headerProblem(header) {
  if (header.kind !== "header") return "a trace begins with its header (kind: header)";
  if (header.schema_version !== SCHEMA_VERSION) {
    const found = JSON.stringify(header.schema_version) ?? "none";
    return `schema version ${found}; this page reads ${SCHEMA_VERSION}`;
  }
  for (const field of ["config", "model", "state"]) {
    if (!isObject(header[field])) return `${field} must be an object`;
  }
  return HEADER(header, "");
}

const HEADER = shape({
  bookmarks: listOf(bookmark, MOST_BOOKMARKS),
  trace_id: text,
  document: text,
  base_seq: whole(0),
  fault: text,
  config: CONFIG,
  model: MODEL,
});

/** @type {Check} */
function bookmark(value, place) {
  return (
    shape({ seq: whole(-1), name: text })(value, place) ||
    whole(-1)(value.seq, `${place}.seq`) ||
    text(value.name, `${place}.name`) ||
    ([...value.name].length > LONGEST_NAME ? `${place}.name is longer than ${LONGEST_NAME}` : "")
  );
}

/** @param {any} record @returns {string} */
function problemOf(record) {
  if (record.kind !== "event" && record.kind !== "patch") {
    return `not a record of a trace (kind is ${shown(record.kind)})`;
  }
  if (!LOGGED_PHASES.has(record.phase)) return `unknown phase ${shown(record.phase)}`;
  const problem = number(record.t_us, "t_us") || number(record.duration_us ?? 0, "duration_us");
  if (problem) return problem;
  if (record.kind === "patch") return isObject(record.changes) ? "" : "changes must be an object";
  return eventProblem(record);
}

/** @param {any} event @returns {string} */
function eventProblem(event) {
  const fields = Object.hasOwn(FACTS, event.type) ? FACTS[event.type] : null;
  if (!fields) return `unknown event type ${shown(event.type)}`;
  if (typeof event.component !== "string") return "component must be a text";
  if (event.connection !== null && typeof event.connection !== "string") {
    return "connection must be a text or null";
  }
  if (!isObject(event.facts)) return "facts must be an object";
  for (const [name, kind] of Object.entries(fields)) {
    const problem = CHECKS[kind](event.facts[name], name);
    if (problem) return `${event.type}: ${problem}`;
  }
  const odd = unequal(event) || ODD[event.type]?.(event.facts);
  if (odd) return `${event.type}: ${odd}`;
  return event.reason === undefined ? "" : reasonProblem(event.reason);
}

/** @param {any} event @returns {string} */
function unequal({ type, facts }) {
  const lists = Object.hasOwn(PARALLEL, type) ? PARALLEL[type] : [];
  return lists.some((name) => facts[name].length !== facts[lists[0]].length)
    ? `${lists.join(", ")} must be equally long`
    : "";
}

/** The rows of a flattened batch: request by request, none beyond the last. @param {any} facts */
function noBatch({ requests, query_start_loc: starts, seq_lens: lengths, input_ids: ids }) {
  const inOrder = starts.every(
    (/** @type {number} */ at, /** @type {number} */ i) => at >= (i ? starts[i - 1] : 0),
  );
  const fits = starts.length === requests.length + 1 && lengths.length === requests.length;
  return inOrder && fits && starts[requests.length] <= ids.length
    ? ""
    : "query_start_loc must count up, to the rows there are, once a request";
}

/** No more than all are accepted, and none beyond those judged. @param {any} facts */
function noVerdict({ drafts, num_accepted: accepted, probabilities, drawn_from: drawn }) {
  const all = drafts.length;
  const fits = Number.isInteger(accepted) && accepted >= 0 && accepted <= all;
  return all > 0 && fits && probabilities.length <= all && drawn.length <= all
    ? ""
    : "there must be drafts, and no more of them accepted or judged";
}

/** @type {Record<string, (facts: any) => string>} what else is wrong with an event's facts */
const ODD = {
  inputs_prepared: noBatch,
  drafts_verified: noVerdict,
};

/** @param {any} reason @returns {string} */
function reasonProblem(reason) {
  if (typeof reason?.code !== "string") return "a reason needs its code";
  if (!Object.hasOwn(REASON_PHRASES, reason.code)) return `unknown reason ${shown(reason.code)}`;
  return flat(reason, "a reason");
}

/** @param {any} record @param {number} expected @returns {string} */
function sequenceProblem(record, expected) {
  return record.seq === expected
    ? ""
    : `sequence number ${shown(record.seq)}, expected ${expected}`;
}

/** Steps go on, one after the other or two at once, and there are no more of them than records. */
class StepOrder {
  /** @param {boolean} overlap whether the step before the newest may still be in flight */
  constructor(overlap) {
    this.back = overlap ? 1 : 0;
    /** @type {number|null} */
    this.first = null;
    this.newest = 0;
  }

  /** @param {any} record the next one */
  problemOf(record) {
    const problem = whole(0)(record.step, "step");
    if (problem) return problem;
    this.first ??= this.newest = record.step;
    const goesOn = record.step >= this.newest - this.back;
    if (!goesOn || record.step - /** @type {number} */ (this.first) > MAX_RECORDS)
      return `step ${record.step} cannot follow step ${this.newest}`;
    this.newest = Math.max(this.newest, record.step);
    return "";
  }
}

/** @param {any} value of a file, in a message */
function shown(value) {
  return shortened(JSON.stringify(value) ?? "(none)", 60);
}
