"""One engine for a class: thirty learners with names, and the one who directs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai import BadRequestError, OpenAI, PermissionDeniedError, RateLimitError

from engine.audience import Rules
from engine.model_loader import load_model
from engine.sessions import Sessions
from tests.api.live_server import Events, Server, serving
from tests.waiting import PATIENCE_S, wait_until

HOSTILE = "=<img src=x onerror=alert(1)>"
NAMES = {f"gb-class-{n}": f"Learner {n}" for n in range(30)} | {"gb-class-x": HOSTILE}


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    """A server of this file's own, whose shared engine has an audience."""
    sessions = Sessions(lambda report: load_model("tiny-random", report), shared_enabled=True)
    sessions.audience.look_up = NAMES.get
    with serving(sessions) as server:
        sessions.wait_for_model()
        yield server


@pytest.fixture(autouse=True)
def fresh(shared: Server) -> None:
    engine = shared.sessions.shared()
    assert engine is not None
    engine.reset()
    engine.run()
    shared.sessions.audience.rules = Rules()


def openai(server: Server, key: str) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def ask(server: Server, key: str, max_tokens: int = 8, n: int = 1) -> str:
    """The id of the request in the log."""
    with openai(server, key) as client:
        answer = client.completions.with_raw_response.create(
            model="tiny-random", prompt="Hello", max_tokens=max_tokens, n=n, extra_body=GO_ON
        )
    return answer.headers["X-Request-Id"]


GO_ON = {"ignore_eos": True}


def test_thirty_learners_at_once_are_served_and_each_is_known_by_name(shared: Server) -> None:
    with ThreadPoolExecutor(31) as pool:
        ids = dict(zip(NAMES.values(), pool.map(lambda key: ask(shared, key), NAMES), strict=True))
    engine = shared.sessions.shared()
    assert engine is not None
    requests = engine.trace.state()["requests"]
    assert {request["source"] for request in requests.values()} == {
        f"class:{name}" for name in NAMES.values()
    }
    assert all(requests[key]["source"] == f"class:{name}" for name, key in ids.items())
    assert all(request["status"] == "finished" for request in requests.values())


def test_limits_are_met_with_words_that_a_client_can_act_on(shared: Server) -> None:
    engine, audience = shared.sessions.shared(), shared.sessions.audience
    assert engine is not None
    audience.rules = Rules("class", most_requests=2, most_tokens=20)
    with pytest.raises(PermissionDeniedError, match="of its class alone"):
        ask(shared, "EMPTY")
    with pytest.raises(BadRequestError, match="set max_tokens to") as caught:
        ask(shared, "gb-class-1", 400)
    assert caught.value.param == "max_tokens"
    engine.pause()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, shared, "gb-class-1", n=2)
        wait_until(lambda: engine.num_unfinished == 2)
        with pytest.raises(RateLimitError, match="you have 2 under way"):
            ask(shared, "gb-class-1")
        other = pool.submit(ask, shared, "gb-class-2")  # is not held up by that
        wait_until(lambda: engine.num_unfinished == 3)
        engine.run()
        assert {first.result(), other.result()} == {"r0", "r1"}
    ask(shared, "gb-class-1")


def test_a_learners_key_commands_nothing_and_is_good_no_longer_than_the_name(
    shared: Server,
) -> None:
    with shared.client("gb-class-3") as client:
        for command in ("pause", "run", "phase", "step", "reset", "abort", "check"):
            body = {"request": "r0"} if command == "abort" else {}
            assert client.post(f"/api/engine/{command}", json=body).status_code == 403, command
        assert client.get("/api/engine/moment").status_code == 403
        assert client.get("/api/session").json()["shared"] is True
        assert client.get("/api/trace").status_code == 200
    for stranger in ("gb-class-31", "gb-class-"):
        with shared.client(stranger) as client:
            answer = client.post("/v1/completions", json={"prompt": "x"})
            assert answer.status_code == 401
            assert "while its class has the floor" in answer.json()["error"]["message"]


def test_a_name_that_ends_while_its_key_is_looked_at_opens_no_more_by_that(
    shared: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is asked for again and again, and each time it may have become nobody's."""
    sessions, answers = shared.sessions, iter(["Ada"] * 2)
    engine = sessions.shared()
    monkeypatch.setattr(sessions, "at_hand", lambda key: engine)
    monkeypatch.setattr(sessions.audience, "name_of", lambda key: next(answers, None))
    with shared.client("gb-class-1") as client:
        assert client.post("/api/engine/pause").status_code == 403
    assert engine is not None and engine.mode == "running"


def test_while_a_name_is_looked_up_others_are_answered(
    shared: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def look_up(key: str) -> str:
        asked.set()
        assert go_on.wait(PATIENCE_S)
        return "Ada"

    monkeypatch.setattr(shared.sessions.audience, "look_up", look_up)
    with ThreadPoolExecutor(1) as pool, shared.client("gb-class-slow") as client:
        slow = pool.submit(client.get, "/api/session")
        try:
            assert asked.wait(PATIENCE_S)
            with shared.client() as other:
                assert other.get("/api/session").status_code == 200
            assert not slow.done()
        finally:
            go_on.set()
        assert slow.result().json()["shared"] is True


def test_who_directs_it_commands_it_and_its_tab_takes_no_place_of_an_engine(
    shared: Server,
) -> None:
    sessions = shared.sessions
    teachers: list[str] = ["here"]
    key, before = sessions.create(lambda: bool(teachers)), sessions.num_engines()
    with shared.client(key) as client:
        told = client.get("/api/session").json()
        assert told["trace_id"] == sessions.shared().trace.header.trace_id  # type: ignore[union-attr]
        assert told["shared"] is False
        assert client.post("/api/engine/pause").json()["mode"] == "paused"
        assert client.post("/api/engine/reset").status_code == 200
        assert client.post("/api/engine/run", json={}).json()["mode"] == "running"
    assert sessions.get(key) is sessions.shared() is sessions.existing(key)
    assert sessions.num_engines() == before
    sessions.sweep()
    assert sessions.shared().failed is None  # type: ignore[union-attr]
    assert sessions.directs(key)
    teachers.clear()
    assert not sessions.directs(key) and not sessions.knows(key)
    assert sessions.get(key) is sessions.at_hand(key) is sessions.existing(key) is None
    with shared.client(key) as client:
        for call in (client.get("/api/session"), client.post("/api/engine/pause")):
            assert call.status_code == 401
    assert sessions.shared().mode == "running"  # type: ignore[union-attr]


def test_a_stream_of_who_directs_ends_once_they_do_no_more(
    shared: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.api.event_stream.SIGN_OF_LIFE", 0.05)
    teachers: list[str] = ["here"]
    key = shared.sessions.create(lambda: bool(teachers))
    with shared.client(key) as client, client.stream("GET", "/api/events") as answer:
        events = Events(answer)
        assert events.next()[0] == "header"
        teachers.clear()
        said = [events.next()]
        while said[-1][0] != "closed":
            said.append(events.next())
        assert said[-1][2] == {"text": "this key is good no more"}
