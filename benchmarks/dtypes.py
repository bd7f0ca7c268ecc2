"""Dtypes: what fewer bits cost, save and change, of all that is computed and of the KV cache alone.

README.md, "dtypes", says which texts.
"""

from __future__ import annotations

import gc
import time

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, figure
from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.input_processor import Submission
from engine.model_loader import LoadedModel, load_model
from engine.model_loader.dtypes import in_dtype
from engine.model_loader.fetch import DEFAULT_MODEL

DTYPES = ("float32", "bfloat16", "float16")
KV_DTYPES = ("auto", "bfloat16", "int8_per_token_head", "fp8_e4m3", "fp8_e5m2")
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
DECODES = 10


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
    return figures + kv_figures(model, prompts, effort.samples(DECODES))


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


# --- the KV cache alone ------------------------------------------------------------------------


def kv_figures(model: LoadedModel, prompts: tuple[str, ...], count: int) -> list[Figure]:
    """Each dtype of the KV cache beside fp32 weights."""
    engines = {
        name: AsyncLLM(
            model,
            EngineConfig.parse(
                {
                    "kv_cache_dtype": name,
                    "num_gpu_blocks": 128,
                    "max_num_batched_tokens": len(PROMPTS) * LONG_PROMPT,
                    "enable_prefix_caching": False,
                }
            ),
        )
        for name in KV_DTYPES
    }
    slower = decode_ratios(model, engines, len(prompts), count)
    figures = []
    for name, llm in engines.items():
        kv_cache = llm.core.runner.kv_cache  # type: ignore[attr-defined]
        size = kv_cache.num_bytes / (llm.config.num_gpu_blocks * llm.config.block_size)
        label = "float32" if name == "auto" else name
        figures.append(figure(f"KV in {label}, bytes of the pool a token", "B", [size]))
        if name != "auto":
            ratio = f"KV in {label}, a decode step against KV in float32"
            figures.append(figure(ratio, "x", slower[name]))
        figures += errors(llm, label, prompts)
        close(llm)
    return figures


def decode_ratios(
    model: LoadedModel, engines: dict[str, AsyncLLM], requests: int, count: int
) -> dict[str, list[float]]:
    """A step over requests of more than LONG_PROMPT tokens each, the engines by turns."""
    params = SamplingParams(temperature=0.0, max_tokens=count + 2, ignore_eos=True)
    prompt = [3 + i % (model.vocab_size - 3) for i in range(LONG_PROMPT)]
    for llm in engines.values():
        llm.submit_many([Submission(prompt, params)] * requests)
        llm.step()  # computes the prompts
        llm.step()  # and the first decode captures its graph
    ratios: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(count):
        times = {name: timed_step(llm) for name, llm in engines.items()}
        for name, seconds in times.items():
            ratios[name].append(seconds / times["auto"])
    return ratios


def timed_step(llm: AsyncLLM) -> float:
    """Seconds of a step."""
    began = time.perf_counter()
    llm.step()
    return time.perf_counter() - began


def errors(llm: AsyncLLM, label: str, prompts: tuple[str, ...]) -> list[Figure]:
    """How far off K and V are, and whose text is not that of fp32; all in one batch."""
    written = GREEDY.max_tokens
    params = GREEDY.model_copy(
        update={"max_tokens": written + 1}
    )  # they still run, and hold blocks
    streams = llm.submit_many([Submission(prompt, params) for prompt in prompts])
    for _ in range(written):
        llm.step()
    found = [each for s in streams if (each := llm.compare_kv(s.request_id)) is not None]
    changed = sum(each.differs_at >= 0 for each in found)
    layers = [each for one in found for each in one.key_errors]
    values = [each for one in found for each in one.value_errors]
    return [
        figure(f"KV in {label}, relative error of K by layer", "%", [100 * e for e in layers]),
        figure(f"KV in {label}, relative error of V by layer", "%", [100 * e for e in values]),
        figure(f"KV in {label}, texts of {len(found)} that are not fp32's", "", [float(changed)]),
    ]


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
