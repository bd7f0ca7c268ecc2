"""The runner under the real scheduler: tokens equal plain Transformers', and the log is true."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import EngineConfig, SamplingParams
from engine.core import EngineCore
from engine.events import (
    AttentionRun,
    BlocksHit,
    BlocksLeftUncomputed,
    BlocksUncached,
    BlockTablesUpdated,
    ForwardRun,
    HeadsGrouped,
    InputsPrepared,
    KVWritten,
    ModulesTimed,
    PagesRead,
    PrefixLookedUp,
    RequestPreempted,
    StepDispatched,
    TokenSampled,
    TokensReturned,
    WeightsRead,
)
from engine.kv_cache import KVCacheSpec
from engine.model_loader import LoadedModel, ModelError
from engine.model_runner import ModelRunner
from engine.module_timer import KINDS, ModuleTimer
from engine.outputs import (
    NewRequestData,
    PromptLogprobs,
    ScheduledRequest,
    SchedulerOutput,
    TokenLogprobs,
)
from engine.reasons import EnforceEager, NotUniformDecode
from engine.records import Event, Phase
from engine.request import Request
from engine.sampler import Sampler, SamplingRow
from engine.trace import Trace
from tests.engine.tiny_configs import CONFIGS, VOCAB, plain_greedy, plain_logits, tiny
from tests.engine.traces import make_trace

GREEDY_SMOLLM2 = Path(__file__).parents[1] / "conformance" / "greedy_smollm2.json"


class Engine:
    """A core with a real runner, and nothing around it."""

    def __init__(self, model: LoadedModel, **config: Any):
        config.setdefault("max_num_seqs", min(8, config.get("max_num_batched_tokens", 8)))
        settings = EngineConfig.parse(config).resolve(model.max_model_len)
        self.trace = make_trace(settings)
        self.runner = ModelRunner(model, settings, self.trace)
        self.core = EngineCore(settings, self.runner, self.trace)
        self.eos_token_ids = model.eos_token_ids
        self.requests: dict[str, Request] = {}

    def add(self, name: str, prompt: list[int], **params: Any) -> Request:
        values = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 12} | params
        request = Request(name, prompt, SamplingParams.parse(values), self.eos_token_ids)
        self.requests[name] = request
        self.core.add_request(request)
        return request

    def run(self, limit: int = 2_000) -> dict[str, list[int]]:
        for _ in range(limit):
            if not self.core.has_work():
                break
            self.core.step()
        assert not self.core.has_work()
        return {name: request.output_token_ids for name, request in self.requests.items()}

    def until(self, phase: Phase) -> None:
        """Stop before `phase` of the current step, or of the next one."""
        while self.core.next_phase is not phase:
            self.core.step_phase()

    def events(self, *types: type[Any]) -> list[Event]:
        return [
            record
            for record in self.trace.records
            if isinstance(record, Event) and isinstance(record.facts, types)
        ]

    def facts(self, *types: type[Any]) -> list[Any]:
        return [event.facts for event in self.events(*types)]


def random_prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(3, VOCAB) for _ in range(length)]


# --- the same tokens as plain Transformers -----------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "qwen3", "gpt2"])
def test_greedy_equals_the_naive_loop_whatever_the_scheduler_does(name: str) -> None:
    """A small pool and budget: chunked prefill, prefix hits, preemption, blocks used again."""
    model, rng = tiny(name), random.Random(7)
    engine = Engine(
        model, block_size=4, num_gpu_blocks=15, max_num_batched_tokens=9, max_num_seqs=4
    )
    prefix = random_prompt(rng, 8)
    prompts = {f"r{i}": random_prompt(rng, n) for i, n in enumerate((3, 17, 6, 11))}
    prompts |= {f"p{i}": prefix + random_prompt(rng, n) for i, n in enumerate((2, 7, 1))}
    for i, (key, prompt) in enumerate(prompts.items()):
        engine.add(key, prompt, max_tokens=15)
        if i % 2:
            engine.core.step()
    outputs = engine.run()
    assert engine.facts(RequestPreempted)
    assert any(fact.hit_tokens for fact in engine.facts(PrefixLookedUp))
    kinds = {
        (f.positions[0] > 0, len(f.positions) > len(f.requests))
        for f in engine.facts(InputsPrepared)
    }
    assert (True, True) in kinds  # a chunk that goes on where an earlier one ended
    for key, prompt in prompts.items():
        assert outputs[key] == plain_greedy(model, prompt, 15), key
    assert not engine.runner.requests  # all forgotten, by the empty step at the end


@pytest.mark.parametrize("block_size", [1, 3, 128])
def test_any_block_size(block_size: int) -> None:
    model, rng = tiny("llama"), random.Random(8)
    engine = Engine(model, block_size=block_size, max_num_batched_tokens=10)
    prompts = {str(i): [7] * 7 + random_prompt(rng, i) for i in range(4)}
    for key, prompt in prompts.items():
        engine.add(key, prompt, max_tokens=6)
    outputs = engine.run()
    for key, prompt in prompts.items():
        assert outputs[key] == plain_greedy(model, prompt, 6)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("seed", range(6))
def test_random_runs_equal_the_naive_loop(policy: str, seed: int) -> None:
    """Random sizes, arrivals, shared prefixes, aborts and resets, at any phase."""
    model, rng = tiny("llama"), random.Random(seed)
    engine = Engine(
        model,
        block_size=4,
        num_gpu_blocks=rng.randrange(9, 16),
        max_num_batched_tokens=rng.randrange(3, 20),
        max_num_seqs=rng.randrange(2, 6),
        max_model_len=32,
        long_prefill_token_threshold=rng.choice([0, 5]),
        scheduling_policy=policy,
        enforce_eager=True,
    )
    stems = [random_prompt(rng, 13) for _ in range(2)]
    prompts: dict[str, list[int]] = {}
    aborted = set()
    for i in range(10):
        key = f"r{i}"
        prompts[key] = rng.choice(stems)[: rng.randrange(14)] + random_prompt(
            rng, rng.choice([1, 4])
        )
        request = engine.add(key, prompts[key], max_tokens=rng.randrange(1, 13))
        request.priority, request.arrival_time = rng.randrange(3), float(i)
        for _ in range(rng.randrange(12)):
            engine.core.step_phase()
        if rng.random() < 0.2:
            aborted |= set(engine.core.abort_requests([rng.choice([*prompts])]))
        if rng.random() < 0.1:
            engine.core.reset_prefix_cache(reset_running_requests=True)
    outputs = engine.run()
    assert len(aborted) < 6
    for key, prompt in prompts.items():
        expected = plain_greedy(model, prompt, len(outputs[key]))
        assert outputs[key] == expected, key
        if key not in aborted:
            assert len(outputs[key]) == engine.requests[key].sampling_params.max_tokens


@pytest.mark.parametrize("cache_uncomputed_blocks", [True, False])
def test_a_victim_that_hits_blocks_nobody_computed_writes_another_text(
    cache_uncomputed_blocks: bool,
) -> None:
    """It gets tokens, and in the same step loses its blocks to a request of higher priority."""
    model, rng = tiny("llama"), random.Random(7)
    engine = Engine(
        model,
        block_size=4,
        num_gpu_blocks=9,
        max_num_batched_tokens=40,
        max_model_len=32,
        scheduling_policy="priority",
        long_prefill_token_threshold=9,
        cache_uncomputed_blocks=cache_uncomputed_blocks,
    )
    prompts = {"low": random_prompt(rng, 26), "high": random_prompt(rng, 4)}
    engine.add("low", prompts["low"], max_tokens=6).priority = 9
    engine.core.step()
    engine.add("high", prompts["high"], max_tokens=4)
    outputs = engine.run()
    naive = {key: plain_greedy(model, prompt, len(outputs[key])) for key, prompt in prompts.items()}
    assert outputs["high"] == naive["high"]
    assert (outputs["low"] != naive["low"]) == cache_uncomputed_blocks
    (hit,) = engine.facts(BlocksHit)
    assert hit.request == "low"
    if cache_uncomputed_blocks:
        assert engine.facts(BlocksLeftUncomputed) == [BlocksLeftUncomputed("low", hit.uncomputed)]
    else:
        (dropped,) = engine.facts(BlocksUncached)
        assert dropped.request == "low" and not hit.uncomputed


def test_smollm2_greedy_in_one_batch(default_model: LoadedModel) -> None:
    expected = json.loads(GREEDY_SMOLLM2.read_text())
    engine = Engine(default_model, num_gpu_blocks=80, max_num_batched_tokens=40)
    for i, item in enumerate(expected):
        engine.add(str(i), item["prompt_token_ids"], max_tokens=len(item["output_token_ids"]))
    outputs = engine.run()
    for i, item in enumerate(expected):
        assert outputs[str(i)] == item["output_token_ids"], item["prompt"]


# --- sampling through the engine ---------------------------------------------------------------


def sampled(request_seed: int | None, alone: bool, blocks: int = 64, **config: Any) -> list[int]:
    engine = Engine(tiny("llama"), num_gpu_blocks=blocks, block_size=4, **config)
    rng = random.Random(3)
    prompt = random_prompt(rng, 9)
    if not alone:
        for i in range(3):
            engine.add(f"other{i}", random_prompt(rng, 5 + i), temperature=1.5, max_tokens=20)
    engine.add(
        "it",
        prompt,
        temperature=0.8,
        top_p=0.9,
        top_k=40,
        min_p=0.01,
        repetition_penalty=1.2,
        frequency_penalty=0.4,
        seed=request_seed,
        max_tokens=20,
    )
    tokens = engine.run()["it"]
    if blocks < 20:
        assert any(f.request == "it" for f in engine.facts(RequestPreempted))
    return tokens


@pytest.mark.parametrize("seed", [5, None])
def test_a_seeded_request_draws_the_same_alone_in_company_and_preempted(seed: int | None) -> None:
    alone = sampled(seed, alone=True)
    assert sampled(seed, alone=False) == alone
    assert sampled(seed, alone=False, blocks=14, max_num_batched_tokens=7) == alone


def test_draws_are_those_of_the_plain_model() -> None:
    """The n-th token comes from plain Transformers' logits and the n-th number of the seed."""
    model, tokens = tiny("llama"), [5, 6, 7, 8]
    params = {"temperature": 0.9, "top_p": 0.95, "seed": 3, "max_tokens": 15}
    engine = Engine(model, block_size=4)
    engine.add("other", [9, 9, 9, 9, 9])
    request = engine.add("it", list(tokens), **params)
    for index in range(15):
        row = SamplingRow(request.sampling_params, 3, index, ())
        tokens.append(Sampler().sample(plain_logits(model, tokens)[-1:], [row])[0].token)
    assert engine.run()["it"] == tokens[4:]


def test_other_seeds_draw_otherwise() -> None:
    drawn = {tuple(sampled(seed, alone=True)) for seed in (1, 2, 3)}
    drawn |= {tuple(sampled(None, alone=True, seed=s)) for s in (0, 1)}
    assert len(drawn) == 5


def test_min_tokens_holds_back_a_stop_token() -> None:
    model, prompt = tiny("llama"), [5, 6, 7, 8]
    expected = plain_greedy(model, prompt, 6)
    engine = Engine(model)
    stopped = engine.add("a", prompt, stop_token_ids=(expected[2],), max_tokens=6)
    later = engine.add("b", prompt, stop_token_ids=(expected[2],), min_tokens=4, max_tokens=6)
    engine.run()
    assert stopped.output_token_ids == expected[: expected.index(expected[2]) + 1]
    assert later.num_output_tokens >= 4
    assert expected[2] not in later.output_token_ids[:4]


# --- requests that go in the middle of a step ----------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.EXECUTE, Phase.SAMPLE, Phase.UPDATE])
@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_an_abort_in_mid_step_leaves_the_others_alone(phase: Phase, victim: str) -> None:
    model, rng = tiny("llama"), random.Random(1)
    engine = Engine(model, block_size=4, max_num_batched_tokens=12)
    prompts = {key: random_prompt(rng, n) for key, n in (("a", 5), ("b", 20), ("c", 3))}
    for key, prompt in prompts.items():
        engine.add(key, prompt)
    engine.core.step()
    engine.core.step()
    engine.until(phase)
    assert engine.core.abort_requests([victim]) == [victim]
    outputs = engine.run()
    for key in prompts.keys() - {victim}:
        assert outputs[key] == plain_greedy(model, prompts[key], 12), key


@pytest.mark.parametrize("phase", [Phase.EXECUTE, Phase.SAMPLE, Phase.UPDATE, Phase.ARRIVE])
def test_a_reset_that_preempts_everybody_changes_no_output(phase: Phase) -> None:
    model, rng = tiny("llama"), random.Random(2)
    engine = Engine(model, block_size=4, max_num_batched_tokens=12)
    prompts = {str(i): random_prompt(rng, 6 + i) for i in range(3)}
    for key, prompt in prompts.items():
        engine.add(key, prompt)
    for _ in range(3):
        engine.core.step()
    engine.until(phase)
    assert engine.core.reset_prefix_cache(reset_running_requests=True)
    outputs = engine.run()
    for key, prompt in prompts.items():
        assert outputs[key] == plain_greedy(model, prompt, 12)


@pytest.mark.parametrize("executed", [False, True])
def test_a_dropped_request_takes_only_its_own_row_along(executed: bool) -> None:
    model, rng = tiny("llama"), random.Random(5)
    runner = Engine(model, block_size=4).runner
    prompts = {key: random_prompt(rng, 4) for key in "abc"}
    items = [new(key, prompt, 4, (i + 1,)) for i, (key, prompt) in enumerate(prompts.items())]
    runner.prepare_inputs(SchedulerOutput(tuple(items), 12, 0, (), ()))
    if executed:
        runner.execute_model()
    runner.drop_requests({"b"})
    if not executed:
        runner.execute_model()
    assert runner.sample_tokens().sampled_token_ids == {
        key: tuple(plain_greedy(model, prompts[key], 1)) for key in "ac"
    }


def test_dropping_the_only_request_leaves_an_empty_step() -> None:
    engine = Engine(tiny("llama"))
    engine.add("a", [5, 6, 7])
    engine.until(Phase.EXECUTE)
    before = len(engine.facts(ForwardRun, TokensReturned))
    engine.runner.drop_requests({"a", "never seen"})
    engine.runner.execute_model()
    assert engine.runner.sample_tokens().sampled_token_ids == {}
    assert len(engine.facts(ForwardRun, TokensReturned)) == before


# --- the runner by itself ----------------------------------------------------------------------


def new(
    request_id: str, tokens: list[int], count: int, new_ids: tuple[int, ...], **more: Any
) -> ScheduledRequest:
    hit: tuple[int, ...] = more.pop("hit", ())
    data = NewRequestData(tuple(tokens), len(tokens), SamplingParams(temperature=0.0))
    return ScheduledRequest(
        request_id, more.get("kind", "new"), count, 4 * len(hit), new_ids, hit, data
    )


def one_step(runner: ModelRunner, *scheduled: ScheduledRequest, **more: Any) -> dict[str, int]:
    total = sum(item.num_tokens for item in scheduled)
    gone = (more.get("preempted", ()), more.get("finished", ()))
    runner.prepare_inputs(SchedulerOutput(scheduled, total, 0, *gone))
    runner.execute_model()
    return {key: token for key, (token,) in runner.sample_tokens().sampled_token_ids.items()}


def test_a_hit_on_blocks_of_a_finished_request() -> None:
    model = tiny("llama")
    runner = Engine(model, block_size=4).runner
    tokens = random_prompt(random.Random(0), 11)
    first = one_step(runner, new("a", tokens[:9], 9, (7, 3, 9)))
    hit = one_step(runner, new("b", tokens, 3, (5,), hit=(7, 3)), finished=("a",))
    assert first["a"] == plain_greedy(model, tokens[:9], 1)[0]
    assert hit["b"] == plain_greedy(model, tokens, 1)[0]
    assert set(runner.requests) == {"b"}


def test_a_request_resumed_in_the_step_that_reports_its_preemption() -> None:
    model = tiny("llama")
    runner = Engine(model, block_size=4).runner
    tokens = random_prompt(random.Random(0), 6)
    token = one_step(runner, new("a", tokens, 6, (1, 2)))["a"]
    again = new("a", [*tokens, token], 7, (9, 4), kind="resumed")
    second = one_step(runner, again, preempted=("a",))
    assert [token, second["a"]] == plain_greedy(model, tokens, 2)


def test_a_chunk_short_of_the_prompt_samples_nothing() -> None:
    engine = Engine(tiny("llama"), block_size=4)
    assert one_step(engine.runner, new("a", [5, 6, 7, 8, 9], 4, (1,))) == {}
    assert engine.facts(TokensReturned) == [TokensReturned(0)]


def test_what_was_never_given_is_refused() -> None:
    runner = Engine(tiny("llama"), block_size=4).runner
    with pytest.raises(RuntimeError, match="a: tokens 0 to 5 are scheduled"):
        one_step(runner, new("a", [5, 6, 7, 8, 9], 5, (1,)))


def test_engines_take_turns_with_one_model() -> None:
    model, rng = tiny("llama"), random.Random(4)
    engines = [Engine(model, block_size=4, max_num_batched_tokens=6) for _ in range(3)]
    prompts = [random_prompt(rng, 10 + i) for i in range(3)]
    for engine, prompt in zip(engines, prompts, strict=True):
        engine.add("r", prompt)
    while any(engine.core.has_work() for engine in engines):
        for engine in engines:
            if engine.core.has_work():
                engine.core.step_phase()  # they interleave within a step
    for engine, prompt in zip(engines, prompts, strict=True):
        assert engine.run()["r"] == plain_greedy(model, prompt, 12)
        assert len(engine.facts(ModulesTimed)) == len(engine.facts(ForwardRun))


def test_a_failed_forward_leaves_model_and_timer_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    engine = Engine(model, enforce_eager=True)
    engine.add("a", [5, 6, 7])
    engine.until(Phase.EXECUTE)
    monkeypatch.setattr(model.model.model.layers[1].mlp, "forward", lambda x: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.runner.execute_model()
    monkeypatch.undo()
    plain_logits(model, [5, 6, 7])
    engine.runner.execute_model()
    assert engine.runner.sample_tokens().sampled_token_ids == {
        "a": tuple(plain_greedy(model, [5, 6, 7], 1))
    }


def test_a_layer_beside_the_paged_function_is_noticed(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model)
    engine.add("a", [5, 6, 7])
    tiny_model.model.model.layers[2].self_attn.forward = lambda hidden_states, **_: (
        hidden_states,
        None,
    )
    with pytest.raises(ModelError, match="only 3 of 4 layers"):
        engine.core.step()


# --- the log -----------------------------------------------------------------------------------


def test_the_facts_of_a_mixed_step() -> None:
    model = tiny("llama")
    engine = Engine(model, block_size=4, enable_prefix_caching=False)
    engine.add("a", [5, 6, 7])
    engine.core.step()
    engine.add("b", [9, 8, 7, 6, 5])
    engine.core.step()
    spec = KVCacheSpec.of(model, 4)

    def last(kind: type[Any]) -> Any:
        return engine.facts(kind)[-1]

    token = engine.requests["a"].output_token_ids[0]
    table_a, table_b = (tuple(engine.runner.requests[key].block_ids) for key in "ab")
    slot = [block * 4 + offset for block in table_b for offset in range(4)]
    assert last(InputsPrepared) == InputsPrepared(
        requests=("a", "b"),
        query_start_loc=(0, 1, 6),
        seq_lens=(4, 5),
        input_ids=(token, 9, 8, 7, 6, 5),
        positions=(3, 0, 1, 2, 3, 4),
        slot_mapping=(table_a[0] * 4 + 3, *slot[:5]),
    )
    assert last(BlockTablesUpdated) == BlockTablesUpdated(("b",), 2)
    assert last(StepDispatched) == StepDispatched("PIECEWISE", 6, 8)
    assert engine.events(StepDispatched)[-1].reason == NotUniformDecode(1, 1, 5)
    assert last(ForwardRun) == ForwardRun(6, 2, 3)
    assert last(WeightsRead) == WeightsRead(model.read_bytes)
    assert last(AttentionRun) == AttentionRun(engine.runner.kv_cache.attention_backend, 3, 6)
    assert last(KVWritten) == KVWritten(6, 6 * spec.bytes_per_token)
    assert engine.facts(PagesRead)[-2:] == [
        PagesRead("a", table_a, 4, spec.bytes_per_block),
        PagesRead("b", table_b, 5, 2 * spec.bytes_per_block),
    ]
    assert last(HeadsGrouped) == HeadsGrouped(4, 2, spec.bytes_per_token)
    assert [fact.request for fact in engine.facts(TokenSampled)[-2:]] == ["a", "b"]
    assert last(TokensReturned) == TokensReturned(2)


def test_the_log_survives_being_saved() -> None:
    engine = Engine(tiny("llama"))
    engine.add("a", [5, 6, 7], temperature=1.0, max_tokens=3)
    engine.run()
    again = Trace.parse([*engine.trace.lines()])
    kinds = (InputsPrepared, StepDispatched, PagesRead, TokenSampled)
    read = [r.facts for r in again.records if isinstance(r, Event) and isinstance(r.facts, kinds)]
    assert read == engine.facts(*kinds) and len(read) == 12


def test_times_by_module_add_up_to_the_forward() -> None:
    engine = Engine(tiny("qwen3"))
    engine.add("a", [5, 6, 7], max_tokens=2)
    engine.run()
    forwards, attention = engine.events(ForwardRun), engine.events(AttentionRun)
    for forward, run, facts in zip(forwards, attention, engine.facts(ModulesTimed), strict=True):
        calls = dict(zip(facts.kinds, facts.calls, strict=True))
        assert facts.kinds == KINDS
        # 3 layers: two norms and, in qwen3, one of queries and one of keys; the last norm.
        assert calls == {
            "embed": 1, "norm": 13, "qkv_proj": 9, "attention": 3, "o_proj": 3, "mlp": 3,
            "lm_head": 1, "other": 0,
        }  # fmt: skip
        assert sum(facts.durations_us) == pytest.approx(forward.duration_us, abs=1.0)
        assert all(duration > 0 for duration in facts.durations_us)
        assert run.duration_us == facts.durations_us[facts.kinds.index("attention")]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_architecture_runs_and_is_timed_by_module(name: str) -> None:
    model, engine = tiny(name), Engine(tiny(name), max_num_batched_tokens=6)
    prompts = {"a": [5, 6, 7, 8, 9], "b": [9, 8, 7]}
    for key, prompt in prompts.items():
        engine.add(key, prompt, max_tokens=3)
    outputs = engine.run()
    for key, prompt in prompts.items():
        assert outputs[key] == plain_greedy(model, prompt, 3)
    facts = engine.facts(ModulesTimed)[0]
    assert facts.kinds == KINDS
    # Some compute queries, keys and values in one product.
    projections = 3 if name in ("gpt2", "gpt_neox", "phi3") else 9
    assert facts.calls[facts.kinds.index("qkv_proj")] == projections


def test_why_no_graph_is_replayed() -> None:
    engine = Engine(tiny("llama"), enforce_eager=True)
    engine.add("a", [5, 6, 7], max_tokens=2)
    engine.run()
    assert engine.events(StepDispatched)[-1].reason == EnforceEager()


def test_an_empty_step_says_nothing() -> None:
    engine = Engine(tiny("llama"))
    engine.add("a", [5, 6, 7], max_tokens=1)
    engine.core.step()
    assert engine.core.has_work()  # the step that reports the finished id
    step = engine.core.step_index
    engine.core.step()
    said = [e for e in engine.events(object) if e.step == step]
    assert not [e for e in said if e.phase in (Phase.PREPARE, Phase.EXECUTE, Phase.SAMPLE)]


def test_the_timer_is_silent_outside_of_a_step() -> None:
    model = tiny("llama")
    timer = ModuleTimer.of(model.model)
    assert ModuleTimer.of(model.model) is timer
    timer.start()
    times = timer.stop()
    plain_logits(model, [5, 6, 7])
    assert times.kinds == ("other",) and timer.stop().calls == (0,)


def test_what_a_failed_forward_left_on_the_timer_is_forgotten() -> None:
    timer = ModuleTimer.of(tiny("llama").model)
    timer.start()
    timer.enter("mlp")
    timer.stop()
    timer.start()
    time.sleep(0.003)
    timer.enter("norm")
    timer.leave()
    times = timer.stop()
    assert times.kinds == ("norm", "other") and times.duration_us("other") > 2_000


def test_the_pool_is_on_the_model_s_device() -> None:
    runner = Engine(tiny("llama")).runner
    assert {layer.data.device for layer in runner.kv_cache.layers} == {torch.device("cpu")}


# --- log-probabilities -------------------------------------------------------------------------


class Told(Engine):
    """An engine that keeps what the runner told of each request."""

    def __init__(self, model: LoadedModel, **config: Any):
        super().__init__(model, **config)
        self.logprobs: dict[str, list[TokenLogprobs]] = {}
        self.prompts: dict[str, PromptLogprobs] = {}

    def run(self, limit: int = 2_000) -> dict[str, list[int]]:
        for _ in range(limit):
            if not self.core.has_work():
                break
            self.until(Phase.UPDATE)
            sampled = self.core.sampled
            for key, told in sampled.logprobs.items():
                assert len(told) == len(sampled.sampled_token_ids[key])
                self.logprobs.setdefault(key, []).extend(told)
            for key, prompt in sampled.prompt_logprobs.items():
                assert key not in self.prompts  # once
                assert not self.requests[key].num_output_tokens  # with the first token
                self.prompts[key] = prompt
            self.core.step()
        return super().run(0)


def assert_told(told: TokenLogprobs | None, logits: torch.Tensor, token: int, count: int) -> None:
    """That `told` is what these logits say of the token."""
    assert told is not None and told.token_id == token
    expected = logits.double().log_softmax(-1)
    assert told.logprob == pytest.approx(float(expected[token]), abs=1e-4)
    ahead = [int((expected > expected[token] + margin).sum()) for margin in (1e-4, -1e-4)]
    assert ahead[0] + 1 <= told.rank <= ahead[1]
    assert [value for _, value in told.top] == pytest.approx(
        expected.topk(count).values.tolist(), abs=1e-4
    )
    for other, value in told.top:
        assert value == pytest.approx(float(expected[other]), abs=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"max_num_batched_tokens": 3},  # chunks
        {"max_num_batched_tokens": 1},  # of one token: they look like decodes
        {"num_gpu_blocks": 13, "max_num_batched_tokens": 7},  # preempted
        {"enable_prefix_caching": False},
    ],
)
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_logprobs_are_those_of_the_plain_model(name: str, config: dict[str, Any]) -> None:
    """Of prompts whose beginning others left in the cache, and of outputs."""
    model, rng = tiny(name), random.Random(5)
    prefix = random_prompt(rng, 9)
    prompts = {str(i): prefix + random_prompt(rng, i) for i in range(4)} | {"one": [7]}
    engine = Told(model, block_size=4, **config)
    engine.add("before", prefix, max_tokens=2)
    engine.run()
    for key, prompt in prompts.items():
        engine.add(key, prompt, max_tokens=12, prompt_logprobs=3, logprobs=2)
        engine.add(f"beside {key}", prompt, max_tokens=12)
    outputs = engine.run()
    assert set(engine.prompts) == set(prompts)
    if "num_gpu_blocks" in config:
        preempted = {f.request for f in engine.facts(RequestPreempted)}
        assert preempted & set(prompts)
    for key, prompt in prompts.items():
        assert outputs[key] == outputs[f"beside {key}"]
        tokens = prompt + outputs[key]
        logits = plain_logits(model, tokens)
        told = engine.prompts[key]
        assert len(told) == len(prompt) and told[0] is None
        for i in range(1, len(prompt)):
            assert_told(told[i], logits[i - 1], tokens[i], 3)
        assert len(engine.logprobs[key]) == len(outputs[key])
        for i, one in enumerate(engine.logprobs[key], len(prompt)):
            assert_told(one, logits[i - 1], tokens[i], 2)


def test_who_asks_about_its_prompt_reads_no_cached_prefix_but_leaves_one() -> None:
    model, prompt = tiny("llama"), list(range(20, 33))
    engine = Told(model, block_size=4)
    engine.add("first", prompt, max_tokens=1)
    engine.run()
    engine.add("asks", prompt, max_tokens=1, prompt_logprobs=0)
    engine.run()
    assert [f.request for f in engine.facts(PrefixLookedUp)] == ["first"]
    assert engine.core.scheduler.counters.prefix_requests == 1
    assert engine.requests["asks"].hit_tokens == 0
    assert engine.core.reset_prefix_cache()
    engine.add("asks again", prompt, max_tokens=1, prompt_logprobs=0)
    engine.run()
    engine.add("last", prompt, max_tokens=1)
    engine.run()
    assert engine.requests["last"].hit_tokens == 12


def test_a_prompt_is_told_after_a_chunk_was_thrown_away() -> None:
    """Preempted in the middle of its prefill, and aborted between forward and sampling."""
    model, prompt = tiny("llama"), list(range(20, 33))
    engine = Told(model, block_size=4, max_num_batched_tokens=5)
    engine.add("asks", prompt, prompt_logprobs=1, max_tokens=2)
    engine.core.step()
    engine.until(Phase.SAMPLE)
    assert engine.core.reset_prefix_cache(reset_running_requests=True)
    engine.run()
    logits = plain_logits(model, prompt)
    for i, one in enumerate(engine.prompts["asks"][1:]):
        assert_told(one, logits[i], prompt[i + 1], 1)
    engine.add("gone", prompt, prompt_logprobs=1)
    engine.add("stays", prompt[:3], prompt_logprobs=1, max_tokens=1)
    engine.until(Phase.SAMPLE)
    engine.core.abort_requests(["gone"])
    engine.run()
    assert "gone" not in engine.prompts
    assert len(engine.prompts["stays"]) == 3


def test_the_log_has_each_choice_with_its_candidates() -> None:
    model = tiny("llama")
    engine = Engine(model)
    engine.add("greedy", [5, 6, 7], max_tokens=3)
    engine.add("drawn", [5, 6, 7], max_tokens=3, temperature=2.0, top_k=2, seed=1)
    outputs = engine.run()
    facts = engine.facts(TokenSampled)
    assert len(facts) == 6
    for fact in facts:
        assert fact.token in fact.candidates
        assert 5 <= len(fact.candidates) == len(fact.texts) == len(fact.probabilities) <= 6
        assert list(fact.probabilities) == sorted(fact.probabilities, reverse=True)
        assert len(fact.drawn_from) == (0 if fact.greedy else len(fact.candidates))
        if not fact.greedy:
            assert sum(fact.drawn_from) == pytest.approx(1.0, abs=1e-3)
            assert [p > 0 for p in fact.drawn_from].count(True) == 2
    logits = plain_logits(model, [5, 6, 7, *outputs["drawn"]])[2]
    first = next(fact for fact in facts if fact.request == "drawn")
    chosen = first.probabilities[first.candidates.index(first.token)]
    assert chosen == pytest.approx(float(logits.softmax(-1)[first.token]), rel=1e-3)
