"""A session's key opens its engine, and appears nowhere but where it is sent."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from engine.api.guard import HideSecrets
from tests.api.live_server import Events, Server
from tests.waiting import wait_until

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
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as makers, server.client(key) as client:
        monkeypatch.setattr("engine.api.access.MAKING", makers)
        makers.submit(go_on.wait)
        try:
            assert client.post("/api/engine/step").status_code == 200
        finally:
            go_on.set()
