"""Dtypes: what 16 bits cost and save, and how often a text changes with its batch.

README.md, "dtypes", says which texts.
"""

from __future__ import annotations

import gc
import time

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, figure
from engine.async_llm import AsyncLLM, Submission
from engine.config import EngineConfig, SamplingParams
from engine.model_loader import LoadedModel, load_model
from engine.model_loader.dtypes import in_dtype
from engine.model_loader.fetch import DEFAULT_MODEL

DTYPES = ("float32", "bfloat16", "float16")
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village,",
    "def fibonacci(n):",
    "The sky is blue because",
    "Two and two make",
    "Deep in the forest there was a library where",
    "The captain opened the letter and read that",
    "A kitchen on a Friday evening is a scheduler.",
)
GREEDY = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)
LONG_PROMPT = 128  # tokens
LONG_PROMPTS, CONVERSIONS = 5, 5


def measure(effort: Effort) -> list[Figure]:
    """Each dtype of weights and KV cache, on the default model."""
    model = load_model(DEFAULT_MODEL)
    prompts = PROMPTS[: effort.samples(len(PROMPTS))]
    figures = []
    for dtype in DTYPES:
        config = EngineConfig.parse(
            {"dtype": dtype, "max_num_batched_tokens": LONG_PROMPT, "enable_prefix_caching": False}
        )
        if dtype != "float32":
            figures.append(conversion(model, config, effort.samples(CONVERSIONS)))
        figures.append(prefill(model, config, effort.samples(LONG_PROMPTS)))
        figures.append(changed_texts(model, config, prompts))
    return figures


def conversion(model: LoadedModel, config: EngineConfig, count: int) -> Figure:
    """How long it takes to make the weights."""
    seconds = []
    for _ in range(count):
        gc.collect()  # the last ones go, so that they are made again
        began = time.perf_counter()
        in_dtype(model, config)
        seconds.append(time.perf_counter() - began)
    return figure(f"{config.dtype}, making the weights", "s", seconds)


def prefill(model: LoadedModel, config: EngineConfig, count: int) -> Figure:
    """A step that computes a long prompt; its first run warms up and does not count."""
    llm = AsyncLLM(model, config)
    times = []
    for number in range(count + 1):
        prompt = [
            3 + (LONG_PROMPT * number + i) % (model.vocab_size - 3) for i in range(LONG_PROMPT)
        ]
        llm.submit(prompt, SamplingParams(max_tokens=1, ignore_eos=True))
        began = time.perf_counter()
        llm.step()
        times.append((time.perf_counter() - began) * 1e3)
    close(llm)
    return figure(f"{config.dtype}, a step of {LONG_PROMPT} prompt tokens", "ms", times[1:])


def changed_texts(model: LoadedModel, config: EngineConfig, prompts: tuple[str, ...]) -> Figure:
    """How many requests get other tokens together than each alone."""
    llm = AsyncLLM(model, config)
    alone = [tokens(llm, [prompt])[0] for prompt in prompts]
    together = tokens(llm, list(prompts))
    close(llm)
    changed = sum(one != other for one, other in zip(alone, together, strict=True))
    name = f"{config.dtype}, texts of {len(prompts)} that change in a batch"
    return figure(name, "", [float(changed)])


def tokens(llm: AsyncLLM, prompts: list[str]) -> list[list[int]]:
    """Run prompts as one batch, and read what each got."""
    streams = llm.submit_many([Submission(prompt, GREEDY) for prompt in prompts])
    while llm.status.has_work:
        llm.step()
    return [[token for output in stream for token in output.token_ids] for stream in streams]


def close(llm: AsyncLLM) -> None:
    """Let go of the engine and its weights."""
    llm.close()
    llm.thread.stop()
