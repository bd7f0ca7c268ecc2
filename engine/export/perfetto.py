"""A log as a trace for Perfetto (https://ui.perfetto.dev): TrackEvent packets.

Steps, phases and requests are tracks. Requests overlap, so each has a track of its own below one
for all of them, which is what an asynchronous slice is in this format: the whole request, and in it
what it was meanwhile (waiting, running, preempted). Steps that overlap (`async_scheduling`) have
two tracks, phases one for each thread. Counters: blocks held, requests that run and wait, and what
each step gave of its budget.

Format: https://perfetto.dev/docs/reference/synthetic-track-event. Timestamps are nanoseconds since
the log began.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import chain, count, islice
from typing import Any, NamedTuple

from engine.export.summary import RequestSummary, StepSummary, Summary, lane_of
from engine.records import Phase

PACKETS_A_PIECE = 2_000
SEQUENCE = 1  # all packets are one writer's


class Moment(NamedTuple):
    """A packet's event before it is encoded, so that all can be put in the order of time."""

    t_ns: int
    kind: str  # "SLICE_BEGIN", "SLICE_END", "INSTANT" or "COUNTER"
    track: int
    name: str = ""
    value: int = 0
    facts: dict[str, Any] = {}


class Track(NamedTuple):
    """A row of the timeline; `unit` makes it a counter."""

    uuid: int
    name: str
    parent: int | None
    unit: str | None = None


@cache
def protos() -> Any:
    """Perfetto's own message classes; importing them takes a moment, so it is done when asked."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # type: ignore[import-untyped]

    return perfetto_trace_pb2


def perfetto_trace(summary: Summary) -> Iterator[bytes]:
    """The trace in pieces, which one after the other are the file."""
    timeline = Timeline(summary)
    tracks = map(track_packet, timeline.tracks)
    first = next(tracks)
    first.sequence_flags = protos().TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    packets = chain([first], tracks, map(moment_packet, timeline.moments))
    while piece := list(islice(packets, PACKETS_A_PIECE)):
        yield protos().Trace(packet=piece).SerializeToString()


class Timeline:
    """The tracks and, in the order of time, what is on them."""

    def __init__(self, summary: Summary):
        self.summary = summary
        self.tracks: list[Track] = []
        self.moments: list[Moment] = []
        self._uuids = count(1)
        self._last: dict[int, int] = {}  # by track, where its last slice ended
        name = str(summary.header.model.get("name", "")) or "engine"
        self.root = self._track(f"Glassbox: {name}, log {summary.header.trace_id}", None)
        self._steps()
        self._phases()
        self._requests()
        self._counters()
        self._marks()
        self.moments.sort(key=lambda moment: moment.t_ns)  # stable: what was first stays first

    def _track(self, name: str, parent: int | None, unit: str | None = None) -> int:
        track = Track(next(self._uuids), name, parent, unit)
        self.tracks.append(track)
        return track.uuid

    def _slice(
        self, track: int, name: str, begin_us: float, end_us: float, facts: dict[str, Any]
    ) -> None:
        """A slice beside the last one of its track.

        A phase's end is cut to whole microseconds and its duration is not, so that it can seem to
        begin a little before the one before it ends.
        """
        begin = max(ns(begin_us), self._last.get(track, 0))
        end = self._last[track] = max(ns(end_us), begin)
        self.moments.append(Moment(begin, "SLICE_BEGIN", track, name, facts=facts))
        self.moments.append(Moment(end, "SLICE_END", track))

    def _steps(self) -> None:
        overlaps = self.summary.overlaps
        names = ("steps, even", "steps, odd") if overlaps else ("steps",)
        tracks = [self._track(name, self.root) for name in names]
        for step in self.summary.steps.values():
            track = tracks[step.step % len(tracks)]
            self._slice(track, f"step {step.step}", step.begin_us, step.end_us, step_facts(step))

    def _phases(self) -> None:
        lanes: dict[str, int] = {}
        for span in self.summary.phases:
            lane = f"phases, {lane_of(span.phase)}" if self.summary.overlaps else "phases"
            if lane not in lanes:
                lanes[lane] = self._track(lane, self.root)
            facts: dict[str, Any] = {"step": span.step}
            if not span.complete:
                facts["complete"] = False
            self._slice(lanes[lane], str(span.phase), span.begin_us, span.end_us, facts)

    def _requests(self) -> None:
        group = self._track("requests", self.root)
        for request in self.summary.requests.values():
            if request.statuses:
                self._request(request, self._track(request.request, group))

    def _request(self, request: RequestSummary, track: int) -> None:
        begin = ns(request.statuses[0][0])
        last = self.summary.end_us
        finished = ns(last if request.finished_us is None else request.finished_us)
        end = finished if request.completed_us is None else max(finished, ns(request.completed_us))
        add = self.moments.append
        add(Moment(begin, "SLICE_BEGIN", track, request.request, facts=request_facts(request)))
        ends = [ns(t_us) for t_us, _ in request.statuses[1:]] + [finished]
        for (t_us, status), until in zip(request.statuses, ends, strict=True):
            add(Moment(ns(t_us), "SLICE_BEGIN", track, status))
            add(Moment(max(until, ns(t_us)), "SLICE_END", track))
        add(Moment(max(end, begin), "SLICE_END", track))
        for mark in request.marks:
            add(Moment(ns(mark.t_us), "INSTANT", track, mark.name, facts=mark.facts))

    def _counters(self) -> None:
        tracks = {
            "used_blocks": self._track("KV blocks held", self.root, "blocks"),
            "running": self._track("running requests", self.root, "requests"),
            "waiting": self._track("waiting requests", self.root, "requests"),
        }
        for counts in self.summary.counts:
            for name, track in tracks.items():
                value = getattr(counts, name)
                self.moments.append(Moment(ns(counts.t_us), "COUNTER", track, value=value))
        given = self._track("tokens scheduled", self.root, "tokens")
        budget = self._track("token budget", self.root, "tokens")
        for step in self.summary.steps.values():
            if step.batch is not None:
                tokens = step.batch.prefill_tokens + step.batch.decode_tokens
                at = ns(step.begin_us)
                self.moments.append(Moment(at, "COUNTER", given, value=tokens))
                most = step.batch.max_num_batched_tokens
                self.moments.append(Moment(at, "COUNTER", budget, value=most))

    def _marks(self) -> None:
        rows = {"evictions": self.summary.evictions, "bookmarks": self.summary.bookmarks}
        for name, marks in rows.items():
            if not marks:
                continue
            track = self._track(name, self.root)
            for mark in marks:
                self.moments.append(
                    Moment(ns(mark.t_us), "INSTANT", track, mark.name, facts=mark.facts)
                )


def ns(t_us: float) -> int:
    """Microseconds as nanoseconds."""
    return round(t_us * 1_000)


def step_facts(step: StepSummary) -> dict[str, Any]:
    """What a step's slice says of it."""
    facts: dict[str, Any] = {"step": step.step}
    if step.batch is not None:
        facts |= {
            "requests": step.batch.num_requests,
            "prefill_tokens": step.batch.prefill_tokens,
            "decode_tokens": step.batch.decode_tokens,
        }
    if step.dispatch is not None:
        facts |= {"graph": step.dispatch.mode, "padded_tokens": step.dispatch.num_padded_tokens}
    more = {
        "hit_tokens": step.hit_tokens,
        "evicted_blocks": step.evicted_blocks,
        "preemptions": step.preemptions,
        "finished": step.finished,
    }
    facts |= {name: value for name, value in more.items() if value}
    if Phase.OUTPUT not in step.durations:
        facts["complete"] = False
    return facts


def request_facts(request: RequestSummary) -> dict[str, Any]:
    """What a request's slice says of it."""
    facts = {
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "hit_tokens": request.hit_tokens,
        "preemptions": request.preemptions,
        "finish_reason": request.finish_reason or "unfinished where the log ends",
    }
    return {name: value for name, value in facts.items() if value is not None}


def track_packet(track: Track) -> Any:
    """A track's descriptor."""
    packet = protos().TracePacket(trusted_packet_sequence_id=SEQUENCE)
    descriptor = packet.track_descriptor
    descriptor.uuid, descriptor.name = track.uuid, printable(track.name)
    if track.parent is not None:
        descriptor.parent_uuid = track.parent
        descriptor.sibling_order_rank = track.uuid
    else:
        descriptor.child_ordering = protos().TrackDescriptor.EXPLICIT
    if track.unit is not None:
        descriptor.counter.unit_name = track.unit
    return packet


def moment_packet(moment: Moment) -> Any:
    """An event's packet."""
    event_class = protos().TrackEvent
    packet = protos().TracePacket(timestamp=moment.t_ns, trusted_packet_sequence_id=SEQUENCE)
    event = packet.track_event
    event.type = getattr(event_class, f"TYPE_{moment.kind}")
    event.track_uuid = moment.track
    if moment.kind == "COUNTER":
        event.counter_value = moment.value
    elif moment.name:
        event.name = printable(moment.name)
    for name, value in moment.facts.items():
        note = event.debug_annotations.add(name=name)
        if type(value) is bool:
            note.bool_value = value
        elif type(value) is int and abs(value) < 1 << 63:
            note.int_value = value
        else:
            note.string_value = printable(str(value))
    return packet


def printable(text: str) -> str:
    """Text that is UTF-8: half a surrogate pair, which JSON can have, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
