"""/api/compare over real HTTP: begin, look, take back, and what is refused in words."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from engine.config import SamplingParams
from engine.trace import Trace
from tests.api.live_server import Server
from tests.waiting import wait_until

ADDRESS = "/api/compare"
BUDGET = {"knob": "max_num_batched_tokens", "values": [64, 16]}


def sent(server: Server, max_tokens: int = 4) -> str:
    """A session whose engine was given a request."""
    key, engine = server.session()
    engine.submit("the quick brown fox", SamplingParams(max_tokens=max_tokens, ignore_eos=True))
    return key


def is_over(client: httpx.Client) -> bool:
    return bool(client.get(ADDRESS).json()["stage"] != "running")


def test_a_comparison_runs_and_both_logs_can_be_had(server: Server) -> None:
    with server.client(sent(server)) as client:
        assert client.get(ADDRESS).status_code == 404
        begun = client.post(ADDRESS, json=BUDGET)
        assert begun.status_code == 202, begun.text
        assert begun.json()["workload"]["requests"] == 1
        wait_until(lambda: is_over(client), 60)
        found = client.get(ADDRESS).json()
        assert found["stage"] == "done", found
        result = found["result"]
        assert result["divergence"]["step"] == 0 and result["divergence"]["kind"] == "scheduled"
        assert [run["config"]["max_num_batched_tokens"] for run in result["runs"]] == [64, 16]
        assert result["runs"][0]["measured"]["latencies_seconds"]["itl"]["count"] == 3
        assert [one["same"] for one in result["outputs"]] == [True]
        for side, run in zip("ab", result["runs"], strict=True):
            trace = Trace.parse(client.get(f"{ADDRESS}/trace/{side}").text.splitlines())
            assert trace.header.trace_id == run["trace_id"]
            assert len(run["decided"]["per_step"]) == run["decided"]["steps"]


def test_a_saved_workload_runs_on_another_sessions_engine(server: Server) -> None:
    with server.client(sent(server)) as client:
        workload = client.get(f"{ADDRESS}/workload").json()
    key, _ = server.session()
    with server.client(key) as client:
        body = {**BUDGET, "workload": workload, "config": {"num_gpu_blocks": 32}}
        begun = client.post(ADDRESS, json={**body, "repetitions": 2})
        assert begun.status_code == 202 and begun.json()["runs"] == 4
        wait_until(lambda: is_over(client), 60)
        result = client.get(ADDRESS).json()["result"]
        assert [run["config"]["num_gpu_blocks"] for run in result["runs"]] == [32, 32]
        assert [len(side) for side in result["repetitions"]] == [2, 2]
        assert result["unequal"] == []


def test_a_comparison_is_taken_back(server: Server) -> None:
    with server.client(sent(server, max_tokens=900)) as client:
        assert client.post(ADDRESS, json=BUDGET).status_code == 202
        again = client.post(ADDRESS, json=BUDGET)
        assert again.status_code == 429 and "cancel it first" in again.text
        assert client.get(f"{ADDRESS}/trace/a").status_code == 409
        assert client.delete(ADDRESS).status_code == 200
        wait_until(lambda: is_over(client), 30)
        assert client.get(ADDRESS).json()["stage"] == "cancelled"


def test_only_a_session_compares_and_only_it_sees_what_came(server: Server) -> None:
    with server.client(sent(server)) as client:
        client.post(ADDRESS, json=BUDGET)
    key, _ = server.session()
    with server.client(key) as client:
        assert client.get(ADDRESS).status_code == 404
        assert client.delete(ADDRESS).status_code == 404
    with server.client() as client:
        assert client.post(ADDRESS, json=BUDGET).status_code == 403
    with server.client("gb-nobody") as client:
        assert client.post(ADDRESS, json=BUDGET).status_code == 401


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "knob", "knob"),
        ({"knob": "seed", "values": [1]}, "values", "values"),
        ({"knob": "seed", "values": [1, 2, 3]}, "values", "values"),
        ({"knob": 5, "values": [1, 2]}, "knob", "knob"),
        ({"knob": "lunch", "values": [1, 2]}, "knob", "there is no setting 'lunch'"),
        ({"knob": "seed", "values": [1, 2], "more": 1}, "more", "more"),
        ({"knob": "block_size", "values": [16, -1]}, "block_size", "with block_size -1"),
        ({"knob": "block_size", "values": [16, [[1]]]}, "block_size", "with block_size"),
        ({**BUDGET, "config": {"lunch": 1}}, "lunch", "there is no such setting"),
        ({**BUDGET, "repetitions": 0}, "repetitions", "greater than or equal to 1"),
        ({**BUDGET, "repetitions": 10}, "repetitions", "less than or equal to 9"),
        ({**BUDGET, "workload": {}}, "workload", "no workload of this program"),
        ({**BUDGET, "workload": {"kind": "glassbox-workload"}}, "workload", "requests"),
    ],
)
def test_what_cannot_be_compared_is_named(
    server: Server, body: dict[str, Any], param: str, said: str
) -> None:
    with server.client(sent(server)) as client:
        answer = client.post(ADDRESS, json=body)
        assert client.get(ADDRESS).status_code == 404
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and said in error["message"]
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("text", ["[" * 50_000, "{", '"x"', "[]", "null"])
def test_what_is_no_body_is_refused(server: Server, text: str) -> None:
    key, _ = server.session()
    with server.client(key) as client:
        headers = {"Content-Type": "application/json"}
        answer = client.post(ADDRESS, content=text, headers=headers)
    assert answer.status_code == 400 and "error" in answer.json()


def test_an_engine_without_requests_says_what_to_do(server: Server) -> None:
    key, _ = server.session()
    with server.client(key) as client:
        answer = client.post(ADDRESS, json=BUDGET)
        assert answer.status_code == 400 and "send some first" in json.dumps(answer.json())
        assert client.get(f"{ADDRESS}/trace/c").status_code in (400, 404)
