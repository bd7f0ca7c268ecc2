"""The loads on which contiguous and paged memory are compared. Nothing here is timed."""

from __future__ import annotations

import pytest

from benchmarks import old_ways
from benchmarks.harness.effort import Effort
from benchmarks.old_ways import CONFIG, NAMES, ContiguousLoad, PagedLoad
from engine.contiguous import WAYS
from engine.memory_parts import ALL_WAYS, PAGED


@pytest.mark.parametrize("way", WAYS)
def test_a_way_on_its_own_clock_fills_its_pieces_and_lets_go_of_them(way: str) -> None:
    load, ended = ContiguousLoad(way), 0
    for _ in range(600):
        before = set(load.running)
        load.step()
        gone = before - set(load.running)
        ended += len(gone)
        assert all(load.tokens(piece) == piece.fills + 1 for piece in gone)
        places = sorted((piece.start, piece.start + piece.length) for piece in load.running)
        ends = [0, *(end for _, end in places)]
        assert all(end <= start for end, (start, _) in zip(ends, places, strict=False))
        assert min(load.parts()) >= 0 and sum(load.parts()) == CONFIG.largest_request()
    assert ended > 10


def test_the_engine_gets_the_same_requests_and_is_never_idle() -> None:
    load = PagedLoad()
    for _ in range(30):
        load.step()
    memory = load.memory()
    assert len(memory.running) + len(memory.waiting) + len(load.core.arriving) >= 90
    assert memory.waiting and memory.has_room(PAGED) > 2 * memory.has_room("max")


def test_every_way_has_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_ways, "WARM_STEPS", 5)
    monkeypatch.setattr(old_ways, "STEPS_BETWEEN", 1)
    figures = old_ways.measure(Effort(quick=True))
    for way in ALL_WAYS:
        own = [figure for figure in figures if figure.name.startswith(f"{NAMES[way]}, ")]
        assert len(own) == (6 if way == PAGED else 8)
        assert "the paper:" in own[5].note
