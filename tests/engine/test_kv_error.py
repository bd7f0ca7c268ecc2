"""The comparison with fp32: against plain Transformers, at any moment, and without a trace."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from engine.async_llm import AsyncLLM, EngineError
from engine.config import EngineConfig, SamplingParams
from engine.detokenizer import token_pieces
from engine.events import KVCacheCompared
from engine.kv_error import MAX_TOKENS, Reference, compare_kv
from engine.model_loader import LoadedModel
from engine.records import Phase
from tests.engine.test_model_runner import Engine, random_prompt
from tests.engine.tiny_configs import plain_greedy, plain_logits, tiny


def compared(engine: Engine, name: str) -> KVCacheCompared:
    return compare_kv(tiny("llama"), engine.core, engine.requests[name])


def plain_kv(model: LoadedModel, tokens: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """K and V of each layer as Transformers caches them: [tokens, heads, dim]."""
    with torch.inference_mode():
        runnable: Any = model.model
        cache = runnable(input_ids=torch.tensor([tokens]), use_cache=True).cache
    return [
        (layer.keys[0].transpose(0, 1), layer.values[0].transpose(0, 1)) for layer in cache.layers
    ]


def off_by(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
def test_the_reference_is_the_plain_model(name: str) -> None:
    model = tiny(name)
    tokens = random_prompt(random.Random(3), 40)
    reference = Reference(model, 60)
    with torch.inference_mode():
        found = torch.cat([reference.feed(tokens[:30], 30), reference.feed(tokens[30:], 10)])
        again = Reference(model, 40).feed(tokens, 3)
    assert (found - plain_logits(model, tokens)).abs().max() < 1e-5
    assert (again - found[-3:]).abs().max() < 1e-5


def test_errors_are_those_of_the_pool_against_plain_transformers() -> None:
    model, engine = tiny("llama"), Engine(tiny("llama"), block_size=4, kv_cache_dtype="fp8")
    request = engine.add("a", random_prompt(random.Random(4), 21))
    for _ in range(5):
        engine.core.step()
    found = compared(engine, "a")
    assert (found.dtype, found.weights, found.num_outputs) == ("fp8_e4m3", "float32", 5)
    assert found.num_tokens == request.num_computed_tokens == 25
    table = engine.runner.requests["a"].block_ids
    for i, (keys, values) in enumerate(plain_kv(model, request.all_token_ids[:25])):
        pool = engine.runner.kv_cache.layers[i].data.float()
        for part, wanted, told in (
            (0, keys, found.key_errors[i]),
            (1, values, found.value_errors[i]),
        ):
            held = torch.stack([pool[part, table[p // 4], p % 4] for p in range(25)])
            assert told == pytest.approx(off_by(held, wanted), rel=0.01)
    # The first layer sees nothing of other layers' rounding.
    assert found.key_errors[0] == pytest.approx(found.key_rounding[0], rel=0.01)
    assert found.value_errors[-1] > found.value_rounding[-1]


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [
        ("auto", 0.0, 1e-5),
        ("bfloat16", 0.0014, 0.0019),
        ("int8_per_token_head", 0.003, 0.012),
        ("fp8_e4m3", 0.023, 0.029),
        ("fp8_e5m2", 0.046, 0.058),
    ],
)
def test_rounding_is_as_large_as_the_dtype_s(dtype: str, least: float, most: float) -> None:
    engine = Engine(tiny("llama"), max_num_batched_tokens=64, kv_cache_dtype=dtype)
    engine.add("a", random_prompt(random.Random(5), 60))
    engine.core.step()
    found = compared(engine, "a")
    for rounding in (found.key_rounding, found.value_rounding):
        assert least <= sum(rounding) / len(rounding) <= most
    assert len(found.key_errors) == 3 and max(found.key_errors) < 10 * most


def test_a_wrong_scale_is_found_in_its_layer() -> None:
    engine = Engine(tiny("llama"), kv_cache_dtype="int8_per_token_head")
    engine.add("a", random_prompt(random.Random(6), 20))
    engine.core.step()
    right = compared(engine, "a")
    scales = engine.runner.kv_cache.layers[1].scales
    assert scales is not None
    scales[1] *= 2
    wrong = compared(engine, "a")
    assert wrong.value_errors[1] > 0.9
    changed = [one != other for one, other in zip(right.value_errors, wrong.value_errors)]  # noqa: B905
    assert changed == [False, True, False] and right.key_errors == wrong.key_errors


def test_the_first_difference_is_where_plain_greedy_goes_another_way() -> None:
    model, rng = tiny("llama"), random.Random(8)
    engine = Engine(model, kv_cache_dtype="fp8_e5m2", max_num_batched_tokens=64)
    for i in range(6):
        engine.add(f"r{i}", random_prompt(rng, 9), max_tokens=20)
    engine.run()
    places = []
    for key, request in engine.requests.items():
        written = request.output_token_ids
        plain = plain_greedy(model, request.all_token_ids[:9], 20)
        found = compared(engine, key)
        wanted = next((i for i in range(20) if written[i] != plain[i]), -1)
        places.append(wanted)
        assert (found.differs_at, found.num_outputs, found.greedy) == (wanted, 20, True)
        if wanted < 0:
            assert found.written == found.in_fp32
        else:
            length = min(20, wanted + 16)
            for told, tokens in ((found.written, written), (found.in_fp32, plain)):
                whole = [*request.all_token_ids[:9], *tokens[:length]]
                assert told == tuple(token_pieces(model.tokenizer, whole)[9:])
    assert max(places) >= 0, places


def test_what_is_drawn_is_drawn_again_by_the_same_numbers() -> None:
    """Sampled text of an engine in fp32, penalties and all, is what the comparison draws."""
    engine = Engine(tiny("llama"))
    engine.add("a", [5, 6, 7], temperature=1.5, presence_penalty=1.0, top_p=0.9, max_tokens=30)
    engine.run()
    found = compared(engine, "a")
    assert (found.differs_at, found.num_outputs, found.greedy) == (-1, 30, False)
    assert (found.shown_from, len(found.written)) == (6, 24)
    engine.requests["a"].sampling_params = SamplingParams(temperature=1.5, seed=3, max_tokens=30)
    assert compared(engine, "a").differs_at >= 0


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_it_can_be_asked_at_any_moment_and_disturbs_nothing(
    tiny_model: LoadedModel, async_scheduling: bool
) -> None:
    """Chunks, hits, preemption; whatever the pool is said to hold, it holds."""
    rng = random.Random(9)
    prefix = random_prompt(rng, 16)
    prompts = [prefix + random_prompt(rng, n) for n in (3, 20, 9, 30)]
    config = EngineConfig(
        kv_cache_dtype="bfloat16",
        block_size=4,
        num_gpu_blocks=24,
        max_num_batched_tokens=24,
        max_num_seqs=4,
        async_scheduling=async_scheduling,
    )
    texts, asked = [], set()
    for curious in (False, True):
        llm = AsyncLLM(tiny_model, config)
        params = SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)
        streams = [llm.submit(prompt, params) for prompt in prompts]
        while llm.status.has_work:
            llm.step_phase()
            if not curious:
                continue
            key = f"r{rng.randrange(4)}"
            before = llm.core.state()
            found = llm.compare_kv(key)
            assert llm.core.state() == before
            assert found is not None and max(found.key_errors, default=0.0) < 0.01, llm.status
            asked.add((llm.status.next_phase, before["requests"][key]["status"]))
        texts.append([[t for output in stream for t in output.token_ids] for stream in streams])
        assert llm.trace.records
        preempted = llm.core.scheduler.counters.num_preemptions
        assert preempted > 0 and llm.check_integrity().num_violations == 0
        llm.thread.stop()
    assert texts[0] == texts[1]
    assert len(asked) > 8, asked


def test_of_a_request_that_has_ended_the_pool_has_what_is_still_cached() -> None:
    engine = Engine(tiny("llama"), block_size=4, num_gpu_blocks=12, max_num_batched_tokens=64)
    engine.add("a", random_prompt(random.Random(1), 21), max_tokens=5)
    engine.run()
    assert compared(engine, "a").num_tokens == 24
    engine.add("b", random_prompt(random.Random(2), 30), max_tokens=2)
    engine.core.step()  # takes blocks from the end of what a has left
    some = compared(engine, "a")
    assert some.num_tokens == 12 and max(some.value_errors) < 1e-5
    assert engine.core.reset_prefix_cache() is False
    engine.run()
    engine.core.reset_prefix_cache()
    none = compared(engine, "a")
    assert (none.num_tokens, none.key_errors, none.num_outputs) == (0, (), 5)


def test_blocks_that_are_cached_and_not_computed_yet_are_not_read() -> None:
    """Another request with the same prompt is scheduled: its blocks have the hash already."""
    engine = Engine(tiny("llama"), block_size=4, max_num_batched_tokens=64)
    prompt = random_prompt(random.Random(1), 21)
    engine.add("a", prompt, max_tokens=2)
    engine.run()
    engine.core.reset_prefix_cache()
    engine.add("b", prompt, max_tokens=2)
    engine.until(Phase.EXECUTE)
    assert engine.core.scheduler.kv_cache_manager.block_pool.cached
    assert compared(engine, "a").num_tokens == compared(engine, "b").num_tokens == 0
    engine.core.step_phase()
    assert compared(engine, "a").num_tokens == 20
    assert compared(engine, "b").num_tokens == 21


def test_of_a_long_request_the_first_tokens_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.kv_error.MAX_TOKENS", 12)
    monkeypatch.setattr("engine.kv_error.CHUNK", 5)
    engine = Engine(tiny("llama"), block_size=4, max_num_batched_tokens=64)
    engine.add("a", [5, 6, 7, 8], max_tokens=12)
    engine.run()
    found = compared(engine, "a")
    assert (found.num_tokens, found.num_outputs, found.differs_at) == (12, 8, -1)
    assert MAX_TOKENS == 1024


def test_a_request_that_has_not_begun_and_one_that_is_none(tiny_model: LoadedModel) -> None:
    llm = AsyncLLM(tiny_model)
    llm.submit("Hello", SamplingParams(max_tokens=2))
    found = llm.compare_kv("r0")
    assert found is not None
    assert (found.num_tokens, found.num_outputs, found.written, found.key_errors) == (0, 0, (), ())
    assert llm.compare_kv("r7") is None
    llm.close()
    with pytest.raises(EngineError, match="put to rest"):
        llm.compare_kv("r0")
    llm.thread.stop()
