"""Two steps at once: the order by hand, what overlaps, and that the outcome is the same."""

from __future__ import annotations

from collections.abc import Callable

from engine.async_llm import AsyncLLM
from engine.config import SamplingParams
from engine.events import Patch, Phase

Make = Callable[..., AsyncLLM]
GREEDY = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)


def phases(engine: AsyncLLM) -> list[str]:
    ends = (record for record in engine.trace.records if isinstance(record, Patch))
    return [f"{end.phase}{end.step}" for end in ends if end.phase is not Phase.COMMAND]


def test_by_hand_the_engine_lane_goes_first_wherever_it_can(make: Make) -> None:
    engine = make(async_scheduling=True)
    engine.submit("a prompt", GREEDY)
    for _ in range(14):
        engine.step_phase()
        assert engine.trace.state() == engine.core.state()
    assert phases(engine) == [
        *("arrive0", "schedule0", "arrive1", "schedule1"),
        *("prepare0", "execute0", "sample0", "update0", "output0"),
        *("arrive2", "schedule2", "prepare1", "execute1", "sample1"),
    ]
    assert engine.core.state()["engine"] == {
        "mode": "paused",
        "next_phase": "update",
        "step": 1,
        "in_flight": {"1": "update", "2": "prepare"},
    }
