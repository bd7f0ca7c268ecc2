"""Who has which engine, for how long, and what happens before there is a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from engine import memory
from engine.async_llm import EngineError
from engine.background_model import ModelNotReady
from engine.config import ConfigError, EngineConfig, SamplingParams
from engine.model_loader import LoadedModel
from engine.model_loader.fetch import ModelError, Progress
from engine.output_processor import RequestLost
from engine.sessions import IDLE_SECONDS, Sessions, TooManySessions, registry


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(tiny_model: LoadedModel, clock: Clock) -> Iterator[Sessions]:
    sessions = Sessions(lambda report: tiny_model, clock=clock, max_engines=2)
    sessions.wait_for_model(20)
    yield sessions
    sessions.close()


def test_a_key_leads_to_one_engine_and_no_other_key_does(sessions: Sessions) -> None:
    key, other = sessions.create(), sessions.create()
    assert key != other and len(key) >= 32
    engine = sessions.get(key)
    assert engine is not None and sessions.get(key) is engine
    assert sessions.get(other) is not engine
    assert sessions.get("gb-invented") is None and not sessions.knows("gb-invented")
    assert engine.status.mode == "paused"
    assert engine.config.num_gpu_blocks == 64 and engine.config.max_model_len == 63 * 16


def test_two_sessions_share_the_weights_and_nothing_else(sessions: Sessions) -> None:
    first, second = (sessions.get(sessions.create()) for _ in range(2))
    assert first is not None and second is not None
    assert first.model is second.model and first.thread is second.thread
    before = len(second.trace.records)
    first.run()
    list(first.submit("hello", SamplingParams(max_tokens=2)))
    assert len(second.trace.records) == before
    assert first.core.runner is not second.core.runner
    assert second.trace.state()["requests"] == {}


def test_the_shared_engine_runs_and_can_be_turned_off(
    sessions: Sessions, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = sessions.shared()
    assert shared is not None and shared.status.mode == "running"
    assert sessions.shared() is shared
    monkeypatch.setenv("GLASSBOX_SHARED_ENGINE", "0")
    assert Sessions(lambda report: tiny_model).shared() is None
    monkeypatch.setenv("GLASSBOX_SHARED_ENGINE", "1")
    assert Sessions(lambda report: tiny_model).shared_enabled


def test_a_shared_engine_that_failed_is_begun_again(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = sessions.shared()
    assert shared is not None
    monkeypatch.setattr(shared.core.runner, "execute_model", lambda: 1 / 0)
    with pytest.raises(RequestLost, match="ZeroDivisionError"):
        list(shared.submit("hello"))
    assert sessions.shared() is shared and shared.failed is None
    assert len(list(shared.submit("hello", SamplingParams(max_tokens=2, ignore_eos=True)))) == 2


def test_an_engine_unseen_for_half_an_hour_is_put_to_rest(sessions: Sessions, clock: Clock) -> None:
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.reset(EngineConfig(num_gpu_blocks=10))
    stream = engine.submit("hello")
    clock.now = IDLE_SECONDS - 1
    sessions.sweep()
    assert sessions.get(key) is engine  # which is a visit
    clock.now += IDLE_SECONDS
    sessions.sweep()
    assert sessions.num_engines() == 0 and sessions.knows(key)
    with pytest.raises(RequestLost, match="rest"):
        list(stream)
    with pytest.raises(EngineError, match="rest"):
        engine.step()
    fresh = sessions.get(key)
    assert fresh is not None and fresh is not engine
    assert fresh.config.num_gpu_blocks == 10
    notice = sessions.notice(key)
    assert notice is not None and "30 minutes" in notice
    fresh.run()
    assert sessions.notice(key) is None
    fresh.reset()
    assert sessions.notice(key) is None


def test_a_touch_is_a_visit(sessions: Sessions, clock: Clock) -> None:
    key = sessions.create()
    engine = sessions.get(key)
    clock.now = IDLE_SECONDS - 1
    sessions.touch(key)
    sessions.touch("gb-invented")
    clock.now += 2
    sessions.sweep()
    assert sessions.get(key) is engine and sessions.notice(key) is None


def test_where_all_engines_are_in_use_the_longest_unseen_one_makes_room(
    sessions: Sessions, clock: Clock
) -> None:
    keys = [sessions.create() for _ in range(3)]
    first = sessions.get(keys[0])
    clock.now = 30.0
    second = sessions.get(keys[1])
    with pytest.raises(TooManySessions, match="all 2 engines"):
        sessions.get(keys[2])
    clock.now = 75.0
    assert sessions.get(keys[2]) is not None
    assert first is not None and sessions.thread.call(lambda: first.closed)
    assert sessions.get(keys[1]) is second


def test_a_pool_that_takes_the_memory_is_refused(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_bytes", lambda device: 4 * 100 * 16 * 1024)
    engine = sessions.get(sessions.create())
    assert engine is not None
    engine.reset(EngineConfig(num_gpu_blocks=100))
    with pytest.raises(ConfigError, match="set it to 100 or less") as caught:
        engine.reset(EngineConfig(num_gpu_blocks=101))
    assert caught.value.field == "num_gpu_blocks"
    assert engine.config.num_gpu_blocks == 100


def test_before_the_model_is_there_its_progress_is(tiny_model: LoadedModel) -> None:
    reported, go_on = threading.Event(), threading.Event()

    def load(report: Callable[[Progress], None]) -> LoadedModel:
        report(Progress("convert", 34, 272, "tensors"))
        reported.set()
        go_on.wait(10)
        return tiny_model

    sessions = Sessions(load)
    assert sessions.model_status().stage == "idle"
    sessions.start()
    sessions.start()
    reported.wait(10)
    assert sessions.model_status()[:4] == ("convert", 34, 272, "tensors")
    with pytest.raises(ModelNotReady, match="34/272"):
        sessions.get(sessions.create())
    go_on.set()
    assert sessions.wait_for_model(10) is tiny_model
    assert sessions.model_status().stage == "ready"
    sessions.close()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModelError("no model at ./nowhere"), "no model at ./nowhere"),
        (ZeroDivisionError("inside"), "cannot be loaded"),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why(error: Exception, message: str) -> None:
    def load(report: Callable[[Progress], None]) -> LoadedModel:
        raise error

    sessions = Sessions(load)
    with pytest.raises(ModelNotReady, match=message):
        sessions.wait_for_model(10)
    assert sessions.model_status().stage == "failed"
    assert "inside" not in sessions.model_status().message
    sessions.close()


def test_there_is_one_registry() -> None:
    assert registry() is registry()
    assert registry().get("gb-invented") is None
    assert registry().model_status().stage == "idle"
