"""Whole histories of an engine, generated: whatever is asked of it, no rule breaks.

Each history is a sequence of commands (submit, step, phase, abort, reset of the cache or of the
engine with other settings) on an engine with a small pool, a tight budget and few seats. After
every phase all rules of `engine/integrity.py` hold and the fold of the log is the state. At the
end everything that was submitted ends, no block is left behind, and each text is what the model
writes without any cache, batch or scheduler. The model is a stand-in of hashes, whose tokens tell
when a wrong slot was read (`hashing_runner.py`); everything else is real.

The histories are the same in each run, so that a run says something of the change it is made for.
`HISTORIES_SEED=$RANDOM HISTORIES=20000 make test ARGS=tests/engine/test_histories.py` looks
for new ones; the seed is printed with a failure, and of a failure the shortest history, as the
commands that lead to it.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import Phase as Generation
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine import input_batch
from engine.async_llm import AsyncLLM, EngineError
from engine.async_scheduler import AsyncScheduler
from engine.block_pool import BlockPool, KVCacheBlock
from engine.config import EngineConfig, SamplingParams, SpeculativeConfig
from engine.core import EngineCore
from engine.engine_thread import EngineThread
from engine.events import (
    BatchScheduled,
    BlockEvicted,
    BlocksHit,
    BlocksUncached,
    DraftsDropped,
    DraftsSettled,
    RequestAborted,
    RequestPreempted,
    TokenDropped,
)
from engine.input_processor import Submission
from engine.kv_cache_manager import KVCacheManager
from engine.model_loader import LoadedModel, load_model
from engine.output_processor import RequestLost, RequestStream
from engine.parallel_sampling import sequences
from engine.records import STEP_PHASES, Event, Phase
from engine.rejection_sampler import verify
from engine.request import Request
from engine.sampler import request_seed
from engine.scheduler import Scheduler
from engine.speculative_scheduler import SpeculativeScheduler
from engine.two_lanes import TwoLaneTrace
from tests.engine.hashing_runner import EOS, TEXT, HashingRunner, naive_text
from tests.engine.watch import Watch

HISTORIES = int(os.environ.get("HISTORIES") or 1_000)
PARTS = 8  # tests that share them: a test of this project may take ten minutes, on any machine
SEED = int(os.environ.get("HISTORIES_SEED") or 0)
LONGEST = 15  # commands of a history
ENOUGH = 2_000  # histories to find any of the planted faults
MOST_STEPS = 2_000  # that a small engine may need to end what was submitted
STEMS = [TEXT[i : i + 20] for i in (1, 8, 1)]  # how prompts begin: many share blocks


class InlineThread(EngineThread):
    """Runs what is posted at once: a history is one sequence of commands."""

    def post(self, function: Callable[[], Any], owner: object = None) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
        return future

    def turn(self, function: Callable[[], Any], owner: object = None) -> Future[Any]:
        return self.post(function)

    def later(self, seconds: float, function: Callable[[], Any], owner: object = None) -> None:
        """Nothing that is timed matters here."""


# With short look-ups, of letters that recur; `HashingRunner` adds drafts of its own.
DRAFTERS = [
    SpeculativeConfig(method="ngram", num_speculative_tokens=k, prompt_lookup_max=1) if k else None
    for k in (0, 0, 0, 1, 3)
]


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    block_size = draw(st.sampled_from([1, 2, 3, 4, 8]))
    max_model_len = draw(st.integers(6, 36))
    least = -(-max_model_len // block_size) + 1
    seats = draw(st.integers(1, 5))
    chunked = draw(st.booleans())
    drafter = draw(st.sampled_from(DRAFTERS))
    return EngineConfig(
        block_size=block_size,
        num_gpu_blocks=least + draw(st.integers(0, 8)),
        max_model_len=max_model_len,
        max_num_seqs=seats,
        max_num_batched_tokens=draw(st.integers(seats, 20)) + (0 if chunked else max_model_len),
        enable_chunked_prefill=chunked,
        enable_prefix_caching=draw(st.sampled_from([True, True, False])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 3])),
        scheduling_policy=draw(st.sampled_from(["fcfs", "priority"])),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        async_scheduling=drafter is None and draw(st.sampled_from([True, True, False])),
        speculative_config=drafter,
    )


def sampling(n: int, temperature: float, stops: str, max_tokens: int) -> SamplingParams:
    return SamplingParams.parse(
        {
            "n": n,
            "temperature": 1.0 if n > 1 else temperature,
            "seed": 7 if max_tokens % 2 else None,
            "max_tokens": max_tokens,
            "min_tokens": min(max_tokens, 3) if stops == "late" else 0,
            "stop_token_ids": TEXT[1:12] if stops in ("token", "late") else [],
            "stop": ["e", "m", "st", "z"] if stops == "text" else [],
            "ignore_eos": stops != "eos",
            "prompt_logprobs": 0 if stops == "rated" else None,
        }
    )


# Made once: a choice among them costs a tenth of choosing each setting.
SAMPLINGS = [
    sampling(*each)
    for each in product(
        (1, 1, 2), (0.0, 1.0), ("", "", "eos", "token", "text", "late", "rated"), (1, 4, 8, 13)
    )
]


@st.composite
def submissions(draw: st.DrawFn) -> Submission:
    own = [TEXT[1 + int(digit)] for digit in np.base_repr(draw(st.integers(0, 80)), 3)]
    stem = draw(st.sampled_from(STEMS))[: draw(st.integers(0, 20))]
    salt, priority = draw(st.sampled_from([("", 1), ("", 0), ("", 2), ("salt", 1)]))
    return Submission([*stem, *own], draw(st.sampled_from(SAMPLINGS)), priority, salt)


moments = st.sampled_from([Phase.PREPARE, Phase.EXECUTE, None, Phase.SAMPLE, Phase.UPDATE])


class Asked:
    """A request that was handed in, and what its client got so far."""

    def __init__(self, stream: RequestStream, params: SamplingParams, config: EngineConfig):
        self.stream, self.params, self.config = stream, params, config
        self.tokens: list[list[int]] = [[] for _ in range(params.n)]
        self.reasons: list[str | None] = [None] * params.n
        self.lost = False

    def read(self) -> None:
        try:
            while (output := self.stream.get_nowait()) is not None:
                assert self.reasons[output.index] is None, "an output after the last one"
                self.tokens[output.index] += output.token_ids
                self.reasons[output.index] = output.finish_reason
        except RequestLost:
            self.lost = True

    def check(self) -> None:
        """Each sequence is what the naive loop writes, up to where it was taken back."""
        self.read()
        assert self.stream.ended
        for index, (key, params) in enumerate(sequences(self.stream.request_id, self.params)):
            tokens, reason = self.expected(params, request_seed(params, self.config.seed, key))
            got, ended = self.tokens[index], self.reasons[index]
            if ended in (None, "abort"):
                assert ended or self.lost
                assert got == tokens[: len(got)], key
            else:
                assert (got, ended) == (tokens, reason), key

    def expected(self, params: SamplingParams, seed: int) -> tuple[list[int], str]:
        prompt = list(self.stream.prompt_token_ids)
        room = (self.config.max_model_len or 0) - len(prompt)
        tokens: list[int] = []
        text = ""
        for token in naive_text(tuple(prompt), params, seed):
            tokens.append(token)
            if len(tokens) >= params.min_tokens:
                if token in params.stop_token_ids or (token == EOS and not params.ignore_eos):
                    return tokens, "stop"
                text += "" if token == EOS else chr(token - 3)
                if any(stop in text for stop in params.stop):
                    return tokens, "stop"
            if len(tokens) >= min(params.max_tokens, room):
                return tokens, "length"
        raise AssertionError("the naive loop goes on for ever")


class History(RuleBasedStateMachine):
    """One engine, from its beginning to the end of all that was asked of it."""

    count = 0  # of those that came to their end
    seen: Counter[type[Any]] = Counter()  # events, by type

    @initialize(config=configs())
    def begin(self, config: EngineConfig) -> None:
        self.asked: list[Asked] = []
        self.problem: Exception | None = None
        self.engine = AsyncLLM(tiny(), config, InlineThread(), make_runner=HashingRunner)
        self.watch()

    def watch(self) -> None:
        """Look at each phase's end. (What is raised there would end the engine, not the test.)"""
        trace, watch = self.engine.trace, Watch.of(self.engine.core)
        lanes = [trace, trace.executor] if isinstance(trace, TwoLaneTrace) else [trace]

        def look(phase: Phase) -> None:
            try:
                if phase not in (Phase.ARRIVE, Phase.EXECUTE):  # they touch no books
                    watch.check_rules()
                if phase in (Phase.OUTPUT, Phase.COMMAND):
                    watch.check_log()
            except Exception as error:
                self.problem = self.problem or error

        for lane in lanes:
            lane.on_phase_end[-1] = lambda lane=lane: look(lane.phase)

    @property
    def core(self) -> EngineCore:
        return self.engine.core

    # -- what may be asked ------------------------------------------------------------------------

    @rule(wanted=st.lists(submissions(), min_size=1, max_size=3))
    def submit(self, wanted: list[Submission]) -> None:
        longest = (self.engine.config.max_model_len or 0) - 1
        wanted = [item._replace(prompt=item.prompt[:longest]) for item in wanted]
        streams = self.engine.submit_many(wanted)
        for item, stream in zip(wanted, streams, strict=True):
            self.asked.append(Asked(stream, item.params, self.engine.config))

    @rule(times=st.integers(1, 9))
    def phases(self, times: int) -> None:
        for _ in range(times):
            self.engine.step_phase()

    @precondition(lambda self: self.core.has_work())
    @rule(times=st.integers(1, 4))
    def whole_steps(self, times: int) -> None:
        for _ in range(times):
            self.engine.step()

    @precondition(lambda self: self.engine.num_unfinished)
    @rule(moment=moments, places=st.lists(st.integers(0, 9), min_size=1, max_size=3))
    def abort(self, moment: str | None, places: list[int]) -> None:
        self.go_to(moment)
        unfinished = list(self.engine.outputs.open) or ["nobody"]
        ids = {unfinished[place % len(unfinished)] for place in places}
        # The last output of one that ended may still be on its way: it cannot be taken back.
        there = [key for key in ids if key in self.core.scheduler.requests | self.core.arriving]
        assert self.engine.abort([*ids, "nobody"]) == there

    @precondition(lambda self: self.asked)
    @rule(place=st.integers(0, 9))
    def abort_all_sequences(self, place: int) -> None:
        self.engine.abort(self.asked[place % len(self.asked)].stream.request_id)

    @precondition(lambda self: self.core.scheduler.kv_cache_manager.block_pool.cached)
    @rule(moment=moments, preempt=st.booleans())
    def reset_prefix_cache(self, moment: str | None, preempt: bool) -> None:
        self.go_to(moment)
        idle = not self.core.scheduler.running.length
        assert self.core.reset_prefix_cache(reset_running_requests=preempt) is (idle or preempt)

    def go_to(self, moment: str | None) -> None:
        """Go on to where this phase comes next, in any lane; None: stay."""
        for _ in range(3 * len(STEP_PHASES)):
            in_flight = getattr(self.core, "in_flight", ())
            phases = {self.core.next_phase, *(step.next_phase for step in in_flight)}
            if moment is None or moment in phases:
                return
            self.engine.step_phase()

    @precondition(lambda self: self.core.step_index > 2)
    @rule(config=st.none() | configs())
    def reset(self, config: EngineConfig | None) -> None:
        self.check_requests()
        self.note_what_was_seen()
        self.engine.reset(config)
        self.check_requests()
        self.asked = []
        self.watch()

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def no_rule_is_broken(self) -> None:
        if self.problem is not None:
            raise self.problem

    def note_what_was_seen(self) -> None:
        records = self.engine.trace.records
        History.seen.update(type(record.facts) for record in records if isinstance(record, Event))

    def check_requests(self) -> None:
        for asked in self.asked:
            asked.read()
            if asked.stream.ended:
                asked.check()

    def teardown(self) -> None:
        if not hasattr(self, "engine") or self.problem is not None or self.engine.failed:
            return
        for _ in range(MOST_STEPS):
            if not self.core.has_work():
                break
            self.engine.step()
        self.no_rule_is_broken()
        assert not self.core.has_work(), "it never ends"
        self.note_what_was_seen()
        for asked in self.asked:
            asked.check()
        pool = self.core.scheduler.kv_cache_manager.block_pool
        assert pool.get_num_free_blocks() == len(pool.blocks) - 1
        assert not self.core.scheduler.requests and not self.core.runner.known_requests()
        History.count += 1


@cache
def tiny() -> LoadedModel:
    return load_model("tiny-random")


def run_histories(seed_value: int, count: int, **more: Any) -> None:
    print(f"HISTORIES_SEED={SEED}")  # beside a failure
    machine = seed(seed_value)(type("History", (History,), {}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=count,
            stateful_step_count=LONGEST,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            **more,
        ),
    )


# What must have happened in enough histories, or they would prove little.
WANTED = {
    BatchScheduled: "steps",
    BlocksHit: "prefix hits",
    BlockEvicted: "evictions",
    RequestPreempted: "preemptions",
    RequestAborted: "aborts",
    BlocksUncached: "steps taken back",
    TokenDropped: "tokens dropped",
    DraftsSettled: "verifications",
    DraftsDropped: "drafts lost to a preemption",
}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_a_rule(part: int) -> None:
    run_histories(SEED + part, HISTORIES // PARTS)


def test_so_many_histories_were_generated(capsys: pytest.CaptureFixture[str]) -> None:
    """The tests above ran all of them, and enough happened in them to prove something."""
    told = [f"{History.seen[facts]:,} {name}" for facts, name in WANTED.items()]
    with capsys.disabled():
        print(f"\n{History.count:,} histories from HISTORIES_SEED={SEED}: {', '.join(told)}")
    assert History.count >= HISTORIES
    assert all(History.seen[facts] > HISTORIES // 400 for facts in WANTED)


# -- what the histories find ----------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def evicted_content_stays_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BlockPool, "uncache", lambda pool, block: None)


def a_hit_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    def touch(pool: BlockPool, blocks: Sequence[KVCacheBlock]) -> int:
        free = [block for block in blocks if block.ref_cnt == 0]
        for block in free:
            pool.free_block_queue.remove(block)
            block.ref_cnt += 1
        return len(free)

    patch.setattr(BlockPool, "touch", touch)


def a_hit_stays_in_the_free_queue(patch: pytest.MonkeyPatch) -> None:
    def touch(pool: BlockPool, blocks: Sequence[KVCacheBlock]) -> int:
        for block in blocks:
            block.ref_cnt += 1
            pool.touched[block] = None
        return 0

    patch.setattr(BlockPool, "touch", touch)


def a_hash_forgets_what_was_before(patch: pytest.MonkeyPatch) -> None:
    """No rule is broken, but tokens that follow others hit, and have other keys and values."""

    def update(request: Request, block_size: int) -> None:
        tokens = request.all_token_ids
        for start in range(0, len(tokens) - block_size + 1, block_size)[
            len(request.block_hashes) :
        ]:
            content = str(tokens[start : start + block_size]).encode()
            request.block_hashes.append(hashlib.sha256(content).digest())

    patch.setattr("engine.kv_cache_manager.update_block_hashes", update)


def blocks_are_cached_before_they_are_full(patch: pytest.MonkeyPatch) -> None:
    cache_blocks = KVCacheManager.cache_blocks

    def too_early(manager: KVCacheManager, request: Request, num_tokens: int) -> None:
        more = min(num_tokens + 1, request.num_tokens)
        held = len(manager.req_to_blocks[request.request_id]) * manager.block_size
        cache_blocks(manager, request, min(more, held))

    patch.setattr(KVCacheManager, "cache_blocks", too_early)


def a_step_taken_back_stays_cached(patch: pytest.MonkeyPatch) -> None:
    """Nobody computes these blocks; whoever hits them reads what was there before."""
    patch.setattr(KVCacheManager, "uncache_blocks", lambda manager, request, computed: [])


def an_abort_leaves_the_blocks(patch: pytest.MonkeyPatch) -> None:
    free = KVCacheManager.free

    def keep(manager: KVCacheManager, request: Request) -> None:
        if request.finish_reason != "abort":
            free(manager, request)

    patch.setattr(KVCacheManager, "free", keep)


def the_runner_keeps_a_stale_table(patch: pytest.MonkeyPatch) -> None:
    new_state = input_batch.CachedRequestState.of
    stale: dict[str, list[int]] = {}

    def old_blocks(item: Any, data: Any, seed: int) -> Any:
        state = new_state(item, data, seed)
        known = stale.setdefault(item.request_id, state.block_ids)
        state.block_ids = [*known, *state.block_ids[len(known) :]]
        return state

    patch.setattr(input_batch.CachedRequestState, "of", old_blocks)


def a_slot_is_one_too_early(patch: pytest.MonkeyPatch) -> None:
    flatten = input_batch.flatten

    def shifted(scheduled: Any, requests: Any, block_size: int) -> Any:
        rows = flatten(scheduled, requests, block_size)
        slots = [slot - (slot % 7 == 1) for slot in rows.slot_mapping]
        return rows._replace(slot_mapping=tuple(slots))

    patch.setattr(input_batch, "flatten", shifted)


def a_placeholder_is_lost(patch: pytest.MonkeyPatch) -> None:
    schedule = AsyncScheduler.schedule

    def lose(scheduler: AsyncScheduler) -> Any:
        output = schedule(scheduler)
        if scheduler.running.length > 2 and scheduler.running.tail.num_output_placeholders:
            scheduler.running.tail.num_output_placeholders -= 1
        return output

    patch.setattr(AsyncScheduler, "schedule", lose)


def a_void_token_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AsyncScheduler, "_is_void", lambda scheduler, request_id, token: False)


def a_change_is_not_logged(patch: pytest.MonkeyPatch) -> None:
    """What the page would show is not what the engine has."""
    preempt = Scheduler.preempt

    def silently(scheduler: Scheduler, victim: Request, *why: Any) -> None:
        preempt(scheduler, victim, *why)
        victim.num_preemptions += 1
        scheduler.touched.pop(victim, None)

    patch.setattr(Scheduler, "preempt", silently)


def a_rejection_is_not_taken_back(patch: pytest.MonkeyPatch) -> None:
    settle = SpeculativeScheduler._settle

    def keep(scheduler: SpeculativeScheduler, request: Request, num_accepted: int) -> None:
        settle(scheduler, request, max(num_accepted, request.num_draft_tokens - 1))

    patch.setattr(SpeculativeScheduler, "_settle", keep)


def a_wrong_draft_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """No rule is broken; the text alone is another."""

    def trusting(drafts: Sequence[int], chosen: list[Any]) -> list[Any]:
        if not drafts or drafts[0] < 0:
            return verify(drafts, chosen)
        return [chosen[0]._replace(token=drafts[0]), chosen[1]]

    patch.setattr("engine.model_runner.verify", trusting)


@pytest.mark.parametrize(
    "plant",
    [
        evicted_content_stays_known,
        a_hit_is_not_counted,
        a_hit_stays_in_the_free_queue,
        a_hash_forgets_what_was_before,
        blocks_are_cached_before_they_are_full,
        a_step_taken_back_stays_cached,
        an_abort_leaves_the_blocks,
        the_runner_keeps_a_stale_table,
        a_slot_is_one_too_early,
        a_placeholder_is_lost,
        a_void_token_is_kept,
        a_rejection_is_not_taken_back,
        a_wrong_draft_is_accepted,
        a_change_is_not_logged,
    ],
)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, EngineError)):
        run_histories(1, ENOUGH, phases=[Generation.generate], report_multiple_bugs=False)
