"""What a comparison found: both sides' figures, where they part, and a log of each.

A side may have run several times. Its first run is the one whose log is kept and shown; of the
others there are the figures, and whether they decided as the first one did, as they must.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.comparison.decisions import Decisions, Told, first_divergence, first_other_dispatch
from engine.comparison.figures import Sample, StepFigures, spread
from engine.comparison.run import Output, Run


class RunResult(NamedTuple):
    """One run: what it was, what it measured, and its log."""

    config: dict[str, Any]  # resolved
    trace_id: str
    device: str
    num_steps: int
    first_us: int  # of the log, when the first request came
    seconds: float  # from there to the last outcome
    waited: float  # seconds in which other engines had their turn
    worked: float  # seconds of its own turns
    computed: float  # of these, those in which the engine's thread had a core
    rehearsed: bool  # it is the second go: the first one captured graphs
    samples: dict[str, list[Sample]]
    steps: list[StepFigures]
    outputs: dict[str, Output]
    prompt_tokens: int
    generated: int
    preemptions: int
    drafts: int
    accepted: int
    decisions: Decisions
    log: bytes  # JSON Lines, gzipped

    @classmethod
    def of(cls, run: Run, rehearsed: bool) -> RunResult:
        """What a run that has ended leaves; its engine may go."""
        trace, stats = run.trace, run.stats
        lines = "\n".join(trace.lines()) + "\n"
        return cls(
            config=trace.header.config,
            trace_id=trace.header.trace_id,
            device=str(trace.header.model.get("device", "")),
            num_steps=run.core.step_index,
            first_us=stats.first_us or 0,
            seconds=stats.seconds,
            waited=run.waited,
            worked=run.worked,
            computed=run.computed,
            rehearsed=rehearsed,
            samples=stats.samples,
            steps=stats.steps,
            outputs=run.results(),
            prompt_tokens=stats.prompt_tokens,
            generated=stats.generation_tokens,
            preemptions=stats.num_preemptions,
            drafts=stats.num_draft_tokens,
            accepted=stats.num_accepted_tokens,
            decisions=Decisions(trace.records),
            log=gzip.compress(lines.encode(), 3),
        )

    @property
    def file(self) -> bytes:
        """The log as a trace file."""
        return gzip.decompress(self.log)

    @property
    def most_usage(self) -> float:
        """Largest share of the blocks that was in use in a step."""
        return max((step.kv_cache_usage for step in self.steps), default=0.0)

    @property
    def hit_rate(self) -> float | None:
        """Share of the tokens looked for in the prefix cache that were found."""
        last = self.steps[-1] if self.steps else None
        return last.hits / last.queries if last is not None and last.queries else None

    @property
    def core_share(self) -> float | None:
        """How much of its own turns the engine's thread had a core; None where a GPU computes.

        It falls where other programs want the cores too: then times say little of the engine.
        """
        return self.computed / self.worked if self.device == "cpu" and self.worked else None

    def per_second(self, amount: float) -> float:
        """A throughput over the whole run."""
        return amount / self.seconds if self.seconds else 0.0

    def measured(self) -> dict[str, Any]:
        """The times, and what follows from them."""
        return {
            "seconds": self.seconds,
            "waited_seconds": self.waited,
            "core_share": self.core_share,
            "output_tokens_per_second": self.per_second(self.generated),
            "total_tokens_per_second": self.per_second(self.generated + self.prompt_tokens),
            "latencies_seconds": {name: spread(values) for name, values in self.samples.items()},
        }

    def as_json(self) -> dict[str, Any]:
        """Everything but the log."""
        measured = self.measured()
        for name, values in self.samples.items():
            measured["latencies_seconds"][name]["values"] = [list(value) for value in values]
        return {
            "config": self.config,
            "trace_id": self.trace_id,
            "device": self.device,
            "rehearsed": self.rehearsed,
            "decided": {
                "steps": self.num_steps,
                "preemptions": self.preemptions,
                "most_kv_cache_usage": self.most_usage,
                "prefix_hit_rate": self.hit_rate,
                "prompt_tokens": self.prompt_tokens,
                "generated_tokens": self.generated,
                "draft_tokens": self.drafts,
                "accepted_tokens": self.accepted,
                "per_step": [step._asdict() for step in self.steps],
            },
            "measured": measured,
        }


class Unequal(NamedTuple):
    """Two runs of one side that should have decided the same, and did not."""

    side: str  # "A" or "B"
    repetition: int  # from 2 on; the other one is the first
    step: int | None  # the first that was decided otherwise; None: only tokens differ
    request: str  # about which they differ first


def unequal(side: str, runs: Sequence[RunResult]) -> list[Unequal]:
    """Which runs did not do what the first one did."""
    found = []
    for number, run in enumerate(runs[1:], 2):
        told = first_divergence(runs[0].decisions, run.decisions)
        other = next((key for key, out in runs[0].outputs.items() if out != run.outputs[key]), None)
        if told is not None:
            found.append(Unequal(side, number, told.step, told.request))
        elif other is not None:
            found.append(Unequal(side, number, None, other))
    return found


class Difference(NamedTuple):
    """A request's two outputs."""

    request: str
    a: Output
    b: Output

    @property
    def at(self) -> int | None:
        """The first token in which they differ; None where the shorter is all there is of it."""
        pairs = zip(self.a.tokens, self.b.tokens, strict=False)
        return next((place for place, (x, y) in enumerate(pairs) if x != y), None)

    @property
    def same(self) -> bool:
        """Whether the requests have the same tokens."""
        return self.a.tokens == self.b.tokens


class Result(NamedTuple):
    """Both sides."""

    a: RunResult
    b: RunResult
    divergence: Told | None  # the first step that was decided otherwise
    dispatch: Told | None  # the first step whose forward ran otherwise
    again: tuple[list[RunResult], list[RunResult]] = ([], [])  # further runs: figures alone
    unequal: tuple[Unequal, ...] = ()

    @classmethod
    def of(cls, a: Sequence[RunResult], b: Sequence[RunResult]) -> Result:
        """Set two sides beside each other, each with the runs that it had."""
        both = a[0].decisions, b[0].decisions
        told = first_divergence(*both), first_other_dispatch(*both)
        odd = (*unequal("A", a), *unequal("B", b))
        # All else that the decisions hold is in the logs, which are kept small.
        nothing = Decisions(())
        further = tuple(
            [run._replace(decisions=nothing, log=b"", steps=[]) for run in side[1:]]
            for side in (a, b)
        )
        first, other = (side[0]._replace(decisions=nothing) for side in (a, b))
        return cls(first, other, *told, (further[0], further[1]), odd)

    @property
    def runs(self) -> tuple[RunResult, RunResult]:
        """The first run of each side, in order."""
        return self.a, self.b

    @property
    def sides(self) -> tuple[list[RunResult], list[RunResult]]:
        """All runs of each side, in the order in which they were made."""
        return [self.a, *self.again[0]], [self.b, *self.again[1]]

    @property
    def texts(self) -> list[Difference]:
        """Each request's outputs, in the workload's order."""
        return [Difference(key, one, self.b.outputs[key]) for key, one in self.a.outputs.items()]

    def as_json(self) -> dict[str, Any]:
        """What a program gets."""
        return {
            "divergence": self.divergence and self.divergence._asdict(),
            "dispatch": self.dispatch and self.dispatch._asdict(),
            "runs": [run.as_json() for run in self.runs],
            "repetitions": [[run.measured() for run in side] for side in self.sides],
            "unequal": [each._asdict() for each in self.unequal],
            "outputs": [
                {
                    "request": one.request,
                    "same": one.same,
                    "differs_at": one.at,
                    "a": one.a._asdict(),
                    "b": one.b._asdict(),
                }
                for one in self.texts
            ],
        }
