"""Speculative decoding: synchronous steps with drafts, which formulas propose and verify.

A formula stands in for the drafter as for the model. vLLM 0.26.0: `Scheduler` set up with a
drafter, and its `update_draft_token_ids` after each update.
"""

from __future__ import annotations

from collections import Counter

from engine.conformance.driver import Line
from engine.conformance.steps import Conformance, FormulaRunner
from engine.conformance.workload import Sampler, WorkloadConfig
from engine.core import Runner
from engine.outputs import ModelRunnerOutput, ScheduledRequest, SchedulerOutput
from engine.speculative_scheduler import PADDING


class DraftingRunner(FormulaRunner):
    """A runner whose drafts are right up to a place that a formula gives."""

    def __init__(self, sampler: Sampler, config: WorkloadConfig):
        super().__init__(sampler)
        self.config = config
        self.verified: Counter[str] = Counter()  # steps in which drafts of a request were

    def sample_tokens(self) -> ModelRunnerOutput:
        """The true tokens up to the first that its draft is not, and drafts of what follows.

        There are drafts for a request in mid-prefill too, which the scheduler has to ignore.
        """
        tokens: dict[str, tuple[int, ...]] = {}
        drafts: dict[str, tuple[int, ...]] = {}
        for entry in self.output.scheduled:
            key, known = entry.request_id, self.known[entry.request_id]
            computed = entry.num_computed_tokens + entry.num_tokens - len(entry.draft_token_ids)
            number = known.num_tokens - known.num_prompt_tokens
            if computed == known.num_tokens:  # else a part of a prompt
                tokens[key] = self._verify(entry, number)
                known.num_tokens += len(tokens[key])
                number += len(tokens[key])
            drafts[key] = self._propose(key, number)
        return ModelRunnerOutput(tokens, draft_token_ids=drafts)

    def _verify(self, entry: ScheduledRequest, number: int) -> tuple[int, ...]:
        """The tokens behind the first `number` output tokens: one more than drafts agree."""
        key, drafts = entry.request_id, entry.draft_token_ids
        true = [self.sampler.token(key, number + n) for n in range(1, len(drafts) + 2)]
        agree = next((n for n, draft in enumerate(drafts) if draft != true[n]), len(drafts))
        self.verified[key] += bool(drafts) and drafts[0] != PADDING
        return tuple(true[: agree + 1])

    def _propose(self, request_id: str, number: int) -> tuple[int, ...]:
        """Drafts of the tokens behind the first `number` ones."""
        most = self.config.num_speculative_tokens or 0
        seed, (a, b) = self.sampler.seed(request_id), self.config.accept
        right = (a * seed + b * (self.verified[request_id] + 1)) % (most + 1)
        length = most
        if self.config.draft_len is not None:
            c, d = self.config.draft_len
            length = (c * seed + d * number) % (most + 1)
        return tuple(
            self.sampler.token(request_id, number + n) + (n > right) for n in range(1, length + 1)
        )


class SpeculativeConformance(Conformance):
    """Drives one workload with drafts and describes each step."""

    def _runner(self) -> Runner:
        return DraftingRunner(self.sampler, self.workload.config)

    def _describe_sampled(self, sampled: dict[str, tuple[int, ...]]) -> Line:
        return {key: list(tokens) for key, tokens in sampled.items()}

    def _describe_batch(self, output: SchedulerOutput) -> Line:
        line = super()._describe_batch(output)
        for described, entry in zip(line["scheduled"], output.scheduled, strict=True):
            if entry.draft_token_ids:
                described["drafts"] = list(entry.draft_token_ids)
        return line

    def _describe_end(self, seen: int, before_update: int) -> Line:
        running = list(self.scheduler.running)
        return {
            **super()._describe_end(seen, before_update),
            "computed": {r.request_id: r.num_computed_tokens for r in running},
            "proposed": {r.request_id: r.spec_token_ids for r in running if r.spec_token_ids},
        }
