"""The lines that vLLM's console prints of an engine: its cache at the start, then how it does.

Part of box `async-engine`. vLLM 0.26.0: `vllm/v1/metrics/loggers.py` (`LoggingStatLogger`) and
`vllm/v1/spec_decode/metrics.py` (`SpecDecodingLogging`); for the start,
`vllm/v1/worker/gpu_worker.py` and `vllm/v1/core/kv_cache_utils.py`. The words are vLLM's; the front
end decides when a line is due and logs it as `StatsLogged`.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.events import MemorySized, SpecDecodingLogged, StatsLogged
from engine.metrics.stats import EngineStats
from engine.reasons import CacheLimitsLength
from engine.sizing import GIB, CacheSize

INTERVAL_SECONDS = 10.0


class Totals(NamedTuple):
    """What a line is about, since the engine began."""

    prompt_tokens: int  # computed ones
    generation_tokens: int
    preemptions: int
    drafts: tuple[int, ...]  # how many, of how many tokens, how many accepted; these by place

    @classmethod
    def of(cls, stats: EngineStats) -> Totals:
        """As they stand now."""
        drafts = (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens)
        return cls(
            stats.prompt_tokens_computed,
            stats.generation_tokens,
            stats.num_preemptions,
            (*drafts, *stats.accepted_per_pos),
        )


class StatsLine:
    """The interval between one line and the next."""

    def __init__(self, stats: EngineStats, interval: float | None = None):
        self.stats = stats
        self.interval = INTERVAL_SECONDS if interval is None else interval
        self._began = stats.trace.now_us
        self._before = Totals.of(stats)
        self._last_was_busy = False

    @property
    def seconds_left(self) -> float:
        """Until the interval is over; 0 where it is."""
        return max(0.0, self.interval - (self.stats.trace.now_us - self._began) / 1e6)

    def wake(self) -> None:
        """Work comes after a rest: the rest is no part of the interval, unless a line is owed."""
        if Totals.of(self.stats) == self._before and not self._last_was_busy:
            self._began = self.stats.trace.now_us

    def take(self) -> list[StatsLogged | SpecDecodingLogged]:
        """The line of the interval that ends now, and begin the next one.

        As in vLLM one line of zeros follows when the work has ended, and then none. Where drafts
        were verified there is a second line. (vLLM's has its throughputs over the time since the
        last such line, with all rests.)
        """
        stats, now = self.stats, Totals.of(self.stats)
        drafts = [new - old for new, old in zip(now.drafts, self._before.drafts, strict=True)]
        duration = (stats.trace.now_us - self._began) / 1e6
        prompt = (now.prompt_tokens - self._before.prompt_tokens) / max(duration, 1e-6)
        generation = (now.generation_tokens - self._before.generation_tokens) / max(duration, 1e-6)
        preemptions = now.preemptions - self._before.preemptions
        self._began, self._before = stats.trace.now_us, now
        busy = bool(prompt or generation)
        quiet = not (busy or self._last_was_busy)
        self._last_was_busy = busy
        if quiet:
            return []
        line = StatsLogged(
            round(duration, 3),
            round(prompt, 3),
            round(generation, 3),
            stats.num_running,
            stats.num_waiting,
            preemptions,
            round(stats.kv_cache_usage, 4),
            round(stats.hit_rate.value, 4),
        )
        num_drafts, drafted, accepted, *by_place = drafts
        if not num_drafts:
            return [line]
        seconds = line.seconds
        return [line, SpecDecodingLogged(seconds, num_drafts, drafted, accepted, tuple(by_place))]


def stats_text(line: StatsLogged | SpecDecodingLogged) -> str:
    """The line in vLLM's words."""
    if isinstance(line, SpecDecodingLogged):
        return drafts_text(line)
    preemptions = f"Preemptions: {line.preemptions}, " * bool(line.preemptions)
    return (
        f"Engine 000: Avg prompt throughput: {line.prompt_throughput:.1f} tokens/s, "
        f"Avg generation throughput: {line.generation_throughput:.1f} tokens/s, "
        f"Running: {line.running} reqs, Waiting: {line.waiting} reqs, {preemptions}"
        f"GPU KV cache usage: {line.kv_cache_usage * 100:.1f}%, "
        f"Prefix cache hit rate: {line.prefix_cache_hit_rate * 100:.1f}%"
    )


def drafts_text(line: SpecDecodingLogged) -> str:
    """The second line: the mean length counts the token that the model adds to what it accepts."""
    accepted, drafted = line.num_accepted_tokens, line.num_draft_tokens
    seconds = max(line.seconds, 1e-6)
    rates = ", ".join(f"{count / line.num_drafts:.3f}" for count in line.accepted_per_pos)
    return (
        f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / line.num_drafts:.2f}, "
        f"Accepted throughput: {accepted / seconds:.2f} tokens/s, "
        f"Drafted throughput: {drafted / seconds:.2f} tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {rates}, "
        f"Avg Draft acceptance rate: {accepted / drafted * 100:.1f}%"
    )


def start_texts(sized: MemorySized, reason: CacheLimitsLength | None) -> list[str]:
    """What is said of the memory at the start."""
    lines = []
    if sized.graph_sizes:
        lines.append(f"Estimated CUDA graph memory: {sized.graph_bytes / GIB:.2f} GiB total")
    if sized.budget_bytes:
        lines.append(f"Available KV cache memory: {rounded_gib(sized.available_bytes)} GiB")
    if reason is not None:
        lines.append(
            f"Auto-fit max_model_len: reduced from {reason.model_max_len} to {reason.holds} to "
            f"fit in available GPU memory ({rounded_gib(sized.available_bytes)} GiB available for "
            "KV cache)"
        )
    return [*lines, *cache_size(sized).texts()]


def cache_size(sized: MemorySized) -> CacheSize:
    """The pool that came of it."""
    return CacheSize(sized.num_blocks, sized.block_size, sized.max_model_len)


def rounded_gib(num_bytes: int) -> str:
    """Bytes as most of vLLM's lines have them: `0.5`, not `0.50`."""
    return str(round(num_bytes / GIB, 2))
