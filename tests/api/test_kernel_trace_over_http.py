"""POST /api/engine/kernel_trace over real HTTP: what it gives, and what it refuses in words."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from engine.api.kernels import Pace
from engine.config import SamplingParams
from tests.api.live_server import Server

ADDRESS = "/api/engine/kernel_trace"


def test_a_trace_comes_once_attention_has_run(server: Server) -> None:
    pytest.importorskip("triton")
    key, engine = server.session()
    with server.client(key) as client:
        engine.submit("hello", SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
        early = client.post(ADDRESS, json={"request": "r0"})
        assert early.status_code == 409 and early.json()["error"]["code"] == "nothing_run"
        engine.step()
        engine.step()
        found = client.post(ADDRESS, json={"request": "r0", "layer": 3, "kv_head": 1, "step": 1})
        assert found.status_code == 200, found.text
        trace = found.json()
        assert (trace["step"], trace["layer"], trace["kv_head"]) == (1, 3, 1)
        assert [v["block"] for v in trace["programs"][0]["visits"]] == trace["blocks"]
        assert trace["difference"] < 1e-5

        engine.reset()
        gone = client.post(ADDRESS, json={"request": "r0"})
        assert gone.status_code == 409 and "no forward has run yet" in gone.text


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "request"),
        ({"request": "r9"}, 404, "request"),
        ({"request": "r0", "layer": 77}, 404, "layer"),
        ({"request": "r0", "kv_head": -1}, 404, "kv_head"),
        ({"request": "r0", "step": 12}, 404, "step"),
        ({"request": "r0", "layer": "2"}, 400, "layer"),
        ({"request": "r0", "head": 2}, 400, "head"),
    ],
)
def test_what_cannot_be_traced_is_named(
    server: Server, body: dict[str, Any], status: int, param: str
) -> None:
    key, engine = server.session()
    engine.submit("hello")
    engine.step()
    with server.client(key) as client:
        answer = client.post(ADDRESS, json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param
    assert "Traceback" not in answer.text


def test_strangers_get_none(server: Server) -> None:
    with server.client("gb-nobody") as client:
        assert client.post(ADDRESS, json={"request": "r0"}).status_code == 401


def test_the_shared_engine_is_traced_now_and_then(server: Server) -> None:
    pytest.importorskip("triton")
    engine = server.sessions.shared()
    assert engine is not None
    stream = engine.submit("hello", SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
    list(stream)
    with server.client() as client:
        body = {"request": stream.request_id}
        found, again = client.post(ADDRESS, json=body), client.post(ADDRESS, json=body)
    assert found.status_code == 200, found.text
    assert found.json()["difference"] < 1e-5
    assert again.status_code == 429 and "once in 10 seconds" in again.text


def test_a_pace_is_kept() -> None:
    times = iter([100.0, 150.0, 200.0, 209.9, 210.0])
    pace = Pace(10.0, lambda: next(times))
    assert [pace.may_begin() for _ in range(2)] == [True, False]
    pace.end()
    assert [pace.may_begin() for _ in range(2)] == [False, True]


def test_the_kernels_can_be_read_as_source_and_as_what_a_gpu_would_run(server: Server) -> None:
    pytest.importorskip("triton")
    key, engine = server.session()
    with server.client(key) as client:
        client.timeout = httpx.Timeout(120)
        told = client.get("/api/kernels").json()
        assert "reduce_splits" in told["kernels"] and "def reduce_splits_kernel(" in told["source"]
        query = {"arch": "80", "dtype": "fp32", "text": "ptx"}
        made = client.get("/api/kernels/reduce_splits", params=query).json()
        assert ".target sm_80" in made["text"] and made["registers"] > 0
        assert made["shape"] == {
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 16,
            "block_size": engine.config.block_size,
        }
        sass = client.get("/api/kernels/reduce_splits", params=query | {"text": "sass"}).json()
        assert "LDG" in sass["text"] and "sass" not in sass


@pytest.mark.parametrize(
    ("kernel", "query", "status", "param"),
    [
        ("walk", {}, 404, "kernel"),
        ("..%2f..%2fapp.py", {}, 404, None),
        ("paged_decode", {"arch": "70"}, 400, "arch"),
        ("paged_decode", {"dtype": "int8"}, 400, "dtype"),
        ("paged_decode", {"text": "llir"}, 400, "text"),
    ],
)
def test_listings_that_are_not_there_are_refused_by_name(
    server: Server, kernel: str, query: dict[str, str], status: int, param: str | None
) -> None:
    key, _ = server.session()
    with server.client(key) as client:
        answer = client.get(f"/api/kernels/{kernel}", params=query)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param
