// @ts-check
/**
 * How an engine's memory is divided: the parts of memory_sized with their formulas, for whoever
 * shows them.
 *
 * @typedef {{name: string, bytes: number, truth: TruthKind, how: string}} MemoryPart
 */
import { bytes, count, list, plural } from "./format.js";

/** @import { TruthKind } from "../page/truth.js" */
/** @import { LiveRow } from "../boxes/live.js" */

export const AVAILABLE_HOW = "budget - weights - activations - graphs";
const WEIGHTS_HOW =
  "bytes of the running model's tensors; all engines of this server with the same settings of " +
  "dtype and quantization share them";

/** @param {any} f facts of memory_sized */
export function graphHow(f) {
  const [largest] = f.graph_sizes;
  return (
    `an estimate: bytes of the graph of ${plural(largest, "row")}, measured; all others lie in ` +
    "the same memory, and each is captured when it is first needed"
  );
}

/**
 * The parts from the first to the last, to be drawn to scale.
 * @param {any} f facts of memory_sized @param {any} graphs captured so far, by size
 * @returns {MemoryPart[]}
 */
export function memoryParts(f, graphs) {
  const pool = f.num_blocks * f.bytes_per_block;
  /** @type {MemoryPart[]} */
  const parts = [
    { name: "weights", bytes: f.weight_bytes, truth: "measured", how: WEIGHTS_HOW },
    activationsPart(f),
    graphsPart(f, graphs),
    poolPart(f),
  ];
  if (f.budget_bytes) {
    const rest = f.available_bytes - pool;
    parts.push({ name: "rest", bytes: rest, truth: "derived", how: "less than one block" });
  }
  return parts;
}

/** @param {any} f @returns {MemoryPart} */
function poolPart(f) {
  const blocks = plural(f.num_blocks, "block");
  const product = `${blocks} × ${plural(f.bytes_per_block, "byte")} a block`;
  const name = "KV cache";
  if (!f.pool_bytes)
    return { name, bytes: f.num_blocks * f.bytes_per_block, truth: "derived", how: product };
  const how = `bytes of the pool's tensors, scales among them; ${product}`;
  return { name, bytes: f.pool_bytes, truth: "measured", how };
}

/** @param {any} f @returns {MemoryPart} */
function activationsPart(f) {
  const how = f.profiled_tokens
    ? `most that was allocated at a time while ${plural(f.profiled_tokens, "made-up token")} ran ` +
      "through the model and were sampled from"
    : "not measured: the size of the pool was set, so nothing depends on it";
  return { name: "activations", bytes: f.activation_bytes, truth: "measured", how };
}

/** @param {any} f @param {any} graphs @returns {MemoryPart} */
function graphsPart(f, graphs) {
  if (f.graph_sizes.length)
    return { name: "graphs", bytes: f.graph_bytes, truth: "derived", how: graphHow(f) };
  const captured = Object.values(graphs ?? {});
  const most = captured.reduce((all, graph) => Math.max(all, graph.num_bytes), 0);
  const sizes = list([...new Set(captured.map((graph) => count(graph.size)))]);
  const how = sizes
    ? `static buffers of the graphs in use so far, of ${sizes} rows, all in one memory`
    : "no graph has been captured for this engine yet";
  return { name: "graphs", bytes: most, truth: "measured", how };
}

/** What was divided, as a sentence. @param {any} f facts of memory_sized */
export function budgetText(f) {
  if (f.budget_bytes) {
    const share = (f.budget_bytes / f.device_bytes).toFixed(3).replace(/\.?0+$/, "");
    return (
      `gpu_memory_utilization ${share} of the device's ${bytes(f.device_bytes)} is a budget of ` +
      `${bytes(f.budget_bytes)}. The KV cache has what the rest of it leaves.`
    );
  }
  return f.set_by === "kv_cache_memory_bytes"
    ? `kv_cache_memory_bytes gives ${bytes(f.available_bytes)} to the KV cache, whatever the ` +
        "other parts take."
    : `num_gpu_blocks is set to ${count(f.num_blocks)}, so no budget was divided.`;
}

/** From bytes to requests. @param {any} f facts of memory_sized @returns {LiveRow[]} */
export function cacheRows(f) {
  const { num_blocks: blocks, block_size: size, max_model_len: longest } = f;
  const concurrency = blocks / Math.ceil(longest / size);
  const derived = (
    /** @type {string} */ name,
    /** @type {string} */ value,
    /** @type {string} */ how,
  ) => /** @type {LiveRow} */ ({ name, value, truth: "derived", how });
  const of = `${count(blocks)} ÷ ceil(max_model_len ${count(longest)} ÷ block_size ${size})`;
  return [
    derived(
      "bytes a block",
      count(f.bytes_per_block),
      "KV bytes a token × block_size; all layers, K and V",
    ),
    derived(
      "blocks",
      count(blocks),
      f.set_by === "num_gpu_blocks"
        ? "num_gpu_blocks, as set"
        : `${count(f.available_bytes)} bytes ÷ bytes a block, rounded down`,
    ),
    derived("tokens", count(Math.floor(concurrency * longest)), `max_model_len × ${of}`),
    derived("longest requests at once", concurrency.toFixed(2), of),
  ];
}

/** What the cache means for the longest request. @param {any} f @param {any} reason */
export function lengthText(f, reason) {
  const holds = (f.num_blocks - 1) * f.block_size;
  return reason
    ? `max_model_len is ${count(f.max_model_len)}, all that the cache holds for one request; the ` +
        `model knows ${plural(reason.model_max_len, "position")}.`
    : `max_model_len is ${count(f.max_model_len)}; the cache would hold one request of ` +
        `${plural(holds, "token")}.`;
}
