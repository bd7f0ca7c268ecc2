"""What a lab may ask beside numbers and boxes: waiting, moments, knobs, partial credit, faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.async_llm import AsyncLLM
from engine.engine_thread import EngineThread
from engine.model_loader import load_model
from lessons.check import check_lesson
from lessons.loader import LessonError, lesson_files, load
from lessons.map_names import DOCUMENT, read_map
from lessons.play import NARROW, Asked, Player
from lessons.variants import SEEDS, draw
from tests.lessons.small import small, write

NAMES = read_map(DOCUMENT)
HIT = next(path for path in lesson_files() if path.stem == "lose-a-hit")
TOUR = next(path for path in lesson_files() if path.stem == "one-request")
EVICTED = next(path for path in lesson_files() if path.stem == "who-was-evicted")


@pytest.fixture(scope="module")
def llm() -> Iterator[AsyncLLM]:
    thread = EngineThread()
    yield AsyncLLM(load_model("tiny-random"), thread=thread)
    thread.stop()


def at(player: Player, llm: AsyncLLM, step: str) -> Asked | None:
    """The player at a step, and its first question."""
    player.index = player.lesson.step(step) or 0
    player.bring(llm)
    return next((Asked(player.step, each) for each in player.step.questions), None)


def test_a_step_waits_until_the_learner_has_brought_the_engine_there(llm: AsyncLLM) -> None:
    player = Player(load(HIT), 1)
    at(player, llm, "first")
    assert player.waits and not player.look(llm)
    assert player.missing(llm) == []  # what has begun is not begun again
    llm.step()
    assert player.look(llm) and not player.waits
    moment = player.moment()
    assert moment is not None and moment.request("r0")["status"] == "finished"


def test_what_is_waited_for_can_be_done_for_the_learner(llm: AsyncLLM) -> None:
    player = Player(load(HIT), 1)
    at(player, llm, "first")
    assert player.look(llm, run_there=True)
    assert not player.waits


def test_an_engine_that_was_reset_does_not_end_the_wait(llm: AsyncLLM) -> None:
    player = Player(load(HIT), 1)
    at(player, llm, "first")
    llm.reset()
    assert not player.look(llm) and player.away(llm)
    assert player.missing(llm) != []


def test_a_moment_is_judged_by_what_is_there(llm: AsyncLLM) -> None:
    player = Player(load(HIT), 1)
    asked = at(player, llm, "why")
    moment = player.moment()
    assert asked is not None and moment is not None
    wanted = moment.last("prefix_looked_up", "r1").seq
    for given, points in (
        (wanted, 2),
        (moment.last("blocks_hit", "r1").seq, 1),
        (0, 0),
        (9_999, 0),
    ):
        player.answer(asked, given)
        verdict = player.verdict(asked)
        assert verdict is not None and verdict.points == points
        assert verdict.right == (points == 2)


def test_a_change_is_judged_by_the_run_that_came_of_it(llm: AsyncLLM) -> None:
    player = Player(load(HIT), 1)
    asked = at(player, llm, "turn")
    assert asked is not None
    for length, right in ((24, False), (25, True)):
        player.try_out(llm, asked, {"length": length})
        verdict = player.verdict(asked)
        assert verdict is not None and verdict.right == right
    tried = player.last_try
    assert tried is not None and tried.moment.trace_id == llm.trace.header.trace_id
    assert not player.away(llm) and player.shown().seq == tried.moment.seq


def test_knobs_out_of_their_bounds_are_no_answer(llm: AsyncLLM) -> None:
    player = Player(load(HIT), 1)
    asked = at(player, llm, "turn")
    assert asked is not None
    before = llm.trace.header.trace_id
    for knobs in (
        {"length": 99},
        {"length": True},
        {"length": "25"},
        {},
        {"length": 25, "more": 1},
    ):
        player.try_out(llm, asked, knobs)
    assert player.answers == {} and llm.trace.header.trace_id == before


def test_what_holds_with_one_seed_alone_is_said_so(llm: AsyncLLM) -> None:
    lesson = load(HIT)
    own, others = (
        {n: draw(lesson, n + more)["block_size"] for n in range(60)} for more in (0, SEEDS)
    )
    seed = next(n for n in own if (own[n], others[n]) == (4, 8))
    player = Player(lesson, seed)
    asked = at(player, llm, "turn")
    assert asked is not None
    player.try_out(llm, asked, {"length": 21})  # five blocks of 4 and one token, but not of 8
    verdict = player.verdict(asked)
    assert verdict is not None and (verdict.right, verdict.says) == (False, NARROW)


def test_a_broken_engine_is_called_so_until_the_next_reset(llm: AsyncLLM) -> None:
    player = Player(load(EVICTED), 1)
    called, named = {}, []
    for step in ("sound", "broken", "repaired"):
        at(player, llm, step)
        called[step] = player.is_broken
        named.append(json.loads(next(iter(llm.trace.lines())))["fault"])  # as a file has it
    assert called == {"sound": False, "broken": True, "repaired": False}
    assert named == ["", "evicts-newest", ""]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("length: 3 * 8 + 1", "length: 21", "does not hold on the hidden seed"),
        ("{length: 24}", "{length: 99}", "out of bounds"),
        ("{length: 24}", "{length: 25}", "passes"),
        ("start: 20", "start: 25", "always true"),
        ("when: prompt_tokens('r1') % config('block_size') == 0", "when: 1 == 2", "of another one"),
        ("accept: event_at(given) == 'prefix", "accept: event_at(given) != 'prefix", "is refused"),
    ],
)
def test_the_check_finds_what_is_wrong_with_them(
    tmp_path: Path, llm: AsyncLLM, old: str, new: str, says: str
) -> None:
    text = HIT.read_text()
    assert old in text
    lesson = load(write(tmp_path, text.replace(old, new, 1), HIT.stem))
    problems = check_lesson(lesson, llm, NAMES, (1, 2, 3)).problems
    assert any(says in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("start: 20", "start: 99", "out of the knob's bounds"),
        ("from: 18, to: 40, start", "from: 18, start", "write one of these"),
        ("length: {from: 18", "block_size: {from: 18", "a value of the variant as well"),
        ("{length: 3 * 8 + 1}", "{lenght: 25}", "there is no knob `lenght`"),
        ("points: 1\n", "points: 2\n", "less than its points"),
        ("      wait: {event", "      until: {event", "`seen` is said when a `wait` is over"),
        ("kind: recall", "kind: explain", "in this order"),
        (
            "max_num_batched_tokens: 64}",
            "max_num_batched_tokens: 64}\n      fault: x",
            "no fault `x`",
        ),
    ],
)
def test_what_does_not_go_together_is_said(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = HIT.read_text()
    assert old in text
    with pytest.raises(LessonError) as caught:
        load(write(tmp_path, text.replace(old, new, 1), HIT.stem))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "self_check: true\n",
            "self_check: false\n",
            "self_check: true in the step before its last",
        ),
        ("title: Common mistakes", "title: The end", "ends with a step `Common mistakes`"),
    ],
)
def test_a_tour_of_the_course_ends_as_all_do(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = TOUR.read_text()
    assert old in text
    with pytest.raises(LessonError) as caught:
        load(write(tmp_path, text.replace(old, new, 1), TOUR.stem))
    assert says in str(caught.value)


def test_a_fault_needs_an_engine_that_begins_anew(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match="add reset: true"):
        small(
            tmp_path,
            "reset: true\n      config: {block_size: =size, num_gpu_blocks: 16}",
            "fault: never-frees",
        )
