"""Two steps at once: the order by hand, what overlaps, and that the outcome is the same."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
import torch

from engine.async_core import AsyncEngineCore, ExecutorFailed
from engine.async_llm import AsyncLLM, EngineError
from engine.async_scheduler import AsyncScheduler
from engine.config import EngineConfig, SamplingParams
from engine.core import Runner
from engine.device import Turns
from engine.engine_thread import EngineThread
from engine.events import (
    EngineFailed,
    ForwardRun,
    InputsPrepared,
    PrefixLookedUp,
    RequestPreempted,
    RequestSubmitted,
    TokenAppended,
    TokenDropped,
    TokensReturned,
)
from engine.metrics.stats import EngineStats
from engine.model_loader import LoadedModel
from engine.model_runner import ModelRunner
from engine.output_processor import RequestLost, RequestStream
from engine.outputs import ModelRunnerOutput, SchedulerOutput
from engine.records import EXECUTOR_PHASES, Event, Patch, Phase
from engine.request import Request
from engine.trace import Changes, Trace
from engine.two_lanes import Lane, TwoLaneTrace
from tests.engine.tiny_configs import VOCAB, plain_greedy, tiny
from tests.engine.traces import make_trace
from tests.engine.watch import Watch
from tests.waiting import PATIENCE_S, rests, wait_until

Make = Callable[..., AsyncLLM]
GREEDY = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
ENDLESS = SamplingParams(max_tokens=900, temperature=0.0, ignore_eos=True)


def ends(trace: Trace) -> list[Patch]:
    """Of the phases, without commands."""
    patches = (record for record in trace.records if isinstance(record, Patch))
    return [patch for patch in patches if patch.phase is not Phase.COMMAND]


def names(trace: Trace) -> list[str]:
    return [f"{end.phase}{end.step}" for end in ends(trace)]


def facts(trace: Trace, *types: type[Any]) -> list[Any]:
    events = (record for record in trace.records if isinstance(record, Event))
    return [event.facts for event in events if isinstance(event.facts, types)]


def check_lanes(trace: Trace) -> None:
    """Numbers and times in order, and in each lane one phase after the other, whole."""
    records = trace.records[:]
    assert [record.seq for record in records] == list(range(len(records)))
    assert all(a.t_us <= b.t_us for a, b in zip(records, records[1:], strict=False))
    for executor in (False, True):
        lane = [record for record in records if (record.phase in EXECUTOR_PHASES) is executor]
        for record, following in zip(lane, lane[1:], strict=False):
            if isinstance(record, Event):
                assert (record.step, record.phase) == (following.step, following.phase)
    found = names(trace)
    for phase in ("arrive", "schedule", "prepare", "execute", "sample", "update", "output"):
        steps = [name for name in found if name.startswith(phase)]
        assert steps == [f"{phase}{step}" for step in range(len(steps))]
    for step in range(sum(name.startswith("output") for name in found)):
        mine = [record for record in records if record.step == step and record.phase != "command"]
        assert mine[0].phase is Phase.ARRIVE and mine[-1].phase is Phase.OUTPUT


# --- by hand -----------------------------------------------------------------------------------


def test_by_hand_the_engine_lane_goes_first_wherever_it_can(make: Make) -> None:
    engine = make(async_scheduling=True)
    engine.submit("a prompt", GREEDY)
    for _ in range(14):
        engine.step_phase()
        assert engine.trace.state() == engine.core.state()
    assert names(engine.trace) == [
        *("arrive0", "schedule0", "arrive1", "schedule1"),
        *("prepare0", "execute0", "sample0", "update0", "output0"),
        *("arrive2", "schedule2", "prepare1", "execute1", "sample1"),
    ]
    assert engine.core.state()["engine"] == {
        "mode": "paused",
        "next_phase": "update",
        "step": 1,
        "in_flight": {"1": "update", "2": "prepare"},
    }


def test_a_step_by_hand_goes_on_until_an_outcome_is_out(make: Make) -> None:
    engine = make(async_scheduling=True)
    stream = engine.submit("a prompt", GREEDY)
    engine.step()
    assert names(engine.trace)[-1] == "output0" and stream.get_nowait() is not None
    engine.step()
    assert names(engine.trace)[-1] == "output1" and stream.get_nowait() is not None


def test_what_comes_while_nothing_is_to_be_scheduled_is_scheduled_first(make: Make) -> None:
    engine = make(async_scheduling=True)
    last = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    engine.submit("a prompt", last)
    while engine.status.has_work:
        engine.step_phase()
    assert names(engine.trace)[-1] == "output2"  # of the empty step that tells who has finished
    engine.submit("another", last)
    for _ in range(2):
        engine.step()
    assert engine.status.next_phase is Phase.UPDATE
    engine.submit("more", last)
    assert engine.trace.state()["engine"]["next_phase"] == "arrive"
    while engine.status.has_work:
        engine.step_phase()
    check_lanes(engine.trace)


# --- the same outcome --------------------------------------------------------------------------


class Driven:
    """An asynchronous core with a real runner, watched, and driven by hand."""

    def __init__(self, model: LoadedModel, **config: Any):
        settings = EngineConfig(async_scheduling=True, **config).resolve(model.max_model_len)
        self.model = model
        self.trace = TwoLaneTrace(make_trace(settings).header)
        self.runner = ModelRunner(model, settings, self.trace.executor)
        self.core = AsyncEngineCore(settings, self.runner, self.trace)
        Watch.of(self.core)
        self.requests: dict[str, Request] = {}

    def add(self, key: str, prompt: list[int], **params: Any) -> Request:
        values = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 12} | params
        asked = SamplingParams.parse(values)
        priority = len(self.requests) % 3
        request = Request(key, prompt, asked, self.model.eos_token_ids, priority, float(len(key)))
        self.requests[key] = request
        self.core.add_request(request)
        return request

    def check(self) -> None:
        """Everything has ended as the naive loop ends it, and the pool is whole."""
        assert not self.core.has_work()
        check_lanes(self.trace)
        pool = self.core.scheduler.kv_cache_manager.block_pool
        assert pool.get_num_free_blocks() == len(pool.blocks) - 1
        assert not self.runner.requests
        for request in self.requests.values():
            expected = self.naive(request)
            if request.finish_reason == "abort":
                expected = expected[: request.num_output_tokens]
            assert request.output_token_ids == expected, request.request_id
        self.check_cached_blocks()

    def naive(self, request: Request) -> list[int]:
        params = request.sampling_params
        prompt = request.all_token_ids[: request.num_prompt_tokens]
        tokens = plain_greedy(self.model, prompt, params.max_tokens)
        stops = [i for i, token in enumerate(tokens) if token in params.stop_token_ids]
        return tokens[: stops[0] + 1] if stops else tokens

    def check_cached_blocks(self) -> None:
        """What the pool promises under a hash is what the model computes for these tokens."""
        size = self.core.config.block_size
        texts: dict[bytes, list[int]] = {}
        for request in self.requests.values():
            for number, block_hash in enumerate(request.block_hashes, 1):
                texts[block_hash] = request.all_token_ids[: number * size]
        pool = self.core.scheduler.kv_cache_manager.block_pool
        assert pool.cached
        for block_hash, blocks in pool.cached.items():
            tokens = texts[block_hash]
            with torch.inference_mode():
                model: Any = self.model.model
                plain = model(input_ids=torch.tensor([tokens]), use_cache=True).past_key_values
            for block_id in blocks:
                for layer, (mine, _) in zip(plain.layers, self.runner.kv_cache.layers, strict=True):
                    for side, theirs in enumerate((layer.keys, layer.values)):
                        expected = theirs[0, :, -size:].transpose(0, 1)
                        torch.testing.assert_close(
                            mine[side, block_id], expected, rtol=1e-3, atol=1e-3
                        )


def prompts_of(rng: random.Random, number: int) -> Iterator[list[int]]:
    """Short and long, half of them with a common beginning."""
    prefix = [rng.randrange(3, VOCAB) for _ in range(9)]
    for index in range(number):
        own = [rng.randrange(3, VOCAB) for _ in range(rng.choice((1, 3, 6, 14)))]
        yield prefix + own if index % 2 else own


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("seed", range(4))
def test_greedy_is_the_naive_loop_whatever_comes_in_between(seed: int, policy: str) -> None:
    """Chunks, preemptions, stops, aborts and resets of the cache, at any moment of two steps."""
    rng = random.Random(seed)
    engine = Driven(
        tiny("llama"),
        block_size=4,
        num_gpu_blocks=14,
        max_num_batched_tokens=9,
        max_num_seqs=4,
        scheduling_policy=policy,
    )
    for index, prompt in enumerate(prompts_of(rng, 9)):
        stops = tuple(rng.sample(range(3, VOCAB), 40)) if index % 3 == 0 else ()
        engine.add(f"r{index}", prompt, max_tokens=rng.choice((1, 7, 14)), stop_token_ids=stops)
        for _ in range(rng.randrange(30)):
            engine.core.step_phase()
        if rng.random() < 0.25:
            engine.core.abort_requests([f"r{rng.randrange(index + 1)}"])
        if rng.random() < 0.3:
            engine.core.reset_prefix_cache(reset_running_requests=rng.random() < 0.7)
    while engine.core.has_work():
        engine.core.step_phase()
    engine.check()


def test_the_workloads_above_have_it_all() -> None:
    """A small pool for long requests: preempted with a token in flight, and taken up again."""
    rng = random.Random(3)
    engine = Driven(
        tiny("llama"), block_size=4, num_gpu_blocks=12, max_num_batched_tokens=9, max_num_seqs=4
    )
    for index, prompt in enumerate(prompts_of(rng, 8)):
        engine.add(f"r{index}", prompt, max_tokens=14)
    resets = 0
    while engine.core.has_work():
        if engine.core.step_phase() is Phase.SCHEDULE and resets < 2 and rng.random() < 0.1:
            engine.core.reset_prefix_cache(reset_running_requests=True)
            resets += 1
    assert resets == 2 and facts(engine.trace, RequestPreempted)
    assert facts(engine.trace, TokenDropped)
    assert any(fact.hit_tokens for fact in facts(engine.trace, PrefixLookedUp))
    assert any(f.positions[0] > 0 for f in facts(engine.trace, InputsPrepared))
    engine.check()


def outcome(engine: AsyncLLM, streams: Sequence[RequestStream]) -> list[Any]:
    """All that the clients are told, without what rounding may change."""
    while engine.status.has_work:
        engine.step()
    told: list[Any] = []
    for stream in streams:
        outputs = list(stream)
        for index in sorted({output.index for output in outputs}):
            mine = [output for output in outputs if output.index == index]
            logprobs = [one for output in mine for one in output.logprobs or ()]
            told.append(
                (
                    "".join(output.text for output in mine),
                    [token for output in mine for token in output.token_ids],
                    (mine[-1].finish_reason, mine[-1].stop_reason),
                    [(one.token_id, one.rank, len(one.top)) for one in logprobs],
                )
            )
        prompt = stream.prompt_logprobs
        told.append(prompt and [one and (one.token_id, one.rank) for one in prompt])
    return told


def test_clients_are_told_the_same(make: Make) -> None:
    """Draws, penalties, several sequences, log-probabilities, stop strings, least lengths."""
    asked = [
        {"seed": 5, "max_tokens": 20},
        {"seed": 7, "n": 3, "max_tokens": 15, "temperature": 1.5},
        {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 1.0},
        {"temperature": 0.0, "prompt_logprobs": 2, "logprobs": 3, "max_tokens": 5},
        {"seed": 9, "stop": tuple("abcdefghijklmnop"), "max_tokens": 200},
        {"seed": 3, "min_tokens": 10, "max_tokens": 40, "stop_token_ids": tuple(range(100, 160))},
    ]
    told = []
    for async_scheduling in (False, True):
        engine = make(
            async_scheduling=async_scheduling,
            num_gpu_blocks=12,
            max_num_batched_tokens=24,
            enforce_eager=True,
        )
        streams = [
            engine.submit("a common beginning" + "!" * n, SamplingParams.parse(params))
            for n, params in enumerate(asked)
        ]
        told.append(outcome(engine, streams))
        assert facts(engine.trace, RequestPreempted)
    assert told[0] == told[1]
    stops = {one[2] for one in told[1] if isinstance(one, tuple)}
    assert any(reason == "stop" and isinstance(stop, str) for reason, stop in stops)
    assert any(reason == "stop" and isinstance(stop, int) for reason, stop in stops)


def test_a_prefix_hit_is_told_of_who_was_preempted_with_its_first_token_in_flight(
    make: Make,
) -> None:
    engine = make(async_scheduling=True, block_size=4, num_gpu_blocks=5, max_num_batched_tokens=16)
    prompt = list(range(10, 18))
    engine.submit(prompt, GREEDY.model_copy(update={"max_tokens": 8}))
    while names(engine.trace)[-1:] != ["schedule3"]:
        engine.step_phase()
    late = engine.submit([*prompt, 18], GREEDY)
    while names(engine.trace)[-1:] != ["schedule5"]:  # the first one needs a block
        engine.step_phase()
    assert [fact.request for fact in facts(engine.trace, RequestPreempted)] == ["r1"]
    assert late.get_nowait() is None
    while engine.status.has_work:
        engine.step_phase()
    assert len(list(late)) == 4 and late.num_cached_tokens == 8


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_min_tokens_beyond_the_models_length_end_with_length(
    make: Make, async_scheduling: bool
) -> None:
    """In vLLM 0.26.0 such a request holds its seat for ever."""
    engine = make(running=True, async_scheduling=async_scheduling, max_model_len=24)
    params = SamplingParams(max_tokens=50, min_tokens=50, temperature=0.0)
    request = engine.thread.call(lambda: add_beyond(engine, params))
    wait_until(lambda: request.finish_reason is not None)
    assert (request.finish_reason, request.num_tokens) == ("length", 24)


def add_beyond(engine: AsyncLLM, params: SamplingParams) -> Request:
    """Past the front end, which cuts max_tokens to what the model's length leaves."""
    request = Request("beyond", [5] * 8, params)
    stream = RequestStream("beyond", "", [5] * 8)
    engine.outputs.add_request(request, "test", stream)
    engine.core.add_request(request)
    engine._queue_turn()
    return request


# --- both lanes at once ------------------------------------------------------------------------


class SlowRunner(Runner):
    """A stand-in whose forward takes its time, or waits at a gate; its tokens are all the same."""

    def __init__(self, seconds: float = 0.0, gate_open: bool = True):
        self.seconds = seconds
        self.gate = threading.Event()
        if gate_open:
            self.gate.set()
        self.output: SchedulerOutput | None = None
        self.forwards = 0
        self.fails_at = 10**9

    def prepare_inputs(self, output: SchedulerOutput) -> None:
        self.output = output

    def execute_model(self) -> None:
        self.forwards += 1
        time.sleep(self.seconds)
        assert self.gate.wait(PATIENCE_S)
        if self.forwards >= self.fails_at:
            raise RuntimeError("the device is gone")

    def sample_tokens(self) -> ModelRunnerOutput:
        assert self.output is not None
        return ModelRunnerOutput({entry.request_id: (65,) for entry in self.output.scheduled})

    def drop_requests(self, request_ids: set[str]) -> None:
        raise AssertionError("nothing is taken out of a scheduled step")


class Meeting:
    """Where a forward and a decision wait for each other, so that they are at work at once.

    Where there is nobody to meet (the first decision, the last forward), nobody comes.
    """

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2)
        self.met = 0

    def wait(self) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            self.met += self.barrier.wait(0.5) == 0  # one of both is told 0
            return
        self.barrier.reset()


class MeetingRunner(SlowRunner):
    def __init__(self, meeting: Meeting) -> None:
        super().__init__()
        self.meeting = meeting

    def execute_model(self) -> None:
        self.meeting.wait()
        super().execute_model()


@pytest.fixture
def slow(tiny_model: LoadedModel) -> Iterator[Callable[..., AsyncLLM]]:
    thread = EngineThread()

    def make_engine(runner: SlowRunner, **config: Any) -> AsyncLLM:
        settings = EngineConfig(async_scheduling=True, **config)
        return AsyncLLM(tiny_model, settings, thread, make_runner=lambda *_: runner)

    yield make_engine
    thread.stop()
    alive = [each for each in (thread._thread, thread.executor._thread) if each is not None]
    assert not any(each.is_alive() for each in alive)


def interval(end: Patch) -> tuple[float, float]:
    assert end.duration_us is not None
    return end.t_us - end.duration_us, end.t_us


def test_two_steps_overlap(slow: Callable[..., AsyncLLM], monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting()

    class MeetingScheduler(AsyncScheduler):
        def schedule(self) -> SchedulerOutput:
            meeting.wait()
            return super().schedule()

    monkeypatch.setattr(AsyncEngineCore, "scheduler_type", MeetingScheduler)
    engine = slow(MeetingRunner(meeting))
    stream = engine.submit("hello", GREEDY.model_copy(update={"max_tokens": 10}))
    engine.run()
    assert len(list(stream)) == 10
    rests(engine)
    found = ends(engine.trace)
    executed = {end.step: interval(end) for end in found if end.phase is Phase.EXECUTE}
    overlaps = 0
    for end in found:
        if end.phase is Phase.SCHEDULE and end.step - 1 in executed:
            began, ended = executed[end.step - 1]
            overlaps += max(began, interval(end)[0]) < min(ended, interval(end)[1])
    # Step N+1's decision was taken during step N's forward: each time that both met.
    assert overlaps >= meeting.met >= 5
    check_lanes(engine.trace)
    assert engine.trace.state() == engine.thread.call(engine.core.state)


def test_a_lane_that_waits_for_the_log_says_when_its_phase_began() -> None:
    trace = TwoLaneTrace(make_trace().header)
    lane = trace.executor
    lane.begin_phase(0, Phase.EXECUTE)
    soon = trace.now_us
    ending = threading.Thread(target=lane.end_phase, args=({},))
    with trace._writing:
        ending.start()
        wait_until(lambda: trace.now_us > soon + 1000)  # by then it waits, or will
    ending.join()
    began, ended = interval(ends(trace)[0])
    assert began <= soon and ended > soon + 1000


def test_commands_do_not_wait_for_a_forward(slow: Callable[..., AsyncLLM]) -> None:
    runner = SlowRunner(gate_open=False)
    engine = slow(runner)
    engine.submit("hello", ENDLESS)
    engine.run()
    wait_until(lambda: runner.forwards == 1)
    other = engine.submit("other", GREEDY)
    assert engine.abort(other.request_id) == ["r1"]
    assert engine.pause().mode == "paused"
    assert "execute0" not in names(engine.trace)
    runner.gate.set()


def test_a_pause_ends_the_phase_under_way_and_nothing_more(slow: Callable[..., AsyncLLM]) -> None:
    runner = SlowRunner(gate_open=False)
    engine = slow(runner)
    stream = engine.submit("hello", GREEDY)
    engine.run()
    wait_until(lambda: runner.forwards == 1)
    engine.pause()
    runner.gate.set()
    wait_until(lambda: engine.core.is_still)
    time.sleep(0.05)
    assert names(engine.trace)[-1] == "execute0"
    assert engine.trace.state() == engine.core.state()
    engine.step_phase()
    assert names(engine.trace)[-1] == "sample0"
    engine.run()
    assert len(list(stream)) == 4
    rests(engine)
    check_lanes(engine.trace)


def test_a_phase_by_hand_waits_for_the_one_under_way(slow: Callable[..., AsyncLLM]) -> None:
    runner = SlowRunner(gate_open=False)
    engine = slow(runner)
    engine.submit("hello", GREEDY)
    engine.run()
    wait_until(lambda: runner.forwards == 1)
    threading.Timer(0.1, runner.gate.set).start()
    assert engine.step_phase().mode == "paused"
    assert names(engine.trace)[-2:] == ["execute0", "sample0"]


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_fails_in_the_executor_stops_the_engine_until_a_reset(
    slow: Callable[..., AsyncLLM], by_hand: bool
) -> None:
    runner = SlowRunner()
    runner.fails_at = 3
    engine = slow(runner)
    stream = engine.submit("hello", ENDLESS)
    if by_hand:
        with pytest.raises(EngineError, match="`execute`.*the device is gone"):
            for _ in range(100):
                engine.step_phase()
    else:
        engine.run()
    with pytest.raises(RequestLost, match="`execute`.*RuntimeError: the device is gone"):
        list(stream)
    assert engine.failed is not None and engine.status.mode == "paused"
    assert len(facts(engine.trace, EngineFailed)) == 1
    assert facts(engine.trace, TokenAppended)  # the log is kept
    with pytest.raises(EngineError, match="reset it"):
        engine.run()
    runner.fails_at = 10**9
    engine.reset()
    stream = engine.submit("hello", GREEDY)
    engine.run()
    assert len(list(stream)) == 4


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("phase", EXECUTOR_PHASES)
def test_a_phase_that_cannot_be_ended_has_failed(
    slow: Callable[..., AsyncLLM],
    monkeypatch: pytest.MonkeyPatch,
    phase: Phase,
    by_hand: bool,
) -> None:
    engine = slow(SlowRunner())
    lane = cast(AsyncEngineCore, engine.core).trace.executor

    def end_phase(changes: Changes) -> None:
        if lane.phase is phase:
            raise RuntimeError("the log is gone")

    monkeypatch.setattr(lane, "end_phase", end_phase)
    stream = engine.submit("hello", ENDLESS)
    if by_hand:
        with pytest.raises(EngineError, match=f"`{phase}`.*the log is gone"):
            engine.step()
    else:
        engine.run()
    with pytest.raises(RequestLost, match=f"`{phase}`.*the log is gone"):
        list(stream)


def test_a_failure_after_a_pause_is_told(slow: Callable[..., AsyncLLM]) -> None:
    runner = SlowRunner(gate_open=False)
    runner.fails_at = 1
    engine = slow(runner)
    stream = engine.submit("hello", GREEDY)
    engine.run()
    wait_until(lambda: runner.forwards == 1)
    engine.pause()
    runner.gate.set()
    with pytest.raises(RequestLost, match="the device is gone"):
        list(stream)


@pytest.mark.parametrize("command", ["reset", "close"])
def test_a_forward_under_way_holds_up_no_end(slow: Callable[..., AsyncLLM], command: str) -> None:
    runner = SlowRunner(gate_open=False)
    engine = slow(runner)
    stream = engine.submit("hello", ENDLESS)
    engine.run()
    wait_until(lambda: runner.forwards == 1)
    core = engine.core
    getattr(engine, command)()
    assert not core.is_still
    with pytest.raises(RequestLost):
        list(stream)
    runner.gate.set()
    wait_until(lambda: core.is_still)
    assert runner.forwards == 1
    assert core.trace.state()["engine"]["in_flight"]["0"] == "sample"


def test_an_executor_at_rest_keeps_no_engine(slow: Callable[..., AsyncLLM]) -> None:
    engine = slow(SlowRunner())
    stream = engine.submit("hello", GREEDY)
    engine.run()
    assert len(list(stream)) == 4
    rests(engine)
    core = weakref.ref(engine.core)
    engine.reset()
    gc.collect()
    wait_until(lambda: core() is None)


def test_the_server_stops_in_the_middle_of_a_forward(tiny_model: LoadedModel) -> None:
    thread, runner = EngineThread(), SlowRunner(gate_open=False)
    config = EngineConfig(async_scheduling=True)
    engine = AsyncLLM(tiny_model, config, thread, make_runner=lambda *_: runner)
    engine.submit("hello", ENDLESS)
    engine.run()
    wait_until(lambda: runner.forwards == 1)
    threading.Timer(0.1, runner.gate.set).start()
    thread.stop(timeout=PATIENCE_S)
    assert thread._thread is not None and not thread._thread.is_alive()
    assert thread.executor._thread is not None and not thread.executor._thread.is_alive()
    assert runner.forwards == 1


def test_a_slow_rate_shows_the_phases_of_both_lanes_one_by_one(make: Make) -> None:
    engine = make(async_scheduling=True)
    engine.submit("hello", GREEDY)
    engine.run(4)  # a phase every 36 ms
    wait_until(lambda: len(names(engine.trace)) >= 9)
    assert names(engine.trace)[:9] == [
        *("arrive0", "schedule0", "arrive1", "schedule1"),
        *("prepare0", "execute0", "sample0", "update0", "output0"),
    ]


def test_a_run_that_is_slowed_down_goes_on_by_phases(slow: Callable[..., AsyncLLM]) -> None:
    runner = SlowRunner(gate_open=False)
    engine = slow(runner)
    engine.submit("hello", ENDLESS)
    engine.run()
    wait_until(lambda: runner.forwards == 1)
    engine.run(4)
    runner.gate.set()
    wait_until(lambda: "update2" in names(engine.trace))
    found = names(engine.trace)
    first = found.index("update1")
    assert found[first : first + 8] == [
        *("update1", "output1", "arrive3", "schedule3"),
        *("prepare2", "execute2", "sample2", "update2"),
    ]


def test_a_rate_paces_the_outcomes(slow: Callable[..., AsyncLLM]) -> None:
    engine = slow(SlowRunner())
    stream = engine.submit("hello", GREEDY)
    engine.run(20)
    assert len(list(stream)) == 4
    outputs = [end.t_us for end in ends(engine.trace) if end.phase is Phase.OUTPUT][:4]
    assert outputs[3] - outputs[0] >= 3 * 25_000  # half a period at least lies between two


def test_who_has_waited_longest_computes_next() -> None:
    turns, order = Turns(), list[str]()

    def compute(name: str) -> None:
        with turns:
            order.append(name)

    others = [threading.Thread(target=compute, args=(name,)) for name in ("second", "third")]
    with turns:
        for number, other in enumerate(others, 1):
            other.start()
            wait_until(lambda number=number: len(turns._waiting) == number)  # type: ignore[misc]
    compute("fourth")  # at once, by who had it
    for other in others:
        other.join()
    assert order == ["second", "third", "fourth"]
    with turns:
        compute("again")  # within its own turn


def test_engines_of_both_kinds_share_a_model(make: Make) -> None:
    """Their forwards take turns: graphs and timer are the model's, and there is one of each."""
    config: dict[str, Any] = {"num_gpu_blocks": 24, "block_size": 4, "max_num_batched_tokens": 16}
    prompts = ["one", "another one", "one more of them"]
    params = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
    alone = make(running=True, **config)
    expected = ["".join(o.text for o in alone.submit(prompt, params)) for prompt in prompts]
    engines = [make(async_scheduling=kind, **config) for kind in (True, False, True)]
    streams = [[engine.submit(prompt, params) for prompt in prompts] for engine in engines]
    for engine in engines:
        engine.run()
    for engine, mine in zip(engines, streams, strict=True):
        assert ["".join(output.text for output in stream) for stream in mine] == expected
        rests(engine)
        assert engine.trace.state() == engine.thread.call(engine.core.state)
        for run in facts(engine.trace, ForwardRun):
            assert run.num_layers == 4
    check_lanes(engines[0].trace)


def test_figures_are_those_of_the_whole_log(make: Make) -> None:
    engine = make(running=True, async_scheduling=True, num_gpu_blocks=12)
    streams = [engine.submit("ab" * 30, GREEDY) for _ in range(5)]
    assert sum(len(list(stream)) for stream in streams) == 20
    rests(engine)
    again = EngineStats(engine.trace, engine.config, engine.model.name)
    again._next_seq = 0
    again.read()
    for name in ("generation_tokens", "prompt_tokens", "finished", "num_preemptions"):
        assert getattr(engine.stats, name) == getattr(again, name)
    assert engine.stats.generation_tokens == 20
    assert engine.stats.num_free_blocks == engine.config.num_gpu_blocks - 1


def test_a_submission_may_be_read_before_its_patch_is_there() -> None:
    """A phase of the executor ends in between."""
    trace = TwoLaneTrace(Driven(tiny("llama")).trace.header)
    stats = EngineStats(trace, EngineConfig().resolve(512), "tiny")
    trace.begin_phase(0, Phase.COMMAND)
    trace.event(RequestSubmitted("r0", 3, 4, "test"))
    trace.executor.begin_phase(0, Phase.EXECUTE)
    trace.executor.end_phase({"engine": {"in_flight": {"0": "sample"}}})
    stats.read()
    trace.end_phase({"requests": {"r0": {"parent": "p"}}})
    stats.read()
    assert stats.requests["r0"].parent == "p"


def test_no_record_gets_in_between_a_number_and_its_place() -> None:
    trace = TwoLaneTrace(make_trace().header)
    other = threading.Thread(target=lambda: trace.event(TokensReturned(0)))

    def slowly(seq: int, t_us: int) -> Patch:
        other.start()
        other.join(0.1)
        return Patch(seq, 0, Phase.EXECUTE, {}, None, t_us)

    trace.append(slowly)
    other.join()
    assert [(type(record), record.seq) for record in trace.records] == [(Patch, 0), (Event, 1)]


def test_both_lanes_write_one_sequence() -> None:
    trace = TwoLaneTrace(make_trace().header, max_records=1_000)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def write(lane: TwoLaneTrace | Lane) -> None:
        for step in range(3_000):
            lane.begin_phase(step, Phase.EXECUTE)
            lane.event(TokensReturned(step))
            lane.end_phase({})

    try:
        threads = [threading.Thread(target=write, args=(w,)) for w in (trace, trace.executor)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    base = trace.header.base_seq
    assert base > 0 and trace.next_seq == 12_000
    assert [record.seq for record in trace.records] == list(range(base, 12_000))
    times = [record.t_us for record in trace.records]
    assert times == sorted(times)


def test_the_log_lets_go_of_its_oldest_records_while_both_write(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.two_lanes.MAX_RECORDS", 200)
    engine = make(running=True, async_scheduling=True)
    engine.trace.max_records = 200
    outputs = list(engine.submit("hello", GREEDY.model_copy(update={"max_tokens": 60})))
    assert len(outputs) == 60
    rests(engine)
    trace = engine.trace
    assert len(trace.records) <= 300 and trace.header.base_seq > 0
    assert [r.seq - trace.header.base_seq for r in trace.records] == list(range(len(trace.records)))
    assert trace.state() == engine.thread.call(engine.core.state)


def test_an_executor_that_failed_says_where() -> None:
    engine = Driven(tiny("llama"))
    engine.add("a", [5, 6, 7])
    engine.runner.sample_tokens = None  # type: ignore[assignment, method-assign]
    with pytest.raises(ExecutorFailed, match="in the phase `sample`") as caught:
        engine.core.step()
    assert isinstance(caught.value.__cause__, TypeError)
    with pytest.raises(ExecutorFailed):
        engine.core.run()
