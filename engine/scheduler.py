"""Who gets how many tokens of a step, and who has to wait.

Box `scheduler`. vLLM 0.26.0: `vllm/v1/core/sched/scheduler.py` (`Scheduler.schedule`,
`update_from_output`, `_preempt_request`). There is no prefill and no decode phase here: a request
wants (known tokens - computed tokens), which for a decode is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.block_pool import KVCacheBlock, block_ids
from engine.config import EngineConfig
from engine.events import (
    AdmissionStopped,
    BatchScheduled,
    OutputsReturned,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    RequestPassedOver,
    RequestPreempted,
    RequestScheduled,
    TokenAppended,
    TokenDropped,
)
from engine.kv_cache_manager import KVCacheManager
from engine.linked_queue import LinkedQueue
from engine.outputs import (
    EngineCoreOutput,
    ModelRunnerOutput,
    NewRequestData,
    ScheduledKind,
    ScheduledRequest,
    SchedulerOutput,
)
from engine.reasons import (
    BudgetLeft,
    BudgetSpent,
    ChunkingOff,
    ClientAborted,
    DoesNotFit,
    EosToken,
    LastRunning,
    LongPrefillThreshold,
    LowestPriority,
    MaxTokensReached,
    ModelLengthReached,
    MovedUp,
    PreemptedThisStep,
    Reason,
    ResetRequested,
    SeatsFull,
    StopToken,
    UncomputedDependency,
    WholeRequest,
)
from engine.request import FinishReason, Request, RequestStatus
from engine.trace import Trace

ONE_TOKEN = WholeRequest(1)  # what a decode is given, as most are


@dataclass
class Counters:
    """Totals since the engine began."""

    prefix_requests: int = 0  # look-ups
    prefix_queries: int = 0  # tokens looked for
    prefix_hits: int = 0  # tokens found
    num_preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    requests_finished: int = 0
    num_drafts: int = 0  # requests that had drafts verified, once a step
    num_draft_tokens: int = 0  # padding included, as vLLM counts them
    num_accepted_tokens: int = 0  # of these


class Scheduler:
    """The queues, the budget of a step, and the rules."""

    def __init__(self, config: EngineConfig, trace: Trace):
        assert config.max_model_len is not None, "resolve the config first"
        self.config = config
        self.max_model_len = config.max_model_len
        self.trace = trace
        self.kv_cache_manager = KVCacheManager(config, trace)
        self.requests: dict[str, Request] = {}  # waiting and running
        # What the next patch has to look at: who moved in the queues, and whose tokens changed.
        self.touched: dict[Request, None] = {}
        self.progressed: dict[Request, None] = {}
        self.waiting: LinkedQueue[Request] = LinkedQueue(self.touched)
        self.running: LinkedQueue[Request] = LinkedQueue(self.touched)
        self.finished_req_ids: list[str] = []  # since the last `schedule`
        self.preempted_req_ids: list[str] = []  # since the last step's end
        self.counters = Counters()
        # Of the step being scheduled:
        self._budget = 0
        self._scheduled: dict[Request, ScheduledRequest] = {}
        self._preempted = 0
        self._given_nothing: set[Request] = set()  # running ones that were passed over
        self._gone_ahead: list[Request] = []  # of these, victims of the request that is asked now

    # -- requests come and go -------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Put a new request into the waiting queue."""
        self.requests[request.request_id] = request
        request.status = RequestStatus.WAITING
        ahead = self._num_ahead(request)
        self._enqueue(request)
        self.trace.event(
            RequestArrived(request.request_id, request.num_prompt_tokens, len(self.waiting), ahead)
        )

    def has_requests(self) -> bool:
        """Whether `schedule` has something to do, be it only to report finished ids."""
        return bool(self.requests or self.finished_req_ids)

    def _num_ahead(self, request: Request) -> int:
        """How many of those that wait will stand before a request that joins them."""
        if self.config.scheduling_policy == "priority":
            key = priority_key(request)
            return sum(priority_key(other) <= key for other in self.waiting)
        return 0 if request.status is RequestStatus.PREEMPTED else len(self.waiting)

    def _enqueue(self, request: Request) -> None:
        """Into the waiting queue: where its priority says, or a preempted one to the front."""
        if self.config.scheduling_policy == "priority":
            key = priority_key(request)
            behind = next((other for other in self.waiting if priority_key(other) > key), None)
            self.waiting.insert_before(request, behind)
        elif request.status is RequestStatus.PREEMPTED:
            self.waiting.appendleft(request)
        else:
            self.waiting.append(request)

    def abort_request(self, request: Request) -> None:
        """Take a request back, in whatever state it is; its blocks are free at once."""
        self.trace.event(RequestAborted(request.request_id, request.status), ClientAborted())
        self._finish(request, FinishReason.ABORT, None, ClientAborted())

    def finish_request(self, request: Request, stop: str, reason: Reason) -> None:
        """End a request from outside (the front end found the stop string `stop` in its text)."""
        self._finish(request, FinishReason.STOP, stop, reason)

    def _finish(
        self,
        request: Request,
        finish_reason: FinishReason,
        stop_reason: int | str | None,
        reason: Reason,
    ) -> None:
        queue = self.running if request.status is RequestStatus.RUNNING else self.waiting
        queue.remove(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = finish_reason
        request.stop_reason = stop_reason
        del self.requests[request.request_id]
        self.finished_req_ids.append(request.request_id)
        self.counters.requests_finished += 1
        self.trace.event(
            RequestFinished(request.request_id, finish_reason, request.num_output_tokens), reason
        )
        self.kv_cache_manager.free(request)

    # -- schedule -------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Decide one step: running requests first, then waiting ones."""
        self._budget = self.config.max_num_scheduled_tokens
        self._scheduled = {}
        self._preempted = 0
        self._given_nothing.clear()
        self._gone_ahead.clear()
        self._schedule_running()
        self._schedule_waiting()
        return self._close_step()

    def _schedule_running(self) -> None:
        request = self.running.head
        while request is not None:
            if self._budget == 0:
                self._pass_over_all(request, BudgetSpent(self.config.max_num_batched_tokens))
                return
            num_tokens, reason = self._share(request, request.num_computed_tokens)
            if num_tokens == 0:
                self._pass_over(request, reason)
            else:
                new_blocks = self._allocate_or_preempt(request, num_tokens)
                if new_blocks is None:  # it was the victim itself
                    return
                self._give(request, "running", num_tokens, new_blocks, reason)
            request = self._behind_victims(request) if self._gone_ahead else request.next

    def _behind_victims(self, request: Request) -> Request | None:
        """Who is asked after `request`, which took blocks of some that were passed over before it.

        For each of these one more is skipped, as in vLLM 0.26.0. It counts places in the running
        list, whose members move up by one with each that goes from before, and makes up for that
        only where the victim had got tokens.
        """
        following = request.next
        for victim in self._gone_ahead:
            if following is not None:
                self._pass_over(following, MovedUp(victim.request_id))
                following = following.next
        self._gone_ahead.clear()
        return following

    def _share(self, request: Request, num_computed: int) -> tuple[int, Reason]:
        """How many tokens a request gets now, and what limits them."""
        wanted = request.num_tokens + request.num_output_placeholders - num_computed
        return self._limit(wanted, num_computed)

    def _limit(self, wanted: int, num_computed: int) -> tuple[int, Reason]:
        threshold = self.config.long_prefill_token_threshold or wanted
        room = self.max_model_len - 1 - num_computed
        if wanted <= self._budget and wanted <= threshold and wanted <= room:
            return wanted, ONE_TOKEN if wanted == 1 else WholeRequest(wanted)
        share = min(threshold, self._budget, room)
        if share == threshold:
            return share, LongPrefillThreshold(wanted, threshold)
        if share == self._budget:
            return share, BudgetLeft(wanted, share)
        return share, ModelLengthReached(self.max_model_len)

    def _allocate_or_preempt(self, request: Request, num_tokens: int) -> list[KVCacheBlock] | None:
        """Blocks for a running request, taking them from others if need be."""
        while True:
            new_blocks = self.kv_cache_manager.allocate_slots(request, num_tokens)
            if not isinstance(new_blocks, DoesNotFit):
                return new_blocks
            victim, reason = self._choose_victim()
            self._take_back_tokens(victim)
            following = victim.next
            self.preempt(victim, reason, request.request_id, new_blocks)
            self._preempted += 1
            if victim in self._given_nothing:
                self._gone_ahead.append(victim)
            if victim is request:
                if following is not None:
                    self._pass_over_all(following, PreemptedThisStep(self._preempted))
                return None

    def _choose_victim(self) -> tuple[Request, Reason]:
        if self.config.scheduling_policy == "priority":
            victim = max(self.running, key=lambda r: (r.priority, r.arrival_time))
            same = sum(r.priority == victim.priority for r in self.running)
            return victim, LowestPriority(victim.priority, len(self.running), same)
        assert self.running.tail is not None
        return self.running.tail, LastRunning(len(self.running))

    def _take_back_tokens(self, victim: Request) -> None:
        """A victim by priority may have got tokens in this very step: they go back.

        So does the content of the blocks that these tokens would have filled: nobody will
        compute it. (vLLM 0.26.0 leaves it in the cache, a defect: `cache_uncomputed_blocks`.)
        """
        given = self._scheduled.pop(victim, None)
        if given is None:
            return
        self._budget += given.num_tokens
        if self.config.cache_uncomputed_blocks:
            self.kv_cache_manager.leave_uncomputed(victim, given.num_computed_tokens)
        else:
            self.kv_cache_manager.uncache_blocks(victim, given.num_computed_tokens)

    def preempt(
        self, victim: Request, reason: Reason, by: str = "", shortage: DoesNotFit | None = None
    ) -> None:
        """Take a running request's blocks; it waits again and will be recomputed.

        `by` is who had a `shortage` of blocks.
        """
        needs, free = (shortage.needs, shortage.free) if shortage else (0, 0)
        key, computed = victim.request_id, victim.num_computed_tokens
        victim.status = RequestStatus.PREEMPTED
        ahead = self._num_ahead(victim)
        self.trace.event(RequestPreempted(key, by, needs, free, computed, ahead), reason)
        self.running.remove(victim)
        self.kv_cache_manager.free(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        self.counters.num_preemptions += 1
        self.preempted_req_ids.append(victim.request_id)
        self._enqueue(victim)

    def _schedule_waiting(self) -> None:
        while self.waiting.head is not None:
            request = self.waiting.head
            reason = self._closed_to_all() or self._admit(request)
            if reason is not None:
                self.trace.event(AdmissionStopped(request.request_id, len(self.waiting)), reason)
                return

    def _closed_to_all(self) -> Reason | None:
        """Why nobody can be admitted now, whoever it is; None where somebody may be."""
        if self._preempted:
            return PreemptedThisStep(self._preempted)
        if self._budget == 0:
            return BudgetSpent(self.config.max_num_batched_tokens)
        if len(self.running) == self.config.max_num_seqs:
            return SeatsFull(len(self.running), self.config.max_num_seqs)
        return None

    def _admit(self, request: Request) -> Reason | None:
        """Admit the head of the waiting queue, or say why not."""
        hits = self._look_up(request)
        hit_tokens = len(hits) * self.config.block_size
        num_tokens, reason = self._share(request, hit_tokens)
        if num_tokens == 0:
            return reason
        if isinstance(reason, BudgetLeft) and not self.config.enable_chunked_prefill:
            return ChunkingOff(reason.wanted, self._budget)
        new_blocks = self._allocate_for_admission(request, num_tokens, hits)
        if isinstance(new_blocks, DoesNotFit):
            return new_blocks
        kind: ScheduledKind = "resumed" if request.status is RequestStatus.PREEMPTED else "new"
        self.waiting.remove(request)
        self.running.append(request)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = request.hit_tokens = hit_tokens
        if kind == "new":
            request.num_cached_tokens = hit_tokens
            self.counters.prompt_tokens += request.num_prompt_tokens
        data = NewRequestData(
            tuple(request.all_token_ids), request.num_prompt_tokens, request.sampling_params
        )
        self._give(request, kind, num_tokens, new_blocks, reason, block_ids(hits), data)
        return None

    def _look_up(self, request: Request) -> list[KVCacheBlock]:
        hits = self.kv_cache_manager.get_computed_blocks(request)
        if self.kv_cache_manager.looks_up(request):
            self.counters.prefix_requests += 1
            self.counters.prefix_queries += request.num_tokens
            self.counters.prefix_hits += len(hits) * self.config.block_size
        return hits

    def _allocate_for_admission(
        self, request: Request, num_tokens: int, hits: list[KVCacheBlock]
    ) -> list[KVCacheBlock] | DoesNotFit:
        manager = self.kv_cache_manager
        return manager.allocate_slots(
            request,
            num_tokens,
            hits,
            reserve=request.num_tokens if self.config.scheduler_reserve_full_isl else 0,
            watermark_blocks=manager.watermark_blocks if self.running else 0,
        )

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
        """Write down a request's share of the step."""
        self._budget -= num_tokens
        key, computed = request.request_id, request.num_computed_tokens
        self._scheduled[request] = ScheduledRequest(
            key, kind, num_tokens, computed, block_ids(new_blocks), hit_block_ids, data
        )
        self.trace.event(
            RequestScheduled(key, kind, num_tokens, computed, request.num_tokens, self._budget),
            reason,
        )

    def _pass_over(self, request: Request, reason: Reason) -> None:
        self._given_nothing.add(request)
        self.trace.event(RequestPassedOver(request.request_id, 0), reason)

    def _pass_over_all(self, request: Request, reason: Reason) -> None:
        """From `request` on nobody gets anything; once a step at most."""
        behind, other = 0, request.next
        while other is not None:
            behind, other = behind + 1, other.next
        self.trace.event(RequestPassedOver(request.request_id, behind), reason)

    def _close_step(self) -> SchedulerOutput:
        """The step's decisions as the runner gets them; from here on its tokens count as done."""
        decode_tokens = 0
        for request, entry in self._scheduled.items():
            decode_tokens += entry.num_tokens if is_decode(request) else 0
            request.num_computed_tokens += entry.num_tokens
            self.progressed[request] = None
        first = self.running.head
        output = SchedulerOutput(
            tuple(self._scheduled.values()),
            self.config.max_num_scheduled_tokens - self._budget,
            self.kv_cache_manager.num_common_prefix_blocks(first) if first else 0,
            tuple(self.preempted_req_ids),
            tuple(self.finished_req_ids),
        )
        self.preempted_req_ids.clear()
        self.finished_req_ids.clear()
        self.trace.event(
            BatchScheduled(
                len(output.scheduled),
                output.total_num_scheduled_tokens - decode_tokens,
                decode_tokens,
                self.config.max_num_batched_tokens,
                output.num_common_prefix_blocks,
                output.finished_req_ids,
            )
        )
        return output

    # -- a step is taken back before it ran -------------------------------------------------------

    def withdraw(self, output: SchedulerOutput, request_ids: Iterable[str]) -> SchedulerOutput:
        """Take `request_ids`, about to be aborted, out of a step that has not run yet.

        Blocks they would have filled lose their content. Whoever was admitted in this same step
        with a hit on such a block is preempted: what it builds on will not be computed.
        """
        gone = set(request_ids)
        lost: set[int] = set()
        dependents: list[tuple[Request, int]] = []
        for entry in output.scheduled:
            missing = lost.intersection(entry.hit_block_ids)
            if entry.request_id not in gone and not missing:
                continue
            request = self.requests[entry.request_id]
            uncached = self.kv_cache_manager.uncache_blocks(request, entry.num_computed_tokens)
            lost.update(block.block_id for block in uncached)
            if entry.request_id not in gone:
                dependents.append((request, min(missing)))
        for request, block_id in reversed(dependents):  # the last one waits first in line
            self.preempt(request, UncomputedDependency(block_id))
        gone.update(request.request_id for request, _ in dependents)
        return drop_from(output, gone)

    # -- update ---------------------------------------------------------------------------------

    def update_from_output(
        self, output: SchedulerOutput, sampled: ModelRunnerOutput
    ) -> list[EngineCoreOutput]:
        """Append the step's tokens to their requests, and end those that are done."""
        outputs = []
        finished_before = self.counters.requests_finished
        sampled_token_ids = sampled.sampled_token_ids
        for entry in output.scheduled:
            tokens = sampled_token_ids.get(entry.request_id)
            if not tokens:  # a part of a prompt
                continue
            request = self.requests.get(entry.request_id)
            if request is None:  # aborted while its step ran
                for token in tokens:
                    self.trace.event(TokenDropped(entry.request_id, token))
            else:
                outputs.append(self._append_tokens(request, tokens))
        finished = self.counters.requests_finished - finished_before
        self.trace.event(OutputsReturned(len(outputs), finished))
        return sampled.rated(outputs)

    def _append_tokens(self, request: Request, tokens: tuple[int, ...]) -> EngineCoreOutput:
        """Append one after the other; what comes behind a stop is not wanted."""
        self.progressed[request] = None
        key = request.request_id
        for count, token in enumerate(tokens, 1):
            self._append_token(request, token)
            stop = self._check_stop(request, token)
            if stop is not None:
                finish_reason, reason = stop
                stop_reason = token if isinstance(reason, StopToken) else None
                self._finish(request, finish_reason, stop_reason, reason)
                for unwanted in tokens[count:]:
                    self.trace.event(TokenDropped(key, unwanted))
                return EngineCoreOutput(key, tokens[:count], finish_reason, stop_reason)
        return EngineCoreOutput(key, tokens, None, None)

    def _append_token(self, request: Request, token: int) -> None:
        request.append_output_token(token)
        self.counters.generation_tokens += 1
        self.trace.event(TokenAppended(request.request_id, token, request.num_tokens))

    def _check_stop(self, request: Request, token: int) -> tuple[FinishReason, Reason] | None:
        """Whether `token` ends the request (vLLM 0.26.0: `vllm/v1/core/sched/utils.py`).

        Below min_tokens only the model's length ends it. (There vLLM 0.26.0 never ends it: a
        defect, the request would hold its seat for ever.)
        """
        params = request.sampling_params
        num_output_tokens = request.num_tokens - request.num_prompt_tokens
        too_long = request.num_tokens >= self.max_model_len
        if num_output_tokens >= params.min_tokens:
            if token in request.eos_token_ids and not params.ignore_eos:
                return FinishReason.STOP, EosToken(token)
            if token in params.stop_token_ids:
                return FinishReason.STOP, StopToken(token)
            if not too_long and num_output_tokens >= params.max_tokens:
                return FinishReason.LENGTH, MaxTokensReached(params.max_tokens)
        if too_long:
            return FinishReason.LENGTH, ModelLengthReached(self.max_model_len)
        return None

    # -- resetting the cache --------------------------------------------------------------------

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached content; True where that was possible.

        Refused while blocks are held, unless `reset_running_requests` preempts their holders.
        """
        if reset_running_requests:
            while self.running.tail is not None:
                self.preempt(self.running.tail, ResetRequested())
        return self.kv_cache_manager.block_pool.reset_prefix_cache()


def is_decode(request: Request) -> bool:
    """Whether the one known token it lacks is the one it sampled last; all else is prefill."""
    placeholders = request.num_output_placeholders
    wanted = request.num_tokens + placeholders - request.num_computed_tokens
    return wanted == 1 and request.num_output_tokens + placeholders > 0


def priority_key(request: Request) -> tuple[int, float, str]:
    """The order of the waiting queue under the priority policy: the smallest is first."""
    return request.priority, request.arrival_time, request.request_id


def drop_from(output: SchedulerOutput, request_ids: set[str]) -> SchedulerOutput:
    """`output` without the entries of `request_ids`."""
    kept = tuple(entry for entry in output.scheduled if entry.request_id not in request_ids)
    total = sum(entry.num_tokens for entry in kept)
    return output._replace(scheduled=kept, total_num_scheduled_tokens=total)
