// @ts-check
/** Where vLLM 0.26.0 decides what an event tells. The counterpart of engine/vllm_symbols.py. */

/** @import { EventRecord } from "../core/records.js" */

/** @typedef {{path: string, name: string, first: number, last: number}} SourceSymbol a function */

const TAG = "https://github.com/vllm-project/vllm/blob/v0.26.0";

const SCHEDULER = "vllm/v1/core/sched/scheduler.py";
const MANAGER = "vllm/v1/core/kv_cache_manager.py";
const POOL = "vllm/v1/core/block_pool.py";
const OUTPUTS = "vllm/v1/engine/output_processor.py";
const INPUTS = "vllm/v1/engine/input_processor.py";

/** @param {string} path @param {string} name @param {number} first @param {number} last */
const symbol = (path, name, first, last) => ({ path, name, first, last });

const SCHEDULE = symbol(SCHEDULER, "Scheduler.schedule", 425, 1191);
const UPDATE = symbol(SCHEDULER, "Scheduler.update_from_output", 1589, 1960);
const FINISH = symbol(SCHEDULER, "Scheduler.finish_requests", 2144, 2205);
const ALLOCATE = symbol(MANAGER, "KVCacheManager.allocate_slots", 283, 504);

/** By type of event, or by type and reason. @type {Record<string, SourceSymbol>} */
export const DECIDED_BY = {
  request_submitted: symbol("vllm/v1/engine/async_llm.py", "AsyncLLM.add_request", 280, 398),
  request_refused: symbol(INPUTS, "InputProcessor._validate_prompt_len", 387, 432),
  request_arrived: symbol(SCHEDULER, "Scheduler.add_request", 2120, 2142),
  request_aborted: FINISH,
  prefix_cache_reset: symbol(POOL, "BlockPool.reset_prefix_cache", 761, 795),
  prefix_looked_up: symbol(MANAGER, "KVCacheManager.get_computed_blocks", 207, 281),
  blocks_hit: symbol(POOL, "BlockPool.touch", 702, 717),
  block_evicted: symbol(POOL, "BlockPool._maybe_evict_cached_block", 679, 700),
  blocks_allocated: symbol(POOL, "BlockPool.get_new_blocks", 647, 677),
  allocation_failed: ALLOCATE,
  blocks_cached: symbol(POOL, "BlockPool.cache_full_blocks", 225, 342),
  blocks_left_uncomputed: SCHEDULE,
  blocks_freed: symbol(POOL, "BlockPool.free_blocks", 719, 740),
  request_scheduled: SCHEDULE,
  drafts_scheduled: SCHEDULE,
  drafts_dropped: symbol(SCHEDULER, "Scheduler._preempt_request", 1212, 1234),
  drafts_settled: UPDATE,
  request_passed_over: SCHEDULE,
  request_preempted: SCHEDULE,
  "request_preempted reset_requested": symbol(
    SCHEDULER,
    "Scheduler.reset_prefix_cache",
    2326,
    2374,
  ),
  admission_stopped: SCHEDULE,
  "admission_stopped does_not_fit": ALLOCATE,
  token_dropped: UPDATE,
  request_finished: symbol("vllm/v1/core/sched/utils.py", "check_stop", 94, 130),
  "request_finished stop_string": symbol(OUTPUTS, "OutputProcessor.process_outputs", 586, 708),
  "request_finished client_aborted": FINISH,
};

const RUNNER = "vllm/v1/worker/gpu_model_runner.py";
const PREPARE = symbol(RUNNER, "GPUModelRunner._prepare_inputs", 1937, 2259);
const EXECUTE = symbol(RUNNER, "GPUModelRunner.execute_model", 4110, 4479);
const SAMPLE = symbol(RUNNER, "GPUModelRunner.sample_tokens", 4496, 4784);
const UNIFIED = "vllm/v1/attention/ops/triton_unified_attention.py";
const ATTENTION = symbol(UNIFIED, "kernel_unified_attention", 178, 681);
const PROCESS = symbol(OUTPUTS, "OutputProcessor.process_outputs", 586, 708);

/** What to read of events that decide nothing: where vLLM does the same. */
export const DONE_BY = /** @type {Record<string, SourceSymbol>} */ ({
  memory_sized: symbol(
    "vllm/v1/worker/gpu_worker.py",
    "Worker.determine_available_memory",
    447,
    606,
  ),
  batch_scheduled: symbol(SCHEDULER, "Scheduler._update_after_schedule", 1236, 1284),
  block_tables_updated: PREPARE,
  inputs_prepared: PREPARE,
  step_dispatched: symbol(
    "vllm/v1/cudagraph_dispatcher.py",
    "CudagraphDispatcher.dispatch",
    235,
    324,
  ),
  graph_captured: symbol(RUNNER, "GPUModelRunner.capture_model", 6744, 6849),
  graph_replayed: symbol("vllm/compilation/cuda_graph.py", "CUDAGraphWrapper", 145, 361),
  forward_run: EXECUTE,
  weights_read: EXECUTE,
  attention_run: ATTENTION,
  pages_read: ATTENTION,
  kv_written: symbol(
    "vllm/v1/worker/block_table.py",
    "_compute_slot_mapping_kernel",
    346,
    409,
  ),
  heads_grouped: symbol(
    "vllm/v1/kv_cache_interface.py",
    "FullAttentionSpec.real_page_size_bytes",
    327,
    342,
  ),
  drafts_verified: SAMPLE,
  token_sampled: SAMPLE,
  tokens_returned: SAMPLE,
  token_appended: UPDATE,
  outputs_returned: UPDATE,
  text_emitted: PROCESS,
  request_completed: PROCESS,
});

/** What to read next in vLLM of any event. @param {EventRecord} event */
export function readNext(event) {
  const decided = decidedBy(event);
  return decided ?? (Object.hasOwn(DONE_BY, event.type) ? DONE_BY[event.type] : null);
}

/** @param {EventRecord} event @returns {SourceSymbol|null} null where vLLM has no counterpart */
export function decidedBy({ type, reason }) {
  const exact = `${type} ${reason?.code ?? ""}`;
  if (Object.hasOwn(DECIDED_BY, exact)) return DECIDED_BY[exact];
  return Object.hasOwn(DECIDED_BY, type) ? DECIDED_BY[type] : null;
}

/** @param {SourceSymbol} symbol */
export function symbolUrl({ path, first, last }) {
  return `${TAG}/${path}#L${first}-L${last}`;
}
