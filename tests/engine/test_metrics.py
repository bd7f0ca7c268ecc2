"""Metrics are what the log adds up to, under vLLM's names and with vLLM's meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams, SpeculativeConfig
from engine.engine_thread import EngineThread
from engine.events import DraftsSettled, OutputsReturned, SpecDecodingLogged, StatsLogged
from engine.input_processor import Submission
from engine.metrics.histogram import Histogram, token_bounds
from engine.metrics.prometheus import exposition
from engine.metrics.stats import RECENT_REQUESTS, HitRate
from engine.metrics.stats_line import StatsLine, stats_text
from engine.model_loader import LoadedModel
from engine.records import Event, Phase
from engine.sizing import CacheSize
from engine.trace import fold
from tests.waiting import rests, wait_until

NAMES = set((Path(__file__).parent / "vllm_metric_names.txt").read_text().split())
LINE = (
    "Engine 000: Avg prompt throughput: 4.5 tokens/s, Avg generation throughput: 12.0 tokens/s, "
    "Running: 2 reqs, Waiting: 1 reqs, {}GPU KV cache usage: 12.3%, Prefix cache hit rate: 50.0%"
)
Make = Callable[..., AsyncLLM]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(engine: AsyncLLM) -> Samples:
    """Name and labels (without the engine's) -> value."""
    body, _ = exposition(engine.stats, "")
    common = {"model_name", "engine"}
    return {
        (sample.name, tuple((k, v) for k, v in sample.labels.items() if k not in common)): value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        for value in [sample.value]
    }


def greedy(max_tokens: int, **more: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, **more)


def finish(engine: AsyncLLM) -> None:
    while engine.status.has_work:
        engine.step()


def run_under_pressure(engine: AsyncLLM) -> None:
    """Shared beginnings, a queue, preemptions; twice, so that the second time hits the cache."""
    shared = list(range(40, 72))
    for _ in range(2):
        prompts = [[*shared, 200 + i] for i in range(3)] + [[7, 8, 9, 10, 11]]
        engine.submit_many([Submission(p, greedy(24 + 3 * i)) for i, p in enumerate(prompts)])
        finish(engine)


DRAFTER = SpeculativeConfig(method="ngram", num_speculative_tokens=3, prompt_lookup_max=2)
TIGHT = {"num_gpu_blocks": 10, "block_size": 8, "max_num_seqs": 3, "max_num_batched_tokens": 16}


def moments(engine: AsyncLLM) -> dict[str, dict[str, list[int]]]:
    """When what happened to each request, straight from the log."""
    found: dict[str, dict[str, list[int]]] = {}
    returned = {
        record.step: record.t_us
        for record in engine.trace.records
        if isinstance(record, Event) and isinstance(record.facts, OutputsReturned)
    }
    for record in engine.trace.records:
        if isinstance(record, Event) and hasattr(record.facts, "request"):
            name = type(record.facts).__name__
            t_us = returned[record.step] if name == "TokenAppended" else record.t_us
            times = found.setdefault(record.facts.request, {})
            times.setdefault(name, []).append(t_us)
    return found


# -- figures --------------------------------------------------------------------------------------


def test_every_name_is_one_of_vllms(make: Make) -> None:
    engine = make(**TIGHT)
    run_under_pressure(engine)
    ours = {name for name, _ in scrape(engine) if not name.startswith("process_")}
    assert ours <= NAMES
    left_out = ("_created", "sleep_state", "estimated_", "external_", "mm_cache_")
    named = {name for name in NAMES if not any(word in name for word in left_out)}
    drafts = {name for name in named if "spec_decode" in name}
    assert named - drafts == ours
    speculating = make(speculative_config=DRAFTER)
    assert {name for name, _ in scrape(speculating) if name in drafts} == drafts


def test_drafts_are_counted_as_they_were_settled(make: Make) -> None:
    engine = make(speculative_config=DRAFTER)
    engine.submit([5, 6, 7, 8] * 4, greedy(30))
    finish(engine)
    settled = [
        record.facts
        for record in engine.trace.records
        if isinstance(record, Event) and isinstance(record.facts, DraftsSettled)
    ]
    got = scrape(engine)
    assert settled and got["vllm:spec_decode_num_drafts_total", ()] == len(settled)
    drafted, accepted = (sum(f.num_drafts for f in settled), sum(f.num_accepted for f in settled))
    assert got["vllm:spec_decode_num_draft_tokens_total", ()] == drafted
    assert got["vllm:spec_decode_num_accepted_tokens_total", ()] == accepted
    for place in range(3):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        kept = sum(facts.num_accepted > place for facts in settled)
        assert got[name, (("position", str(place)),)] == kept
    # A verified draft is a token like any other: each counts once, and no more than was asked for.
    assert got["vllm:generation_tokens_total", ()] == 30
    counters = engine.trace.state()["counters"]
    assert (counters["num_drafts"], counters["num_draft_tokens"]) == (len(settled), drafted)
    assert counters["num_accepted_tokens"] == accepted


def test_counters_are_the_logs(make: Make) -> None:
    engine = make(**TIGHT)
    run_under_pressure(engine)
    state = fold(engine.trace.header.state, engine.trace.records)
    requests = state["requests"].values()
    got = scrape(engine)
    assert state["counters"]["num_preemptions"] > 0
    assert got["vllm:num_preemptions_total", ()] == state["counters"]["num_preemptions"]
    assert got["vllm:generation_tokens_total", ()] == state["counters"]["generation_tokens"]
    prompt_tokens = sum(request["num_prompt_tokens"] for request in requests)
    assert (
        got["vllm:prompt_tokens_total", ()] == prompt_tokens == state["counters"]["prompt_tokens"]
    )
    cached = got["vllm:prompt_tokens_cached_total", ()]
    assert 0 < cached < prompt_tokens
    source = "vllm:prompt_tokens_by_source_total"
    assert got[source, (("source", "local_cache_hit"),)] == cached
    assert got[source, (("source", "local_compute"),)] == prompt_tokens - cached
    success = "vllm:request_success_total"
    assert got[success, (("finished_reason", "length"),)] == len(requests) == 8
    assert got[success, (("finished_reason", "stop"),)] == 0


def test_look_ups_of_preempted_requests_are_apart(make: Make) -> None:
    engine = make(**TIGHT)
    run_under_pressure(engine)
    lookups = [
        record.facts
        for record in engine.trace.records
        if isinstance(record, Event) and type(record.facts).__name__ == "PrefixLookedUp"
    ]
    assert any(facts.preempted for facts in lookups)  # type: ignore[union-attr]
    first = [facts for facts in lookups if not facts.preempted]  # type: ignore[union-attr]
    got = scrape(engine)
    assert got["vllm:prefix_cache_queries_total", ()] == sum(f.num_tokens for f in first)  # type: ignore[union-attr]
    assert got["vllm:prefix_cache_hits_total", ()] == sum(f.hit_tokens for f in first)  # type: ignore[union-attr]


def test_times_are_between_the_logs_events(make: Make) -> None:
    engine = make(**TIGHT)
    run_under_pressure(engine)
    queue = prefill = decode = per_token = gaps = 0.0
    for times in moments(engine).values():
        tokens = times["TokenAppended"]
        queue += times["RequestScheduled"][0] - times["RequestArrived"][0]
        prefill += tokens[0] - times["RequestScheduled"][0]
        decode += tokens[-1] - tokens[0]
        per_token += (tokens[-1] - tokens[0]) / (len(tokens) - 1)
        gaps += len(tokens) - 1
    got = scrape(engine)

    def check(name: str, microseconds: float, count: float = 8) -> None:
        assert got[f"vllm:{name}_sum", ()] == pytest.approx(microseconds / 1e6), name
        assert got[f"vllm:{name}_count", ()] == count

    check("request_queue_time_seconds", queue)
    check("request_prefill_time_seconds", prefill)
    check("request_decode_time_seconds", decode)
    check("request_inference_time_seconds", prefill + decode)
    check("request_time_per_output_token_seconds", per_token)
    check("inter_token_latency_seconds", decode, gaps)
    first = got["vllm:time_to_first_token_seconds_sum", ()]
    assert first > got["vllm:request_queue_time_seconds_sum", ()]
    assert got["vllm:e2e_request_latency_seconds_sum", ()] > first


def test_sizes_of_finished_requests(make: Make) -> None:
    engine = make(num_gpu_blocks=64)
    for _ in range(2):
        engine.submit(list(range(100, 140)), greedy(3))
        finish(engine)
    got = scrape(engine)
    assert got["vllm:request_prompt_tokens_sum", ()] == 80
    assert got["vllm:request_generation_tokens_sum", ()] == 6
    assert got["vllm:request_max_num_generation_tokens_sum", ()] == 6
    assert got["vllm:request_params_max_tokens_sum", ()] == 6
    assert got["vllm:request_params_n_sum", ()] == 2
    assert got["vllm:request_prefill_kv_computed_tokens_sum", ()] == 80 - 32
    # Three steps each returned tokens: 40 + 1, 1, 1, and with two blocks hit 8 + 1, 1, 1.
    assert got["vllm:iteration_tokens_total_sum", ()] == 41 + 1 + 1 + 9 + 1 + 1
    assert got["vllm:iteration_tokens_total_count", ()] == 6
    assert got["vllm:iteration_tokens_total_bucket", (("le", "8.0"),)] == 4


def test_a_chunk_that_returns_no_token_is_no_iteration(make: Make) -> None:
    engine = make(max_num_batched_tokens=16)
    engine.submit(list(range(100, 140)), greedy(1))
    engine.step()
    got = scrape(engine)
    assert got["vllm:iteration_tokens_total_count", ()] == 0
    assert got["vllm:prompt_tokens_total", ()] == 0
    finish(engine)
    assert scrape(engine)["vllm:iteration_tokens_total_sum", ()] == 41


def test_gauges_follow_the_engine_phase_by_phase(make: Make) -> None:
    engine = make(max_num_seqs=1, num_gpu_blocks=11)
    engine.submit_many([Submission([5] * 20, greedy(4)), Submission([6] * 20, greedy(4))])
    assert scrape(engine)["vllm:num_requests_waiting", ()] == 0  # no step has taken them in
    engine.step_phase()
    assert scrape(engine)["vllm:num_requests_waiting", ()] == 2
    engine.step_phase()
    got = scrape(engine)
    assert got["vllm:num_requests_running", ()] == 1
    assert got["vllm:num_requests_waiting", ()] == 1
    assert got["vllm:num_requests_waiting_by_reason", (("reason", "capacity"),)] == 1
    assert got["vllm:kv_cache_usage_perc", ()] == pytest.approx(0.2)
    while engine.status.next_phase is not Phase.OUTPUT:
        engine.step_phase()
    assert scrape(engine)["vllm:generation_tokens_total", ()] == 0  # nobody has it yet
    engine.step_phase()
    assert scrape(engine)["vllm:generation_tokens_total", ()] == 1
    finish(engine)
    assert scrape(engine)["vllm:kv_cache_usage_perc", ()] == 0


def test_who_is_taken_back_is_not_finished(make: Make) -> None:
    engine = make()
    arriving, running, late = (engine.submit([9, 9, i], greedy(5)).request_id for i in range(3))
    engine.abort(arriving)
    engine.step()
    engine.abort(running)
    while engine.status.next_phase is not Phase.OUTPUT:
        engine.step_phase()
    engine.abort(late)  # its token has been sampled, and reaches nobody
    finish(engine)
    got = scrape(engine)
    assert got["vllm:generation_tokens_total", ()] == 2
    assert got["vllm:request_success_total", (("finished_reason", "abort"),)] == 0
    assert got["vllm:e2e_request_latency_seconds_count", ()] == 0
    assert not engine.stats.requests


def test_n_sequences_are_one_request_of_n(make: Make) -> None:
    engine = make(num_gpu_blocks=64)
    drawn = SamplingParams(temperature=1.0, n=3, max_tokens=4, ignore_eos=True)
    engine.submit([9, 8, 7], drawn)
    whole, part = (engine.submit([9, 8, 7], drawn).request_id for _ in range(2))
    engine.step()
    engine.abort(whole)
    engine.abort(f"1_{part}")
    finish(engine)
    got = scrape(engine)
    assert got["vllm:request_params_n_count", ()] == 1
    assert got["vllm:request_params_n_sum", ()] == 3
    assert got["vllm:request_max_num_generation_tokens_count", ()] == 1
    assert got["vllm:request_generation_tokens_count", ()] == 3 + 2
    assert not engine.stats.sequences and not engine.stats.requests


def test_a_stop_string_is_a_stop(make: Make) -> None:
    engine = make()
    first = next(iter(_text(engine, greedy(8)))).strip() or "x"
    engine.submit("hello", greedy(8, stop=(first[0],)))
    finish(engine)
    assert scrape(engine)["vllm:request_success_total", (("finished_reason", "stop"),)] == 1


def _text(engine: AsyncLLM, params: SamplingParams) -> Iterator[str]:
    stream = engine.submit("hello", params)
    finish(engine)
    yield "".join(output.text for output in stream)


def test_nothing_is_lost_with_the_logs_oldest_records(make: Make) -> None:
    whole, trimmed = make(**TIGHT), make(**TIGHT)
    trimmed.trace.max_records = 80
    for engine in (whole, trimmed):
        run_under_pressure(engine)
    assert trimmed.trace.header.base_seq > 0
    timed = ("_seconds", "process_")

    def untimed(engine: AsyncLLM) -> Samples:
        return {k: v for k, v in scrape(engine).items() if not any(word in k[0] for word in timed)}

    assert untimed(trimmed) == untimed(whole)


def test_a_reset_begins_again(make: Make) -> None:
    engine = make()
    engine.submit([1, 2, 3], greedy(2))
    finish(engine)
    engine.reset(EngineConfig(num_gpu_blocks=32))
    got = scrape(engine)
    assert got["vllm:generation_tokens_total", ()] == 0
    info = next(labels for name, labels in got if name == "vllm:cache_config_info")
    assert ("num_gpu_blocks", "32") in info and ("block_size", "16") in info
    assert ("cache_dtype", "auto") in info


def test_both_formats_can_be_read(make: Make) -> None:
    engine = make()
    engine.submit([1, 2, 3], greedy(2))
    finish(engine)
    body, content_type = exposition(engine.stats, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in parse_openmetrics(body.decode())}
    assert families["vllm:generation_tokens"].samples[0].value == 2
    for accept in (
        "",
        "*/*",
        "application/openmetrics-text; version=none",
        "text/plain; version=x",
    ):
        body, content_type = exposition(None, accept)
        assert b"process_cpu_seconds_total" in body and b"vllm:" not in body


def test_buckets_count_what_is_at_or_below_them() -> None:
    histogram = Histogram((1, 5))
    for value in (0.5, 1, 1.1, 5, 6):
        histogram.observe(value)
    assert histogram.cumulative() == [2, 4, 5]
    assert histogram.sum == pytest.approx(13.6) and histogram.count == 5
    assert token_bounds(100) == (1, 2, 5, 10, 20, 50, 100)
    assert token_bounds(499) == (1, 2, 5, 10, 20, 50, 100, 200)


def test_the_hit_rate_is_of_the_latest_look_ups() -> None:
    rate = HitRate()
    assert rate.value == 0
    rate.observe(10, 10)
    for _ in range(RECENT_REQUESTS):
        assert rate.value > 0
        rate.observe(10, 0)
    assert rate.value == 0
    rate.observe(10, 5)
    rate.clear()
    assert rate.value == 0


# -- the periodic line ----------------------------------------------------------------------------


def lines(engine: AsyncLLM) -> list[StatsLogged]:
    return [
        record.facts
        for record in engine.trace.records
        if isinstance(record, Event) and isinstance(record.facts, StatsLogged)
    ]


def test_the_line_has_vllms_words() -> None:
    line = StatsLogged(10.0, 4.512, 12.0, 2, 1, 0, 0.1234, 0.5)
    assert stats_text(line) == LINE.format("")
    assert stats_text(line._replace(preemptions=3)) == LINE.format("Preemptions: 3, ")


def test_the_line_of_drafts_has_vllms_words() -> None:
    line = SpecDecodingLogged(10.0, 4, 12, 5, (3, 2, 0))
    assert stats_text(line) == (
        "SpecDecoding metrics: Mean acceptance length: 2.25, Accepted throughput: 0.50 tokens/s, "
        "Drafted throughput: 1.20 tokens/s, Accepted: 5 tokens, Drafted: 12 tokens, Per-position "
        "acceptance rate: 0.750, 0.500, 0.000, Avg Draft acceptance rate: 41.7%"
    )


def test_drafts_have_a_line_of_their_own_in_the_same_interval(make: Make) -> None:
    engine = make(speculative_config=DRAFTER)
    line = StatsLine(engine.stats, interval=0.0)
    engine.submit([5, 6, 7, 8] * 4, greedy(12))
    finish(engine)
    _, drafts = line.take()
    assert isinstance(drafts, SpecDecodingLogged)
    stats = engine.stats
    assert (drafts.num_drafts, drafts.num_draft_tokens) == (
        stats.num_drafts,
        stats.num_draft_tokens,
    )
    assert drafts.accepted_per_pos == tuple(stats.accepted_per_pos)
    assert len(line.take()) == 1


def test_the_caches_size_has_vllms_words() -> None:
    assert CacheSize(512, 16, 1000).texts() == (
        "GPU KV cache size: 8,126 tokens",
        "Maximum concurrency for 1,000 tokens per request: 8.13x",
    )


def test_a_line_is_of_its_own_interval(make: Make) -> None:
    engine = make(**TIGHT)
    line = StatsLine(engine.stats, interval=0.0)
    assert line.take() == []
    run_under_pressure(engine)
    (taken,) = line.take()
    assert isinstance(taken, StatsLogged)
    state = engine.trace.state()
    tokens = state["counters"]["generation_tokens"]
    assert taken.generation_throughput == pytest.approx(tokens / taken.seconds, rel=0.01)
    computed = engine.stats.prompt_tokens_computed
    assert taken.prompt_throughput == pytest.approx(computed / taken.seconds, rel=0.01)
    assert taken.preemptions == state["counters"]["num_preemptions"]
    assert (taken.running, taken.waiting, taken.kv_cache_usage) == (0, 0, 0)
    assert 0 < taken.prefix_cache_hit_rate < 1
    (zeros,) = line.take()
    assert isinstance(zeros, StatsLogged) and zeros.generation_throughput == zeros.preemptions == 0
    assert line.take() == []


def test_by_hand_a_step_that_ends_in_time_logs_the_line(make: Make) -> None:
    engine = make()
    engine.submit([1, 2, 3], greedy(3))
    engine.step()
    assert not lines(engine)  # ten seconds are not over
    engine._line.stats_line.interval = 0.0
    engine.step_phase()
    assert not lines(engine)  # the step is not over
    engine.step()
    (line,) = lines(engine)
    assert round(line.generation_throughput * line.seconds) == 2  # this step's is among them
    event, patch = engine.trace.records[-2:]
    assert event.facts == line  # type: ignore[union-attr]
    assert event.phase is patch.phase is Phase.OUTPUT  # the step is still what is on show
    assert engine.trace.state() == engine.thread.call(engine.core.state)


def let_pass(engine: AsyncLLM, seconds: float) -> None:
    engine.trace._t0 -= seconds


def test_a_rest_is_no_part_of_the_interval(make: Make) -> None:
    engine = make()
    let_pass(engine, 1000)
    engine.submit([1, 2, 3], greedy(3))
    engine.step()
    assert not lines(engine)
    let_pass(engine, 12)
    engine.step()
    first = lines(engine)[-1]
    assert 12 <= first.seconds < 100
    assert first.generation_throughput == pytest.approx(2 / first.seconds, abs=0.001)
    finish(engine)  # a token that stands in no line yet
    let_pass(engine, 1000)
    engine.submit([1, 2, 3], greedy(3))
    engine.step()
    second = lines(engine)[-1]
    assert len(lines(engine)) == 2 and 1000 <= second.seconds < 1100
    finish(engine)


def test_work_that_follows_work_goes_on_with_its_interval(make: Make) -> None:
    engine = make()
    line = StatsLine(engine.stats)
    engine.submit([1, 2, 3], greedy(3))
    finish(engine)
    assert line.take() is not None
    let_pass(engine, 4)
    line.wake()
    assert line.seconds_left < 7
    assert line.take() is not None
    let_pass(engine, 4)
    line.wake()
    assert line.seconds_left > 7


def test_a_running_engine_logs_until_there_is_nothing_to_say(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("engine.metrics.stats_line.INTERVAL_SECONDS", 0.05)
    caplog.set_level("INFO", "glassbox")
    engine = make(running=True)
    list(engine.submit([1, 2, 3], greedy(3)))
    wait_until(lambda: bool(lines(engine)) and not lines(engine)[-1].generation_throughput)
    rests(engine)
    before = len(lines(engine))
    list(engine.submit([4, 5, 6], greedy(3)))
    wait_until(lambda: len(lines(engine)) >= before + 2)
    assert "Engine 000" not in caplog.text  # it is nobody's console


def test_the_consoles_engine_prints_its_lines(
    tiny_model: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "glassbox")
    thread = EngineThread()
    engine = AsyncLLM(tiny_model, EngineConfig(), thread, console=True)
    assert "GPU KV cache size: 1,024 tokens" in caplog.text
    engine._line.stats_line.interval = 0.0
    engine.submit([1, 2, 3], greedy(1))
    engine.step()
    assert stats_text(lines(engine)[0]) in caplog.text
    thread.stop()
