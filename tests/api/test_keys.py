"""A session's key opens its engine, and appears nowhere but where it is sent."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator

import httpx
import pytest

from engine.api import access
from engine.api.guard import HideSecrets
from engine.async_llm import AsyncLLM
from tests.api.live_server import Events, Server
from tests.waiting import PATIENCE_S, wait_until

BODY = {"prompt": "hello", "max_tokens": 3, "ignore_eos": True}


class Everything(logging.Handler):
    """Each line that anything logs, at any level."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def said() -> Iterator[list[str]]:
    handler = Everything()
    loggers = [logging.getLogger(name) for name in ("", "glassbox", "uvicorn", "uvicorn.access")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler.lines
    for logger, level in zip(loggers, before, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_a_key_is_in_no_answer_no_log_and_no_file(
    server: Server, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, engine = server.session()
    answers: list[httpx.Response] = []
    with server.client(key) as client, server.client() as stranger:
        client.post("/api/engine/run")
        answers += [
            client.get("/api/session"),
            client.post("/v1/completions", json=BODY),
            client.post("/v1/completions", json=BODY | {"stream": True, "n": 2}),
            client.post("/v1/completions", json=BODY | {"max_tokens": -1}),
            client.post("/v1/nowhere", json=BODY),
            client.post("/api/engine/abort", json={"request": "r99"}),
            client.get("/v1/models"),
            client.get("/metrics"),
            client.get("/health"),
            *(client.get(f"/api/trace?format={name}") for name in ("jsonl", "perfetto", "csv")),
            client.get("/api/events?after=nonsense"),
            client.get("/api/engine/moment"),
            # Somebody's mistake: a key where none belongs.
            client.get(f"/api/events?ticket={key}"),
            stranger.get(f"/api/session?key={key}"),
            stranger.get("/api/session", headers={"Authorization": key}),
            stranger.get("/api/session", headers={"Authorization": f"Bearer {key}x"}),
        ]
        ticket = client.post("/api/events/ticket").json()["ticket"]
        assert key not in ticket
        with client.stream("GET", f"/api/events?ticket={ticket}") as stream:
            assert key not in json.dumps(Events(stream).until("request_completed"))
        monkeypatch.setattr(engine.core.runner, "execute_model", lambda: 1 / 0)
        answers.append(client.post("/v1/completions", json=BODY))
        answers += [client.get("/api/trace"), client.get("/health"), client.get("/api/session")]
        monkeypatch.setattr(server.sessions, "at_hand", lambda key: {}[key])  # not foreseen
        answers.append(client.get("/v1/models"))
        assert answers[-1].status_code == 500
        monkeypatch.undo()
    for answer in answers:
        assert key.encode() not in answer.content, answer.request.url
        assert all(key not in value for value in answer.headers.values())
        assert answer.headers["referrer-policy"] == "no-referrer"
    wait_until(lambda: any("/api/events" in line for line in said))
    assert any("KeyError: 'gb-hidden'" in line for line in said)  # a traceback had it
    shown = [line for line in said if key in line and "HTTP Request" not in line]  # httpx's own
    assert shown == []


@pytest.mark.parametrize("key", ["gb-" + "k" * 32, "gb-class-12-" + "0" * 40, "gbl-" + "k" * 32])
def test_whatever_opens_something_is_in_no_log(key: str) -> None:
    """Of a session, of a learner who sends to the shared engine, and of a learner's work."""
    record = logging.LogRecord("any", logging.INFO, "", 0, "see %s", (f"?member={key}",), None)
    assert HideSecrets().filter(record)
    assert key not in record.getMessage() and key[-8:] not in record.getMessage()


def test_a_key_opens_one_engine_and_a_part_of_it_none(server: Server) -> None:
    key, engine = server.session()
    engine.submit("mine alone")
    other, _ = server.session()
    for guess in (key[:-1], key + "A", key.swapcase(), key.encode().hex(), "gb-", other):
        with server.client(guess) as client:
            for call in ("/api/trace", "/api/events", "/api/session", "/metrics"):
                if guess == other and call == "/api/events":
                    continue  # a stream has no end
                answer = client.get(call)
                assert answer.status_code == (200 if guess == other else 401), (guess, call)
                assert "mine alone" not in answer.text
    with server.client() as stranger:
        assert "mine alone" not in stranger.get("/api/trace").text
        assert stranger.get("/api/events").status_code == 401


def test_who_has_an_engine_waits_for_nobody_elses(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads that make engines are held."""
    key, _ = server.session()
    makers, go_on = access.Makers(1), threading.Event()
    monkeypatch.setattr(access, "MAKERS", makers)
    with server.client(key) as client:
        makers._pool.submit(go_on.wait)
        try:
            assert client.post("/api/engine/step").status_code == 200
        finally:
            go_on.set()


def test_one_session_that_is_slow_to_begin_takes_one_thread_however_many_wait_for_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = server.sessions
    slow, other, asked, go_on = sessions.create(), sessions.create(), [], threading.Event()
    get = sessions.get

    def get_slowly(key: str) -> AsyncLLM | None:
        if key == slow:
            asked.append(key)
            assert go_on.wait(PATIENCE_S)
        return get(key)

    makers = access.Makers(2)
    monkeypatch.setattr(sessions, "get", get_slowly)
    waiting = [makers.make(sessions, slow) for _ in range(6)]
    try:
        assert len(set(waiting)) == 1
        made = makers.make(sessions, other).result(PATIENCE_S)
        assert made is not None and made is get(other)
        assert not waiting[0].done()
    finally:
        go_on.set()
    assert waiting[0].result(PATIENCE_S) is get(slow)
    assert asked == [slow]
    assert makers.make(sessions, other).result(PATIENCE_S) is made


def test_who_waits_for_an_engine_and_goes_takes_it_from_nobody_else(server: Server) -> None:
    key, go_on = server.sessions.create(), threading.Event()
    makers = access.Makers(1)
    makers._pool.submit(go_on.wait)

    async def ask() -> AsyncLLM:
        first, second = (
            asyncio.ensure_future(access.engine_of(server.sessions, key)) for _ in "ab"
        )
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        go_on.set()
        return await second

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "MAKERS", makers)
        assert asyncio.run(ask()) is server.sessions.get(key)
