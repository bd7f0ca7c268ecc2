"""Scheduling tokens that are only guessed: the drafts that one step verifies.

Box `scheduler`. vLLM 0.26.0: the parts of `vllm/v1/core/sched/scheduler.py` that look at
`spec_token_ids`, `scheduled_spec_decode_tokens` and `update_draft_token_ids`. A drafter proposes
what may come next. A request wants its drafts as it wants its known tokens, so a decode is no
longer one token; whatever the model rejects of them is taken back by the update.
"""

from __future__ import annotations

from engine.block_pool import KVCacheBlock
from engine.events import DraftsDropped, DraftsScheduled, DraftsSettled
from engine.outputs import (
    EngineCoreOutput,
    ModelRunnerOutput,
    NewRequestData,
    ScheduledKind,
    SchedulerOutput,
)
from engine.reasons import DoesNotFit, PaddedToUniform, PaddingDoesNotFit, Reason
from engine.request import FinishReason, Request, RequestStatus
from engine.scheduler import Scheduler

PADDING = -1  # a draft that stands for no token and is always rejected


class SpeculativeScheduler(Scheduler):
    """A `Scheduler` whose requests may have drafts (`Request.spec_token_ids`).

    What the drafter takes for itself follows from the config: slots beyond a request's tokens and
    the last block of its prefix hit (`KVCacheManager`), tokens of each step
    (`EngineConfig.max_num_scheduled_tokens`).
    """

    # -- schedule -------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Decide one step, drafts included."""
        output = super().schedule()
        for request in self._scheduled:
            request.is_prefill_chunk = request.num_computed_tokens < request.num_tokens
        return output

    def _share(self, request: Request, num_computed: int) -> tuple[int, Reason]:
        """A request's drafts are wanted behind its known tokens, so a limit cuts them first."""
        wanted = request.num_tokens - num_computed
        if request.status is RequestStatus.RUNNING:
            return self._limit(wanted + len(request.spec_token_ids), num_computed)
        if wanted == 1 and self._all_decode():
            return self._pad(num_computed)
        return self._limit(wanted, num_computed)

    def _all_decode(self) -> bool:
        """Whether somebody running got tokens in this step, and none of them for a prefill."""
        running = [request for request, entry in self._scheduled.items() if entry.kind == "running"]
        return bool(running) and not any(request.is_prefill_chunk for request in running)

    def _pad(self, num_computed: int) -> tuple[int, Reason]:
        """The share of a request that wants one token, to be admitted into a step of decodes.

        It is made as long as theirs, or waits where that is too long. (vLLM 0.26.0 pads first and
        cuts then, so that below a lower limit more is rejected than was given, a defect.)
        """
        num_drafts = self.config.num_speculative_tokens
        wants = 1 + num_drafts
        if wants > self._budget or num_computed + wants > self.max_model_len:
            return 0, PaddingDoesNotFit(wants, self._budget, num_computed, self.max_model_len)
        threshold = self.config.long_prefill_token_threshold or wants
        return min(wants, threshold), PaddedToUniform(num_drafts)

    def _give(
        self,
        request: Request,
        kind: ScheduledKind,
        num_tokens: int,
        new_blocks: list[KVCacheBlock],
        reason: Reason,
        hit_block_ids: tuple[int, ...] = (),
        data: NewRequestData | None = None,
    ) -> None:
        """Write down the share, and which drafts are in it; those that are not are lost."""
        super()._give(request, kind, num_tokens, new_blocks, reason, hit_block_ids, data)
        proposed = request.spec_token_ids
        num_drafts = max(0, request.num_computed_tokens + num_tokens - request.num_tokens)
        if not proposed and not num_drafts:
            return
        drafts = tuple(proposed[:num_drafts]) if proposed else (PADDING,) * num_drafts
        self._scheduled[request] = self._scheduled[request]._replace(draft_token_ids=drafts)
        self._set_drafts(request, [], in_step=num_drafts)
        cut = max(0, len(proposed) - num_drafts)
        self.trace.event(DraftsScheduled(request.request_id, drafts, cut), reason)

    def _set_drafts(self, request: Request, proposed: list[int], in_step: int = 0) -> None:
        request.spec_token_ids = proposed
        request.num_draft_tokens = in_step
        self.touched[request] = None

    # -- drafts that are lost -------------------------------------------------------------------

    def preempt(
        self, victim: Request, reason: Reason, by: str = "", shortage: DoesNotFit | None = None
    ) -> None:
        """As in `Scheduler`; drafts do not wait with their request."""
        num_drafts = len(victim.spec_token_ids) + victim.num_draft_tokens
        super().preempt(victim, reason, by, shortage)
        if num_drafts:
            self._set_drafts(victim, [])
            self.trace.event(DraftsDropped(victim.request_id, num_drafts), reason)

    def _finish(
        self,
        request: Request,
        finish_reason: FinishReason,
        stop_reason: int | str | None,
        reason: Reason,
    ) -> None:
        """End a request, and with it what was drafted for it."""
        super()._finish(request, finish_reason, stop_reason, reason)
        self._set_drafts(request, [])

    # -- update ---------------------------------------------------------------------------------

    def update_from_output(
        self, output: SchedulerOutput, sampled: ModelRunnerOutput
    ) -> list[EngineCoreOutput]:
        """Take back what was rejected, append what was accepted and sampled, keep new drafts.

        No new ones are kept for a request in mid-prefill, which has sampled nothing.
        """
        tokens = sampled.sampled_token_ids
        for entry in output.scheduled:
            request = self.requests.get(entry.request_id)
            if request is not None and request.num_draft_tokens and tokens.get(entry.request_id):
                self._settle(request, len(tokens[entry.request_id]) - 1)
        outputs = super().update_from_output(output, sampled)
        for key, drafts in sampled.draft_token_ids.items():
            request = self.requests.get(key)
            if request is not None and not request.is_prefill_chunk:
                self._set_drafts(request, list(drafts))
        return outputs

    def _settle(self, request: Request, num_accepted: int) -> None:
        """The drafts of a request are judged: the rejected ones are not computed after all.

        This comes before any stop is looked for, so drafts behind a stop count as accepted.
        """
        num_drafts = request.num_draft_tokens
        request.num_computed_tokens -= num_drafts - num_accepted
        self._set_drafts(request, [])
        self.counters.num_drafts += 1
        self.counters.num_draft_tokens += num_drafts
        self.counters.num_accepted_tokens += num_accepted
        self.trace.event(
            DraftsSettled(request.request_id, num_drafts, num_accepted, request.num_computed_tokens)
        )
