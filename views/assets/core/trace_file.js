// @ts-check
/**
 * A saved trace: JSON Lines in, header and records out, or one sentence that says which line is
 * wrong and why. The counterpart of `Trace.parse` in engine/trace.py.
 */
import { STEP_PHASES } from "./records.js";

const SCHEMA_VERSION = 1;
const LOGGED_PHASES = new Set([...STEP_PHASES, "command"]);
const MAX_CHARACTERS = 400_000_000;

/**
 * The facts of every event type. s: text, n: number, b: yes or no, S: list of texts, N: list of
 * numbers. A test compares this table with engine/events.py.
 * @type {Record<string, Record<string, keyof typeof CHECKS>>}
 */
export const FACTS = {
  request_submitted: { request: "s", num_prompt_tokens: "n", max_tokens: "n", source: "s" },
  request_refused: { request: "s" },
  request_arrived: { request: "s", num_prompt_tokens: "n", waiting: "n" },
  request_aborted: { request: "s", status: "s" },
  prefix_cache_reset: { done: "b", dropped: "n" },
  prefix_looked_up: {
    request: "s",
    num_tokens: "n",
    hit_tokens: "n",
    preempted: "b",
    hit_blocks: "N",
  },
  blocks_hit: { request: "s", blocks: "N", taken_from_free: "n" },
  block_evicted: { block: "n", hash: "s" },
  blocks_allocated: { request: "s", blocks: "N" },
  allocation_failed: { request: "s" },
  blocks_cached: { request: "s", first_index: "n", parent: "s", blocks: "N", hashes: "S" },
  blocks_uncached: { request: "s", blocks: "N" },
  blocks_freed: { request: "s", blocks: "N", returned: "N" },
  request_scheduled: {
    request: "s",
    kind: "s",
    num_tokens: "n",
    num_computed_tokens: "n",
    num_known_tokens: "n",
    budget_left: "n",
  },
  request_passed_over: { request: "s", behind: "n" },
  request_preempted: { request: "s", by: "s", num_computed_tokens: "n" },
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
  forward_run: { num_tokens: "n", num_requests: "n", num_layers: "n" },
  weights_read: { num_bytes: "n" },
  modules_timed: { kinds: "S", calls: "N", durations_us: "N" },
  attention_run: { backend: "s", num_layers: "n", num_tokens: "n" },
  kv_written: { num_tokens: "n", num_bytes: "n" },
  pages_read: { request: "s", blocks: "N", num_tokens: "n", num_bytes: "n" },
  heads_grouped: { num_attention_heads: "n", num_kv_heads: "n", kv_bytes_per_token: "n" },
  token_sampled: {
    request: "s",
    token: "n",
    greedy: "b",
    candidates: "N",
    texts: "S",
    probabilities: "N",
    drawn_from: "N",
  },
  tokens_returned: { num_tokens: "n" },
  token_appended: { request: "s", token: "n", num_tokens: "n" },
  token_dropped: { request: "s", token: "n" },
  request_finished: { request: "s", finish_reason: "s", num_output_tokens: "n" },
  outputs_returned: { num_requests: "n", num_finished: "n" },
  text_emitted: { request: "s", text: "s", token: "n", output_index: "n" },
  request_completed: { request: "s", finish_reason: "s" },
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
  engine_failed: { message: "s" },
};

/** @type {Record<"s" | "n" | "b" | "S" | "N", (value: any) => boolean>} */
const CHECKS = {
  s: (value) => typeof value === "string",
  n: (value) => typeof value === "number",
  b: (value) => typeof value === "boolean",
  S: (value) => Array.isArray(value) && value.every(CHECKS.s),
  N: (value) => Array.isArray(value) && value.every(CHECKS.n),
};
const WORDS = {
  s: "a text",
  n: "a number",
  b: "true or false",
  S: "a list of texts",
  N: "a list of numbers",
};

/**
 * @param {string} text
 * @returns {{header: any, records: any[]}}
 */
export function parseTrace(text) {
  if (text.length > MAX_CHARACTERS) throw new Error("The file is larger than this page can hold.");
  const lines = text.split("\n");
  while (lines.length && lines[lines.length - 1].trim() === "") lines.pop();
  if (!lines.length) throw new Error("line 1: the file is empty; a trace begins with its header");
  const header = checkHeader(decode(lines[0], 1));
  const records = [];
  for (let i = 1; i < lines.length; i += 1) {
    const record = decode(lines[i], i + 1);
    const problem = problemOf(record) ?? sequenceProblem(record, header.base_seq + i - 1);
    if (problem) throw new Error(`line ${i + 1}: ${problem}`);
    records.push(record);
  }
  return { header, records };
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
  return value;
}

/** @param {any} header */
function checkHeader(header) {
  if (header.kind !== "header") {
    throw new Error("line 1: a trace begins with its header (kind: header)");
  }
  if (header.schema_version !== SCHEMA_VERSION) {
    const found = JSON.stringify(header.schema_version) ?? "none";
    throw new Error(`line 1: schema version ${found}; this page reads ${SCHEMA_VERSION}`);
  }
  for (const field of ["config", "model", "state"]) {
    if (!isObject(header[field])) throw new Error(`line 1: ${field} must be an object`);
  }
  header.base_seq ??= 0;
  if (!Number.isInteger(header.base_seq))
    throw new Error("line 1: base_seq must be a whole number");
  return header;
}

/** @param {any} record @returns {string|null} */
function problemOf(record) {
  if (record.kind !== "event" && record.kind !== "patch") {
    return `not a record of a trace (kind is ${JSON.stringify(record.kind) ?? "missing"})`;
  }
  if (!Number.isInteger(record.step)) return "step must be a whole number";
  if (!LOGGED_PHASES.has(record.phase)) return `unknown phase ${JSON.stringify(record.phase)}`;
  if (typeof record.t_us !== "number") return "t_us must be a number";
  if (record.kind === "patch") return isObject(record.changes) ? null : "changes must be an object";
  return eventProblem(record);
}

/** @param {any} event @returns {string|null} */
function eventProblem(event) {
  const fields = Object.hasOwn(FACTS, event.type) ? FACTS[event.type] : null;
  if (!fields) return `unknown event type ${JSON.stringify(event.type) ?? "(none)"}`;
  if (typeof event.component !== "string") return "component must be a text";
  if (event.connection !== null && typeof event.connection !== "string") {
    return "connection must be a text or null";
  }
  if (!isObject(event.facts)) return "facts must be an object";
  for (const [name, kind] of Object.entries(fields)) {
    if (!CHECKS[kind](event.facts[name])) return `${event.type}: ${name} must be ${WORDS[kind]}`;
  }
  if (event.reason !== undefined && typeof event.reason?.code !== "string") {
    return "a reason needs its code";
  }
  return null;
}

/** @param {any} record @param {number} expected @returns {string|null} */
function sequenceProblem(record, expected) {
  return record.seq === expected
    ? null
    : `sequence number ${JSON.stringify(record.seq)}, expected ${expected}`;
}

/** @param {any} value */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
