"""Weights in fewer bits: bytes, speed and error, beside the default model in float32 and bfloat16.

README.md, "weights", says what is compared and how.
"""

from __future__ import annotations

from benchmarks.dtypes import LONG_PROMPT, PROMPTS, close, prefill, timed_step
from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, figure
from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.input_processor import Submission
from engine.model_loader import LoadedModel, load_model
from engine.model_loader.fetch import DEFAULT_MODEL

# Each beside float32, which comes first.
FORMS: dict[str, dict[str, str]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantization": "int8_weight_only"},
    "int4": {"quantization": "int4_weight_only"},
    "int8 beside bfloat16": {"quantization": "int8_weight_only", "dtype": "bfloat16"},
    "int4 beside bfloat16": {"quantization": "int4_weight_only", "dtype": "bfloat16"},
}
BATCHES = (1, 8)
DECODES, PREFILLS, WRITTEN = 40, 5, 32


def measure(effort: Effort) -> list[Figure]:
    """All forms, by turns where time is measured."""
    model = load_model(DEFAULT_MODEL)
    prompts = PROMPTS[: effort.samples(len(PROMPTS))]
    figures = []
    for batch in BATCHES:
        figures += decodes(model, batch, effort.samples(DECODES))
    for name, settings in FORMS.items():
        config = EngineConfig.parse(settings | {"max_num_batched_tokens": LONG_PROMPT})
        times = prefill(model, config, effort.samples(PREFILLS))
        label = f"{name}, a step of {LONG_PROMPT} prompt tokens"
        figures.append(times.model_copy(update={"name": label}))
        if settings:
            figures += changes(model, name, settings, prompts)
    return figures


def decodes(model: LoadedModel, batch: int, count: int) -> list[Figure]:
    """A step of `batch` requests in each form, by turns; bytes come with the first batch."""
    engines = {name: decoding(model, settings, batch, count) for name, settings in FORMS.items()}
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(count):
        for name, llm in engines.items():
            times[name].append(timed_step(llm) * 1e3)
    figures = []
    for name, llm in engines.items():
        facts = llm.trace.header.model
        if batch == BATCHES[0]:
            figures.append(figure(f"{name}, weights", "MB", [facts["weight_bytes"] / 1e6]))
        figures.append(figure(f"{name}, a decode step at batch {batch}", "ms", times[name]))
        if name != "float32":
            ratios = [a / b for a, b in zip(times[name], times["float32"], strict=True)]
            figures.append(figure(f"{name}, against float32 at batch {batch}", "x", ratios))
        close(llm)
    return figures


def decoding(model: LoadedModel, settings: dict[str, str], batch: int, count: int) -> AsyncLLM:
    """An engine whose requests are all in decode, its graph captured."""
    llm = AsyncLLM(model, EngineConfig.parse(settings | {"enable_prefix_caching": False}))
    params = SamplingParams(temperature=0.0, max_tokens=count + 4, ignore_eos=True)
    prompts = [[100 + 7 * i + number for i in range(8)] for number in range(batch)]
    llm.submit_many([Submission(prompt, params) for prompt in prompts])
    for _ in range(3):
        llm.step()
    return llm


def changes(
    model: LoadedModel, name: str, settings: dict[str, str], prompts: tuple[str, ...]
) -> list[Figure]:
    """What the comparison with fp32 finds of texts in one batch."""
    llm = AsyncLLM(model, EngineConfig.parse(settings | {"num_gpu_blocks": 128}))
    params = SamplingParams(temperature=0.0, max_tokens=WRITTEN + 1, ignore_eos=True)
    streams = llm.submit_many([Submission(prompt, params) for prompt in prompts])
    for _ in range(WRITTEN):
        llm.step()
    found = [each for s in streams if (each := llm.compare_kv(s.request_id)) is not None]
    close(llm)
    changed = sum(each.differs_at >= 0 for each in found)
    texts = f"{name}, texts of {len(found)} that are not fp32's"
    return [
        figure(f"{name}, relative error of logits", "%", [100 * e.logits_error for e in found]),
        figure(texts, "", [float(changed)]),
    ]
