"""Two runs of one workload: what they share, where they part, and what they measure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.async_llm import AsyncLLM
from engine.comparison import workload as workloads
from engine.comparison.comparisons import Comparison, ComparisonBusy, Setting
from engine.comparison.decisions import first_divergence
from engine.comparison.figures import Sample, spread
from engine.comparison.result import Result, RunResult, Unequal, unequal
from engine.comparison.run import Progress, Run
from engine.comparison.workload import Workload, WorkloadError, of_prompts, of_trace, read
from engine.config import ConfigError, EngineConfig, SamplingParams
from engine.events import (
    BlocksAllocated,
    BlocksHit,
    RequestCompleted,
    RequestScheduled,
    RequestSubmitted,
)
from engine.input_processor import Encoded
from engine.model_loader import LoadedModel, load_model
from engine.records import Event
from engine.sessions import Sessions
from engine.trace import Trace
from tests.waiting import PATIENCE_S, wait_until

SHARED = list(range(40, 72))


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load_model("tiny-random")


@pytest.fixture
def sessions(tiny: LoadedModel) -> Iterator[Sessions]:
    made = Sessions(lambda report: tiny)
    made.wait_for_model()
    yield made
    made.close()


@pytest.fixture
def key(sessions: Sessions) -> str:
    return sessions.create()


def params(max_tokens: int, **more: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **more}, max_tokens=max_tokens)


def engine_of(sessions: Sessions, key: str, **config: Any) -> AsyncLLM:
    engine = sessions.get(key)
    assert engine is not None
    if config:
        engine.reset(EngineConfig(**config))
    return engine


def finish(engine: AsyncLLM) -> None:
    while engine.status.has_work:
        engine.step()


def busy_hour(engine: AsyncLLM) -> None:
    """Requests that come one after the other, drawn and greedy; one is taken back."""
    for number in range(5):
        prompt = [*SHARED, *range(100 + 8 * number, 108 + 9 * number)]
        engine.submit(prompt, params(12 + number, temperature=0.7 * (number % 2)))
        engine.step()
        engine.step_phase()
    engine.abort("r1")
    engine.step()
    finish(engine)


def compare(
    sessions: Sessions,
    key: str,
    workload: Workload,
    base: EngineConfig,
    *setting: Any,
    repetitions: int = 1,
) -> Result:
    comparison = sessions.comparisons.start(
        key, workload, base, Setting(*setting), repetitions=repetitions
    )
    assert comparison.wait(120) == "done", comparison.problem
    assert comparison.result is not None
    return comparison.result


def trace_of(file: bytes) -> Trace:
    return Trace.parse(file.decode().splitlines())


def decided(trace: Trace) -> list[tuple[Any, ...]]:
    """Who got how much in which step, and which blocks: straight from a log."""
    kinds = (RequestScheduled, BlocksAllocated, BlocksHit)
    return [
        (record.step, record.facts)
        for record in trace.records
        if isinstance(record, Event) and isinstance(record.facts, kinds)
    ]


def test_equal_settings_decide_equally_and_as_the_recorded_engine_did(
    sessions: Sessions, key: str
) -> None:
    engine = engine_of(sessions, key, num_gpu_blocks=14, max_num_seqs=3)
    busy_hour(engine)
    result = compare(sessions, key, of_trace(engine.trace), engine.requested_config, "seed", 0, 0)
    assert result.divergence is None and result.dispatch is None
    a, b = (trace_of(run.file) for run in result.runs)
    assert decided(a) == decided(b) == decided(engine.trace)
    assert all(one.same for one in result.texts)
    recorded = engine.trace.state()["requests"]
    for one in result.texts:
        assert one.a.tokens == tuple(recorded[one.request].get("output_token_ids", {}).values())
    assert [one.a.finish_reason for one in result.texts].count("abort") == 1


@pytest.mark.parametrize(
    ("knob", "a", "b", "kind"),
    [
        ("max_num_batched_tokens", 64, 32, "scheduled"),
        ("num_gpu_blocks", 64, 10, None),
        ("enable_prefix_caching", True, False, "hit"),
        ("max_num_seqs", 8, 1, "scheduled"),
    ],
)
def test_the_first_step_that_differs_is_found(
    sessions: Sessions, key: str, knob: str, a: Any, b: Any, kind: str | None
) -> None:
    engine = engine_of(sessions, key)
    busy_hour(engine)
    result = compare(sessions, key, of_trace(engine.trace), engine.requested_config, knob, a, b)
    logs = [decided(trace_of(run.file)) for run in result.runs]
    first = next(
        step
        for step in range(200)
        if [what for at, what in logs[0] if at == step]
        != [what for at, what in logs[1] if at == step]
        and plain(logs[0], step) != plain(logs[1], step)
    )
    told = result.divergence
    assert told is not None and told.step == first
    assert kind in (None, told.kind)
    assert {event["step"] for event in (*told.a, *told.b)} <= {first}
    assert told.a or told.b


def plain(log: list[tuple[Any, ...]], step: int) -> list[Any]:
    """A step's decisions without what only repeats the budget."""
    facts = [what for at, what in log if at == step]
    return [f[:-1] if isinstance(f, RequestScheduled) else f for f in facts]


def test_graphs_are_told_apart_from_decisions_and_leave_no_capture_in_the_times(
    tiny_model: LoadedModel,
) -> None:
    sessions = Sessions(lambda report: tiny_model)  # which has no graph yet
    sessions.wait_for_model()
    key = sessions.create()
    engine = engine_of(sessions, key)
    workload = of_prompts("two", "", [Encoded("", SHARED, params(6), 0, "")] * 2)
    base = engine.requested_config
    result = compare(sessions, key, workload, base, "enforce_eager", False, True)
    assert result.divergence is None
    assert result.dispatch is not None
    assert result.dispatch.a[0]["facts"]["mode"] != "NONE"
    assert result.dispatch.b[0]["facts"]["mode"] == "NONE"
    assert result.a.rehearsed and not result.b.rehearsed
    assert not any(
        record.facts.shared is False
        for record in trace_of(result.a.file).records
        if isinstance(record, Event) and hasattr(record.facts, "shared")
    )
    sessions.close()


def test_latencies_are_those_that_the_log_has(sessions: Sessions, key: str) -> None:
    engine = engine_of(sessions, key)
    workload = of_prompts(
        "three", "", [Encoded("", SHARED[:n], params(n), 0, "") for n in (1, 4, 9)]
    )
    result = compare(sessions, key, workload, engine.requested_config, "seed", 0, 1)
    run = result.a
    trace = trace_of(run.file)
    came, told, ended = {}, {}, {}
    for record in trace.records:
        if not isinstance(record, Event):
            continue
        match record.facts:
            case RequestSubmitted(request=r):
                came[r] = record.t_us
            case RequestCompleted(request=r):
                ended[r] = record.t_us
    for name, value in run.samples["e2e"]:
        told[name] = value
        # An outcome has come when the step's last phase begins, a moment before the client hears.
        assert 0 <= (ended[name] - came[name]) / 1e6 - value < 0.05
    assert told.keys() == {"r0", "r1", "r2"}
    assert [len(run.samples[name]) for name in ("ttft", "itl", "tpot")] == [3, 11, 2]
    for name, values in run.samples.items():
        plain_values = [value for _, value in values]
        found = spread(values)
        assert found["median"] == pytest.approx(np.median(plain_values)), name
        assert found["p99"] == pytest.approx(np.quantile(plain_values, 0.99)), name
    assert run.generated == 14
    assert run.seconds >= max(told.values()) - 0.05


def test_each_side_may_run_several_times_and_must_decide_the_same(
    sessions: Sessions, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(sessions, key)
    busy_hour(engine)
    made: list[int] = []
    plain_run = Comparison._run

    def noted(self: Comparison, number: int, config: EngineConfig) -> RunResult:
        made.append(config.max_num_batched_tokens)
        return plain_run(self, number, config)

    monkeypatch.setattr(Comparison, "_run", noted)
    setting = ("max_num_batched_tokens", 64, 32)
    result = compare(
        sessions, key, of_trace(engine.trace), engine.requested_config, *setting, repetitions=3
    )
    assert made == [64, 32, 32, 64, 64, 32]
    assert [len(side) for side in result.sides] == [3, 3]
    assert result.unequal == ()
    for side in result.sides:
        assert len({run.trace_id for run in side}) == 3, "each run is of a fresh engine"
        assert len({run.generated for run in side}) == 1
        assert all(run.seconds > 0 and run.samples["itl"] for run in side)
    told = result.as_json()["repetitions"]
    assert [[run["seconds"] for run in side] for side in told] == [
        [run.seconds for run in side] for side in result.sides
    ]


def test_runs_of_one_side_that_are_not_alike_are_told_of(sessions: Sessions, key: str) -> None:
    engine = engine_of(sessions, key)
    busy_hour(engine)
    workload = of_trace(engine.trace)
    configs = [EngineConfig(max_num_batched_tokens=n) for n in (64, 32, 64)]
    a, b, c = (run_of(sessions, workload, config) for config in configs)
    assert unequal("A", [a, c]) == []
    (odd,) = unequal("A", [a, b, c])
    told = first_divergence(a.decisions, b.decisions)
    assert told is not None and odd == Unequal("A", 2, told.step, told.request)
    others = {**c.outputs, "r3": c.outputs["r3"]._replace(tokens=(1,))}
    assert unequal("B", [a, c._replace(outputs=others)]) == [Unequal("B", 2, None, "r3")]


def run_of(sessions: Sessions, workload: Workload, config: EngineConfig) -> RunResult:
    run = Run(sessions.wait_for_model(), config, workload, sessions.thread)
    run.execute(lambda progress: None, lambda: False)
    return RunResult.of(run, rehearsed=False)


def test_percentiles_of_few_values() -> None:
    assert spread([]) == {"count": 0, "median": None, "p99": None}
    assert spread([Sample("r0", 2.0)]) == {"count": 1, "median": 2.0, "p99": 2.0}
    values = [Sample("r0", float(n)) for n in range(101)]
    assert spread(values) == {"count": 101, "median": 50.0, "p99": 99.0}


def test_memory_in_use_and_hits_go_with_the_steps(sessions: Sessions, key: str) -> None:
    engine = engine_of(sessions, key)
    busy_hour(engine)
    result = compare(
        sessions, key, of_trace(engine.trace), engine.requested_config, "num_gpu_blocks", 64, 32
    )
    a, b = result.runs
    assert [step.step for step in a.steps] == list(range(a.num_steps))
    assert 0 < a.most_usage < b.most_usage <= 1
    assert a.hit_rate == b.hit_rate and (a.hit_rate or 0) > 0.3
    assert a.steps[-1].generated == a.generated


# -- workloads ---------------------------------------------------------------------------------


def test_a_workload_is_saved_and_read_again(sessions: Sessions, key: str) -> None:
    engine = engine_of(sessions, key)
    busy_hour(engine)
    engine.submit("waits", params(3, logit_bias={7: 2.5}, stop=("x",)))
    workload = of_trace(engine.trace)
    assert read(workload.to_json().encode(), "w.json") == workload
    lines = "\n".join(engine.trace.lines())
    of_file = read(lines.encode(), engine.trace.header.trace_id)
    assert of_file == workload
    assert [each.op for each in workload.commands] == ["abort"]
    waits = workload.requests[-1]
    assert waits.arrival_step == engine.status.step
    assert waits.sampling.logit_bias == {7: 2.5}


def test_sequences_of_one_request_are_requests_of_their_own(sessions: Sessions, key: str) -> None:
    engine = engine_of(sessions, key)
    drawn = params(4, temperature=1.0, n=3, seed=5)
    engine.submit(SHARED, drawn)
    made = of_prompts("", engine.model.name, [Encoded("", SHARED, drawn, 0, "")])
    assert [r.id for r in made.requests] == ["0_r0", "1_r0", "2_r0"]
    assert made.requests == of_trace(engine.trace).requests


def small(**more: Any) -> dict[str, Any]:
    request = {"id": "r0", "prompt_token_ids": [5, 6, 7], **more}
    return {"kind": "glassbox-workload", "version": 1, "requests": [request]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"kind": "glassbox-workload"}, "requests: "),
        (small(id=""), "requests.0.id"),
        (small(id="x" * 65), "requests.0.id"),
        (small(prompt_token_ids=[]), "prompt_token_ids: must have 1 or more"),
        (small(prompt_token_ids=["5"]), "prompt_token_ids.0"),
        (small(prompt_token_ids=[-1]), "prompt_token_ids.0: must be 0 or more"),
        (small(arrival_step=4_000), "arrival_step: must be less than 4000"),
        (small(arrival_step=True), "arrival_step"),
        (small(sampling={"n": 2, "temperature": 1.0}), "n: 2; each sequence is a request"),
        (small(sampling={"max_tokens": 0}), "max_tokens: must be 1 or more"),
        (small(sampling={"max_tokens": 70_000}), "make 70003 tokens"),
        (small(sampling=[]), "must be an object"),
        (small(id="\ud800"), "requests.0.id"),
        (small(sampling={"stop": ["\ud800"]}), "requests.0"),
        (small(extra=1), "extra: there is no such setting"),
        ({**small(), "requests": small()["requests"] * 2}, "same id"),
        ({**small(), "version": 2}, "version: must be 1"),
        (
            {**small(), "commands": [{"step": 0, "before": "command", "op": "abort"}]},
            "commands.0.before: must be one of arrive, schedule, ",
        ),
    ],
)
def test_what_is_no_workload_is_refused_with_the_place(values: Any, expected: str) -> None:
    with pytest.raises(WorkloadError, match="workload: ") as caught:
        read(json.dumps(values).encode(), "w.json")
    assert expected in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[" * 100_000, b'{"kind": "header"}', b"no"])
def test_what_is_no_file_is_refused(data: bytes) -> None:
    with pytest.raises(WorkloadError):
        read(data, "w.json")


def test_a_trace_that_does_not_hold_together_is_refused(sessions: Sessions, key: str) -> None:
    engine = engine_of(sessions, key)
    engine.submit(SHARED, params(2))
    engine.step_phase()
    engine.abort("r0")
    lines = list(engine.trace.lines())
    broken = [line.replace('"prompt_token_ids":', '"prompt_token_ids":3,"x":') for line in lines]
    with pytest.raises(WorkloadError):
        read("\n".join(broken).encode(), "t.jsonl")
    strange = [line.replace('"next_phase":"schedule"', '"next_phase":"lunch"') for line in lines]
    with pytest.raises(WorkloadError):
        read("\n".join(strange).encode(), "t.jsonl")


def test_a_log_without_its_beginning_or_without_requests_is_refused(
    sessions: Sessions, key: str
) -> None:
    engine = engine_of(sessions, key)
    with pytest.raises(WorkloadError, match="has no request"):
        of_trace(engine.trace)
    engine.submit(SHARED, params(2))
    engine.trace._fold_oldest(3)
    with pytest.raises(WorkloadError, match="its first 3 records are kept only .*; reset"):
        of_trace(engine.trace)


def test_the_log_of_a_restored_engine_is_refused_and_says_how_to_mend_it(
    sessions: Sessions, key: str
) -> None:
    engine = engine_of(sessions, key)
    engine.submit(SHARED, params(9))
    engine.step()
    engine.restore(engine.take_moment())
    with pytest.raises(WorkloadError, match="goes on from a saved one.*or reset this one"):
        of_trace(engine.trace)


# -- comparisons -------------------------------------------------------------------------------


def of_one(max_tokens: int = 4, prompt: list[int] = SHARED) -> Workload:
    return of_prompts("one", "", [Encoded("", prompt, params(max_tokens), 0, "")])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (("lunch", 1, 2), "there is no setting 'lunch'"),
        (("async_scheduling", True, False), "cannot be compared here.*make bench ARGS=async_sch"),
        (("block_size", 16, 0), "with block_size 0: block_size: must be"),
        (("max_num_batched_tokens", 64, 4), "with max_num_batched_tokens 4: .*less than"),
        (("num_gpu_blocks", 64, 2), "with num_gpu_blocks 2: .*the prompt of r0 has 32 tokens"),
        (("num_gpu_blocks", 65_536, 64), None),
        (("dtype", "auto", "int3"), "with dtype int3: dtype: must be"),
        (("speculative_config", None, {"method": "lunch"}), "speculative_config.method: must be"),
    ],
)
def test_settings_that_cannot_be_are_named_before_anything_runs(
    sessions: Sessions, key: str, setting: tuple[Any, ...], expected: str | None
) -> None:
    if expected is None:
        sessions.comparisons.start(key, of_one(), EngineConfig(), Setting(*setting)).cancel()
        return
    with pytest.raises(ConfigError, match=expected):
        sessions.comparisons.start(key, of_one(), EngineConfig(), Setting(*setting))
    assert sessions.comparisons.get(key) is None


def test_tokens_that_the_model_does_not_know_are_named(sessions: Sessions, key: str) -> None:
    with pytest.raises(WorkloadError, match="r0 has token 9999, and tiny-random .* below 259; "):
        sessions.comparisons.start(
            key, of_one(prompt=[9_999]), EngineConfig(), Setting("seed", 0, 1)
        )


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({"logit_bias": {300: 1.0}}, "logit_bias: token id 300 is outside the vocabulary"),
        ({"prompt_logprobs": 20, "max_tokens": 1}, "prompt_logprobs: .* log-probabilities"),
    ],
)
def test_what_an_engine_would_refuse_is_refused(
    sessions: Sessions, key: str, sampling: dict[str, Any], expected: str
) -> None:
    prompt = [7] * (900 if "prompt_logprobs" in sampling else 5)
    asked = SamplingParams(**sampling)
    workload = of_prompts("", "", [Encoded("", prompt, asked, 0, "")] * 30)
    with pytest.raises(ConfigError, match=expected):
        sessions.comparisons.start(key, workload, EngineConfig(), Setting("seed", 0, 1))


def test_steps_without_work_pass_until_somebody_comes(sessions: Sessions, key: str) -> None:
    first, second = (
        {"id": name, "arrival_step": step, "prompt_token_ids": SHARED, "sampling": params(2)}
        for name, step in (("early", 0), ("late", 30))
    )
    workload = workloads.checked({"requests": [second, first]})
    result = compare(sessions, key, workload, EngineConfig(), "max_num_seqs", 8, 2)
    assert result.divergence is None
    came = [
        (record.step, record.facts.request)
        for record in trace_of(result.a.file).records
        if isinstance(record, Event) and isinstance(record.facts, RequestScheduled)
    ]
    assert came == [(0, "early"), (1, "early"), (30, "late"), (31, "late")]


def test_a_comparison_says_how_much_of_it_is_done(
    sessions: Sessions, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps are known once its side has run, its tokens from the beginning."""
    seen: list[dict[str, Any]] = []

    def tell(comparison: Comparison, progress: Progress) -> None:
        comparison.progress = progress
        seen.append(comparison.describe())

    monkeypatch.setattr(Comparison, "_tell", tell)
    base = EngineConfig(enforce_eager=True, max_num_seqs=4)  # no run goes again
    workload = of_one(max_tokens=6)
    result = compare(sessions, key, workload, base, "max_num_batched_tokens", 64, 4, repetitions=2)
    total = [result.a.num_steps, result.b.num_steps]
    told = [(each["run"], each["step"], each["steps"]) for each in seen]
    assert told == [
        (run, step, known)
        for run, side, known in ((1, 0, None), (2, 1, None), (3, 1, total[1]), (4, 0, total[0]))
        for step in range(1, total[side] + 1)
    ]
    shares = [each["share"] for each in seen]
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert all((each["run"] - 1) / 4 < each["share"] <= each["run"] / 4 for each in seen)
    assert len(set(shares[total[0] : sum(total)])) > 8  # chunks of the one prompt count


def test_one_comparison_a_session_which_can_be_cancelled(sessions: Sessions, key: str) -> None:
    engine = engine_of(sessions, key)
    start = sessions.comparisons.start
    long = of_one(900)
    comparison = start(key, long, engine.requested_config, Setting("seed", 0, 1))
    with pytest.raises(ComparisonBusy, match="wait for it, or cancel it first"):
        start(key, long, engine.requested_config, Setting("seed", 0, 1))
    # Others go on meanwhile: a step waits for no more than a step.
    before = comparison.progress.step
    engine.submit(SHARED, params(3))
    finish(engine)
    assert comparison.stage == "running", "it would have to be longer"
    assert comparison.progress.step >= before
    comparison.cancel()
    assert comparison.wait(PATIENCE_S) == "cancelled"
    assert comparison.result is None
    again = start(key, of_one(2), engine.requested_config, Setting("seed", 0, 1))
    assert again.wait(PATIENCE_S) == "done"
    sessions.comparisons.forget(key)
    assert sessions.comparisons.get(key) is None


def test_a_server_runs_so_many_at_once(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.comparison import comparisons

    monkeypatch.setattr(comparisons, "MAX_AT_ONCE", 1)
    setting = Setting("seed", 0, 1)
    first = sessions.comparisons.start(sessions.create(), of_one(900), EngineConfig(), setting)
    with pytest.raises(ComparisonBusy, match="as many as may"):
        sessions.comparisons.start(sessions.create(), of_one(), EngineConfig(), setting)
    first.cancel()
    assert first.wait(PATIENCE_S) == "cancelled"


def test_runs_that_do_not_end_are_ended(
    sessions: Sessions, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.comparison import run

    def outcome() -> Comparison:
        setting = Setting("seed", 3, 4)
        made = sessions.comparisons.start(key, of_one(40), EngineConfig(), setting)
        assert made.wait(60) == "failed"
        return made

    monkeypatch.setattr(run, "MAX_STEPS", 10)
    assert "Run 1, with seed 3: it has not ended after 10 steps" in outcome().problem
    monkeypatch.setattr(run, "MAX_RECORDS", 100)
    assert "more than 100 records" in outcome().problem


def test_an_engine_that_fails_is_told_of_and_harms_nobody(
    sessions: Sessions, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.model_runner import ModelRunner

    def fail(self: ModelRunner) -> None:
        raise RuntimeError("no device")

    with monkeypatch.context() as patched:
        patched.setattr(ModelRunner, "execute_model", fail)
        comparison = sessions.comparisons.start(
            key, of_one(), EngineConfig(), Setting("seed", 0, 1)
        )
        assert comparison.wait(60) == "failed"
    assert "stopped in the phase `execute` of step 0 (RuntimeError: no device)" in (
        comparison.problem
    )
    engine = engine_of(sessions, key)
    engine.submit(SHARED, params(2))
    finish(engine)
    assert engine.failed is None


def test_a_session_that_is_put_to_rest_takes_its_comparison_along(tiny: LoadedModel) -> None:
    now = [0.0]
    sessions = Sessions(lambda report: tiny, idle_seconds=60, clock=lambda: now[0])
    sessions.wait_for_model()
    key = sessions.create()
    comparison = sessions.comparisons.start(key, of_one(900), EngineConfig(), Setting("seed", 0, 1))
    now[0] = 61.0
    sessions.sweep()
    assert sessions.comparisons.get(key) is None
    assert comparison.wait(PATIENCE_S) == "cancelled"
    sessions.close()


def test_the_end_of_the_server_ends_a_comparison(tiny: LoadedModel) -> None:
    sessions = Sessions(lambda report: tiny)
    sessions.wait_for_model()
    comparison = sessions.comparisons.start(
        sessions.create(), of_one(900), EngineConfig(), Setting("seed", 0, 1)
    )
    wait_until(lambda: comparison.progress.step > 0)
    sessions.close()
    assert comparison.wait(PATIENCE_S) in ("cancelled", "failed")


def test_limits_are_those_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs/page.md").read_text().replace("\n", " ")
    limits = (workloads.MAX_REQUESTS, workloads.MAX_TOKENS, workloads.MAX_STEPS)
    said = "up to {:,} requests, {:,} tokens (prompts and `max_tokens`) and {:,} steps"
    assert said.format(*limits) in page
