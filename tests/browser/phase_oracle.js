// @ts-check
/**
 * The effects of a phase's events against the patch that the engine wrote at its end, for a whole
 * log: in the browser's tests the judge of views/assets/core/effects.js.
 */
import { EFFECTS } from "/views/assets/core/effects.js";
import { PhaseState } from "/views/assets/core/phase_state.js";

/** What events tell of, by part of the state: with the last one of a phase it is all there. */
const TOLD = {
  blocks: ["ref_cnt", "hash", "uncomputed", "prev", "next"],
  requests: [
    "status",
    "num_tokens",
    "num_computed_tokens",
    "num_preemptions",
    "num_output_placeholders",
    "async_tokens_to_discard",
    "num_draft_tokens",
    "spec_token_ids",
    "hit_tokens",
    "block_table",
    "output_token_ids",
    "output_pieces", // but for empty ones
    "finish_reason",
    "prev",
    "next",
  ],
  queues: ["free", "waiting", "running"],
  counters: [
    "prefix_requests",
    "prefix_queries",
    "prefix_hits",
    "num_preemptions",
    "prompt_tokens",
    "generation_tokens",
    "requests_finished",
    "num_drafts",
    "num_draft_tokens",
    "num_accepted_tokens",
  ],
};

/** What of a request comes with a phase's end all the same. @type {Record<string, string[]>} */
const LATER = {
  schedule: ["num_output_placeholders"],
  update: ["spec_token_ids"],
  command: ["num_output_placeholders", "async_tokens_to_discard"],
};

/** @param {string} text a trace's file */
export function read(text) {
  const [header, ...records] = text.trim().split("\n").map((line) => JSON.parse(line));
  return { header, records };
}

/**
 * @param {string} text @param {string|null} [without] a type of events whose effect is left out
 * @returns {{wrong: string[], phases: number, seen: Record<string, number>}} what the events of
 *   a phase came to and its end did not, or the other way round; how often each effect was used
 */
export function check(text, without = null) {
  const { header, records } = read(text);
  const mute = (record) => (record.type === without ? { ...record, type: "none" } : record);
  const folded = new PhaseState(header.state, records.map(mute));
  const wrong = [];
  const seen = {};
  let phases = 0;
  for (const [index, record] of records.entries()) {
    if (record.kind !== "patch") {
      if (Object.hasOwn(EFFECTS, record.type)) seen[record.type] = (seen[record.type] ?? 0) + 1;
      continue;
    }
    phases += 1;
    const before = told(folded.moveTo(index - 1), record.phase);
    const after = told(folded.moveTo(index), record.phase);
    for (const key of Object.keys(after))
      // What a client asked for is in no event: a new request comes with the patch.
      if (Object.hasOwn(before, key) && before[key] !== after[key])
        wrong.push(`${record.step} ${record.phase} ${key}: ${before[key]} is ${after[key]}`);
  }
  return { wrong, phases, seen };
}

/**
 * The states at some records, as texts, by moves from one to the next; each with the record that
 * it is said to be of.
 * @param {string} text @param {number[]} path @returns {[string, number][]}
 */
export function statesOn(text, path) {
  const { header, records } = read(text);
  const folded = new PhaseState(header.state, records, header.base_seq > 0);
  folded.timeline.every = 7; // effects are taken back from what checkpoints share, too
  return path.map((index) => [shown(folded.moveTo(index)), folded.changedAt]);
}

/** What the events of a phase tell of, flat. @param {any} state @param {string} phase */
function told(state, phase) {
  /** @type {Record<string, string>} */
  const flat = {};
  for (const part of ["blocks", "requests"])
    for (const [id, item] of Object.entries(state[part] ?? {}))
      for (const field of TOLD[part])
        if (part !== "requests" || !LATER[phase]?.includes(field))
          flat[`${part} ${id} ${field}`] = shown(field === "output_pieces" ? full(item) : item[field]);
  for (const part of ["queues", "counters"])
    for (const field of TOLD[part]) flat[`${part} ${field}`] = shown(state[part]?.[field]);
  flat.graphs = shown(state.graphs);
  flat.given = shown(Object.keys(state.given ?? {})); // nothing: the batch is closed
  return flat;
}

/** Its pieces that are not empty. @param {any} request */
function full({ output_pieces: pieces = {} }) {
  return Object.fromEntries(Object.entries(pieces).filter(([, text]) => text !== ""));
}

/** Whatever the order of its keys. @param {any} value */
function shown(value) {
  return JSON.stringify(value, (_, part) =>
    part && typeof part === "object" && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}
