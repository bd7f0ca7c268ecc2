"""A learner's work as plain JSON, its points, and who is told of an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.async_llm import AsyncLLM
from engine.engine_thread import EngineThread
from engine.model_loader import load_model
from lessons.format import Lesson
from lessons.kept import Judged, StateError
from lessons.loader import in_order, lesson_files, load, same_place
from lessons.play import Player
from lessons.variants import seed_of
from tests.lessons.small import small, write

LAB = load(next(path for path in lesson_files() if path.stem == "count-the-blocks"))


@pytest.fixture(scope="module")
def llm() -> Iterator[AsyncLLM]:
    thread = EngineThread()
    yield AsyncLLM(load_model("tiny-random"), thread=thread)
    thread.stop()


def answered(llm: AsyncLLM, lesson: Any, *given: int) -> tuple[Player, list[Judged]]:
    told: list[Judged] = []
    player = Player(lesson, 1, on_judged=lambda _, judged: told.append(judged))
    player.index = 1
    player.bring(llm)
    for each in given:
        player.answer(player.questions()[0], each)
    return player, told


def test_every_answer_is_told_once_with_its_points(tmp_path: Path, llm: AsyncLLM) -> None:
    lesson = small(tmp_path, "ask: How", "points: 5\n        ask: How")
    player, told = answered(llm, lesson, 9, 3)
    worth = [(each.attempt, each.right, each.points) for each in told]
    assert worth == [(1, False, 0), (2, True, 5)]
    player.bring(llm, again=True)
    assert len(told) == 2
    assert (player.score(), player.points()) == ((1, 1), (5, 5))


def test_opened_hints_cost_what_the_file_says(tmp_path: Path, llm: AsyncLLM) -> None:
    more = "points: 5\n        hint_cost: 2\n        hints: [a, b, c]\n        ask: How"
    for opened, points in ((0, 5), (1, 3), (3, 0)):
        player, _ = answered(llm, small(tmp_path, "ask: How", more))
        player.hints[player.questions()[0].key] = opened
        player.answer(player.questions()[0], 3)
        assert player.points() == (points, 5)


def test_a_self_check_gives_no_points(tmp_path: Path, llm: AsyncLLM) -> None:
    lesson = small(tmp_path, "title: Second", "title: Second\n    self_check: true")
    player, told = answered(llm, lesson, 3)
    assert (told[0].right, told[0].points) == (True, 0)
    assert (player.score(), player.points()) == ((1, 1), (0, 0))


def test_a_prediction_is_told_when_the_engine_has_shown_it(llm: AsyncLLM) -> None:
    told: list[Judged] = []
    player = Player(LAB, 1, on_judged=lambda _, judged: told.append(judged))
    player.index = LAB.step("predict") or 0
    for asked in player.questions()[2:4]:
        player.answer(asked, 1)
    assert player.lock() and told == []
    player.index = LAB.step("prompt-computed") or 0
    player.bring(llm)
    assert [each.question for each in told] == ["prompt-blocks"]


def test_a_state_is_plain_json_and_comes_back(llm: AsyncLLM) -> None:
    player = Player(LAB, 4711)
    player.go_to(LAB.step("predict") or 0)
    first, second = player.questions()[2:4]
    player.answer(first, 2)
    player.answer(second, 3)
    player.hints[second.key] = 2
    player.lock()
    player.go_to(LAB.step("prompt-computed") or 0)
    player.bring(llm)
    kept = json.loads(json.dumps(player.to_state()))
    again = Player.from_state(LAB, kept)
    assert again.to_state() == kept
    assert (again.values, again.index) == (player.values, player.index)
    assert again.judged == player.judged
    assert again.judged
    again.bring(llm)
    assert again.verdict(first) == player.verdict(first)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lesson": "other"}, "work in 'other'"),
        ({"seed": "1"}, "seed"),
        ({"questions": [{"step": 1}]}, "questions.0.step"),
        ({"locked": None}, "locked"),
    ],
)
def test_what_is_no_state_says_so(change: dict[str, Any], says: str) -> None:
    with pytest.raises(StateError, match=says):
        Player.from_state(LAB, {**Player(LAB, 1).to_state(), **change})


@pytest.mark.parametrize("given", [99, -1, "x", 0.5])
def test_what_cannot_be_an_answer_is_left_out(given: Any) -> None:
    kept = {"step": "last-token", "question": "without-kv", "given": given, "attempts": 1}
    gone = {"step": "gone", "question": "gone", "given": 1}
    state = {**Player(LAB, 1).to_state(), "questions": [kept, gone], "step": "gone"}
    player = Player.from_state(LAB, state)
    assert (player.answers, player.index) == ({}, 0)


def test_a_learner_always_has_the_same_places_and_a_neighbour_others() -> None:
    seeds = {seed_of(f"learner {n}", "lab") for n in range(30)}
    assert len(seeds) > 25 and all(1 <= seed <= 9_999 for seed in seeds)
    assert seed_of("a", "lab") == seed_of("a", "lab") != seed_of("a", "lab", 1)
    assert seed_of("a", "lab") != seed_of("a", "other")


def test_lessons_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    one = load(write(tmp_path))

    def numbered(name: str, number: int | None = None) -> Lesson:
        return one.model_copy(update={"id": name, "number": number})

    found = [numbered("a"), numbered("b", 2), numbered("c", 1)]
    assert [lesson.id for lesson in in_order([LAB, *found])] == ["c", "b", "a", LAB.id]
    assert same_place(found) == []
    assert same_place([*found, numbered("d", 2)]) == [
        "tours/b.md and tours/d.md have both the number 2; change one of them"
    ]
