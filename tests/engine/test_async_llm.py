"""AsyncLLM: commands, the loop and its pace, aborts between two phases, failures and resets."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.async_llm import AsyncLLM, EngineBusy, EngineError
from engine.config import ConfigError, EngineConfig, SamplingParams
from engine.events import (
    EngineFailed,
    ForwardRun,
    InputsPrepared,
    PrefixLookedUp,
    RequestCompleted,
    RequestRefused,
    RequestScheduled,
    RequestSubmitted,
    TokenSampled,
)
from engine.input_processor import RequestRefusedError, Submission
from engine.output_processor import RequestLost, RequestStream
from engine.reasons import PromptTooLong
from engine.records import EXECUTOR_PHASES, Event, Patch, Phase
from engine.trace import check_patch, fold, merge_patch
from engine.trace_header import model_facts
from tests.waiting import PATIENCE_S, rests, wait_until

GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
Make = Callable[..., AsyncLLM]


def events(engine: AsyncLLM, kind: type[Any]) -> list[Event]:
    return [
        record
        for record in engine.trace.records
        if isinstance(record, Event) and isinstance(record.facts, kind)
    ]


def check_log(engine: AsyncLLM) -> None:
    """The fold is the engine's state, patches hold changes only, and every event has a patch."""

    def check() -> bool:
        if engine.core.is_still:
            check_records(engine)
        return engine.core.is_still

    wait_until(lambda: engine.thread.call(check))  # between two turns: a running engine goes on


def check_records(engine: AsyncLLM) -> None:
    state = fold(engine.trace.header.state, ())
    for record in engine.trace.records:
        if isinstance(record, Patch):
            check_patch(state, record.changes)
            merge_patch(state, record.changes)
    assert state == engine.core.state()
    assert isinstance(engine.trace.records[-1], Patch)
    for executor in (False, True):  # with asynchronous scheduling the two write by turns
        lane = [r for r in engine.trace.records if (r.phase in EXECUTOR_PHASES) is executor]
        for event, following in zip(lane, lane[1:], strict=False):
            if isinstance(event, Event):
                assert (event.phase, event.step) == (following.phase, following.step)


def text_of(stream: RequestStream) -> str:
    return "".join(output.text for output in stream)


# -- phases, steps, runs --------------------------------------------------------------------------


def test_a_paused_engine_moves_only_by_hand(make: Make) -> None:
    engine = make()
    stream = engine.submit("hello", GREEDY)
    time.sleep(0.05)
    assert engine.status.next_phase is Phase.ARRIVE and engine.status.mode == "paused"
    assert engine.step_phase().next_phase is Phase.SCHEDULE
    status = engine.step()
    assert (status.next_phase, status.step) == (Phase.ARRIVE, 1)
    assert stream.get_nowait() is not None and stream.get_nowait() is None
    check_log(engine)


def test_stepping_by_hand_pauses_a_running_engine(make: Make) -> None:
    engine = make(running=True)
    assert engine.step_phase().mode == "paused"
    assert engine.trace.state()["engine"]["mode"] == "paused"


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_free_run_sleeps_until_a_request_comes(make: Make, async_scheduling: bool) -> None:
    engine = make(running=True, async_scheduling=async_scheduling)
    time.sleep(0.05)
    assert not events(engine, ForwardRun)
    stream = engine.submit("hello", GREEDY)
    outputs = list(stream)
    assert len(outputs) == 4 and outputs[-1].finish_reason == "length"
    rests(engine)
    steps = engine.status.step
    time.sleep(0.05)
    assert engine.status.step == steps
    check_log(engine)


def test_the_text_does_not_depend_on_how_the_engine_is_driven(make: Make) -> None:
    by_hand, free = make(), make(running=True)
    stream = by_hand.submit("the same", GREEDY)
    while not stream.ended:
        by_hand.step_phase()
    assert text_of(stream) == text_of(free.submit("the same", GREEDY))


def test_mode_and_rate_are_part_of_the_log(make: Make) -> None:
    engine = make()
    engine.run(5)
    assert engine.trace.state()["engine"] == {
        "mode": "running",
        "rate": 5,
        "next_phase": "arrive",
        "step": 0,
    }
    engine.run()
    assert "rate" not in engine.trace.state()["engine"]
    before = len(engine.trace.records)
    engine.run()  # no change, so nothing to log
    assert len(engine.trace.records) == before
    engine.pause()
    check_log(engine)


def test_a_rate_paces_the_steps(make: Make) -> None:
    engine = make()
    stream = engine.submit("hello", GREEDY)
    began = time.monotonic()
    engine.run(20)
    list(stream)
    # 4 steps: the first comes at once, so three periods pass before the last.
    assert time.monotonic() - began >= 0.14  # a busy machine is slower, never faster


def test_a_slow_rate_stops_between_the_phases(make: Make) -> None:
    engine = make()
    engine.submit("hello", GREEDY)
    began = time.monotonic()
    engine.run(2)  # a phase every 71 ms
    seen: set[Phase] = set()

    def look() -> bool:
        seen.add(engine.status.next_phase)
        return len(seen) >= 6

    wait_until(look)
    assert time.monotonic() - began >= 0.28  # five phases, the first of them at once


def test_pausing_and_running_again_makes_no_second_loop(make: Make) -> None:
    engine = make()
    engine.submit("hello", SamplingParams(max_tokens=500, ignore_eos=True))
    for _ in range(10):
        engine.pause()
        engine.run(20)
    before, began = engine.status.step, time.monotonic()
    time.sleep(0.5)
    steps = engine.pause().step - before
    assert steps <= 20 * (time.monotonic() - began) + 2


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e6])
def test_no_loop_runs_at_such_a_rate(make: Make, rate: float) -> None:
    engine = make()
    with pytest.raises(ConfigError) as caught:
        engine.run(rate)
    assert caught.value.field == "rate" and engine.status.mode == "paused"


def test_engines_take_turns(make: Make) -> None:
    first, second = make(), make()
    order: list[str] = []

    def note(name: str, engine: AsyncLLM) -> None:
        if engine.core.next_phase is Phase.ARRIVE:
            order.append(name)

    for name, engine in (("first", first), ("second", second)):
        engine.submit("hello", SamplingParams(max_tokens=8, ignore_eos=True))
        engine.trace.on_phase_end.append(partial(note, name, engine))
    first.thread.post(lambda: (first._run(None), second._run(None)))
    rests(first)
    rests(second)
    steps = order[2:]  # without the two commands
    assert steps[:8] == ["first", "second"] * 4


def test_a_long_prompt_and_a_flood_of_work_hold_up_others_for_a_step_each(make: Make) -> None:
    """Counted in steps: between two of one's own, each other engine has at most one."""
    greedy = [make(num_gpu_blocks=200, max_num_batched_tokens=64) for _ in range(3)]
    small = make()
    order: list[AsyncLLM] = []

    def note(engine: AsyncLLM) -> None:
        if engine.trace.phase is Phase.OUTPUT:
            order.append(engine)

    for engine in (*greedy, small):
        engine.trace.on_phase_end.append(partial(note, engine))
    for engine in greedy:
        for _ in range(4):
            engine.submit([5] * 1_000, SamplingParams(max_tokens=500, ignore_eos=True))
    stream = small.submit("hello", SamplingParams(max_tokens=20, ignore_eos=True))
    for engine in (*greedy, small):
        engine.run()
    checks = [greedy[0].thread.turn(greedy[0].core.state, greedy[0]) for _ in range(30)]
    assert len(list(stream)) == 20
    for engine in greedy:
        engine.pause()
    own = [place for place, engine in enumerate(order) if engine is small]
    assert len(own) >= 20 and max(b - a for a, b in pairwise(own)) <= 1 + len(greedy)
    for check in checks:
        check.result(60)


def test_more_tokens_than_an_engine_takes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.admission.MAX_TOKENS", 100)
    engine = make()
    engine.submit([5] * 10, SamplingParams(max_tokens=50))
    with pytest.raises(EngineBusy, match=r"has 60, and these are 41.*GLASSBOX_MAX_TOKENS"):
        engine.submit([5] * 11, SamplingParams(max_tokens=30))
    engine.submit([5] * 10, SamplingParams(max_tokens=30))
    with pytest.raises(ConfigError, match=r"101 tokens at once.*GLASSBOX_MAX_TOKENS"):
        engine.submit([5], SamplingParams(max_tokens=100))
    assert engine.num_unfinished == 2
    engine.abort(["r0", "r1"])
    engine.submit([5] * 10, SamplingParams(max_tokens=90))


def test_a_step_that_everybody_would_wait_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make()
    trace = engine.trace
    with pytest.raises(ConfigError, match=r"16,385 is more.*GLASSBOX_MAX_STEP_TOKENS") as caught:
        engine.reset(EngineConfig(max_num_batched_tokens=16_385))
    assert caught.value.field == "max_num_batched_tokens" and engine.trace is trace


# -- aborts ---------------------------------------------------------------------------------------


def test_a_request_aborted_between_schedule_and_execute_is_not_in_the_forward(make: Make) -> None:
    engine = make()
    gone, stays = engine.submit("gone gone", GREEDY), engine.submit("stays", GREEDY)
    assert engine.step_phase() and engine.step_phase().next_phase is Phase.PREPARE
    engine.step_phase()  # prepared with both
    assert events(engine, InputsPrepared)[-1].facts.requests == ("r0", "r1")  # type: ignore[union-attr]
    assert engine.abort(gone.request_id) == ["r0"]
    engine.step()
    forward = events(engine, ForwardRun)[-1].facts
    assert (forward.num_requests, forward.num_tokens) == (1, 5)  # type: ignore[union-attr]
    assert [e.facts.request for e in events(engine, TokenSampled)] == ["r1"]  # type: ignore[union-attr]
    assert list(gone)[-1].finish_reason == "abort"
    engine.run()
    alone = make(running=True)
    assert text_of(stays) == text_of(alone.submit("stays", GREEDY))
    check_log(engine)


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("phases", range(8))
def test_an_abort_between_any_two_phases_frees_all_blocks(
    make: Make, phases: int, async_scheduling: bool
) -> None:
    engine = make(async_scheduling=async_scheduling)
    stream = engine.submit("hello " * 5, GREEDY)
    for _ in range(phases):
        engine.step_phase()
    assert engine.abort(stream.request_id) == ["r0"]
    assert [output.finish_reason for output in stream][-1] == "abort"
    blocks = engine.trace.state()["blocks"]
    assert not any(block["ref_cnt"] for key, block in blocks.items() if key != "0")
    assert len(events(engine, RequestCompleted)) == 1
    engine.step()
    assert engine.abort(stream.request_id) == []
    check_log(engine)


def test_aborting_what_is_not_there_does_nothing(make: Make) -> None:
    engine = make()
    before = len(engine.trace.records)
    assert engine.abort(["r7", ""]) == []
    assert len(engine.trace.records) == before


# -- refusals -------------------------------------------------------------------------------------


def test_a_prompt_too_long_is_refused_with_the_numbers(make: Make) -> None:
    engine = make(num_gpu_blocks=5)
    with pytest.raises(RequestRefusedError, match=r"64 tokens.*63 at most.*is 64") as caught:
        engine.submit("a" * 64)
    assert caught.value.reason == PromptTooLong(64, 64)
    refused = events(engine, RequestRefused)[-1]
    assert refused.reason == PromptTooLong(64, 64) and refused.phase is Phase.COMMAND
    assert engine.num_unfinished == 0
    engine.submit("a" * 63)
    check_log(engine)


@pytest.mark.parametrize("prompt", ["\ud800", [{"role": "user", "content": "a\udfff"}]])
def test_half_a_surrogate_pair_is_refused(make: Make, prompt: str | list[dict[str, str]]) -> None:
    with pytest.raises(ConfigError, match="half of a surrogate pair"):
        make().submit(prompt)


def test_without_chunked_prefill_a_prompt_must_fit_one_step(make: Make) -> None:
    engine = make(enable_chunked_prefill=False, max_num_batched_tokens=16)
    with pytest.raises(RequestRefusedError) as caught:
        engine.submit("a" * 16)
    assert caught.value.reason == PromptTooLong(16, 16)
    engine.submit("a" * 15)


@given(st.integers(2, 50), st.integers(1, 128), st.integers(2, 10_000), st.data())
def test_no_prompt_of_a_legal_length_outgrows_the_pool(
    blocks: int, size: int, model_len: int, data: st.DataObject
) -> None:
    """Why a refusal needs no reason of its own for a pool that is too small."""
    asked = EngineConfig(num_gpu_blocks=blocks, block_size=size)
    longest = min(model_len, asked.largest_request())
    assume(longest >= 2)
    wanted = data.draw(st.none() | st.integers(2, longest))
    config = asked.model_copy(update={"max_model_len": wanted}).resolve(model_len)
    assert config.max_model_len is not None
    assert -(-(config.max_model_len - 1) // size) <= blocks - 1


def test_max_tokens_beyond_the_model_is_capped(make: Make) -> None:
    engine = make(running=True, num_gpu_blocks=3)
    outputs = list(engine.submit("a" * 20, SamplingParams(max_tokens=9_999, ignore_eos=True)))
    assert len(outputs) == 12 and outputs[-1].finish_reason == "length"


@pytest.mark.parametrize("prompt", ["", [], [259], [-1]])
def test_no_prompt_is_a_wrong_prompt(make: Make, prompt: Any) -> None:
    engine = make()
    with pytest.raises(ConfigError) as caught:
        engine.submit(prompt)
    assert caught.value.field == "prompt"


def test_more_requests_than_the_engine_holds(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.admission.MAX_UNFINISHED", 2)
    engine = make()
    engine.submit("a")
    engine.submit("b")
    with pytest.raises(EngineBusy):
        engine.submit("c")


def test_several_requests_are_handed_in_as_one_or_not_at_all(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.admission.MAX_UNFINISHED", 5)
    engine = make(num_gpu_blocks=5)
    too_long = [Submission("fits"), Submission("a" * 64), Submission("fits as well")]
    with pytest.raises(RequestRefusedError, match=r"^request 2 of 3: the prompt has 64 tokens"):
        engine.submit_many(too_long)
    assert engine.num_unfinished == 0 and len(events(engine, RequestRefused)) == 1
    with pytest.raises(ConfigError, match="no tokens"):
        engine.submit_many([Submission("fits"), Submission("")])
    first = engine.submit_many([Submission("abc"[:n]) for n in (1, 2, 3)])
    assert len({stream.request_id for stream in first}) == 3
    with pytest.raises(EngineBusy, match="at most 5 unfinished requests, and has 3"):
        engine.submit_many([Submission("x")] * 3)
    assert engine.num_unfinished == 3
    engine.submit_many([Submission("x")] * 2)
    assert len(events(engine, RequestSubmitted)) == 5
    check_log(engine)


def test_a_running_engine_gets_all_requests_before_its_next_step(make: Make) -> None:
    engine = make(running=True)
    asked = [Submission("on", SamplingParams(max_tokens=4, ignore_eos=True))] * 5
    streams = asyncio.run(engine.submit_many_async(asked))
    for stream in streams:
        list(stream)
    assert {event.step for event in events(engine, RequestSubmitted)} == {0}
    check_log(engine)


def test_chat_messages_go_through_the_template(make: Make) -> None:
    engine = make()
    stream = engine.submit([{"role": "user", "content": "hi"}])
    assert stream.prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    record = engine.trace.state()["requests"]["r0"]
    assert "".join(record["prompt_pieces"]) == stream.prompt
    assert record["prompt_token_ids"][0] == 1  # one special token, not its letters


def test_a_model_without_a_template_says_so(make: Make) -> None:
    engine = make()
    engine.model.tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template") as caught:
        engine.submit([{"role": "user", "content": "hi"}])
    assert caught.value.field == "messages"


# -- failures, resets -----------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("method", ["prepare_inputs", "execute_model", "sample_tokens"])
def test_a_phase_that_raises_stops_the_engine_until_a_reset(
    make: Make, monkeypatch: pytest.MonkeyPatch, running: bool, method: str
) -> None:
    engine = make()

    def boom(*_: object) -> None:
        raise RuntimeError("it broke\nin two lines")

    monkeypatch.setattr(engine.core.runner, method, boom)
    streams = [engine.submit("one", GREEDY), engine.submit("two", GREEDY)]
    if running:
        engine.run()
    else:
        with pytest.raises(EngineError, match="it broke"):
            engine.step()
    for stream in streams:
        with pytest.raises(RequestLost, match="RuntimeError: it broke"):
            list(stream)
    wait_until(lambda: engine.failed is not None)
    assert engine.status.mode == "paused"
    assert len(events(engine, EngineFailed)) == 1
    assert "in two lines" not in str(engine.failed)
    check_log(engine)
    for command in (engine.step, engine.run, lambda: engine.submit("three")):
        with pytest.raises(EngineError, match="reset it"):
            command()
    old = engine.trace
    assert engine.reset().failed is None
    assert engine.trace is not old and old.records
    engine.run()
    assert len(list(engine.submit("one", GREEDY))) == 4


def test_a_reset_begins_another_log_and_ends_what_was_under_way(make: Make) -> None:
    engine = make(running=True)
    stream = engine.submit("hello", SamplingParams(max_tokens=900, ignore_eos=True))
    old = engine.trace.header.trace_id
    engine.reset(EngineConfig(num_gpu_blocks=9))
    with pytest.raises(RequestLost, match="reset"):
        list(stream)
    assert engine.trace.header.trace_id != old
    assert engine.config.max_model_len == 128 and engine.status.mode == "paused"
    assert engine.trace.header.config["num_gpu_blocks"] == 9
    assert engine.submit("again").request_id == "r0"
    # Without settings, those that were asked for stay, and are resolved anew.
    engine.reset()
    assert engine.config.num_gpu_blocks == 9 and engine.is_fresh
    engine.step()
    check_log(engine)


@pytest.mark.parametrize(
    "config", [{"max_model_len": 4096}, {"num_gpu_blocks": 3, "max_model_len": 100}]
)
def test_a_reset_that_cannot_be_keeps_the_engine(make: Make, config: dict[str, Any]) -> None:
    engine = make()
    stream = engine.submit("hello", GREEDY)
    before = (engine.trace, engine.config)
    with pytest.raises(ConfigError):
        engine.reset(EngineConfig(**config))
    assert (engine.trace, engine.config) == before
    engine.run()
    assert len(list(stream)) == 4


def test_a_closed_engine_ends_its_streams_and_takes_no_more(make: Make) -> None:
    engine = make()
    stream = engine.submit("hello")
    engine.close()
    with pytest.raises(RequestLost):
        list(stream)
    for command in (engine.step, engine.run, engine.reset, lambda: engine.submit("a")):
        with pytest.raises(EngineError, match="rest"):
            command()


def test_subscribers_hear_of_every_phase_and_of_a_new_log(make: Make) -> None:
    engine = make()
    heard: list[str] = []
    unsubscribe = engine.subscribe(lambda: heard.append(engine.trace.header.trace_id))
    engine.step_phase()
    assert len(heard) == 1
    engine.reset()
    engine.step_phase()
    assert len(set(heard)) == 2
    unsubscribe()
    unsubscribe()
    count = len(heard)
    engine.step_phase()
    assert len(heard) == count


def test_the_header_has_the_model_s_facts(make: Make) -> None:
    engine = make()
    model = engine.trace.header.model
    assert model == model_facts(engine.model)
    assert model["kv_bytes_per_token"] == 2 * 4 * 2 * 16 * 4  # K and V, layers, heads, dim, bytes
    assert (model["dtype"], model["num_kv_heads"]) == ("float32", 2)
    assert engine.trace.header.versions["torch"]


# -- async ----------------------------------------------------------------------------------------


def test_async_callers_submit_follow_and_abort(make: Make) -> None:
    engine = make(running=True)

    async def session() -> list[int]:
        streams = await asyncio.gather(
            *(engine.submit_async(f"prompt {i}", GREEDY) for i in range(5))
        )
        counts = []
        for stream in streams:
            counts.append(len([output async for output in stream]))
        endless = await engine.submit_async("on", SamplingParams(max_tokens=900, ignore_eos=True))
        await engine.pause_async()
        assert await engine.abort_async(endless.request_id) == [endless.request_id]
        await engine.step_async()
        await engine.reset_prefix_cache_async()
        return counts

    assert asyncio.run(asyncio.wait_for(session(), PATIENCE_S)) == [4] * 5
    check_log(engine)


@pytest.mark.parametrize("taken", [False, True])
def test_a_caller_that_leaves_before_the_engine_answers_leaves_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    engine = make()
    engine.submit("first").get_nowait()
    add_request, post = engine.core.add_request, engine.thread.post
    reached, gate = threading.Event(), threading.Event()

    def taking(*arguments: Any) -> None:
        add_request(*arguments)
        reached.set()
        gate.wait(PATIENCE_S)

    def handing(command: Callable[[], Any], owner: object = None) -> Any:
        future = post(command, owner)
        reached.set()
        return future

    async def leave() -> None:
        if taken:  # the engine is at it when the caller leaves
            monkeypatch.setattr(engine.core, "add_request", taking)
        else:  # the engine is busy, and has it only in its queue
            engine.thread.turn(lambda: gate.wait(PATIENCE_S))
            monkeypatch.setattr(engine.thread, "post", handing)
        caller = asyncio.create_task(engine.submit_async("hello"))
        await asyncio.to_thread(reached.wait, PATIENCE_S)
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        gate.set()

    asyncio.run(leave())
    wait_until(lambda: engine.num_unfinished == 1)
    engine.step()
    requests = engine.trace.state()["requests"]
    assert [record["status"] for record in requests.values()] == (
        ["running", "finished"] if taken else ["running"]
    )
    check_log(engine)


def test_a_request_forgotten_before_its_last_text_is_out(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state keeps a number of finished requests, and more may end in between two phases."""
    monkeypatch.setattr("engine.state.MAX_FINISHED_REQUESTS", 1)
    engine = make()
    one_token = GREEDY.model_copy(update={"max_tokens": 1})
    streams = [engine.submit("hello", one_token) for _ in range(2)]
    engine.step()
    assert [len(list(stream)) for stream in streams] == [1, 1]
    assert list(engine.trace.state()["requests"]) == ["r1"]
    check_log(engine)


# -- several sequences ----------------------------------------------------------------------------

SEVERAL = SamplingParams(n=3, seed=7, max_tokens=6, ignore_eos=True)


def tokens_by_index(stream: RequestStream) -> dict[int, list[int]]:
    tokens: dict[int, list[int]] = {}
    for output in stream:
        tokens.setdefault(output.index, []).extend(output.token_ids)
    return tokens


def test_sequences_are_requests_of_their_own_with_one_stream(make: Make) -> None:
    engine = make(running=True)
    stream = engine.submit("the same beginning", SEVERAL)
    tokens = tokens_by_index(stream)
    assert stream.request_id == "r0" and sorted(tokens) == [0, 1, 2]
    assert len({tuple(each) for each in tokens.values()}) == 3
    # Each is what a request with its seed would be.
    for index, expected in tokens.items():
        params = SEVERAL.model_copy(update={"n": 1, "seed": 7 + index})
        assert tokens_by_index(engine.submit("the same beginning", params)) == {0: expected}
    requests = engine.trace.state()["requests"]
    ids = ["0_r0", "1_r0", "2_r0"]
    assert list(requests)[:3] == ids
    assert [requests[key]["parent"] for key in ids] == ["r0"] * 3
    assert [requests[key]["sampling"]["n"] for key in ids] == [1] * 3
    assert "parent" not in requests["r1"]
    engine.pause()
    check_log(engine)


def test_sequences_without_a_seed_differ_and_come_again(make: Make) -> None:
    params = SEVERAL.model_copy(update={"seed": None})
    first, again = (tokens_by_index(make(running=True).submit("x", params)) for _ in range(2))
    assert first == again
    assert len({tuple(each) for each in first.values()}) == 3


def test_sequences_share_the_blocks_of_their_prompt(make: Make) -> None:
    engine = make(block_size=4, max_num_batched_tokens=128)
    engine.submit("0123456789abc", SEVERAL)  # 13 tokens: three full blocks, and the last one
    engine.step()
    tables = [
        list(request["block_table"].values())
        for request in engine.trace.state()["requests"].values()
    ]
    assert tables[0][:3] == tables[1][:3] == tables[2][:3]
    assert len({table[3] for table in tables}) == 3
    look_ups = [event.facts.hit_tokens for event in events(engine, PrefixLookedUp)]
    assert look_ups == [0, 12, 12]


def test_blocks_are_shared_under_the_same_salt_alone(make: Make) -> None:
    engine = make(block_size=4)
    prompt, params = list(range(5, 18)), SamplingParams(max_tokens=6, temperature=0.0)
    hits, texts = [], set()
    for salt in ("", "mine", "mine", "yours", ""):
        stream = engine.submit(prompt, params, cache_salt=salt)
        while engine.num_unfinished:
            engine.step()
        record = engine.trace.state()["requests"][stream.request_id]
        hits.append(record["hit_tokens"])
        texts.add(tuple(record["output_token_ids"].values()))
    assert hits == [0, 0, 12, 0, 12] and len(texts) == 1
    with pytest.raises(ConfigError, match="cache_salt: it has 2000 characters, and may have 1024"):
        engine.submit("a", params, cache_salt="s" * 2000)


def test_the_sequences_of_a_request_share_its_salt(make: Make) -> None:
    engine = make(block_size=4)
    params = SamplingParams(max_tokens=2, n=2, seed=1)
    engine.submit(list(range(5, 18)), params, cache_salt="mine")
    engine.step()
    requests = engine.trace.state()["requests"].values()
    assert [request["cache_salt"] for request in requests] == ["mine"] * 2
    assert sorted(request["hit_tokens"] for request in requests) == [0, 12]


def test_the_lowest_priority_goes_first_and_of_equals_the_one_that_came_first(make: Make) -> None:
    engine = make(scheduling_policy="priority", max_num_seqs=1)
    params = SamplingParams(max_tokens=1)
    engine.submit_many([Submission("a", params, priority) for priority in (5, -1, 3, -1)])
    while engine.num_unfinished:
        engine.step()
    facts = [record.facts for record in engine.trace.records if isinstance(record, Event)]
    admitted = [fact.request for fact in facts if isinstance(fact, RequestScheduled)]
    assert admitted == ["r1", "r3", "r2", "r0"]


def test_sequences_of_one_priority_do_not_preempt_each_other_for_ever(make: Make) -> None:
    engine = make(
        block_size=4,
        num_gpu_blocks=9,
        long_prefill_token_threshold=3,
        scheduling_policy="priority",
        enable_prefix_caching=False,
        scheduler_reserve_full_isl=False,
    )
    stream = engine.submit("0123456789abcdef", SEVERAL)
    for _ in range(200):
        engine.step()
    assert engine.stats.num_preemptions > 1
    assert stream.ended


def test_the_prompt_s_cached_tokens_are_those_of_the_first_sequence(make: Make) -> None:
    engine = make(running=True, block_size=4, max_num_batched_tokens=128)
    stream = engine.submit("0123456789abc", SEVERAL)
    list(stream)
    assert stream.num_cached_tokens == 0


def test_an_abort_of_the_parent_aborts_all_and_one_of_a_child_only_that(make: Make) -> None:
    engine = make()
    one, all_of_it = (engine.submit("hello", SEVERAL) for _ in range(2))
    engine.step()
    assert engine.abort("1_r0") == ["1_r0"]
    assert engine.abort(["r1", "0_r1", "r1"]) == ["0_r1", "1_r1", "2_r1"]
    assert all_of_it.ended and engine.num_unfinished == 2
    engine.run()
    reasons = {o.index: o.finish_reason for o in one if o.finish_reason}
    assert reasons == {0: "length", 1: "abort", 2: "length"}
    assert {o.finish_reason for o in all_of_it if o.finish_reason} == {"abort"}


def test_sequences_are_refused_together(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.admission.MAX_UNFINISHED", 5)
    engine = make()
    engine.submit("a", SEVERAL)
    with pytest.raises(EngineBusy, match="at most 5 unfinished requests, and has 3"):
        engine.submit("b", SEVERAL)
    monkeypatch.setattr("engine.admission.MAX_UNFINISHED", 6)
    with pytest.raises(RequestRefusedError):
        engine.submit("x" * 2_000, SEVERAL)
    assert engine.num_unfinished == 3
    check_log(engine)


def test_a_lost_engine_ends_the_stream_of_several_once(make: Make) -> None:
    engine = make()
    stream = engine.submit("hello", SEVERAL)
    engine.reset()
    with pytest.raises(RequestLost):
        list(stream)


def test_prompt_logprobs_of_several_sequences(make: Make) -> None:
    engine = make(running=True)
    params = SEVERAL.model_copy(update={"prompt_logprobs": 1, "logprobs": 2})
    stream = engine.submit("hello", params)
    for output in stream:
        assert stream.prompt_logprobs is not None
        assert output.logprobs is not None and len(output.logprobs) == len(output.token_ids)
    assert len(stream.prompt_logprobs or ()) == stream.num_prompt_tokens


# -- what sampling asks for and cannot have -------------------------------------------------------


def test_a_bias_for_a_token_that_the_model_does_not_know(make: Make) -> None:
    engine = make()
    with pytest.raises(ConfigError, match="logit_bias: token id 300 is outside"):
        engine.submit("a", SamplingParams(logit_bias={5: 1.0, 300: 1.0}))
    assert engine.num_unfinished == 0


def test_prompt_logprobs_that_would_need_gigabytes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make(max_num_batched_tokens=20)
    monkeypatch.setattr("engine.input_processor.MAX_PROMPT_LOGITS_BYTES", 16 * 4 * 259)
    asking, refusal = SamplingParams(prompt_logprobs=0), "max_num_batched_tokens to 16 or less"
    engine.submit("a" * 17, SamplingParams(logprobs=0))
    for submissions in (
        [Submission("a" * 17, asking)],
        [Submission("a" * 40, asking)],
        [Submission("a" * 9, asking)] * 2,
        [Submission("a" * 9, asking.model_copy(update={"n": 2}))],
    ):
        with pytest.raises(ConfigError, match=refusal):
            engine.submit_many(submissions)
    engine.submit("a" * 16, asking)
    with pytest.raises(ConfigError, match=refusal):  # both could be in one step
        engine.submit("a", asking)
    engine.step()
    engine.step()  # the first one's prompt is done
    engine.submit("a", asking)


# -- every stream ends ----------------------------------------------------------------------------


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_stream_ends_whatever_happens(make: Make, seed: int, async_scheduling: bool) -> None:
    chance = random.Random(seed)
    engine = make(
        num_gpu_blocks=12,
        max_num_seqs=3,
        max_num_batched_tokens=24,
        async_scheduling=async_scheduling,
    )
    streams: list[RequestStream] = []
    for _ in range(60):
        action = chance.choice(["submit", "submit", "phase", "step", "run", "pause", "abort"])
        if action == "submit":
            params = SamplingParams(
                max_tokens=chance.randint(1, 60), seed=seed, n=chance.choice([1, 1, 3])
            )
            streams.append(engine.submit("ab" * chance.randint(1, 50), params))
        elif action == "phase":
            engine.step_phase()
        elif action == "step":
            engine.step()
        elif action == "run":
            engine.run(chance.choice([None, 3, 200]))
        elif action == "pause":
            engine.pause()
        elif streams:
            engine.abort(chance.choice(streams).request_id)
    check_log_when_paused(engine)
    engine.run()
    for stream in streams:
        outputs = list(stream)
        last = {output.index: output.finish_reason for output in outputs}
        assert set(last.values()) <= {"stop", "length", "abort"}
        assert sum(output.finish_reason is not None for output in outputs) == len(last)
    rests(engine)
    check_log_when_paused(engine)


def check_log_when_paused(engine: AsyncLLM) -> None:
    engine.pause()
    check_log(engine)
