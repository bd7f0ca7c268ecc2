"""32 requests of mixed lengths: this engine beside Transformers' own ways to generate.

README.md, "throughput", says what is compared and how.
"""

from __future__ import annotations

import gc
import random
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_least, figure, not_measured
from benchmarks.harness.pairs import by_turns
from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.input_processor import Submission
from engine.model_loader import LoadedModel, fetch_default_model, load_model
from engine.model_loader.fetch import DEFAULT_MODEL

REQUESTS, ROUNDS = 32, 4
PROMPT_TOKENS, OUTPUT_TOKENS = (8, 96), (4, 96)  # drawn evenly between these
GOAL = at_least(2.0)


class Work:
    """The requests: prompts, and how many tokens each wants."""

    def __init__(self, vocab_size: int, count: int) -> None:
        draw = random.Random(32)
        self.prompts = [
            [draw.randrange(100, vocab_size) for _ in range(draw.randint(*PROMPT_TOKENS))]
            for _ in range(count)
        ]
        self.wanted = [draw.randint(*OUTPUT_TOKENS) for _ in range(count)]

    @property
    def num_tokens(self) -> int:
        """That somebody asked for."""
        return sum(self.wanted)


def measure(effort: Effort) -> list[Figure]:
    """Ours and the static batch by turns, then ours and continuous batching."""
    ours = load_model(DEFAULT_MODEL)
    work = Work(ours.vocab_size, effort.samples(REQUESTS))
    rounds = effort.samples(ROUNDS)
    auto: Any = AutoModelForCausalLM
    plain = auto.from_pretrained(fetch_default_model(lambda _: None), dtype=torch.float32)
    engine = Engine(ours)
    engine.run(work)  # captures its graphs
    static = by_turns(lambda: engine.run(work), lambda: run_static(plain, work), rounds)
    figures = [
        figure("this engine", "tokens/s", [a for a, _ in static]),
        figure("generate, static batch", "tokens/s", [b for _, b in static]),
        figure("ours / static", "x", [a / b for a, b in static], GOAL),
    ]
    try:
        pairs = by_turns(lambda: engine.run(work), lambda: run_continuous(plain, work), rounds)
    except Exception as error:  # it is made for GPUs, and changes with each version
        note = f"it does not run here: {type(error).__name__}: {error}"[:200]
        return [*figures, not_measured("ours / continuous batching", "x", note)]
    return [
        *figures,
        figure("continuous batching", "tokens/s", [b for _, b in pairs]),
        figure("ours / continuous batching", "x", [a / b for a, b in pairs]),
    ]


class Engine:
    """This engine with room for all of them, and a fresh cache each time."""

    def __init__(self, model: LoadedModel) -> None:
        config = EngineConfig(
            num_gpu_blocks=1 + REQUESTS * 12,
            max_num_seqs=REQUESTS,
            max_num_batched_tokens=512,
            enable_prefix_caching=False,
        )
        self.llm = AsyncLLM(model, config)

    def run(self, work: Work) -> float:
        """Tokens a second."""
        began = time.perf_counter()
        streams = self.llm.submit_many(
            [
                Submission(ids, SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True))
                for ids, n in zip(work.prompts, work.wanted, strict=True)
            ]
        )
        while self.llm.status.has_work:
            self.llm.step()
        took = time.perf_counter() - began
        given = sum(len(output.token_ids) for stream in streams for output in stream)
        assert given == work.num_tokens
        return given / took


def run_static(model: Any, work: Work) -> float:
    """One batch, padded on the left, which goes on until its longest request is done."""
    began = time.perf_counter()
    width, longest = max(map(len, work.prompts)), max(work.wanted)
    ids = torch.tensor([[0] * (width - len(p)) + p for p in work.prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in work.prompts])
    with torch.inference_mode():
        model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=longest,
            min_new_tokens=longest,
            pad_token_id=0,
        )
    return work.num_tokens / (time.perf_counter() - began)


def run_continuous(model: Any, work: Work) -> float:
    """Transformers' continuous batching, started for these requests, each with its own length."""
    config = GenerationConfig(max_new_tokens=max(work.wanted), do_sample=False, eos_token_id=-1)
    began = time.perf_counter()
    given, left = 0, len(work.wanted)
    with (
        torch.no_grad(),
        model.continuous_batching_context_manager(
            generation_config=config,
            # By default its cache takes nearly all of the machine's memory.
            continuous_batching_config=ContinuousBatchingConfig(
                num_blocks=64, max_batch_tokens=512
            ),
            warmup=False,
        ) as manager,
    ):
        for ids, wanted in zip(work.prompts, work.wanted, strict=True):
            manager.add_request(ids, max_new_tokens=wanted)
        while left:
            result = manager.get_result(timeout=1)
            if result is None and not manager.is_running():
                raise RuntimeError("its thread ended before its requests did")
            if result is not None and result.error:
                raise RuntimeError(result.error)
            if result is not None and result.is_finished():
                given, left = given + len(result.generated_tokens), left - 1
        took = time.perf_counter() - began
    gc.collect()
    if given != work.num_tokens:
        raise RuntimeError(f"it gave {given} tokens where {work.num_tokens} were wanted")
    return given / took
