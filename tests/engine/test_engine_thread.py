"""The one thread: commands before turns, turns in order, timers, an orderly end."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial

import pytest

from engine.engine_thread import COMMANDS_BETWEEN_TURNS, EngineThread, EngineThreadStopped
from tests.waiting import PATIENCE_S, wait_until


def test_commands_go_before_turns_and_turns_in_order() -> None:
    thread = EngineThread()
    gate = threading.Event()
    seen: list[str] = []
    thread.turn(lambda: gate.wait(PATIENCE_S))
    turns = [thread.turn(partial(seen.append, name)) for name in "ab"]
    command = thread.post(lambda: seen.append("command"))
    gate.set()
    for future in (command, *turns):
        future.result(PATIENCE_S)
    assert seen == ["command", "a", "b"]
    thread.stop()


def test_owners_take_turns_however_many_they_wait_for() -> None:
    thread = EngineThread()
    gate = threading.Event()
    seen: list[str] = []
    thread.turn(lambda: gate.wait(60))
    asked = [("a", 50), ("b", 2), ("c", 1)]
    turns = [
        thread.turn(partial(seen.append, owner), owner)
        for owner, number in asked
        for _ in range(number)
    ]
    gate.set()
    for future in turns:
        future.result(60)
    assert seen[:6] == ["a", "b", "c", "a", "b", "a"] and len(seen) == 53
    thread.stop()


def test_commands_without_end_hold_up_no_turn() -> None:
    """One that sends nothing but commands, each before the last one is done."""
    thread = EngineThread()
    began, gate = threading.Event(), threading.Event()
    seen: list[str] = []

    def command() -> None:
        seen.append("command")
        if len(seen) < 1_000:
            thread.post(command)

    def wait_at_gate() -> None:
        began.set()
        gate.wait(60)

    thread.turn(wait_at_gate)
    assert began.wait(60)
    thread.post(command)
    thread.post(command)
    turns = [thread.turn(partial(seen.append, "turn"), owner) for owner in "ab"]
    gate.set()
    for future in turns:
        future.result(60)
    places = [place for place, what in enumerate(seen) if what == "turn"]
    assert places == [COMMANDS_BETWEEN_TURNS, 2 * COMMANDS_BETWEEN_TURNS + 1]
    thread.stop()


def test_call_returns_raises_and_works_from_the_thread_itself() -> None:
    thread = EngineThread()
    assert thread.call(lambda: thread.call(lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 / 0)
    assert thread.call(lambda: 8) == 8
    thread.stop()


def test_garbage_of_several_engines_is_collected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    monkeypatch.setattr("engine.engine_thread.COLLECT_AFTER_SECONDS", 0.01)
    monkeypatch.setattr("engine.engine_thread.gc.collect", lambda: collected.append(1))
    thread = EngineThread()
    for expected in (1, 2):
        thread.call(lambda: [thread.collect_soon() for _ in range(5)])
        wait_until(lambda: len(collected) >= expected)  # noqa: B023
    thread.call(lambda: None)
    assert len(collected) == 2
    thread.stop()


def test_later_is_a_turn_after_its_time() -> None:
    thread = EngineThread()
    seen: list[tuple[str, float]] = []
    while True:
        began = time.monotonic()
        thread.later(0.06, lambda: seen.append(("second", time.monotonic() - began)))  # noqa: B023
        thread.later(0.02, lambda: seen.append(("first", time.monotonic() - began)))  # noqa: B023
        prompt = time.monotonic() - began < 0.04  # else the second may be due before the first
        wait_until(lambda: len(seen) == 2)
        if prompt:
            break
        seen.clear()
    assert [name for name, _ in seen] == ["first", "second"]
    assert seen[0][1] >= 0.02 and seen[1][1] >= 0.06
    thread.stop()


def test_a_stopped_thread_fails_what_waits_and_what_comes() -> None:
    thread = EngineThread()
    began, gate = threading.Event(), threading.Event()
    running = thread.turn(lambda: began.set() or gate.wait(PATIENCE_S))  # type: ignore[func-returns-value]
    began.wait(PATIENCE_S)
    waiting = thread.turn(lambda: None)
    stopper = threading.Thread(target=thread.stop)
    stopper.start()
    with pytest.raises(EngineThreadStopped):
        waiting.result(PATIENCE_S)
    gate.set()
    stopper.join(PATIENCE_S)
    assert running.result(PATIENCE_S) is True
    with pytest.raises(EngineThreadStopped):
        thread.call(lambda: None)


def test_what_would_end_the_thread_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two jobs there is nobody to hear of it: it goes on with the next."""
    thread, hits = EngineThread(), [SystemExit(), MemoryError()]
    take = thread._next

    def hit() -> object:
        if hits:
            raise hits.pop()
        return take()

    monkeypatch.setattr(thread, "_next", hit)
    assert thread.call(lambda: 7) == 7 and not hits and thread.alive
    with pytest.raises(SystemExit):  # a job's own is that of whoever waits for it
        thread.call(lambda: sys.exit("killed"))
    assert thread.call(lambda: 8) == 8 and thread.alive
    thread.stop()
    assert not thread.alive


def test_it_says_how_long_it_has_been_at_a_job() -> None:
    thread, gate, begun = EngineThread(), threading.Event(), threading.Event()
    assert thread.alive and thread.busy_seconds == 0.0
    thread.turn(lambda: (begun.set(), gate.wait(PATIENCE_S)))
    begun.wait(PATIENCE_S)
    assert thread.busy_seconds > 0.0
    gate.set()
    thread.call(lambda: None)
    thread.stop()
    assert thread.busy_seconds == 0.0
