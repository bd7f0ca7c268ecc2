"""GET /metrics: whose engine it is about, and that nothing is made for a scrape."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from engine.model_loader import load_model
from engine.sessions import Sessions
from tests.api.live_server import Server, serving


def values(text: str) -> dict[str, float]:
    """Of the samples that have no labels but those of the engine."""
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if set(sample.labels) <= {"model_name", "engine"}
    }


def test_a_key_shows_its_own_engine_and_none_the_shared_one(server: Server) -> None:
    key, engine = server.session()
    engine.run()
    body = {"prompt": "Hello", "max_tokens": 3, "ignore_eos": True}
    with server.client(key) as client:
        client.post("/v1/completions", json=body).raise_for_status()
        answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = values(answer.text)
    state = engine.trace.state()
    assert found["vllm:generation_tokens_total"] == 3 == state["counters"]["generation_tokens"]
    assert found["vllm:prompt_tokens_total"] == state["counters"]["prompt_tokens"]
    assert found["vllm:e2e_request_latency_seconds_count"] == 1
    with server.client() as client:
        client.post("/v1/completions", json=body).raise_for_status()
        shared = values(client.get("/metrics").text)
    assert shared["vllm:generation_tokens_total"] >= 3


def test_the_format_is_what_was_asked_for(server: Server) -> None:
    with server.client() as client:
        answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_nothing_is_made_for_a_scrape() -> None:
    sessions = Sessions(lambda report: load_model("tiny-random", report), shared_enabled=True)
    with serving(sessions) as server:
        sessions.wait_for_model()
        key = sessions.create()
        for client in (server.client(), server.client(key)):
            answer = client.get("/metrics")
            assert answer.status_code == 200
            assert "process_cpu_seconds_total" in answer.text and "vllm:" not in answer.text
        assert sessions.existing(key) is None and sessions.num_engines() == 0


def test_strangers_are_told_how_to_ask(server: Server) -> None:
    for header in ("Bearer nobody", "Basic abc"):
        with server.client() as client:
            answer = client.get("/metrics", headers={"Authorization": header})
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    sessions = Sessions(lambda report: load_model("tiny-random", report), shared_enabled=False)
    with serving(sessions) as server, server.client() as client:
        assert client.get("/metrics").status_code == 401
