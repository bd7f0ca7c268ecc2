"""What the browser has the server do is done once, however often a run is cut short."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from engine.async_llm import AsyncLLM
from engine.engine_thread import EngineThread
from engine.model_loader import load_model
from lessons.loader import lesson_files, load_each
from lessons.play import Player
from tests.views.document.samples import text_of
from tests.views.page.test_documents import folder, foreign, key, open_page, served, words
from tests.waiting import PATIENCE_S
from views.page import lesson_sidebar, state, turns, wishes
from views.page.lesson_desk import Desk

__all__ = ["folder", "key", "served"]  # fixtures

TURN = 1 << 45  # later than any session begins
HOME = {"what": "home", "value": None}


class CutShort(BaseException):
    """As Streamlit ends a run, wherever it touches the page or the session's state."""


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was done, with a session's state that is nobody's."""
    done: list[Any] = []
    monkeypatch.setattr(turns.st, "session_state", {})
    monkeypatch.setattr(wishes.documents, "go_home", lambda: done.append("home"))
    monkeypatch.setattr(wishes.documents, "open_upload", lambda name, _: done.append(name))
    monkeypatch.setattr(wishes.lesson_sidebar, "pick", done.append)
    return done


def test_wishes_are_done_once_and_in_their_order(done: list[Any]) -> None:
    told = [
        {"turn": TURN, **HOME},
        {"turn": TURN + 1, "what": "picked", "value": "scheduler"},
        {"turn": TURN + 2, "what": "given", "value": {"name": "mine.json", "text": "{}"}},
    ]
    wishes.begin()
    for upto in (1, 1, 3, 3):
        wishes.fulfil(told[:upto])
        wishes.begin()  # every run does
    assert done == ["home", "scheduler", "mine.json"]
    assert wishes.heard() == TURN + 2


def test_a_wish_outlives_the_runs_that_are_cut_short(
    done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [{"turn": TURN, "what": "picked", "value": "scheduler"}, {"turn": TURN + 1, **HOME}]
    began: list[str] = []

    def pick(box: str) -> None:
        began.append(box)
        if len(began) == 1:
            raise CutShort

    monkeypatch.setattr(wishes.lesson_sidebar, "pick", pick)
    with pytest.raises(CutShort):
        wishes.fulfil(told)
    assert wishes.heard() == 0 and done == []
    wishes.fulfil(told)
    assert (began, done) == (["scheduler"] * 2, ["home"])
    assert wishes.heard() == TURN + 1


@pytest.mark.parametrize(
    "told",
    [
        None,
        "home",
        {"turn": TURN, **HOME},
        [None, 3, {}, {"turn": "1", **HOME}, {"turn": -1, **HOME}],
        [{"turn": 1, "what": "picked", "value": 3}],
        [{"turn": 1, "what": "given", "value": {"name": "x", "text": None}}],
        [{"turn": 1, "what": ["home"]}],
    ],
)
def test_what_is_no_wish_does_nothing(done: list[Any], told: Any) -> None:
    wishes.fulfil(told)
    assert done == []


def test_a_turn_that_is_too_late_ends_no_others(done: list[Any]) -> None:
    wishes.fulfil([{"turn": 10**30, **HOME}])
    assert done == ["home"] and wishes.heard() < 1 << 53  # a number of the browser's


def test_what_an_earlier_session_wished_for_is_over(done: list[Any]) -> None:
    wishes.begin()
    wishes.fulfil([{"turn": wishes.heard(), **HOME}])
    assert done == []


def test_a_document_that_was_given_is_drawn(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = open_page()
    value = {"name": "theirs.json", "text": text_of(foreign())}
    wish = {"turn": TURN, "what": "given", "value": value}
    monkeypatch.setattr(state, "told", {"wishes": [wish]}.get)
    assert "theirs.json" in words(page.run())


# -- a lesson's runs ----------------------------------------------------------------------------


@pytest.fixture
def llm() -> Iterator[AsyncLLM]:
    thread = EngineThread()
    yield AsyncLLM(load_model("tiny-random"), thread=thread)
    thread.stop()


def test_a_run_beside_another_steps_the_lessons_engine_no_further(
    llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset makes the browser ask for another run, which comes while the first one steps."""
    monkeypatch.setattr(lesson_sidebar.st, "spinner", lambda _: nullcontext())
    lesson = next(each for each in load_each(lesson_files())[0] if each.id == "count-the-blocks")
    now, player = Desk(), Player(lesson, 1)
    player.index = lesson.step("prompt-computed") or 0
    second = threading.Thread(target=lesson_sidebar._bring, args=(now, player, llm))
    came = threading.Event()  # the second run to where it waits, or resets the engine as well
    resets: list[Any] = []
    reset, lock = llm.reset, now.bringing

    def reset_and_be_joined(config: Any) -> Any:
        resets.append(config)
        came_to_an_end = reset(config)
        if threading.current_thread() is second:
            came.set()
        else:
            second.start()
            assert came.wait(PATIENCE_S)
        return came_to_an_end

    class Watched:
        def __enter__(self) -> None:
            if threading.current_thread() is second:
                came.set()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    monkeypatch.setattr(llm, "reset", reset_and_be_joined)
    now.bringing = Watched()  # type: ignore[assignment]
    lesson_sidebar._bring(now, player, llm)
    second.join(PATIENCE_S)
    assert len(resets) == 1 and now.trouble == ""
    assert player.shown().seq == llm.trace.next_seq - 1


def test_a_run_that_is_cut_short_leaves_the_engine_to_the_next(
    llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spinner:
        def __enter__(self) -> None:
            raise CutShort

        def __exit__(self, *_: object) -> None: ...

    lesson = next(each for each in load_each(lesson_files())[0] if each.id == "one-request")
    now, player = Desk(), Player(lesson, 1)
    player.index = 1
    player.bring(llm)
    now.again, before = True, llm.trace.header.trace_id
    monkeypatch.setattr(lesson_sidebar.st, "spinner", lambda _: Spinner())
    with pytest.raises(CutShort):
        lesson_sidebar._bring(now, player, llm)
    assert llm.trace.header.trace_id == before
    monkeypatch.setattr(lesson_sidebar.st, "spinner", lambda _: nullcontext())
    lesson_sidebar._bring(now, player, llm)
    assert llm.trace.header.trace_id != before and not now.again
