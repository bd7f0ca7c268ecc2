"""/api: sessions, commands, tickets and the event stream, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.api import guard
from engine.api.event_stream import TICKET_SECONDS, Tickets
from engine.api.guard import KnownHost, allowed_hosts
from engine.async_llm import AsyncLLM
from engine.doing import doing
from engine.events import IntegrityChecked, KVCacheCompared
from engine.records import Event
from engine.trace import Trace, fold
from tests.api.live_server import Events, Server
from tests.waiting import PATIENCE_S, wait_until


@contextlib.contextmanager
def stream(client: httpx.Client, **query: str) -> Iterator[Events]:
    with client.stream("GET", "/api/events", params=query) as answer:
        yield Events(answer)


def ticket(client: httpx.Client) -> str:
    answer = client.post("/api/events/ticket")
    assert answer.status_code == 200
    return str(answer.json()["ticket"])


def command(client: httpx.Client, name: str, body: Any = None) -> dict[str, Any]:
    answer = client.post(f"/api/engine/{name}", json=body)
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["ok"] is True
    return dict(result)


def test_a_session_describes_itself(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client:
        answer = client.get("/api/session").json()
    assert answer["trace_id"] == engine.trace.header.trace_id
    assert answer["config"]["num_gpu_blocks"] == 64
    assert answer["config"]["max_model_len"] == 63 * 16
    assert answer["model"]["num_kv_heads"] == 2
    assert answer["model_status"]["stage"] == "ready"
    assert answer["shared"] is False and "notice" not in answer


def test_commands_drive_the_engine_phase_by_phase(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client:
        engine.submit("hello")
        assert command(client, "phase")["next_phase"] == "schedule"
        assert command(client, "step")["step"] == 1
        running = command(client, "run", {"rate": 2})
        assert (running["mode"], running["rate"]) == ("running", 2)
        assert engine.trace.state()["engine"]["rate"] == 2
        assert command(client, "pause")["mode"] == "paused"
        assert "rate" not in engine.trace.state()["engine"]
        assert command(client, "abort", {"request": "r0"})["aborted"] == ["r0"]
        assert client.post("/api/engine/abort", json={"request": "r0"}).status_code == 404
        assert command(client, "reset_prefix_cache")["reset"] is True
        old = engine.trace.header.trace_id
        assert command(client, "reset", {"config": {"num_gpu_blocks": 8}})["trace_id"] != old
        assert engine.config.num_gpu_blocks == 8
        assert command(client, "reset")["ok"] and engine.config.num_gpu_blocks == 8


def test_the_engine_checks_itself_on_command_and_logs_what_it_found(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client:
        engine.submit("hello")
        found = command(client, "check")
        assert (found["before"], found["num_violations"]) == ("arrive", 0)
        assert dict(zip(found["rules"], found["checked"], strict=True))["one_place"] == 63
        command(client, "phase", {"check": True})
        command(client, "step", {"check": True})
        engine.core.scheduler.kv_cache_manager.block_pool.free_block_queue.length += 1
        found = command(client, "check")
        assert found["broken"] == ["queue", "log"]
        assert found["messages"][0].startswith("free: 62 in a chain, 63 counted")
    checks = [
        record.facts.before
        for record in engine.trace.records
        if isinstance(record, Event) and isinstance(record.facts, IntegrityChecked)
    ]
    phases = ["schedule", "prepare", "execute", "sample", "update", "output", "arrive"]
    assert checks == ["arrive", *phases, "arrive"]


def test_a_request_is_compared_with_fp32_on_command_and_the_log_has_it(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client:
        command(client, "reset", {"config": {"kv_cache_dtype": "fp8"}})
        engine.submit("hello, hello")
        command(client, "step")
        found = command(client, "compare_kv", {"request": "r0"})
        assert (found["dtype"], found["num_tokens"], found["num_outputs"]) == ("fp8_e4m3", 12, 1)
        assert 0.02 < found["key_rounding"][0] < 0.035 and len(found["value_errors"]) == 4
        answer = client.post("/api/engine/compare_kv", json={"request": "r9"})
        assert answer.status_code == 404 and "is not known" in answer.json()["error"]["message"]
    events = [record for record in engine.trace.records if isinstance(record, Event)]
    told = next(e.facts for e in reversed(events) if isinstance(e.facts, KVCacheCompared))
    assert list(told.key_errors) == found["key_errors"]


@pytest.mark.parametrize(
    ("name", "body", "param"),
    [
        ("compare_kv", None, "request"),
        ("run", {"rate": 0}, "rate"),
        ("phase", {"check": 1}, "check"),
        ("step", {"checks": True}, "checks"),
        ("run", {"rate": -1}, "rate"),
        ("run", {"rate": 1e9}, "rate"),
        ("run", {"rate": "fast"}, "rate"),
        ("run", {"speed": 1}, "speed"),
        ("abort", {}, "request"),
        ("abort", None, "request"),
        ("reset", {"config": {"num_gpu_blocks": 1}}, "num_gpu_blocks"),
        ("reset", {"config": {"max_model_len": 4096}}, "max_model_len"),
        ("reset", {"config": {"num_gpu_blocks": 65_536, "block_size": 128, "x": 1}}, "x"),
        ("reset", {"config": "large"}, "config"),
    ],
)
def test_bad_commands_name_the_field_and_change_nothing(
    server: Server, name: str, body: Any, param: str
) -> None:
    key, engine = server.session()
    before = engine.trace
    with server.client(key) as client:
        answer = client.post(f"/api/engine/{name}", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert engine.trace is before and engine.status.mode == "paused"


def test_unknown_addresses_are_404_error_objects(server: Server) -> None:
    with server.client() as client:
        for path in ("/v1/unknown", "/api/unknown", "/api/engine/unknown"):
            answer = client.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"]["message"].startswith("there is nothing at this address;")


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/v1", "GET /v1/models, GET /v1/models/{name}, POST /v1/completions, "),
        ("/api", "GET /api/session, POST /api/session, POST /api/engine/phase, "),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_bare_paths_list_what_is_there(
    server: Server, path: str, there: str, method: str
) -> None:
    with server.client() as client:
        for slash in ("", "/"):
            answer = client.request(method, path + slash)
            assert answer.status_code == 404
            assert there in answer.json()["error"]["message"]


def test_the_shared_engine_takes_no_commands(server: Server) -> None:
    with server.client("EMPTY") as client:
        for name in ("phase", "step", "run", "pause", "reset", "reset_prefix_cache"):
            assert client.post(f"/api/engine/{name}").status_code == 403
        for name in ("abort", "compare_kv"):
            answer = client.post(f"/api/engine/{name}", json={"request": "r0"})
            assert answer.status_code == 403
        described = client.get("/api/session").json()
        assert described["shared"] is True and described["shared_engine"] is True


def test_unknown_keys_open_nothing(server: Server) -> None:
    with server.client("gb-invented") as client:
        assert client.get("/api/session").status_code == 401
        assert client.get("/api/trace").status_code == 401
        assert client.get("/api/events").status_code == 401
        assert client.post("/api/events/ticket").status_code == 401
        assert client.post("/api/engine/step").status_code == 401
    with server.client() as client:
        assert client.get("/api/events").status_code == 401


def test_the_stream_is_the_log_from_its_header_on(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client, stream(client, ticket=ticket(client)) as events:
        event, _, header = events.next()
        assert (event, header["kind"]) == ("header", "header")
        assert header["trace_id"] == engine.trace.header.trace_id
        engine.submit("hello")
        engine.run()
        records = events.until("request_completed")
    assert [record["seq"] for record in records] == list(range(len(records)))
    assert header["base_seq"] == 0


def test_a_stream_goes_on_after_the_record_it_was_at(server: Server) -> None:
    key, engine = server.session()
    engine.submit("hello")
    engine.step()
    trace_id = engine.trace.header.trace_id
    with server.client(key) as client:
        with stream(client, after=f"{trace_id}:4") as events:
            event, message_id, records = events.next()
            assert event == "records" and records[0]["seq"] == 5
            assert message_id == f"{trace_id}:{records[-1]['seq']}"
        headers = {"Last-Event-ID": f"{trace_id}:6"}
        with client.stream("GET", "/api/events", headers=headers) as answer:
            assert Events(answer).next()[2][0]["seq"] == 7
        # A place in another log, or beyond this one's end, is no place: the header comes first.
        for after in ("0123456789abcdef:4", f"{trace_id}:999999"):
            with stream(client, after=after) as events:
                assert events.next()[0] == "header"
                assert events.next()[2][0]["seq"] == 0
        for after in ("nonsense", "a:-1", ":5", "a:" + "9" * 20):
            answer = client.get("/api/events", params={"after": after})
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == "after"


def test_a_reset_begins_another_log_on_the_same_stream(server: Server) -> None:
    key, engine = server.session()
    engine.submit("hello")
    with server.client(key) as client, stream(client) as events:
        first = events.next()[2]["trace_id"]
        assert events.next()[0] == "records"
        engine.reset()
        event, _, header = events.next()
        assert event == "header" and header["trace_id"] not in (first, None)
        engine.submit("again")
        assert events.next()[2][0]["seq"] == 0


def test_a_stream_without_news_sends_its_header_once(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client, stream(client) as events:
        assert events.next()[0] == "header"
        for callback in tuple(engine._subscribers):
            callback()
        engine.submit("hello")
        assert events.next()[0] == "records"


def test_a_stream_says_what_its_engine_waits_for_before_it_is_made(server: Server) -> None:
    go_on = threading.Event()

    def held() -> None:
        with doing("capturing the graph FULL 4"):
            assert go_on.wait(PATIENCE_S)

    with server.client() as client:
        key = client.post("/api/session").json()["key"]
    server.sessions.thread.post(held)
    with server.client(key) as client, stream(client) as events:
        try:
            event, _, told = events.message()
            assert (event, told["text"]) == (
                "doing",
                "not there yet: before it, the server is capturing the graph FULL 4",
            )
        finally:
            go_on.set()
        told_of = list(iter(lambda: events.message()[::2], ("doing", None)))
        assert {event for event, _ in told_of} <= {"doing"}  # the engine's own making
        assert events.next()[0] == "header"


def test_the_shared_engine_can_be_watched(server: Server) -> None:
    engine = server.sessions.shared()
    assert isinstance(engine, AsyncLLM)
    before = f"{engine.trace.header.trace_id}:{engine.trace.next_seq - 1}"  # others' requests
    with (
        server.client("EMPTY") as client,
        stream(client, ticket=ticket(client), after=before) as events,
    ):
        with server.client() as other:
            other.post("/v1/completions", json={"prompt": "seen", "max_tokens": 1})
        records = events.until("request_completed")
    assert any(record.get("facts", {}).get("source") == "http" for record in records)


def test_a_ticket_is_good_once_and_appears_in_no_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "uvicorn.access")
    key, _ = server.session()
    with server.client(key) as client:
        pass_once = ticket(client)
        with stream(client, ticket=pass_once) as events:
            events.next()
    with server.client() as client:
        answer = client.get("/api/events", params={"ticket": pass_once})
        assert answer.status_code == 401
        assert client.get("/api/events", params={"ticket": "invented"}).status_code == 401
        client.get("/v1/models", params={"key": key})
    assert "/api/events?ticket=hidden" in caplog.text
    assert pass_once not in caplog.text and key not in caplog.text


def test_tickets_grow_old() -> None:
    now = 0.0
    tickets = Tickets(lambda: now)
    first, second = tickets.issue("a"), tickets.issue("b")
    now = TICKET_SECONDS - 1
    assert tickets.redeem(first) == "a" and tickets.redeem(first) is None
    now = TICKET_SECONDS + 1
    assert tickets.redeem(second) is None


def test_a_closed_stream_is_not_followed_any_more(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client, stream(client) as events:
        events.next()
        assert len(engine._subscribers) == 1
    wait_until(lambda: not engine._subscribers)


def test_the_trace_can_be_taken_home(server: Server) -> None:
    key, engine = server.session()
    engine.submit("hello")
    engine.step()
    with server.client(key) as client:
        answer = client.get("/api/trace")
    assert "attachment" in answer.headers["content-disposition"]
    trace = Trace.parse(answer.text.splitlines())
    assert trace.state() == engine.core.state() == fold(trace.header.state, trace.records)


def test_the_trace_can_be_had_for_other_programs(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, engine = server.session()
    engine.submit("hello")
    engine.step()
    with server.client(key) as client:
        saved = client.get("/api/trace").content
        for form, suffix in (("perfetto", ".perfetto-trace"), ("csv", ".csv.zip")):
            of_engine = client.get("/api/trace", params={"format": form})
            of_file = client.post("/api/export", params={"format": form}, content=saved)
            assert of_engine.status_code == of_file.status_code == 200
            name = f'glassbox-{engine.status.trace_id}{suffix}"'
            assert of_file.headers["content-disposition"].endswith(name)
            if form == "perfetto":  # a zip file holds the time at which it was made
                assert of_engine.content == of_file.content
        for query in ({}, {"format": "xml"}):
            assert client.post("/api/export", params=query, content=saved).status_code == 400
        for wrong in (b"", b"{}", b"\xff", saved.replace(b'"type":"', b'"type":"odd_', 1)):
            answer = client.post("/api/export", params={"format": "csv"}, content=wrong)
            assert answer.status_code == 400
            assert answer.json()["error"]["message"].startswith("the trace cannot be exported: ")
        small = guard.BodySize(len(saved) - 1, "MAX_TRACE_MB")
        monkeypatch.setitem(guard.BODIES, "/api/export", small)
        assert client.post("/api/export?format=csv", content=saved).status_code == 413
    with server.client("gb-invented") as client:
        assert client.post("/api/export?format=csv", content=b"{}").status_code == 401


def test_other_sites_pages_may_not_command(server: Server) -> None:
    key, engine = server.session()
    with server.client(key) as client:
        for origin, status in (
            ("http://evil.example", 403),
            ("null", 403),
            (server.url, 200),
        ):
            headers = {"Origin": origin}
            assert client.post("/api/engine/pause", headers=headers).status_code == status
            assert client.post("/api/session", headers=headers).status_code == status
        body = {"prompt": "a", "max_tokens": 1}
        headers = {"Origin": "http://evil.example"}
        assert client.post("/v1/completions", json=body, headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8501", 200),
        ("glassbox.localhost:80", 200),
        ("127.0.0.1", 200),
        ("127.8.9.1:8501", 200),
        ("192.168.7.20:8501", 200),
        ("[::1]:8501", 200),
        ("[fe80::1]", 200),
        (socket.gethostname(), 200),
        ("evil.example:8501", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("[evil.example]", 403),
        ("", 403),
    ],
)
def test_only_this_server_s_own_names_are_answered_to(
    server: Server, host: str, status: int
) -> None:
    with server.client() as client:
        for path in ("/health", "/v1/models"):
            answer = client.get(path, headers={"Host": host})
            assert answer.status_code == status
            if status == 403:
                assert "ALLOWED_HOSTS" in answer.json()["error"]["message"]


def known(host: str, environ: dict[str, str], kind: str = "http") -> bool:
    """Whether a request passes; a web socket that does not is closed before it is open."""
    passed, sent = False, []

    async def app(*_: Any) -> None:
        nonlocal passed
        passed = True

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def ask() -> None:
        scope = {"type": kind, "headers": [(b"host", host.encode())]}
        await KnownHost(app, allowed_hosts(environ))(scope, None, send)  # type: ignore[arg-type]

    asyncio.run(ask())
    assert passed or sent[0] == ("http.response.start" if kind == "http" else "websocket.close")
    return passed


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_more_names_can_be_allowed(kind: str) -> None:
    assert not known("glass.example", {}, kind)
    assert not known("glass.example", {"ALLOWED_HOSTS": "other.example"}, kind)
    assert known("glass.example:443", {"ALLOWED_HOSTS": "other.example, GLASS.example"}, kind)
    assert known("glass.example", {"ALLOWED_HOSTS": "*"}, kind)
    assert known("glass.lan:8501", {"HOST": "glass.lan"}, kind)
    assert not known("", {"HOST": ""}, kind)


@pytest.mark.parametrize("path", ["/api/engine/reset", "/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("body", [b"{", b'{"speed": 1}'])
def test_who_may_not_ask_is_not_told_how(server: Server, path: str, body: bytes) -> None:
    with server.client("gb-invented") as client:
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"
    with server.client() as client:
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert client.post("/api/session").status_code == 200
