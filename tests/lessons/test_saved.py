"""A saved moment: a lesson's engine goes on from it, as often as the lesson likes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.async_llm import AsyncLLM
from engine.engine_thread import EngineThread
from engine.model_loader import load_model
from lessons.expressions import Expression
from lessons.format import Lesson
from lessons.loader import LessonError, load
from lessons.play import Asked, Player
from tests.lessons.small import SMALL, write

CHANGE = """
      - id: gone
        kind: change
        ask: When does it hang up?
        knobs: {when: {from: 2, to: 4, start: 4}}
        run:
          restore: begun
          hang_up: {r0: =when}
          until: {phase: output}
        answer: {when: 2}
        accept: output_tokens('r0') == 2
        right: Yes.
        wrong:
          - {knobs: {when: 3}, when: output_tokens('r0') == 3, says: Late.}
          - {knobs: {when: 4}, when: output_tokens('r0') == 4, says: Later.}
        otherwise: No.
"""
STEPS = f"""
  - id: third
    title: Third
    run: {{until: {{event: request_finished, request: r0}}}}
  - id: again
    title: Again
    run:
      restore: begun
      send: [{{prompt: Once more, sampling: {{max_tokens: 2, ignore_eos: true}}}}]
      until: {{event: request_finished, request: r0}}
    questions:{CHANGE}---
## first"""
TEXT = (
    SMALL.replace("max_tokens: 3", "max_tokens: 8")
    .replace("until: {phase: schedule}", "until: {phase: output, step: 1}\n      save: begun")
    .replace("---\n## first", STEPS.lstrip("\n"))
    + "\n## third\nIt has ended.\n\n## again\nAnd from there again."
)


@pytest.fixture(scope="module")
def llm() -> Iterator[AsyncLLM]:
    thread = EngineThread()
    yield AsyncLLM(load_model("tiny-random"), thread=thread)
    thread.stop()


@pytest.fixture
def lesson(tmp_path: Path) -> Lesson:
    return load(write(tmp_path, TEXT))


def at(player: Player, llm: AsyncLLM, step: str) -> Player:
    player.index = player.lesson.step(step) or 0
    player.bring(llm)
    return player


def read(player: Player, text: str) -> Any:
    return Expression.parse(text).value(player.scope())


def test_the_engine_goes_on_from_there_with_one_thing_changed(
    lesson: Lesson, llm: AsyncLLM
) -> None:
    player = at(Player(lesson, 1), llm, "second")
    saved = player.moment()
    assert saved is not None and llm.status.next_phase == "arrive" and llm.status.step == 2
    at(player, llm, "third")
    first = read(player, "output_text('r0')")
    at(player, llm, "again")
    begun = player.moment()
    assert begun is not None and begun.trace_id != saved.trace_id
    assert begun.header.state["engine"]["step"] == 2
    assert begun.header.state["requests"]["r0"]["output_token_ids"].keys() == {"0", "1"}
    assert read(player, "output_text('r0')") == first
    assert read(player, "count('request_arrived')") == 1  # r1 alone: r0 was there
    assert read(player, "first_step('request_arrived', 'r1')") == 2


def test_each_try_of_a_change_begins_there(lesson: Lesson, llm: AsyncLLM) -> None:
    player = at(Player(lesson, 1), llm, "again")
    asked = Asked(player.step, player.step.questions[0])
    for when in (4, 2, 3, 2):
        player.try_out(llm, asked, {"when": when})
        verdict = player.verdict(asked)
        assert verdict is not None and verdict.right == (when == 2)
        assert llm.trace.state()["requests"]["r0"]["output_token_ids"].keys() == {
            str(n) for n in range(when)
        }


def test_it_outlives_what_the_reader_does_with_the_engine(lesson: Lesson, llm: AsyncLLM) -> None:
    player = at(Player(lesson, 1), llm, "third")
    kept = player.to_state()
    llm.reset()
    player.index = 3
    assert player.missing(llm) == [3]  # what came before need not be done again
    at(player, llm, "again")
    first = read(player, "output_text('r0')")
    another_day = Player.from_state(lesson, {**kept, "step": "again"})
    assert another_day.missing(llm) == [1, 2, 3]
    another_day.bring(llm)
    assert read(another_day, "output_text('r0')") == first


def test_a_step_may_wait_behind_it(tmp_path: Path, llm: AsyncLLM) -> None:
    again = "      until: {event: request_finished, request: r0}\n    questions"
    assert again in TEXT
    lesson = load(write(tmp_path, TEXT.replace(again, again.replace("until", "wait"))))
    player = at(Player(lesson, 1), llm, "again")
    assert player.waits and not player.look(llm)
    while llm.status.has_work:
        llm.step()
    assert player.look(llm) and not player.away(llm)


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        ("      save: begun\n", "", "restore: begun", "`begun` in a step before; save one with"),
        ("save: begun", "save: begin", "restore: begun", "there are begin"),
        (
            "until: {event: request_finished, request: r0}}",
            "save: begun}",
            "run: {save: begun}",
            "`begun` is saved twice",
        ),
        ("reset: true", "reset: true\n      fault: never-frees", "save: begun", "broken"),
        ("until: {phase: output, step: 1}", "wait: {phase: output}", "run:", "`until` instead"),
        ("restore: begun\n      send", "restore: begun\n      reset: true\n      send", "run:", ""),
        (
            "restore: begun\n      send",
            "restore: begun\n      config: {block_size: 4}\n      send",
            "run:",
            "the settings it was saved with",
        ),
        (
            "until: {phase: output}\n",
            "until: {phase: output}\n          save: x\n",
            "- id: gone",
            "a try is not there for later steps",
        ),
        ("ask: When", "hidden: true\n        ask: When", "- id: gone", "take `hidden` away"),
    ],
)
def test_what_cannot_be_saved_or_restored_is_said_with_its_line(
    tmp_path: Path, old: str, new: str, at: str, says: str
) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    with pytest.raises(LessonError) as caught:
        load(write(tmp_path, text))
    problems = {(problem.line, says in problem.message) for problem in caught.value.problems}
    lines = [n for n, line in enumerate(text.split("\n"), 1) if at in line]
    assert any((line, True) in problems for line in lines), str(caught.value)
