"""What goes wrong is said where it happens and by /health, and the rest goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import httpx
import pytest

from engine.async_llm import AsyncLLM, EngineError
from engine.config import EngineConfig, SamplingParams
from engine.events import EngineFailed
from engine.output_processor import RequestLost
from engine.records import Event
from engine.sessions import STUCK_SECONDS
from tests.api.live_server import Server
from tests.waiting import PATIENCE_S, wait_until

LONG = SamplingParams(max_tokens=30, ignore_eos=True)


def health(client: httpx.Client) -> tuple[int, dict[str, object]]:
    answer = client.get("/health")
    return answer.status_code, answer.json()


def end(*_: object) -> None:
    raise SystemExit("killed")


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("method", ["prepare_inputs", "execute_model", "sample_tokens"])
def test_a_killed_executor_is_said_and_a_reset_goes_on(
    server: Server, method: str, overlaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an Exception: what ends a thread, were it not caught."""
    key, engine = server.session()
    engine.reset(EngineConfig(async_scheduling=overlaps))
    with server.client(key) as client:
        before = health(client)[1]["engines"]["num_failed"]  # type: ignore[index]
        monkeypatch.setattr(engine.core.runner, method, end)
        stream = engine.submit("hello", LONG)
        engine.run()
        with pytest.raises(RequestLost, match="SystemExit: killed"):
            list(stream)
        wait_until(lambda: engine.failed is not None)
        events = [r.facts for r in engine.trace.records if isinstance(r, Event)]
        assert any(isinstance(facts, EngineFailed) for facts in events)
        status, said = health(client)
        assert status == 200 and said["status"] == "ok", "the others are well"
        assert said["engines"]["num_failed"] == before + 1  # type: ignore[index]
        assert client.get("/api/trace").status_code == 200  # the log is kept
        assert client.post("/api/engine/step").json()["error"]["code"] == "engine_stopped"
        assert client.post("/api/engine/reset").status_code == 200
        engine.run()
        assert sum(len(each.token_ids) for each in engine.submit("hello", LONG)) == 30
        assert health(client)[1]["engines"]["num_failed"] == before  # type: ignore[index]


def test_health_says_that_nobody_gets_an_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, engine = server.session()
    gate = threading.Event()
    hangs: Callable[[], object] = lambda: gate.wait(PATIENCE_S)  # noqa: E731
    monkeypatch.setattr(engine.core.runner, "execute_model", hangs)
    engine.submit("hello", LONG)
    engine.run()
    with server.client(key) as client:
        wait_until(lambda: engine.thread.busy_seconds > 0.05)
        assert health(client)[0] == 200
        monkeypatch.setattr("engine.sessions.STUCK_SECONDS", 0.01)
        status, said = health(client)
        assert status == 503 and said["status"] == "failed"
        assert "in one phase for" in str(said["trouble"])
        monkeypatch.setattr("engine.sessions.STUCK_SECONDS", STUCK_SECONDS)
        gate.set()
        wait_until(lambda: health(client)[0] == 200)
        monkeypatch.setattr(type(engine.thread), "alive", False)
        status, said = health(client)
        assert status == 503 and "start the server again" in str(said["trouble"])


def test_health_says_that_the_shared_engine_stopped_and_a_request_begins_it_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = server.sessions.shared()
    assert isinstance(shared, AsyncLLM)
    with server.client() as client:
        monkeypatch.setattr(shared.core.runner, "execute_model", end)
        with pytest.raises((RequestLost, EngineError)):
            list(shared.submit("hello", LONG))
        wait_until(lambda: shared.failed is not None)
        assert "SystemExit" in str(health(client)[1]["engines"]["shared_failed"])  # type: ignore[index]
        answer = client.post("/v1/completions", json={"prompt": "hello", "max_tokens": 2})
        assert answer.status_code == 200
        assert health(client)[1]["engines"]["shared_failed"] is None  # type: ignore[index]
