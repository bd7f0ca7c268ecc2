"""Scheduling a step before the tokens of the step before it are known.

Box `scheduler`. vLLM 0.26.0: `vllm/v1/core/sched/async_scheduler.py` (`AsyncScheduler`), and what
`Scheduler` does where a request has output placeholders. A batch is scheduled while the one before
it runs, so what that one samples is still in flight: each such token has a placeholder, which
counts as a token of its request in everything but its value.
"""

from __future__ import annotations

from engine.events import TokenDropped
from engine.outputs import EngineCoreOutput, ModelRunnerOutput, SchedulerOutput
from engine.reasons import LastTokenInFlight, Reason, ResetRequested
from engine.request import FinishReason, Request
from engine.scheduler import Scheduler

MAX_IN_FLIGHT = 2  # batches: the one that runs, and the one that is ready for it


class AsyncScheduler(Scheduler):
    """A `Scheduler` of which `schedule` is called again before `update_from_output`.

    Batches come back in the order in which they were scheduled, each with one token for every
    request that had none of its known tokens left to compute.
    """

    def schedule(self) -> SchedulerOutput:
        """Decide one step; whoever samples in it has one more token in flight."""
        output = super().schedule()
        for entry in output.scheduled:
            request = self.requests[entry.request_id]
            if request.num_computed_tokens == request.num_tokens + request.num_output_placeholders:
                request.num_output_placeholders += 1
                self.touched[request] = None
        return output

    def fills(self, output: SchedulerOutput, num_in_flight: int) -> bool:
        """Whether, `output` being the last of `num_in_flight`, no tokens are awaited yet.

        There is room for one more batch then, which the next cycle schedules first if it can.
        """
        more = bool(output.scheduled) or self.has_requests()
        return num_in_flight < MAX_IN_FLIGHT and more

    def _share(self, request: Request, num_computed: int) -> tuple[int, Reason]:
        """Nothing where the token in flight is the last one asked for: that stop is foreseen.

        The end of the model's length is too, by `Scheduler`'s own limit. EOS and stop tokens are
        not: the step that follows them is in flight when they are found, and its token is dropped.
        """
        placeholders = request.num_output_placeholders
        last = request.num_prompt_tokens + request.sampling_params.max_tokens
        # vLLM's sum; it comes to the known tokens and the next one to arrive.
        if placeholders and num_computed + 2 - placeholders >= last:
            return 0, LastTokenInFlight(request.sampling_params.max_tokens)
        return super()._share(request, num_computed)

    def update_from_output(
        self, output: SchedulerOutput, sampled: ModelRunnerOutput
    ) -> list[EngineCoreOutput]:
        """Append what the oldest batch in flight sampled, but for tokens that a reset made void."""
        tokens = sampled.sampled_token_ids
        void = {key for key, (token,) in tokens.items() if self._is_void(key, token)}
        return super().update_from_output(output, sampled.only(tokens.keys() - void))

    def _is_void(self, request_id: str, token: int) -> bool:
        request = self.requests.get(request_id)
        if request is None or request.async_tokens_to_discard == 0:
            return False
        request.async_tokens_to_discard -= 1
        self.touched[request] = None
        self.trace.event(TokenDropped(request_id, token), ResetRequested())
        return True

    def _append_token(self, request: Request, token: int) -> None:
        """A token arrived; blocks now known to be computed are cached, before any stop.

        (`schedule` caches too, up to the known tokens, but the request may get nothing more of it.)
        Where it was preempted with the token in flight, nothing of it is computed.
        """
        super()._append_token(request, token)
        request.num_output_placeholders -= 1
        self.touched[request] = None
        if self.kv_cache_manager.enable_caching:
            computed = request.num_computed_tokens - request.num_output_placeholders
            self.kv_cache_manager.cache_blocks(request, computed)

    def _finish(
        self,
        request: Request,
        finish_reason: FinishReason,
        stop_reason: int | str | None,
        reason: Reason,
    ) -> None:
        """End a request; what is in flight for it will find nobody."""
        super()._finish(request, finish_reason, stop_reason, reason)
        request.num_output_placeholders = request.async_tokens_to_discard = 0

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """As in `Scheduler`; tokens in flight of those preempted are void, and sampled anew."""
        if reset_running_requests:
            for request in self.running:
                request.async_tokens_to_discard += request.num_output_placeholders
                request.num_output_placeholders = 0
        return super().reset_prefix_cache(reset_running_requests)
