"""Decoding with drafts by prompt look-up beside decoding without: the same texts, fewer steps.

README.md, "speculation", says what each figure is, and for which texts it holds.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, figure
from benchmarks.harness.pairs import by_turns
from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams, SpeculativeConfig
from engine.engine_thread import EngineThread
from engine.garbage import keep_what_is_here
from engine.model_loader import LoadedModel, load_model

PAIRS = 5
MAX_TOKENS = 48
DRAFTER = SpeculativeConfig(
    method="ngram", num_speculative_tokens=3, prompt_lookup_min=2, prompt_lookup_max=4
)
CASES = {
    "text that repeats itself": "one, two, three, four, one, two, three, four, one, two,",
    "text that does not": "My favourite colours are green, blue and",
}


class Run(NamedTuple):
    """One request, from the first token to the last."""

    seconds: float
    tokens: tuple[int, ...]
    acceptance_rate: float  # of its drafts; 0 where there are none
    mean_length: float  # tokens of a step with drafts


class Engine:
    """An engine with drafts, or without, that writes one text as often as it is asked to."""

    def __init__(self, model: LoadedModel, drafter: SpeculativeConfig | None) -> None:
        self.thread = EngineThread()
        config = EngineConfig(enable_prefix_caching=False, speculative_config=drafter)
        self.llm = AsyncLLM(model, config, self.thread, running=True)

    def run(self, prompt: str) -> Run:
        """Write it; the prompt's own time, which is the same in both, is left out."""
        counters = self.llm.core.scheduler.counters
        before = replace(counters)
        params = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True)
        began, tokens = 0.0, list[int]()
        for output in self.llm.submit(prompt, params):
            began = began or time.perf_counter()
            tokens += output.token_ids
        seconds = time.perf_counter() - began
        steps = counters.num_drafts - before.num_drafts
        drafted = counters.num_draft_tokens - before.num_draft_tokens
        accepted = counters.num_accepted_tokens - before.num_accepted_tokens
        rate, length = accepted / max(1, drafted), 1 + accepted / max(1, steps)
        return Run(seconds, tuple(tokens), rate, length)


def measure(effort: Effort) -> list[Figure]:
    """Both texts, each written by two engines by turns on the same weights."""
    model = load_model()
    plain, drafting = Engine(model, None), Engine(model, DRAFTER)
    figures = []
    for called, prompt in CASES.items():
        figures += compare(called, prompt, plain, drafting, effort.samples(PAIRS))
    for engine in (plain, drafting):
        engine.thread.stop()
    return figures


def compare(called: str, prompt: str, plain: Engine, drafting: Engine, count: int) -> list[Figure]:
    """One text. RuntimeError where drafts change it."""
    expected = plain.run(prompt).tokens  # graphs are captured
    drafting.run(prompt)
    keep_what_is_here()
    pairs = by_turns(lambda: plain.run(prompt), lambda: drafting.run(prompt), count)
    if any(run.tokens != expected for pair in pairs for run in pair):
        raise RuntimeError(f"{called}: with drafts another text is written")
    rest = MAX_TOKENS - 1  # behind the first token
    return [
        figure(f"{called}, without drafts", "tokens/s", [rest / a.seconds for a, _ in pairs]),
        figure(f"{called}, with drafts", "tokens/s", [rest / b.seconds for _, b in pairs]),
        figure(f"{called}, with / without", "x", [a.seconds / b.seconds for a, b in pairs]),
        figure(f"{called}, drafts accepted", "%", [100 * b.acceptance_rate for _, b in pairs]),
        figure(f"{called}, mean acceptance length", "tokens", [b.mean_length for _, b in pairs]),
    ]
