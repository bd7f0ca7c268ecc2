"""The same requests in contiguous memory: what paging is measured against.

No box of its own: it stands beside box `block-manager`, decides nothing, and follows what really
happens. vLLM has no counterpart; the three ways to reserve are those that the PagedAttention paper
(arXiv 2309.06180, section 6.1) compares itself with.

Each way has an arena of as many token slots as the pool can give away. A request has one piece of
it, in the first gap that is long enough, for as long as it runs: from its admission to its end or
its preemption, all as in the engine. Where there is no such gap it stands in line, and nobody
overtakes. The ways differ only in how long a piece is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from engine.config import EngineConfig
from engine.request import Request, RequestStatus
from engine.trace import Changes, State

WAYS = ("max", "pow2", "oracle")


def piece_lengths(request: Request, max_model_len: int) -> tuple[int, ...]:
    """Slots that each of `WAYS` reserves for a request, as it is admitted.

    The last token of a request is never fed back, so its keys and values are never stored. How
    many tokens that will be nobody knows beforehand: it counts as going on for as long as it may.
    """
    prompt = request.num_prompt_tokens
    longest = min(prompt + request.sampling_params.max_tokens, max_model_len)
    power_of_two = 1 << (longest - prompt - 1).bit_length()  # the outputs, rounded up
    return max_model_len, min(prompt + power_of_two, max_model_len), longest - 1


class Arena:
    """Slots side by side, given out in contiguous pieces: the first gap that is long enough."""

    def __init__(self, size: int):
        self._starts = [0] if size else []  # of the gaps, ascending; no two of them touch
        self._lengths = [size] if size else []

    def take(self, length: int) -> int | None:
        """Where the piece begins; None where no gap is long enough."""
        for i, room in enumerate(self._lengths):
            if room >= length:
                start = self._starts[i]
                if room == length:
                    del self._starts[i], self._lengths[i]
                else:
                    self._starts[i] += length
                    self._lengths[i] -= length
                return start
        return None

    def give_back(self, start: int, length: int) -> None:
        """A piece becomes a gap, one with those that it touches."""
        starts, lengths = self._starts, self._lengths
        i = bisect_left(starts, start)
        if i < len(starts) and start + length == starts[i]:
            length += lengths[i]
            del starts[i], lengths[i]
        if i > 0 and starts[i - 1] + lengths[i - 1] == start:
            lengths[i - 1] += length
        else:
            starts.insert(i, start)
            lengths.insert(i, length)


class ContiguousWay:
    """One way to reserve: its arena, the pieces of unfinished requests, and who stands in line.

    `changes` collects what became of the pieces, for the log.
    """

    def __init__(self, slots: int):
        self.slots = slots
        self.arena = Arena(slots)
        self.lengths: dict[str, int] = {}  # of all unfinished requests
        self.starts: dict[str, int] = {}  # of those that have their piece
        self.line: dict[str, None] = {}
        self.changes: Changes = {}

    def arrive(self, key: str, length: int) -> None:
        """A request is known, and so is what it will ask for."""
        self.lengths[key] = length
        self.changes[key] = {"length": length}

    def admit(self, key: str) -> None:
        """It runs in the engine, so it wants its piece."""
        self.line[key] = None

    def leave(self, key: str) -> None:
        """It does not run any more."""
        self.line.pop(key, None)
        start = self.starts.pop(key, None)
        if start is not None:
            self.arena.give_back(start, self.lengths[key])
            self.changes[key] = {"start": None}

    def end(self, key: str) -> None:
        """It has ended, and left."""
        del self.lengths[key]
        self.changes[key] = None

    def settle(self) -> None:
        """Give pieces to those in line, in order, up to the first that finds no gap."""
        while self.line:
            key = next(iter(self.line))
            start = self.arena.take(self.lengths[key])
            if start is None:
                return
            del self.line[key]
            self.starts[key] = start
            self.changes.setdefault(key, {})["start"] = start

    def restore(
        self, lengths: Mapping[str, int], starts: Mapping[str, int], line: Iterable[str]
    ) -> None:
        """Become what another one was. ValueError where pieces overlap or lie outside."""
        end = 0
        self.arena = Arena(0)
        for start, key in sorted((start, key) for key, start in starts.items()):
            if start < end or start + lengths[key] > self.slots:
                raise ValueError(f"the piece of {key} overlaps another, or the arena's end")
            if start > end:
                self.arena.give_back(end, start - end)
            end = start + lengths[key]
        if end < self.slots:
            self.arena.give_back(end, self.slots - end)
        self.lengths, self.starts = dict(lengths), dict(starts)
        self.line = dict.fromkeys(line)

    def take_changes(self) -> Changes:
        """What changed since the last call."""
        changes, self.changes = self.changes, {}
        return changes

    def snapshot(self) -> State:
        """All pieces."""
        pieces: State = {key: {"length": length} for key, length in self.lengths.items()}
        for key, start in self.starts.items():
            pieces[key]["start"] = start
        return pieces


class Contiguous:
    """All ways side by side; they follow which requests run."""

    def __init__(self, config: EngineConfig):
        assert config.max_model_len is not None, "resolve the config first"
        self.max_model_len = config.max_model_len
        self.ways = {name: ContiguousWay(config.largest_request()) for name in WAYS}
        self._known: set[str] = set()

    def follow(self, moved: Iterable[Request]) -> Changes:
        """What the ways make of requests that are new or have another status than before."""
        for request in moved:
            self._follow(request)
        changes = {}
        for name, way in self.ways.items():
            way.settle()
            if way.changes:
                changes[name] = way.take_changes()
        return changes

    def _follow(self, request: Request) -> None:
        key, status = request.request_id, request.status
        if key not in self._known:
            if status is RequestStatus.FINISHED:  # it came and went within a phase
                return
            self._arrive(request)
        for way in self.ways.values():
            if status is RequestStatus.RUNNING:
                way.admit(key)
            else:
                way.leave(key)
        if status is RequestStatus.FINISHED:
            self._end(key)

    def _arrive(self, request: Request) -> None:
        key = request.request_id
        self._known.add(key)
        lengths = piece_lengths(request, self.max_model_len)
        for way, length in zip(self.ways.values(), lengths, strict=True):
            way.arrive(key, length)

    def _end(self, key: str) -> None:
        self._known.remove(key)
        for way in self.ways.values():
            way.end(key)

    def restore(
        self,
        unfinished: Iterable[Request],
        starts: Mapping[str, Mapping[str, int]],
        lines: Mapping[str, Iterable[str]],
    ) -> None:
        """Follow these requests from where another one stood with them.

        `starts` and `lines` are by way. ValueError where they cannot have stood so.
        """
        lengths = {r.request_id: piece_lengths(r, self.max_model_len) for r in unfinished}
        self._known = set(lengths)
        for place, (name, way) in enumerate(self.ways.items()):
            own = {key: of_ways[place] for key, of_ways in lengths.items()}
            if not own.keys() >= {*starts[name], *lines[name]}:
                raise ValueError("a piece is of a request that has ended")
            way.restore(own, starts[name], lines[name])

    def snapshot(self) -> State:
        """All pieces, by the name of the way."""
        return {name: way.snapshot() for name, way in self.ways.items()}
