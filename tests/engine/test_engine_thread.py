"""The one thread: commands before turns, turns in order, timers, an orderly end."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from engine.engine_thread import EngineThread, EngineThreadStopped


def test_commands_go_before_turns_and_turns_in_order() -> None:
    thread = EngineThread()
    gate = threading.Event()
    seen: list[str] = []
    thread.turn(lambda: gate.wait(5))
    turns = [thread.turn(partial(seen.append, name)) for name in "ab"]
    command = thread.post(lambda: seen.append("command"))
    gate.set()
    for future in (command, *turns):
        future.result(5)
    assert seen == ["command", "a", "b"]
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
        deadline = time.monotonic() + 5
        while len(collected) < expected and time.monotonic() < deadline:
            time.sleep(0.005)
    thread.call(lambda: None)
    assert len(collected) == 2
    thread.stop()


def test_later_is_a_turn_after_its_time() -> None:
    thread = EngineThread()
    seen: list[tuple[str, float]] = []
    began = time.monotonic()
    thread.later(0.06, lambda: seen.append(("second", time.monotonic() - began)))
    thread.later(0.03, lambda: seen.append(("first", time.monotonic() - began)))
    deadline = began + 5
    while len(seen) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert [name for name, _ in seen] == ["first", "second"]
    assert seen[0][1] >= 0.03 and seen[1][1] >= 0.06
    thread.stop()


def test_a_stopped_thread_fails_what_waits_and_what_comes() -> None:
    thread = EngineThread()
    began, gate = threading.Event(), threading.Event()
    running = thread.turn(lambda: began.set() or gate.wait(5))  # type: ignore[func-returns-value]
    began.wait(5)
    waiting = thread.turn(lambda: None)
    stopper = threading.Thread(target=thread.stop)
    stopper.start()
    with pytest.raises(EngineThreadStopped):
        waiting.result(5)
    gate.set()
    stopper.join(5)
    assert running.result(5) is True
    with pytest.raises(EngineThreadStopped):
        thread.call(lambda: None)
