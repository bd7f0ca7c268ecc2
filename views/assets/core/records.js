// @ts-check
/**
 * The records of the log, and what follows from one of them alone. The counterpart of
 * engine/records.py.
 *
 * @typedef {{code: string} & Record<string, any>} Reason why a decision fell, with its numbers
 * @typedef {{kind: "event", seq: number, step: number, phase: string, type: string,
 *   component: string, connection: string|null, facts: any, reason?: Reason,
 *   duration_us?: number, t_us: number}} EventRecord
 * @typedef {{kind: "patch", seq: number, step: number, phase: string, changes: any,
 *   duration_us: number|null, t_us: number}} PatchRecord
 * @typedef {EventRecord|PatchRecord} LogRecord
 */

/** The parts of a step, in order. */
export const STEP_PHASES = [
  "arrive",
  "schedule",
  "prepare",
  "execute",
  "sample",
  "update",
  "output",
];

/** @typedef {"engine" | "executor"} Lane which of the two threads, where there are two */

const EXECUTOR = new Set(["prepare", "execute", "sample"]);

/** @param {string} phase @returns {Lane} */
export function laneOf(phase) {
  return EXECUTOR.has(phase) ? "executor" : "engine";
}

/**
 * "decode" where the one token it lacks is the one it generated last, else "prefill". Where steps
 * overlap, that one may be in flight, and then it lacks none that is known.
 * @param {Record<string, any>} facts of a request_scheduled event
 * @param {number} [promptTokens]
 * @returns {"prefill" | "decode"}
 */
export function shareKind(facts, promptTokens) {
  const wanted = facts.num_known_tokens - facts.num_computed_tokens;
  if (wanted < 1) return "decode";
  if (wanted > 1) return "prefill";
  if (promptTokens !== undefined)
    return facts.num_known_tokens > promptTokens ? "decode" : "prefill";
  return facts.kind === "running" ? "decode" : "prefill";
}

/** Events that say nothing of the work: whoever looks for what happened passes them over. */
export const ASIDES = new Set([
  "stats_logged",
  "spec_decoding_logged",
  "integrity_checked",
  "kv_cache_compared",
]);

const BLOCK_EVENTS = new Set([
  "blocks_hit",
  "blocks_allocated",
  "blocks_cached",
  "blocks_uncached",
  "blocks_left_uncomputed",
  "blocks_freed",
]);

/**
 * The blocks whose content or holder an event changed; it does not say those of a reset.
 * @param {EventRecord} event @returns {number[]}
 */
export function blocksOf({ type, facts }) {
  if (type === "block_evicted") return [facts.block];
  return BLOCK_EVENTS.has(type) ? facts.blocks : [];
}
