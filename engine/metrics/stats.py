"""Reads the log and keeps what it adds up to: totals, gauges, and the times of each request.

Part of box `async-engine`. vLLM 0.26.0: `vllm/v1/metrics/stats.py` (`IterationStats`,
`RequestStateStats`, `CachingMetrics`). It reads each phase's records as the phase ends, on the
engine thread, so it misses nothing when the log lets go of its oldest records. A reset begins
another log and with it other stats, as a restart of a server does. Requests that were there before
the log began, in an engine restored from a saved moment, are in the gauges and in the tokens
generated, and in nothing that is told of a whole request.

Times are the log's (`t_us`): time in which the engine stood paused counts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from engine.config import EngineConfig
from engine.events import (
    DraftsSettled,
    MemorySized,
    OutputsReturned,
    PrefixCacheReset,
    PrefixLookedUp,
    RequestArrived,
    RequestCompleted,
    RequestPreempted,
    RequestScheduled,
    RequestSubmitted,
    TokenAppended,
)
from engine.metrics.histogram import (
    FIRST_TOKEN_SECONDS,
    REQUEST_SECONDS,
    SAMPLES,
    STEP_TOKENS,
    TOKEN_SECONDS,
    Histogram,
    token_bounds,
)
from engine.records import EXECUTOR_PHASES, Event, Patch, Phase
from engine.request import FinishReason
from engine.trace import Trace

RECENT_REQUESTS = 1_000  # that the hit rate of the periodic line is over


class Sequences:
    """The requests that come of one: n of them, most often one."""

    __slots__ = ("all_finished", "most_tokens", "n", "unfinished")

    def __init__(self) -> None:
        self.n = self.unfinished = 0
        self.most_tokens = 0  # generated for the longest of them
        self.all_finished = True  # none was taken back


class RequestTimes:
    """What is remembered of a request until its end; times in microseconds of the log."""

    __slots__ = (
        "first_token",
        "last_token",
        "max_tokens",
        "num_cached_tokens",
        "num_generation_tokens",
        "num_prompt_tokens",
        "parent",
        "queued",
        "scheduled",
        "submitted",
    )

    def __init__(self, submitted: int, num_prompt_tokens: int, max_tokens: int):
        self.submitted = submitted
        self.queued = self.scheduled = self.first_token = self.last_token = submitted
        self.num_prompt_tokens = num_prompt_tokens
        self.max_tokens = max_tokens
        self.num_cached_tokens = 0  # of the prompt, found at its first admission
        self.num_generation_tokens = 0
        self.parent = ""  # in `EngineStats.sequences`


class Histograms:
    """Of times (seconds) and sizes (tokens), each as vLLM buckets it."""

    def __init__(self, max_model_len: int):
        tokens = token_bounds(max_model_len)
        self.time_to_first_token = Histogram(FIRST_TOKEN_SECONDS)
        self.inter_token_latency = Histogram(TOKEN_SECONDS)
        self.time_per_output_token = Histogram(TOKEN_SECONDS)
        self.e2e_latency = Histogram(REQUEST_SECONDS)
        self.queue_time = Histogram(REQUEST_SECONDS)
        self.inference_time = Histogram(REQUEST_SECONDS)
        self.prefill_time = Histogram(REQUEST_SECONDS)
        self.decode_time = Histogram(REQUEST_SECONDS)
        self.prompt_tokens = Histogram(tokens)
        self.generation_tokens = Histogram(tokens)
        self.max_num_generation_tokens = Histogram(tokens)
        self.max_tokens = Histogram(tokens)
        self.prefill_kv_computed_tokens = Histogram(tokens)
        self.n = Histogram(SAMPLES)
        self.iteration_tokens = Histogram(STEP_TOKENS)


class HitRate:
    """The prefix cache's hit rate over the latest look-ups; a reset of the cache forgets them."""

    def __init__(self) -> None:
        self._lookups: deque[tuple[int, int]] = deque()
        self._queries = self._hits = 0

    def observe(self, queries: int, hits: int) -> None:
        """One request's look-up, in tokens."""
        self._lookups.append((queries, hits))
        self._queries += queries
        self._hits += hits
        if len(self._lookups) > RECENT_REQUESTS:
            queries, hits = self._lookups.popleft()
            self._queries -= queries
            self._hits -= hits

    def clear(self) -> None:
        """Begin again."""
        self._lookups.clear()
        self._queries = self._hits = 0

    @property
    def value(self) -> float:
        """From 0 to 1; 0 while nothing was looked up."""
        return self._hits / self._queries if self._queries else 0.0


class EngineStats:
    """Of one engine since its log began. The engine thread reads the log; any thread these."""

    def __init__(self, trace: Trace, config: EngineConfig, model_name: str):
        self.trace = trace
        self.config = config
        self.model_name = model_name
        # gauges, as of the latest patch
        queues = trace.header.state["queues"]
        self.num_running: int = queues["running"]["length"]
        self.num_waiting: int = queues["waiting"]["length"]
        self.num_free_blocks: int = queues["free"]["length"]
        # totals
        self.prefix_queries = 0  # tokens looked for, and found, for requests that never ran
        self.prefix_hits = 0
        self.num_preemptions = 0
        self.prompt_tokens = 0  # of requests that have a first token
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.num_drafts = 0  # requests that had some verified, once a step
        self.num_draft_tokens = 0
        self.num_accepted_tokens = 0
        self.accepted_per_pos = [0] * config.num_speculative_tokens  # by place in the draft
        self.finished = Counter[str](dict.fromkeys(FinishReason, 0))  # by reason
        self.pool_set_by = "num_gpu_blocks"
        self.histograms = Histograms(config.max_model_len or 1)
        self.hit_rate = HitRate()
        self.requests: dict[str, RequestTimes] = {}  # that have not ended
        self.sequences: dict[str, Sequences] = {}  # that have not all ended
        # of the command or step under way
        self._arriving: list[str] = []
        self._outputs: dict[str, int] = {}  # new tokens
        self._outputs_at = 0
        self._completed: list[tuple[str, str]] = []
        self._next_seq = trace.next_seq
        self._on: dict[type[Any], Callable[[Event], None]] = {
            MemorySized: self._memory_sized,
            RequestSubmitted: self._submitted,
            RequestArrived: self._arrived,
            PrefixLookedUp: self._looked_up,
            PrefixCacheReset: self._cache_reset,
            RequestScheduled: self._scheduled,
            RequestPreempted: self._preempted,
            DraftsSettled: self._drafts_settled,
            TokenAppended: self._token_appended,
            OutputsReturned: self._outputs_returned,
            RequestCompleted: self._request_completed,
        }

    @property
    def kv_cache_usage(self) -> float:
        """Share of the blocks that somebody holds, from 0 to 1; the null block is none of them."""
        return 1.0 - self.num_free_blocks / (self.config.num_gpu_blocks - 1)

    @property
    def prompt_tokens_computed(self) -> int:
        """Of the prompts counted so far, what did not come from the prefix cache."""
        return self.prompt_tokens - self.prompt_tokens_cached

    def read(self) -> None:
        """Take in what the log got since the last call."""
        start = max(0, self._next_seq - self.trace.header.base_seq)
        news = self.trace.records[start:]
        for record in news:
            if isinstance(record, Patch):
                self._patch(record)
            elif (handle := self._on.get(type(record.facts))) is not None:
                handle(record)
        self._next_seq = self.trace.header.base_seq + start + len(news)

    def end_step(self) -> None:
        """Count the step whose last phase is under way, without waiting for that phase's patch."""
        self.read()
        if self._outputs:
            self._end_iteration(self.trace.phase_began_us)

    # -- events ---------------------------------------------------------------------------------

    def _memory_sized(self, event: Event) -> None:
        facts: MemorySized = event.facts  # type: ignore[assignment]
        self.pool_set_by = facts.set_by

    def _submitted(self, event: Event) -> None:
        facts: RequestSubmitted = event.facts  # type: ignore[assignment]
        self.requests[facts.request] = RequestTimes(
            event.t_us, facts.num_prompt_tokens, facts.max_tokens
        )
        self._arriving.append(facts.request)

    def _arrived(self, event: Event) -> None:
        facts: RequestArrived = event.facts  # type: ignore[assignment]
        if facts.request in self.requests:
            self.requests[facts.request].queued = event.t_us

    def _looked_up(self, event: Event) -> None:
        facts: PrefixLookedUp = event.facts  # type: ignore[assignment]
        if not facts.preempted:  # vLLM keeps theirs apart, and reports it nowhere
            self.prefix_queries += facts.num_tokens
            self.prefix_hits += facts.hit_tokens
            self.hit_rate.observe(facts.num_tokens, facts.hit_tokens)

    def _cache_reset(self, event: Event) -> None:
        facts: PrefixCacheReset = event.facts  # type: ignore[assignment]
        if facts.done:
            self.hit_rate.clear()

    def _scheduled(self, event: Event) -> None:
        facts: RequestScheduled = event.facts  # type: ignore[assignment]
        request = self.requests.get(facts.request)
        if facts.kind == "new" and request is not None:
            request.scheduled = event.t_us
            request.num_cached_tokens = facts.num_computed_tokens

    def _preempted(self, event: Event) -> None:
        self.num_preemptions += 1

    def _drafts_settled(self, event: Event) -> None:
        facts: DraftsSettled = event.facts  # type: ignore[assignment]
        self.num_drafts += 1
        self.num_draft_tokens += facts.num_drafts
        self.num_accepted_tokens += facts.num_accepted
        for place in range(facts.num_accepted):
            self.accepted_per_pos[place] += 1

    def _token_appended(self, event: Event) -> None:
        facts: TokenAppended = event.facts  # type: ignore[assignment]
        self._outputs[facts.request] = self._outputs.get(facts.request, 0) + 1

    def _outputs_returned(self, event: Event) -> None:
        self._outputs_at = event.t_us

    def _request_completed(self, event: Event) -> None:
        facts: RequestCompleted = event.facts  # type: ignore[assignment]
        if facts.finish_reason == FinishReason.ABORT:
            # As in vLLM: who takes a request back is in no figure of finished requests.
            self._outputs.pop(facts.request, None)
            if facts.request in self.requests:
                self._end_sequence(self.requests.pop(facts.request)).all_finished = False
        elif facts.request in self.requests:
            self._completed.append((facts.request, facts.finish_reason))

    # -- patches --------------------------------------------------------------------------------

    def _patch(self, patch: Patch) -> None:
        if patch.phase in EXECUTOR_PHASES:  # nothing of what is counted here changes in them
            return
        queues = patch.changes.get("queues")
        if queues is not None:
            self.num_running = queues.get("running", {}).get("length", self.num_running)
            self.num_waiting = queues.get("waiting", {}).get("length", self.num_waiting)
            self.num_free_blocks = queues.get("free", {}).get("length", self.num_free_blocks)
        for key in self._arriving:
            # Only the state says which request of n sequences it is one of.
            self._add_to_parent(key, patch.changes["requests"][key].get("parent", key))
        self._arriving.clear()
        if patch.phase is Phase.OUTPUT and self._outputs:
            self._end_iteration(patch.t_us - (patch.duration_us or 0.0))

    def _add_to_parent(self, key: str, parent: str) -> None:
        sequences = self.sequences.setdefault(parent, Sequences())
        sequences.n += 1
        sequences.unfinished += 1
        self.requests[key].parent = parent

    def _end_sequence(self, request: RequestTimes) -> Sequences:
        sequences = self.sequences[request.parent]
        sequences.unfinished -= 1
        sequences.most_tokens = max(sequences.most_tokens, request.num_generation_tokens)
        if not sequences.unfinished:
            del self.sequences[request.parent]
        return sequences

    def _end_iteration(self, now: float) -> None:
        """A step's outcome has reached the front end, at the beginning of its last phase."""
        computed_before, generated = self.prompt_tokens_computed, 0
        for key, num_tokens in self._outputs.items():
            generated += num_tokens
            if key in self.requests:
                self._output(self.requests[key], num_tokens, now)
        self.generation_tokens += generated
        computed = self.prompt_tokens_computed - computed_before
        self.histograms.iteration_tokens.observe(computed + generated)
        for key, finish_reason in self._completed:
            self._finish(self.requests.pop(key), finish_reason, now)
        self._outputs.clear()
        self._completed.clear()

    def _output(self, request: RequestTimes, num_tokens: int, now: float) -> None:
        """New tokens of a request. With its first one, its prompt counts as processed."""
        if request.num_generation_tokens == 0:
            self.prompt_tokens += request.num_prompt_tokens
            self.prompt_tokens_cached += request.num_cached_tokens
            self.histograms.time_to_first_token.observe(seconds(now - request.submitted))
            request.first_token = self._outputs_at
        else:
            since = self._outputs_at - request.last_token
            self.histograms.inter_token_latency.observe(seconds(since))
        request.num_generation_tokens += num_tokens
        request.last_token = self._outputs_at

    def _finish(self, request: RequestTimes, finish_reason: str, now: float) -> None:
        """All that is known of a request only at its end; preemptions are within its times."""
        to = self.histograms
        decode = seconds(request.last_token - request.first_token)
        gaps = request.num_generation_tokens - 1
        self.finished[finish_reason] += 1
        to.e2e_latency.observe(seconds(now - request.submitted))
        to.queue_time.observe(seconds(request.scheduled - request.queued))
        to.prefill_time.observe(seconds(request.first_token - request.scheduled))
        to.inference_time.observe(seconds(request.last_token - request.scheduled))
        to.decode_time.observe(decode)
        to.time_per_output_token.observe(decode / gaps if gaps else 0.0)
        to.prompt_tokens.observe(request.num_prompt_tokens)
        to.generation_tokens.observe(request.num_generation_tokens)
        to.prefill_kv_computed_tokens.observe(request.num_prompt_tokens - request.num_cached_tokens)
        to.max_tokens.observe(request.max_tokens)
        sequences = self._end_sequence(request)
        if sequences.all_finished and not sequences.unfinished:
            to.max_num_generation_tokens.observe(sequences.most_tokens)
            to.n.observe(sequences.n)


def seconds(microseconds: float) -> float:
    """The log counts in microseconds, Prometheus in seconds."""
    return microseconds / 1e6
