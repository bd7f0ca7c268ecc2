// @ts-check
/**
 * What vLLM 0.26.0's console prints of an engine, in its words, and between its lines what it
 * keeps to itself. Each line says which it is.
 *
 * @typedef {"vllm" | "requests" | "ours"} Whose printed by default, with --enable-log-requests, or
 *   never
 * @typedef {{whose: Whose, level: "INFO" | "WARNING" | "ERROR", text: string, how: string,
 *   truth: TruthKind, component: string}} Line `component` is the engine's name of its box
 */
import { restoredText } from "./events.js";
import { count, plural } from "./format.js";
import { AVAILABLE_HOW, graphHow } from "./memory.js";
import { reasonPhrase } from "./reasons.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { TruthKind } from "../page/truth.js" */

/** @type {Record<Whose, {label: string, title: string}>} */
export const WHOSE = {
  vllm: { label: "", title: "vLLM prints this line" },
  requests: { label: "log-requests", title: "vLLM prints this line with --enable-log-requests" },
  ours: { label: "ours", title: "vLLM prints no such line" },
};

export const NO_LINES =
  "Its log has no such line so far. Step or run the engine, or untick the choice above.";

const GIB = 2 ** 30;
const EVENT = "from the event that this line stands for";

/**
 * @param {Whose} whose @param {string} text @param {string} component @param {string} [how]
 * @returns {Line}
 */
function line(whose, text, component, how = EVENT) {
  return { whose, level: "INFO", text, how, truth: "measured", component };
}

/** @type {Record<string, (e: EventRecord) => Line[]>} */
const EVENT_LINES = {
  memory_sized: ({ facts: f, reason }) => sizedLines(f, reason),
  request_submitted: ({ facts: f, component }) => [
    line("requests", `Added request ${f.request}.`, component),
  ],
  request_refused: ({ facts: f, reason, component }) => [
    line(
      "requests",
      `Request ${f.request} failed (bad request): ${reasonPhrase(reason)}.`,
      component,
    ),
  ],
  request_aborted: ({ facts: f, component }) => [
    line("requests", `Aborted request(s) ${f.request}.`, component),
  ],
  request_completed: ({ facts: f, component }) =>
    f.finish_reason === "abort"
      ? []
      : [line("ours", `Request ${f.request} finished: ${f.finish_reason}.`, component)],
  request_preempted: ({ facts: f, component }) => [
    line(
      "ours",
      `Request ${f.request} preempted${f.by ? ` for ${f.by}` : ""}, ` +
        `${plural(f.num_computed_tokens, "computed token")} given back.`,
      component,
    ),
  ],
  graph_captured: ({ facts: f, component }) => [
    line(
      "ours",
      `${f.mode} graph of ${plural(f.size, "row")} ${f.shared ? "taken over" : "captured"}: ` +
        `${plural(f.recorded, "operation")}.`,
      component,
    ),
  ],
  prefix_cache_reset: ({ facts: f, reason, component }) => [
    f.done
      ? line("vllm", "Successfully reset prefix cache", component)
      : {
          ...line(
            "vllm",
            `Failed to reset prefix cache because some blocks (${reason?.used}) are not freed yet`,
            component,
          ),
          level: "WARNING",
        },
  ],
  stats_logged: ({ facts: f, component }) => [
    line("vllm", statsText(f), component, statsHow(f.seconds)),
  ],
  spec_decoding_logged: ({ facts: f, component }) => [
    line("vllm", draftsText(f), component, statsHow(f.seconds)),
  ],
  moment_restored: ({ facts: f, component }) => [
    line("ours", `Went on from a saved moment of trace ${restoredText(f)}.`, component),
  ],
  engine_failed: ({ facts: f, component }) => [
    { ...line("vllm", "EngineCore encountered a fatal error.", component), level: "ERROR" },
    line("ours", f.message, component),
  ],
};

/** The lines of an event; most have none. @param {EventRecord} event @returns {Line[]} */
export function linesOf(event) {
  return EVENT_LINES[event.type]?.(event) ?? [];
}

/** @param {number} seconds */
function statsHow(seconds) {
  return (
    `from this engine's log; the throughputs over ${seconds.toFixed(1)} s of wall time, in which ` +
    "the engine may have stood paused"
  );
}

/** @param {any} f the facts of stats_logged @returns {string} as `stats_text` of the engine */
function statsText(f) {
  const percent = (/** @type {number} */ share) => (share * 100).toFixed(1);
  return (
    `Engine 000: Avg prompt throughput: ${f.prompt_throughput.toFixed(1)} tokens/s, ` +
    `Avg generation throughput: ${f.generation_throughput.toFixed(1)} tokens/s, ` +
    `Running: ${f.running} reqs, Waiting: ${f.waiting} reqs, ` +
    (f.preemptions ? `Preemptions: ${f.preemptions}, ` : "") +
    `GPU KV cache usage: ${percent(f.kv_cache_usage)}%, ` +
    `Prefix cache hit rate: ${percent(f.prefix_cache_hit_rate)}%`
  );
}

/** As the engine's `drafts_text`. @param {any} f of spec_decoding_logged @returns {string} */
function draftsText(f) {
  const { num_drafts: drafts, num_accepted_tokens: accepted, num_draft_tokens: drafted } = f;
  const rate = (/** @type {number} */ tokens) => (tokens / Math.max(f.seconds, 1e-6)).toFixed(2);
  const places = f.accepted_per_pos.map((/** @type {number} */ n) => (n / drafts).toFixed(3));
  return (
    `SpecDecoding metrics: Mean acceptance length: ${(1 + accepted / drafts).toFixed(2)}, ` +
    `Accepted throughput: ${rate(accepted)} tokens/s, ` +
    `Drafted throughput: ${rate(drafted)} tokens/s, ` +
    `Accepted: ${accepted} tokens, Drafted: ${drafted} tokens, ` +
    `Per-position acceptance rate: ${places.join(", ")}, ` +
    `Avg Draft acceptance rate: ${((accepted / drafted) * 100).toFixed(1)}%`
  );
}

/** What stands before the first record. @param {any} header @returns {Line[]} */
export function openingLines(header) {
  const lines = header.model.name ? [engineLine(header)] : [];
  const { num_gpu_blocks: blocks, block_size: size, max_model_len: longest } = header.config;
  // Otherwise memory_sized, with which the log of a model begins, says it.
  const told = header.model.name && header.base_seq === 0;
  if (!told && blocks && size && longest) lines.push(...cacheLines(blocks, size, longest));
  if (header.base_seq > 0) {
    const gone = plural(header.base_seq, "record");
    lines.push(line("ours", `${gone} before this are forgotten.`, "async-engine", "base_seq"));
  }
  return lines;
}

/** @param {any} header @returns {Line} */
function engineLine({ model }) {
  const weights = model.quantization ? `, weights in ${model.quantization}` : "";
  const text = `${model.name} in ${model.dtype}${weights} on ${model.device}.`;
  return line("ours", text, "gpu-runner", "the log's header");
}

/** @param {string} text @param {string} how @param {string} [component] @returns {Line} */
function derivedLine(text, how, component = "physical-vram") {
  return { ...line("vllm", text, component, how), truth: "derived" };
}

/**
 * The start, as `start_texts` of the engine has it.
 * @param {any} f of memory_sized @param {any} reason @returns {Line[]}
 */
function sizedLines(f, reason) {
  const lines = [];
  if (f.graph_sizes.length) {
    const text = `Estimated CUDA graph memory: ${(f.graph_bytes / GIB).toFixed(2)} GiB total`;
    lines.push(derivedLine(text, graphHow(f), "cuda-graph"));
  }
  const left = roundedGib(f.available_bytes);
  if (f.budget_bytes)
    lines.push(derivedLine(`Available KV cache memory: ${left} GiB`, AVAILABLE_HOW));
  if (f.set_by === "num_gpu_blocks") {
    const text =
      `The KV cache has ${plural(f.num_blocks, "block")} because the settings say so; vLLM ` +
      "would profile the device for it.";
    lines.push(line("ours", text, "physical-vram"));
  }
  if (reason?.code === "cache_limits_length") {
    const text =
      `Auto-fit max_model_len: reduced from ${reason.model_max_len} to ${reason.holds} to fit in ` +
      `available GPU memory (${left} GiB available for KV cache)`;
    const how = "with --max-model-len auto, which an unset max_model_len is here";
    lines.push(derivedLine(text, how));
  }
  return [...lines, ...cacheLines(f.num_blocks, f.block_size, f.max_model_len)];
}

/** @param {number} n as Python's round and str have it: 0.5, and 1.0 */
function roundedGib(n) {
  const rounded = String(Math.round((n / GIB) * 100) / 100);
  return rounded.includes(".") ? rounded : `${rounded}.0`;
}

/** @param {number} blocks @param {number} size @param {number} longest @returns {Line[]} */
function cacheLines(blocks, size, longest) {
  const concurrency = blocks / Math.ceil(longest / size);
  const how = `num_gpu_blocks ${blocks} / ceil(max_model_len ${longest} / block_size ${size})`;
  const tokens = count(Math.floor(concurrency * longest));
  return [
    derivedLine(`GPU KV cache size: ${tokens} tokens`, `max_model_len × ${how}`),
    derivedLine(
      `Maximum concurrency for ${count(longest)} tokens per request: ${concurrency.toFixed(2)}x`,
      how,
    ),
  ];
}
