"""Both sides of the comparison get the same, and a difference between them is found."""

from __future__ import annotations

import sys

import pytest

from benchmarks.beside_vllm import Ours, Theirs, compare, decode, measure
from benchmarks.harness.effort import Effort
from benchmarks.scheduler import SMALL_POOL


class StandIn(Theirs):
    """This engine once more, in the place of vLLM."""

    def __init__(self) -> None:
        pass

    def begin(self, limits: dict[str, int]) -> None:
        ours = Ours(limits["num_gpu_blocks"])
        config = ours.engine.core.config
        assert {name: getattr(config, name) for name in limits} == limits
        self.add, self.steps, self.settle = ours.add, ours.steps, ours.settle  # type: ignore[method-assign]


class Loser(StandIn):
    """Another scheduler, which loses a request."""

    def begin(self, limits: dict[str, int]) -> None:
        super().begin(limits)
        add = self.add
        self.add = lambda prompts, max_tokens: add(prompts[1:], max_tokens)  # type: ignore[method-assign]


def test_each_side_does_the_steps_that_are_compared() -> None:
    ours = Ours(SMALL_POOL)
    steps = decode(3, turns=1)(ours)()
    assert [step[2:] for step in steps] == [(3, 3, 0)] * 10
    assert all(step.cpu > 0 and step.wall > 0 for step in steps)


def test_the_figures_are_of_both_sides() -> None:
    figures = compare(StandIn(), "3 running", SMALL_POOL, decode(3, turns=2), 2)
    assert [(figure.name, figure.unit, figure.samples) for figure in figures] == [
        ("3 running, with log", "µs", 2),
        ("3 running, vLLM's", "µs", 2),
        ("3 running, ours / vLLM's", "x", 2),
        ("3 running, the same by the wall", "x", 2),
    ]


def test_what_does_not_do_the_same_is_not_compared() -> None:
    with pytest.raises(RuntimeError, match="3 running: the two schedulers did not decide the same"):
        compare(Loser(), "3 running", SMALL_POOL, decode(3, turns=2), 2)


def test_without_vllm_it_says_so() -> None:
    (only,) = measure(Effort(quick=True))
    assert only.value is None and only.note.startswith("not run: --peer PYTHON")


def test_a_python_without_vllm_says_what_it_lacks(capfd: pytest.CaptureFixture[str]) -> None:
    theirs = Theirs(sys.executable)
    with pytest.raises(RuntimeError, match="vLLM's side has ended"):
        theirs.begin({})
    theirs.end()
    assert "No module named 'vllm'" in capfd.readouterr().err
