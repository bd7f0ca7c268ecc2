"""What a log says of its steps, its phases and its requests, in one pass over its records.

Times are microseconds since the log began, as the log has them. A figure that the log does not have
is None, and never 0 for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.events import (
    BatchScheduled,
    BlockEvicted,
    DraftsVerified,
    PrefixLookedUp,
    RequestArrived,
    RequestCompleted,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    RequestSubmitted,
    StepDispatched,
    TextEmitted,
    TokenAppended,
)
from engine.records import (
    EXECUTOR_PHASES,
    Event,
    Patch,
    Phase,
    Record,
)
from engine.trace import TraceError, TraceHeader

MAX_TIME_US = 1 << 50  # thirty-five years: what is later is no time of a log


class PhaseSpan(NamedTuple):
    """One run of a phase."""

    step: int
    phase: Phase
    begin_us: float
    end_us: int
    complete: bool = True  # False: the log ends in it


class Mark(NamedTuple):
    """Something that happened to a request, or to the engine, at a moment."""

    t_us: int
    name: str
    facts: dict[str, Any]


class Counts(NamedTuple):
    """How the engine stood at the end of a phase."""

    t_us: int
    running: int
    waiting: int
    used_blocks: int  # that somebody holds


@dataclass
class StepSummary:
    """One step; what came of it is complete once its output phase is in the log."""

    step: int
    begin_us: float
    end_us: float
    durations: dict[Phase, float] = field(default_factory=dict)  # of phases that ended
    batch: BatchScheduled | None = None
    dispatch: StepDispatched | None = None
    hit_tokens: int = 0
    evicted_blocks: int = 0
    preemptions: int = 0
    new_tokens: int = 0  # appended to requests
    drafts: int = 0  # that were judged
    accepted: int = 0  # of these
    finished: int = 0
    after: Counts | None = None  # of its last phase in the log


@dataclass
class RequestSummary:
    """One request, from its submission to its last word."""

    request: str
    source: str | None = None
    prompt: str | None = None
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    submitted_us: int | None = None
    arrived_us: int | None = None
    scheduled_us: int | None = None  # for the first time
    first_token_us: int | None = None
    finished_us: int | None = None
    completed_us: int | None = None  # the client was told
    finish_reason: str | None = None
    output_tokens: int = 0  # in these records
    hit_tokens: int = 0  # of all its look-ups together
    preemptions: int = 0
    steps: int = 0  # that gave it tokens
    text: list[str] = field(default_factory=list)
    statuses: list[tuple[float, str]] = field(default_factory=list)  # from when on
    marks: list[Mark] = field(default_factory=list)

    def become(self, t_us: float, status: str) -> None:
        """From `t_us` on its status is this one."""
        if not self.statuses or self.statuses[-1][1] != status:
            self.statuses.append((t_us, status))


class Summary:
    """All of a log's steps and requests, in the order in which they came."""

    def __init__(self, header: TraceHeader, records: Sequence[Record]):
        """Raise `TraceError` naming the record that is no engine's."""
        self.header = header
        self.overlaps = header.config.get("async_scheduling") is True
        self.begin_us: float = 0
        self.end_us: float = 0
        self.steps: dict[int, StepSummary] = {}
        self.phases: list[PhaseSpan] = []
        self.requests: dict[str, RequestSummary] = {}
        self._open: dict[tuple[int, Phase], PhaseSpan] = {}  # phases whose patch is to come
        self.counts: list[Counts] = []
        self.evictions: list[Mark] = []
        self.bookmarks: list[Mark] = []
        self._take: dict[type[Any], Callable[[Event, Any], None]] = {
            RequestSubmitted: self._submitted,
            RequestArrived: self._arrived,
            RequestScheduled: self._scheduled,
            RequestPreempted: self._preempted,
            RequestFinished: self._finished,
            RequestCompleted: self._completed,
            PrefixLookedUp: self._looked_up,
            BlockEvicted: self._evicted,
            BatchScheduled: self._batch,
            StepDispatched: self._dispatched,
            DraftsVerified: self._verified,
            TokenAppended: self._appended,
            TextEmitted: self._emitted,
        }
        try:
            self._take_base(header.state)
        except WRONG as error:
            raise TraceError(f"the header's state is no engine's ({error!r:.120})") from None
        for record in records:
            try:
                self._take_record(record)
            except WRONG as error:
                seq = f"record {record.seq!r:.40}"
                raise TraceError(f"{seq} is no engine's ({error!r:.120})") from None
        self.phases.extend(self._open.values())
        for bookmark in header.bookmarks:
            index = bookmark.seq - header.base_seq
            if -1 <= index < len(records):
                t_us = 0 if index < 0 else records[index].t_us
                self.bookmarks.append(Mark(t_us, bookmark.name, {"record": bookmark.seq}))

    # -- the base state ---------------------------------------------------------------------------

    def _take_base(self, state: dict[str, Any]) -> None:
        self._blocks = len(state.get("blocks", {}))
        self._lengths = {"free": 0, "waiting": 0, "running": 0}
        self._take_queues(state)
        for key, request in state.get("requests", {}).items():
            found = self._request(key)
            self._constants(found, request)
            if request["status"] == "finished":
                found.finish_reason = str(request.get("finish_reason"))
            else:
                found.statuses.append((0, str(request["status"])))

    def _take_queues(self, state: dict[str, Any]) -> None:
        for name, queue in state.get("queues", {}).items():
            if name in self._lengths and queue.get("length") is not None:
                self._lengths[name] = whole(queue["length"])

    def _constants(self, found: RequestSummary, record: dict[str, Any]) -> None:
        """What the state alone says of a request."""
        prompt = record.get("prompt")
        if isinstance(prompt, str):
            found.prompt = prompt
        if "num_prompt_tokens" in record:
            found.prompt_tokens = whole(record["num_prompt_tokens"])
        if "max_tokens" in record:
            found.max_tokens = whole(record["max_tokens"])

    # -- records ----------------------------------------------------------------------------------

    def _take_record(self, record: Record) -> None:
        t_us = whole(record.t_us)
        if not 0 <= t_us <= MAX_TIME_US:
            raise ValueError(f"t_us is {t_us}")
        whole(record.step)
        self.end_us = max(self.end_us, t_us)
        if isinstance(record, Patch):
            self._take_patch(record)
            return
        if record.phase is not Phase.COMMAND:
            self._step(record.step, t_us)
            key = record.step, record.phase
            begin = self._open[key].begin_us if key in self._open else t_us
            self._open[key] = PhaseSpan(*key, begin, t_us, False)
        take = self._take.get(type(record.facts))
        if take is not None:
            take(record, record.facts)

    def _take_patch(self, patch: Patch) -> None:
        self._take_queues(patch.changes)
        for key, changes in patch.changes.get("requests", {}).items():
            if changes is not None and key in self.requests:
                self._constants(self.requests[key], changes)
        free, waiting, running = (self._lengths[name] for name in ("free", "waiting", "running"))
        # The null block is nobody's, and in no queue.
        counts = Counts(patch.t_us, running, waiting, max(0, self._blocks - 1 - free))
        if not self.counts or self.counts[-1][1:] != counts[1:]:
            self.counts.append(counts)
        duration = 0.0 if patch.duration_us is None else float(patch.duration_us)
        if not 0 <= duration <= MAX_TIME_US:
            raise ValueError(f"duration_us is {duration}")
        if patch.phase is Phase.COMMAND:
            return
        begin = max(0.0, patch.t_us - duration)
        self._open.pop((patch.step, patch.phase), None)
        step = self._step(patch.step, begin)
        step.begin_us = min(step.begin_us, begin)
        step.end_us = max(step.end_us, patch.t_us)
        step.durations[patch.phase] = duration
        step.after = counts
        self.phases.append(PhaseSpan(patch.step, patch.phase, begin, patch.t_us))

    def _step(self, number: int, t_us: float) -> StepSummary:
        step = self.steps.get(number)
        if step is None:
            step = self.steps[number] = StepSummary(number, t_us, t_us)
        step.end_us = max(step.end_us, t_us)
        return step

    def _request(self, key: Any) -> RequestSummary:
        if not isinstance(key, str):
            raise TypeError(f"request is {key!r:.40}")
        return self.requests.setdefault(key, RequestSummary(key))

    # -- events -----------------------------------------------------------------------------------

    def _submitted(self, event: Event, facts: RequestSubmitted) -> None:
        request = self._request(facts.request)
        request.submitted_us, request.source = event.t_us, str(facts.source)
        request.prompt_tokens = whole(facts.num_prompt_tokens)
        request.max_tokens = whole(facts.max_tokens)
        request.become(event.t_us, "submitted")

    def _arrived(self, event: Event, facts: RequestArrived) -> None:
        request = self._request(facts.request)
        request.arrived_us, request.prompt_tokens = event.t_us, whole(facts.num_prompt_tokens)
        request.become(event.t_us, "waiting")

    def _scheduled(self, event: Event, facts: RequestScheduled) -> None:
        request = self._request(facts.request)
        if request.scheduled_us is None and facts.kind != "resumed":
            request.scheduled_us = event.t_us
        request.steps += 1
        request.become(event.t_us, "running")

    def _preempted(self, event: Event, facts: RequestPreempted) -> None:
        request = self._request(facts.request)
        request.preemptions += 1
        request.become(event.t_us, "preempted")
        if event.phase is not Phase.COMMAND:
            self._step(event.step, event.t_us).preemptions += 1
        request.marks.append(Mark(event.t_us, "preempted", facts._asdict()))

    def _finished(self, event: Event, facts: RequestFinished) -> None:
        request = self._request(facts.request)
        request.finished_us, request.finish_reason = event.t_us, str(facts.finish_reason)
        if event.phase is not Phase.COMMAND:
            self._step(event.step, event.t_us).finished += 1

    def _completed(self, event: Event, facts: RequestCompleted) -> None:
        self._request(facts.request).completed_us = event.t_us

    def _looked_up(self, event: Event, facts: PrefixLookedUp) -> None:
        hit = whole(facts.hit_tokens)
        request = self._request(facts.request)
        request.hit_tokens += hit
        self._step(event.step, event.t_us).hit_tokens += hit
        if hit:
            request.marks.append(Mark(event.t_us, "prefix hit", {"hit_tokens": hit}))

    def _evicted(self, event: Event, facts: BlockEvicted) -> None:
        if event.phase is not Phase.COMMAND:
            self._step(event.step, event.t_us).evicted_blocks += 1
        self.evictions.append(
            Mark(event.t_us, f"block {whole(facts.block)} evicted", facts._asdict())
        )

    def _batch(self, event: Event, facts: BatchScheduled) -> None:
        for number in facts[:4]:
            whole(number)
        self._step(event.step, event.t_us).batch = facts

    def _dispatched(self, event: Event, facts: StepDispatched) -> None:
        whole(facts.num_tokens), whole(facts.num_padded_tokens)
        if not isinstance(facts.mode, str):
            raise TypeError(f"mode is {facts.mode!r:.40}")
        self._step(event.step, event.t_us).dispatch = facts

    def _verified(self, event: Event, facts: DraftsVerified) -> None:
        step = self._step(event.step, event.t_us)
        step.drafts += len(facts.drafts)
        step.accepted += whole(facts.num_accepted)

    def _appended(self, event: Event, facts: TokenAppended) -> None:
        request = self._request(facts.request)
        request.output_tokens += 1
        self._step(event.step, event.t_us).new_tokens += 1
        if request.first_token_us is None and request.scheduled_us is not None:
            request.first_token_us = event.t_us
            request.marks.append(Mark(event.t_us, "first token", {}))

    def _emitted(self, event: Event, facts: TextEmitted) -> None:
        self._request(facts.request).text.append(str(facts.text))


WRONG = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


def whole(value: Any) -> int:
    """A whole number as it is; TypeError where it is none, or larger than any count is."""
    if type(value) is not int or abs(value) > MAX_TIME_US:  # in Python, True is an int
        raise TypeError(f"{value!r:.40} is no whole number of a log")
    return value


def lane_of(phase: Phase) -> str:
    """Which of the two threads of an engine with `async_scheduling` a phase is of."""
    return "executor" if phase in EXECUTOR_PHASES else "engine"
