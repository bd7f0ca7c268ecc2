"""Where vLLM 0.26.0 decides what an event of the log tells: file, function and lines.

Part of no box; `engine/why.py` names them. The page has the same table
(`views/assets/words/vllm_symbols.js`), and a test compares the two.
"""

from __future__ import annotations

from typing import NamedTuple


class Symbol(NamedTuple):
    """A function in vLLM 0.26.0."""

    path: str
    name: str
    first: int
    last: int


_SCHEDULER = "vllm/v1/core/sched/scheduler.py"
_MANAGER = "vllm/v1/core/kv_cache_manager.py"
_POOL = "vllm/v1/core/block_pool.py"
_OUTPUTS = "vllm/v1/engine/output_processor.py"
_INPUTS = "vllm/v1/engine/input_processor.py"

_SCHEDULE = Symbol(_SCHEDULER, "Scheduler.schedule", 425, 1191)
_UPDATE = Symbol(_SCHEDULER, "Scheduler.update_from_output", 1589, 1960)
_FINISH = Symbol(_SCHEDULER, "Scheduler.finish_requests", 2144, 2205)
_ALLOCATE = Symbol(_MANAGER, "KVCacheManager.allocate_slots", 283, 504)

# By type of event, or by type and reason where that is decided elsewhere. Content that is dropped
# before it was computed (`blocks_uncached`) has no counterpart: vLLM 0.26.0 leaves it cached.
DECIDED_BY: dict[str, Symbol] = {
    "request_submitted": Symbol("vllm/v1/engine/async_llm.py", "AsyncLLM.add_request", 280, 398),
    "request_refused": Symbol(_INPUTS, "InputProcessor._validate_prompt_len", 387, 432),
    "request_arrived": Symbol(_SCHEDULER, "Scheduler.add_request", 2120, 2142),
    "request_aborted": _FINISH,
    "prefix_cache_reset": Symbol(_POOL, "BlockPool.reset_prefix_cache", 761, 795),
    "prefix_looked_up": Symbol(_MANAGER, "KVCacheManager.get_computed_blocks", 207, 281),
    "blocks_hit": Symbol(_POOL, "BlockPool.touch", 702, 717),
    "block_evicted": Symbol(_POOL, "BlockPool._maybe_evict_cached_block", 679, 700),
    "blocks_allocated": Symbol(_POOL, "BlockPool.get_new_blocks", 647, 677),
    "allocation_failed": _ALLOCATE,
    "blocks_cached": Symbol(_POOL, "BlockPool.cache_full_blocks", 225, 342),
    "blocks_left_uncomputed": _SCHEDULE,
    "blocks_freed": Symbol(_POOL, "BlockPool.free_blocks", 719, 740),
    "request_scheduled": _SCHEDULE,
    "drafts_scheduled": _SCHEDULE,
    "drafts_dropped": Symbol(_SCHEDULER, "Scheduler._preempt_request", 1212, 1234),
    "drafts_settled": _UPDATE,
    "request_passed_over": _SCHEDULE,
    "request_preempted": _SCHEDULE,
    "request_preempted reset_requested": Symbol(
        _SCHEDULER, "Scheduler.reset_prefix_cache", 2326, 2374
    ),
    "admission_stopped": _SCHEDULE,
    "admission_stopped does_not_fit": _ALLOCATE,
    "token_dropped": _UPDATE,
    "request_finished": Symbol("vllm/v1/core/sched/utils.py", "check_stop", 94, 130),
    "request_finished stop_string": Symbol(_OUTPUTS, "OutputProcessor.process_outputs", 586, 708),
    "request_finished client_aborted": _FINISH,
}


def decided_by(event_type: str, reason_code: str = "") -> Symbol | None:
    """Where that is decided; None where vLLM has no counterpart."""
    return DECIDED_BY.get(f"{event_type} {reason_code}", DECIDED_BY.get(event_type))
