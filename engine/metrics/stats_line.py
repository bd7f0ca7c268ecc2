"""The lines that vLLM's console prints of an engine: its cache at the start, then how it does.

Part of box `async-engine`. vLLM 0.26.0: `vllm/v1/metrics/loggers.py` (`LoggingStatLogger`) and
`vllm/v1/core/kv_cache_utils.py` (`get_kv_cache_configs`). The words are vLLM's; the front end
decides when a line is due and logs it as `StatsLogged`.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.config import EngineConfig
from engine.events import StatsLogged
from engine.metrics.stats import EngineStats

INTERVAL_SECONDS = 10.0


class Totals(NamedTuple):
    """What a line is about, since the engine began."""

    prompt_tokens: int  # computed ones
    generation_tokens: int
    preemptions: int

    @classmethod
    def of(cls, stats: EngineStats) -> Totals:
        """As they stand now."""
        return cls(stats.prompt_tokens_computed, stats.generation_tokens, stats.num_preemptions)


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

    def take(self) -> StatsLogged | None:
        """The line of the interval that ends now, and begin the next one.

        As in vLLM one line of zeros follows when the work has ended, and then None.
        """
        stats, now = self.stats, Totals.of(self.stats)
        duration = (stats.trace.now_us - self._began) / 1e6
        prompt = (now.prompt_tokens - self._before.prompt_tokens) / max(duration, 1e-6)
        generation = (now.generation_tokens - self._before.generation_tokens) / max(duration, 1e-6)
        preemptions = now.preemptions - self._before.preemptions
        self._began, self._before = stats.trace.now_us, now
        busy = bool(prompt or generation)
        quiet = not (busy or self._last_was_busy)
        self._last_was_busy = busy
        if quiet:
            return None
        return StatsLogged(
            round(duration, 3),
            round(prompt, 3),
            round(generation, 3),
            stats.num_running,
            stats.num_waiting,
            preemptions,
            round(stats.kv_cache_usage, 4),
            round(stats.hit_rate.value, 4),
        )


def stats_text(line: StatsLogged) -> str:
    """The line in vLLM's words."""
    preemptions = f"Preemptions: {line.preemptions}, " * bool(line.preemptions)
    return (
        f"Engine 000: Avg prompt throughput: {line.prompt_throughput:.1f} tokens/s, "
        f"Avg generation throughput: {line.generation_throughput:.1f} tokens/s, "
        f"Running: {line.running} reqs, Waiting: {line.waiting} reqs, {preemptions}"
        f"GPU KV cache usage: {line.kv_cache_usage * 100:.1f}%, "
        f"Prefix cache hit rate: {line.prefix_cache_hit_rate * 100:.1f}%"
    )


def cache_texts(config: EngineConfig) -> tuple[str, str]:
    """The size of the pool in vLLM's words. Here the pool is configured; vLLM profiles for it.

    The longest request takes a whole number of blocks; vLLM counts block 0 although nobody gets it.
    """
    longest = config.max_model_len or 1
    concurrency = config.num_gpu_blocks / -(-longest // config.block_size)
    return (
        f"GPU KV cache size: {int(concurrency * longest):,} tokens",
        f"Maximum concurrency for {longest:,} tokens per request: {concurrency:.2f}x",
    )
