"""What is cut off in the middle: engines, clients, processes. Nothing is lost, or it is said."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.events import ForwardRun
from engine.output_processor import RequestLost
from engine.paged_attention.triton.process import interpreter
from engine.records import Event
from tests.api.live_server import Events, Server, blocks_in_use
from tests.waiting import wait_until

LONG = SamplingParams(max_tokens=200, ignore_eos=True)
BODY = {"prompt": "hello", "max_tokens": 200, "ignore_eos": True}
GONE: dict[str, Callable[[AsyncLLM], object]] = {
    "reset": lambda engine: engine.reset(),
    "brought back": lambda engine: engine.restore(engine.take_moment()),
    "put to rest": lambda engine: engine.rest(),
}


@pytest.mark.parametrize("what", GONE)
def test_clients_of_an_engine_that_goes_are_told_why(server: Server, what: str) -> None:
    """One that waits gets a 503, one that reads a stream an error in it, and the stream's end."""
    key, engine = server.session()
    with server.client(key) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, "/v1/completions", json=BODY)
        wait_until(lambda: engine.num_unfinished == 1)
        with client.stream("POST", "/v1/completions", json=BODY | {"stream": True}) as answer:
            wait_until(lambda: engine.num_unfinished == 2)
            engine.step()
            GONE[what](engine)
            lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
        whole = waiting.result()
    assert whole.status_code == 503 and whole.headers["retry-after"]
    *chunks, last, end = lines
    assert end == "[DONE]" and all(json.loads(each)["choices"] for each in chunks)
    for error in (whole.json()["error"], json.loads(last)["error"]):
        assert set(error) == {"message", "type", "param", "code"}
        assert what in error["message"] and "send" in error["message"]
        assert error["code"] == "engine_replaced"


def test_a_stream_that_breaks_again_and_again_brings_each_record_once(server: Server) -> None:
    """While the engine runs. The browser comes back with the last id that it has seen."""
    key, engine = server.session()
    engine.submit("hello", LONG)
    engine.run(100)
    seen: list[int] = []
    last = ""
    headers = 0
    with server.client(key) as client:
        while not seen or engine.status.has_work or seen[-1] < engine.trace.next_seq - 1:
            known = {"Last-Event-ID": last} if last else {}
            with client.stream("GET", "/api/events", headers=known) as answer:
                events = Events(answer)
                for _ in range(3):  # then it breaks
                    event, number, data = events.next()
                    headers += event == "header"
                    if event != "records":
                        continue
                    seen += [record["seq"] for record in data]
                    last = number
                    if not engine.status.has_work and seen[-1] == engine.trace.next_seq - 1:
                        break
    assert seen == list(range(engine.trace.next_seq))
    assert headers == 1
    wait_until(lambda: not engine._subscribers)


def test_who_does_not_read_holds_up_nobody(server: Server) -> None:
    """A stream, and a log, whose readers have stalled: the engine goes on, others get all."""
    key, engine = server.session()
    engine.reset(EngineConfig(num_gpu_blocks=200, max_num_seqs=16))
    engine.run()
    host, port = server.url.removeprefix("http://").split(":")
    asked = json.dumps(BODY | {"max_tokens": 900, "n": 8, "stream": True, "logprobs": 5}).encode()
    stalled = []
    for head in (
        f"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(asked)}\r\n",
        "GET /api/events HTTP/1.1\r\n",
    ):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect((host, int(port)))
        head += f"Host: {host}\r\nAuthorization: Bearer {key}\r\n\r\n"
        one.sendall(head.encode() + (asked if head.startswith("POST") else b""))
        stalled.append(one)
    wait_until(lambda: engine.num_unfinished == 8)
    other_key, other = server.session()
    other.run()
    with server.client(other_key) as client:
        answer = client.post("/v1/completions", json=BODY | {"max_tokens": 5})
        assert answer.json()["usage"]["completion_tokens"] == 5
    wait_until(lambda: engine.num_unfinished == 0)  # all is made, though nobody has read it
    assert engine.trace.state()["counters"]["requests_finished"] == 8
    for one in stalled:
        one.close()
    wait_until(lambda: not engine._subscribers)
    assert blocks_in_use(engine) == 0


def test_a_killed_interpreter_is_said_and_a_reset_goes_on(server: Server) -> None:
    """SIGKILL in the middle of a forward whose attention runs in another process."""
    key, engine = server.session()
    engine.reset(EngineConfig(attention_backend="triton-interpret", enforce_eager=True))
    stream = engine.submit("hello", SamplingParams(max_tokens=2, ignore_eos=True))
    with server.client(key) as client, ThreadPoolExecutor(1) as pool:
        begun = threading.Event()
        plain = interpreter()._started

        def kill_when_it_works() -> Any:
            process = plain()
            os.kill(process.pid, signal.SIGKILL)
            begun.set()
            return process

        interpreter()._started = kill_when_it_works  # type: ignore[method-assign]
        try:
            answer = pool.submit(client.post, "/api/engine/step").result()
        finally:
            del interpreter()._started
        assert begun.is_set() and answer.status_code == 500
        assert "SIGKILL" in answer.json()["error"]["message"]
        with pytest.raises(RequestLost, match="SIGKILL"):
            list(stream)
        assert client.get("/api/trace").status_code == 200
        assert client.get("/health").json()["engines"]["num_failed"] >= 1
        assert client.post("/api/engine/reset").status_code == 200
        again = engine.submit("hello", SamplingParams(max_tokens=1, ignore_eos=True))
        engine.step()
        assert len(list(again)) == 1
    assert any(
        isinstance(r, Event) and isinstance(r.facts, ForwardRun) for r in engine.trace.records
    )


@pytest.mark.parametrize("call", ["/api/engine/moment", "/api/trace"])
def test_a_client_that_leaves_in_a_download_leaves_nothing_open(server: Server, call: str) -> None:
    key, engine = server.session()
    engine.submit("hello", LONG)
    engine.step()
    before = open_files()
    with server.client(key) as client:
        for _ in range(5):
            with client.stream("GET", call) as answer:
                assert answer.status_code == 200
                next(answer.iter_bytes(100))
    wait_until(lambda: open_files() <= before + 1)  # what is kept has its file closed
    assert engine.step().failed is None


def open_files() -> int:
    """Of this process, sockets left out."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # closed meanwhile
            continue
    return sum(link.startswith("/") and "glassbox-moments" in link for link in links)


def test_an_unfinished_body_is_no_request(server: Server) -> None:
    key, engine = server.session()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as one:
        one.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
            'Content-Length: 1000\r\n\r\n{"prompt": "half'.encode()
        )
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/health").status_code == 200
    assert engine.num_unfinished == 0 and engine.is_fresh
