"""What a run adds up to: latencies of its requests, and how full its memory was step by step.

Latencies are those of `engine/metrics/stats.py`, which reads the log as the run goes; here each
single value is kept, with its request.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.config import EngineConfig
from engine.events import OutputsReturned, RequestSubmitted
from engine.metrics.histogram import Histogram
from engine.metrics.stats import EngineStats, RequestTimes
from engine.records import Event, Phase
from engine.trace import Trace

LATENCIES = ("ttft", "itl", "tpot", "e2e")


class Sample(NamedTuple):
    """One observed time."""

    request: str
    seconds: float


class Samples(Histogram):
    """A histogram that keeps what it observes."""

    def __init__(self, stats: RunStats):
        super().__init__(())
        self.stats = stats
        self.values: list[Sample] = []

    def observe(self, value: float) -> None:
        """Keep a value, as one of the request that is being looked at."""
        super().observe(value)
        self.values.append(Sample(self.stats.request, value))


class StepFigures(NamedTuple):
    """How an engine stood in one step."""

    step: int
    t_us: int  # of the log, at the step's end
    kv_cache_usage: float  # from 0 to 1, while the step ran: with what it had just been given
    running: int
    waiting: int
    queries: int  # tokens looked for in the prefix cache so far, and found
    hits: int
    generated: int  # tokens so far


class RunStats(EngineStats):
    """`EngineStats` that keep every value."""

    def __init__(self, trace: Trace, config: EngineConfig, model_name: str):
        super().__init__(trace, config, model_name)
        self.request = ""
        self.steps: list[StepFigures] = []
        self.first_us: int | None = None  # when the first request came, when the last token went
        self.last_us = 0
        self._names: dict[RequestTimes, str] = {}
        self._usage = 0.0
        to = self.histograms
        to.time_to_first_token = self._ttft = Samples(self)
        to.inter_token_latency = self._itl = Samples(self)
        to.time_per_output_token = self._tpot = Samples(self)
        to.e2e_latency = self._e2e = Samples(self)

    @property
    def samples(self) -> dict[str, list[Sample]]:
        """All values of each of `LATENCIES`, as they came.

        TPOT is of requests with more than one token: vLLM's metric counts the others as 0, its
        benchmark leaves them out, as is done here.
        """
        found = (self._ttft, self._itl, self._tpot, self._e2e)
        return {name: each.values for name, each in zip(LATENCIES, found, strict=True)}

    @property
    def seconds(self) -> float:
        """From the first request's coming to the last outcome's going."""
        return max(0.0, (self.last_us - (self.first_us or 0)) / 1e6)

    def end_phase(self) -> None:
        """Take in what a phase logged, and how things stand."""
        self.read()
        if self.trace.phase is Phase.SCHEDULE:
            self._usage = self.kv_cache_usage
        elif self.trace.phase is Phase.OUTPUT:
            self.steps.append(
                StepFigures(
                    self.trace.step,
                    self.trace.records[-1].t_us,
                    self._usage,
                    self.num_running,
                    self.num_waiting,
                    self.prefix_queries,
                    self.prefix_hits,
                    self.generation_tokens,
                )
            )

    def _submitted(self, event: Event) -> None:
        super()._submitted(event)
        facts = event.facts
        assert isinstance(facts, RequestSubmitted)
        self._names[self.requests[facts.request]] = facts.request
        if self.first_us is None:
            self.first_us = event.t_us

    def _outputs_returned(self, event: Event) -> None:
        super()._outputs_returned(event)
        facts = event.facts
        assert isinstance(facts, OutputsReturned)
        if facts.num_requests:
            self.last_us = event.t_us

    def _output(self, request: RequestTimes, num_tokens: int, now: float) -> None:
        self.request = self._names[request]
        super()._output(request, num_tokens, now)

    def _finish(self, request: RequestTimes, finish_reason: str, now: float) -> None:
        self.request = self._names[request]
        super()._finish(request, finish_reason, now)
        if request.num_generation_tokens < 2:
            self._tpot.values.pop()


def spread(values: list[Sample]) -> dict[str, Any]:
    """Median and 99th percentile in seconds (None where there is no value), and of how many.

    Between two values the percentile lies on the line from one to the other, as numpy's does.
    """
    import numpy as np

    if not values:
        return {"count": 0, "median": None, "p99": None}
    median, p99 = np.percentile([value.seconds for value in values], [50, 99])
    return {"count": len(values), "median": float(median), "p99": float(p99)}
