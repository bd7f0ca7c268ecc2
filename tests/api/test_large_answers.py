"""What takes long to write is written beside the event loop, which all other answers need."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from starlette.responses import JSONResponse

from engine.api import event_stream
from tests.api.live_server import Events, Server

WORKER = "asyncio_"  # how threads of `asyncio.to_thread` are called


@pytest.fixture
def written_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which answers were written."""
    names: list[str] = []

    class Watched(JSONResponse):
        def render(self, content: Any) -> bytes:
            names.append(threading.current_thread().name)
            return super().render(content)

    for module in ("server", "compare", "kernels"):
        monkeypatch.setattr(f"engine.api.{module}.JSONResponse", Watched)
    plain = event_stream.header_data

    def header_data(header: Any) -> str:
        names.append(threading.current_thread().name)
        return plain(header)

    monkeypatch.setattr(event_stream, "header_data", header_data)
    return names


def test_whole_answers(server: Server, written_in: list[str]) -> None:
    key, engine = server.session()
    engine.run()
    body = {"prompt": "hello", "max_tokens": 2, "prompt_logprobs": 20, "logprobs": 5}
    with server.client(key) as client:
        assert client.post("/v1/completions", json=body).status_code == 200
    assert len(written_in) == 1 and written_in[0].startswith(WORKER)


def test_the_header_of_a_log_with_its_state(server: Server, written_in: list[str]) -> None:
    key, _ = server.session()
    with server.client(key) as client, client.stream("GET", "/api/events") as answer:
        assert Events(answer).next()[0] == "header"
    assert len(written_in) == 1 and written_in[0].startswith(WORKER)


def test_what_a_comparison_found(server: Server, written_in: list[str]) -> None:
    key, engine = server.session()
    engine.submit("hello")
    with server.client(key) as client:
        asked = {"knob": "seed", "values": [0, 1]}
        assert client.post("/api/compare", json=asked).status_code == 202
        comparison = server.sessions.comparisons.get(key)
        assert comparison is not None and comparison.wait(120) == "done"
        written_in.clear()
        assert client.get("/api/compare").json()["result"]
    assert len(written_in) == 1 and written_in[0].startswith(WORKER)
