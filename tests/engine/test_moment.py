"""A saved moment goes on exactly as the engine that it was saved of would have.

The same generated histories as in `test_histories.py`, in which now and then a moment is saved as a
file and restored as a second engine. From there on both are asked the same, and every event and
every patch of their logs must be the same. Then the same with the real model, and files that are
no moments.
"""

from __future__ import annotations

import gc
import json
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from safetensors.torch import load_file, save_file

from engine.async_llm import AsyncLLM, EngineError, MidStep
from engine.config import EngineConfig, SamplingParams
from engine.events import (
    BlocksHit,
    DraftsSettled,
    GraphCaptured,
    ModulesTimed,
    MomentRestored,
    RequestPreempted,
    StepDispatched,
)
from engine.input_processor import Submission
from engine.moment import (
    Moment,
    MomentError,
    SavedState,
    digest_of,
    read_moment,
    state_from,
    write_moment,
)
from engine.records import Event, Patch
from engine.trace import Trace
from tests.engine.hashing_runner import TEXT, HashingRunner
from tests.engine.test_histories import (
    LONGEST,
    SEED,
    History,
    InlineThread,
    configs,
    moments,
    tiny,
)
from tests.waiting import rests, wait_until

MOMENTS = int(os.environ.get("MOMENTS") or 150)  # histories with saved moments

Change = Callable[[dict[str, Any]], None]


class Both:
    """Two engines, or two cores, of which the first answers and both do what is asked."""

    def __init__(self, first: Any, second: Any, commands: tuple[str, ...]):
        self.first, self.second, self.commands = first, second, commands

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.first, name)
        if name not in self.commands:
            return value
        other = getattr(self.second, name)

        def command(*args: Any, **kwargs: Any) -> Any:
            answer = value(*args, **kwargs)
            same = other(*args, **kwargs)
            if name not in ("submit_many", "reset", "step", "step_phase", "finish_steps"):
                assert answer == same
            return answer

        return command


COMMANDS = ("submit_many", "step_phase", "step", "abort", "finish_steps")


def what_happened(trace: Trace, start: int) -> list[Any]:
    """The log from there on, without its times."""
    said = []
    for record in trace.records[start:]:
        if isinstance(record, Patch):
            said.append((record.step, record.phase, record.changes))
        else:
            said.append((record.step, record.phase, record.facts, record.reason))
    return said


class MomentHistory(History):
    """A history of an engine, and of the engine that a saved moment of it became."""

    folder: Path
    saved = 0

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "engine"):
            self.compare()

    def compare(self) -> None:
        if not isinstance(self.engine, Both) or self.engine.first.failed:
            return
        first, second = self.engine.first, self.engine.second
        assert second.failed is None
        then, now = self.starts
        assert what_happened(first.trace, then) == what_happened(second.trace, now)
        assert first.trace.state() == second.trace.state()

    @property
    def core(self) -> Any:
        if not isinstance(self.engine, Both):
            return self.engine.core
        cores = self.engine.first.core, self.engine.second.core
        return Both(*cores, ("reset_prefix_cache",))

    @precondition(lambda self: self.core.step_index > 0)
    @rule()
    def save(self) -> None:
        self.compare()
        first = self.engine.first if isinstance(self.engine, Both) else self.engine
        first.finish_steps()
        path = self.folder / "a.moment.safetensors"
        write_moment(first.take_moment(), path)
        second = AsyncLLM(tiny(), EngineConfig(), InlineThread(), make_runner=HashingRunner)
        second.restore(read_moment(path))
        assert isinstance(second.trace.records[2].facts, MomentRestored)
        self.engine = Both(first, second, COMMANDS)
        self.starts = len(first.trace.records), len(second.trace.records)
        assert first.trace.state() == second.trace.state()
        MomentHistory.saved += 1

    @precondition(lambda self: not isinstance(self.engine, Both) and self.core.step_index > 2)
    @rule(config=st.none() | configs())
    def reset(self, config: EngineConfig | None) -> None:
        super().reset(config)

    @precondition(lambda self: self.core.scheduler.kv_cache_manager.block_pool.cached)
    @rule(moment=moments, preempt=st.booleans())
    def reset_prefix_cache(self, moment: str | None, preempt: bool) -> None:
        self.go_to(moment)
        self.core.reset_prefix_cache(reset_running_requests=preempt)


def run_moments(folder: Path, seed_value: int, count: int) -> None:
    machine = seed(seed_value)(type("MomentHistory", (MomentHistory,), {"folder": folder}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=count,
            stateful_step_count=LONGEST,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_restored_moment_goes_on_as_the_first_engine_does(tmp_path: Path) -> None:
    run_moments(tmp_path, SEED, MOMENTS)
    assert MomentHistory.saved > MOMENTS // 2


# -- what the histories find ----------------------------------------------------------------------


def each(field: str, value: Any) -> Change:
    """Every request says this of itself."""

    def change(state: dict[str, Any]) -> None:
        for request in state["requests"]:
            request[field] = value if request["status"] != "finished" else request[field]

    return change


def each_text(field: str, value: Any) -> Change:
    def change(state: dict[str, Any]) -> None:
        for request in state["requests"]:
            if request["text"]:
                request["text"][field] = value

    return change


def whole(field: str, new: Callable[[Any], Any]) -> Change:
    return lambda state: state.update({field: new(state[field])})


def first_cached_last(state: dict[str, Any]) -> None:
    for content in state["cached"]:
        content["blocks"].reverse()


def no_line(state: dict[str, Any]) -> None:
    for arena in state["contiguous"].values():
        arena["line"].clear()


LOST: dict[str, Change] = {
    "the order of the free queue": whole("free", lambda free: free[::-1]),
    "the order of the waiting queue": whole("waiting", lambda keys: keys[::-1]),
    "the order of the running requests": whole("running", lambda keys: keys[::-1]),
    "the order of arrival": whole("arriving", lambda keys: keys[::-1]),
    "what is cached": whole("cached", lambda cached: []),
    "which block of a content is first": first_cached_last,
    "counters": whole("counters", lambda counters: dict.fromkeys(counters, 0)),
    "the step": whole("step", lambda step: step + 1),
    "the next id": whole("next_id", lambda number: number + 1),
    "who has finished": whole("finished_req_ids", lambda keys: []),
    "preemptions": each("num_preemptions", 0),
    "the prefix hit": each("hit_tokens", 0),
    "drafts": each("spec_token_ids", []),
    "seeds": each("seed", 12345),
    "priorities": each("priority", 3),
    "salts": each("cache_salt", "other"),
    "text that is held": each_text("held", ""),
    "tokens counted for min_tokens": each_text("num_tokens", 0),
    "who stands in line": no_line,
}


# Small pools, so that much happens in few steps.
RICH = [
    EngineConfig(**{"num_gpu_blocks": 9, "block_size": 3, "max_num_batched_tokens": 9} | more)
    for more in (
        {"max_num_seqs": 3},
        {"max_num_seqs": 2, "scheduling_policy": "priority"},
        {
            "max_num_seqs": 4,
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": 3,
                "prompt_lookup_max": 1,
            },
        },
    )
]
MOMENTS_OF_RICH = range(1, 14)  # steps after which one is saved


def play(config: EngineConfig, step: int, lost: Change | None) -> None:
    """A moment after so many steps of a rich history, without what is lost, goes on alike."""

    def engine(settings: EngineConfig) -> AsyncLLM:
        return AsyncLLM(tiny(), settings, InlineThread(), make_runner=HashingRunner)

    def submit(to: AsyncLLM, first: int, number: int) -> None:
        for place in range(first, first + number):
            # Many stop strings: one is found soon after min_tokens, and a part of one often.
            stop = [*"acegikmoqsu"] if place % 3 == 2 else ["zz", *(f"{x}z" for x in "bdfhjlnp")]
            values = {"max_tokens": 9, "min_tokens": 5, "stop": stop, "temperature": place % 2}
            # Some end with a block, so that the next one like it has its last block twice.
            prompt = [*TEXT[1:7], *([] if place < 2 else TEXT[place : place + 1 + place % 2])]
            params = SamplingParams.parse({**values, "ignore_eos": True})
            to.submit_many([Submission(prompt, params, place % 3, "salt" * (place == 4))])

    first, second = engine(config), engine(EngineConfig())
    submit(first, 0, 5)
    for _ in range(step):
        first.step()
    submit(first, 5, 2)
    moment = first.take_moment()
    values = moment.state.model_dump()
    if lost is not None:
        lost(values)
    second.restore(moment._replace(state=SavedState.model_validate(values)))
    starts = len(first.trace.records), len(second.trace.records)
    assert first.trace.state() == second.trace.state()
    for each_engine in (first, second):
        submit(each_engine, 7, 2)
        for _ in range(60):
            each_engine.step()
    for said, heard in zip(
        *(what_happened(e.trace, s) for e, s in zip((first, second), starts, strict=True)),
        strict=True,
    ):
        assert said == heard


def play_all(lost: Change | None = None) -> None:
    for config in RICH:
        for step in MOMENTS_OF_RICH:
            play(config, step, lost)


def test_nothing_is_lost() -> None:
    play_all()


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
def test_what_is_lost_is_found(lost: Change) -> None:
    with pytest.raises((AssertionError, EngineError, MomentError)):
        play_all(lost)


# -- the real model -------------------------------------------------------------------------------

SMALL = {"num_gpu_blocks": 14, "block_size": 4, "max_num_batched_tokens": 12, "max_num_seqs": 4}
PROMPT = "the same words at the beginning, "
UNEQUAL = (
    GraphCaptured,
    ModulesTimed,
    StepDispatched,
)  # graphs are of the process, times are times


def submit_some(engine: AsyncLLM, number: int, **more: Any) -> None:
    for place in range(number):
        params = SamplingParams(
            max_tokens=10 + place,
            temperature=0.0 if place % 2 else 1.0,
            seed=place if place % 3 else None,
            presence_penalty=0.5 if place == 2 else 0.0,
            stop=("\n", "qq"),
            ignore_eos=True,
            **more,
        )
        engine.submit_many([Submission(PROMPT[: 8 + 5 * place], params, place % 3, "")])


def events(trace: Trace, start: int) -> list[Any]:
    """What was decided and what came out, without what the process or the clock adds."""
    return [
        (record.step, record.phase, record.facts, record.reason)
        for record in trace.records[start:]
        if isinstance(record, Event) and not isinstance(record.facts, UNEQUAL)
    ]


@pytest.fixture
def twins(make: Callable[..., AsyncLLM], tmp_path: Path) -> Callable[[AsyncLLM], AsyncLLM]:
    """The engine that another one's moment becomes, by way of a file."""

    def twin(engine: AsyncLLM) -> AsyncLLM:
        path = tmp_path / "a.moment.safetensors"
        write_moment(engine.take_moment(), path)
        other = make()
        other.restore(read_moment(path))
        return other

    return twin


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"kv_cache_dtype": "bfloat16"},
        {"kv_cache_dtype": "fp8"},
        {"kv_cache_dtype": "int8_per_token_head"},
        {"scheduling_policy": "priority"},
        {"async_scheduling": True},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
        {"enforce_eager": True, "dtype": "bfloat16"},
        {"enable_prefix_caching": False},
    ],
    ids=lambda config: next(iter(config), "usual"),
)
def test_a_moment_of_the_real_model_goes_on_alike(
    config: dict[str, Any], make: Callable[..., AsyncLLM], twins: Callable[[AsyncLLM], AsyncLLM]
) -> None:
    first = make(**SMALL, **config)
    submit_some(first, 5)
    for _ in range(7):
        first.step()
    first.finish_steps()
    second = twins(first)
    assert second.status.step == first.status.step and second.status.mode == "paused"
    assert second.config == first.config
    starts = len(first.trace.records), len(second.trace.records)
    for engine in (first, second):
        submit_some(engine, 3)
        for _ in range(4):
            engine.step()
        engine.abort("r6")
        while engine.status.has_work:
            engine.step()
    then, now = (events(e.trace, s) for e, s in zip((first, second), starts, strict=True))
    assert then == now
    kinds = {type(facts) for _, _, facts, _ in now}
    assert RequestPreempted in kinds, "nothing was hard about it"
    if first.config.enable_prefix_caching:
        assert BlocksHit in kinds
    if first.config.speculative_config:
        assert DraftsSettled in kinds
    states = [engine.trace.state() for engine in (first, second)]
    for state in states:
        state.pop("graphs")  # each has noted which it used
    assert states[0] == states[1]
    report = second.check_integrity()
    assert not report.num_violations and report.checked[0]


def test_log_probabilities_of_a_prompt_go_on_in_the_middle_of_it(
    make: Callable[..., AsyncLLM], twins: Callable[[AsyncLLM], AsyncLLM]
) -> None:
    first = make(**SMALL)
    stream = first.submit(PROMPT, SamplingParams(max_tokens=3, prompt_logprobs=2))
    first.step()
    assert 1 < len(first.core.runner.rated_prompts()["r0"]) < len(PROMPT)
    second = twins(first)
    other = second.outputs.open["r0"].stream
    for engine in (first, second):
        while engine.status.has_work:
            engine.step()
    assert stream.prompt_logprobs == other.prompt_logprobs and other.prompt_logprobs is not None


def test_a_restored_engine_counts_what_it_does_itself(
    make: Callable[..., AsyncLLM], twins: Callable[[AsyncLLM], AsyncLLM]
) -> None:
    first = make(**SMALL)
    submit_some(first, 4)
    for _ in range(6):
        first.step()
    second = twins(first)
    assert second.stats.num_running == first.stats.num_running > 0
    assert second.num_unfinished == 4
    before = second.core.scheduler.counters.generation_tokens
    submit_some(second, 1)
    while second.status.has_work:
        second.step()
    made = second.core.scheduler.counters.generation_tokens - before
    assert second.stats.generation_tokens == made
    assert sum(second.stats.finished.values()) == 1  # the one that it saw from its beginning on


def test_a_moment_is_between_two_steps(make: Callable[..., AsyncLLM]) -> None:
    engine = make()
    engine.submit("hello", SamplingParams(max_tokens=4))
    engine.step_phase()
    with pytest.raises(MidStep, match=r"step 0 is under way .*finish the step first"):
        engine.take_moment()
    engine.finish_steps()
    assert engine.take_moment().state.step == 1


def test_finishing_begins_no_step(make: Callable[..., AsyncLLM]) -> None:
    engine = make(async_scheduling=True)
    engine.submit("hello", SamplingParams(max_tokens=900, ignore_eos=True))
    engine.run()
    wait_until(lambda: engine.status.step >= 3)
    engine.finish_steps()
    assert engine.status.mode == "paused" and engine.core.between_steps
    step = engine.status.step
    engine.finish_steps()
    assert engine.status.step == step and engine.status.has_work
    engine.take_moment()


# -- files that are no moments --------------------------------------------------------------------


@pytest.fixture
def moment(make: Callable[..., AsyncLLM]) -> Moment:
    engine = make(**SMALL)
    submit_some(engine, 4)
    for _ in range(6):
        engine.step()
    return engine.take_moment()


@pytest.fixture
def file(moment: Moment, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "a.moment.safetensors"
    write_moment(moment, path)
    yield path


def test_a_file_keeps_all_of_it(moment: Moment, file: Path) -> None:
    again = read_moment(file)
    assert again.state == moment.state
    assert again.tensors.keys() == moment.tensors.keys()
    assert all(torch.equal(again.tensors[k], moment.tensors[k]) for k in moment.tensors)


def test_saving_again_and_again_leaves_nothing_in_the_process(
    moment: Moment, tmp_path: Path
) -> None:
    """A type of ctypes stays for each length that safetensors has saved."""

    def array_types() -> int:
        gc.collect()
        return sum(type(each).__name__ == "PyCArrayType" for each in gc.get_objects())

    def save(prompt: str) -> None:
        first = moment.state.requests[0].model_copy(update={"prompt": prompt})
        state = moment.state.model_copy(update={"requests": [first]})
        write_moment(Moment(state, moment.tensors), tmp_path / "again")

    save("")
    before = array_types()
    for length in range(1, 6):
        save("x" * length)
    assert array_types() <= before


def test_what_is_no_moment_is_refused(file: Path, tmp_path: Path) -> None:
    content = file.read_bytes()
    other = tmp_path / "other"

    def refused(data: bytes, what: str) -> None:
        other.write_bytes(data)
        with pytest.raises(MomentError, match=what):
            read_moment(other)

    refused(b"", "no moment")
    refused(b"{}" * 100, "no moment")
    refused(content[:-1], "no moment")
    refused(content[: len(content) // 2], "no moment")
    refused(struct.pack("<Q", 2**60) + content[8:], "no moment")
    refused(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:], "damaged")
    save_file({"a": torch.zeros(1)}, other)
    refused(other.read_bytes(), "no moment of an engine")
    about = {"format": "glassbox-moment", "version": "2"}
    save_file({"a": torch.zeros(1)}, other, metadata=about)
    refused(other.read_bytes(), "version")


@pytest.mark.parametrize(
    ("header", "content"),
    [
        ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}, 8),  # 16 bytes in 8
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, 4),  # behind the end
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, 8),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}}, 8),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 2**64]}}, 8),
        ({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}}, 8),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, 8),
        ({"a": {"dtype": "Q9", "shape": [2], "data_offsets": [0, 8]}}, 8),
        ({"a": {"dtype": 7, "shape": "two", "data_offsets": {}}}, 8),
        (
            {name: {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]} for name in "ab"},
            8,  # two tensors in one place
        ),
        ({"__metadata__": {"format": ["glassbox-moment"]}}, 0),
        ([], 0),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: Any, content: int) -> None:
    told = json.dumps(header).encode()
    file = tmp_path / "lies"
    file.write_bytes(struct.pack("<Q", len(told)) + told + bytes(content))
    with pytest.raises(MomentError, match="no moment of an engine, or not all of it") as error:
        read_moment(file)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (b'{"step": 1, "step": 2}', "'step' is there more than once"),
        (b'{"step": ' + b"9" * 10_000 + b"}", "too many digits"),
        (b'{"saved_at": NaN}', "NaN is no number"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"step": "\xff"}', "can't decode byte"),
        (b'{"step": "\0"}', "control character"),
        (b"", "Expecting value"),
    ],
)
def test_a_state_that_is_no_json_is_refused(state: bytes, why: str) -> None:
    with pytest.raises(MomentError, match=f"state: not JSON .*{why}") as error:
        state_from(torch.frombuffer(bytearray(state or b" "), dtype=torch.uint8))
    assert len(str(error.value)) < 300


def test_every_byte_of_the_file_may_be_another(file: Path, tmp_path: Path) -> None:
    """No damage does more than to be refused."""
    content, other = file.read_bytes(), tmp_path / "other"
    for place in [*range(0, 400, 7), *range(400, len(content), len(content) // 60)]:
        other.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        with pytest.raises(MomentError):
            read_moment(other)


def test_a_large_file_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSBOX_MAX_MOMENT_MB", "1")
    file.write_bytes(bytes(2 << 20))
    with pytest.raises(MomentError, match=r"3 MB, and a moment has 1 MB at most.*MAX_MOMENT_MB"):
        read_moment(file)


def test_too_many_blocks_are_refused(
    make: Callable[..., AsyncLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make()
    engine.submit("hello " * 60, SamplingParams(max_tokens=1))
    engine.run()
    rests(engine)
    monkeypatch.setattr("engine.moment.MAX_MOMENT_MB", 0)
    with pytest.raises(
        MomentError, match=r"the 22 blocks that are held or cached .*reset the prefix"
    ):
        engine.take_moment()


def changed(moment: Moment, change: Change) -> Moment:
    values = json.loads(moment.state.model_dump_json())
    change(values)
    return moment._replace(state=SavedState.model_validate(values))


def request(number: int, **values: Any) -> Change:
    return lambda state: state["requests"][number].update(values)


WRONG: dict[str, tuple[Change, str]] = {
    "config": (lambda s: s["config"].update(block_size=0), "block_size: must be 1 or more"),
    "unknown setting": (lambda s: s["config"].update(x=1), "x: there is no such setting"),
    "huge pool": (
        lambda s: s["config"].update(num_gpu_blocks=65_000, block_size=128),
        "not a pool of 65000",
    ),
    "model": (lambda s: s["model"].update(name="a", digest="b"), "a moment of 'a'"),
    "weights": (lambda s: s["model"].update(digest="b"), "other weights"),
    "token": (request(0, prompt_token_ids=[10**6], prompt_pieces=["a"]), "does not have"),
    "draft": (request(0, spec_token_ids=[5]), "more drafts"),
    "length": (request(0, output_token_ids=[5] * 999, output_pieces=[]), "max_model_len"),
    "computed": (request(0, num_computed_tokens=10**6), "more than it can be"),
    "bias": (lambda s: s["requests"][0]["sampling"].update(logit_bias={"300": 1.0}), "logit_bias"),
    "sampling": (lambda s: s["requests"][0]["sampling"].update(top_p=7), "top_p: must be 1.0 or"),
    "sequences": (lambda s: s["requests"][0]["sampling"].update(n=3), "has n"),
    "twice in a queue": (lambda s: s["running"].append(s["running"][0]), "no queue, or in two"),
    "in no queue": (lambda s: s["running"].pop(), "no queue, or in two"),
    "status": (request(0, status="waiting"), "not that of its queue"),
    "same id": (lambda s: s["requests"].append(s["requests"][0]), "same id"),
    "id": (lambda s: s.update(next_id=1), "next_id 1 comes before"),
    "block out of the pool": (request(0, block_table=[60_000]), "none of the pool's 14|not a pool"),
    "block twice": (
        lambda s: s["requests"][0]["block_table"].append(s["requests"][0]["block_table"][0]),
        "twice|free",
    ),
    "free": (lambda s: s["free"].append(1), "not a pool of 14"),
    "free and held": (
        lambda s: s["free"].append(s["requests"][0]["block_table"][0]),
        "free: not|not a pool",
    ),
    "too few blocks": (
        lambda s: s["free"].append(s["requests"][0]["block_table"].pop()),
        "contradicts|fit",
    ),
    "content": (lambda s: s["cached"][0].update(hash="0" * 64), "another content|is not entered"),
    "two contents": (
        lambda s: s["cached"].append({**s["cached"][0], "hash": "0" * 64}),
        "two contents",
    ),
    "uncomputed": (lambda s: s.update(cached=[], uncomputed=[1]), "uncomputed: a block without"),
    "counters": (lambda s: s["counters"].pop("prefix_hits"), "counters"),
    "step": (lambda s: s.update(step=2**53), f"step {2**53} is more than any engine"),
    "counted": (lambda s: s["counters"].update(prefix_hits=2**53), "counters.prefix_hits 9007"),
    "preempted": (request(0, num_preemptions=2**53), "num_preemptions 9007"),
    "named": (lambda s: s.update(next_id=10**9 - 1), "next_id 999999999 is more"),
    "arena": (lambda s: s["contiguous"]["max"]["starts"].update(r99=0), "has ended"),
    "pieces overlap": (
        lambda s: s["contiguous"]["oracle"].update(starts=dict.fromkeys(s["running"], 0)),
        "overlaps",
    ),
    "ways": (lambda s: s["contiguous"].pop("max"), "contiguous"),
    "text": (request(0, text=None), "unfinished requests alone"),
    "more pieces": (request(0, output_pieces=["a"] * 999), "output_pieces"),
}


@pytest.mark.parametrize(("change", "what"), WRONG.values(), ids=WRONG.keys())
def test_a_file_that_contradicts_itself_is_refused_and_nothing_changes(
    change: Change, what: str, moment: Moment, make: Callable[..., AsyncLLM]
) -> None:
    engine = make()
    engine.submit("still here", SamplingParams(max_tokens=2))
    trace = engine.trace
    with pytest.raises(ValueError, match=what):
        engine.restore(changed(moment, change))
    assert engine.trace is trace and engine.failed is None
    engine.step()
    assert engine.num_unfinished == 1


UNKNOWN: dict[str, Change] = {
    "state: extra": lambda s: s.update(extra=1),
    r"state: requests.0.extra": request(0, extra=1),
    r"state: requests.0.id": request(0, id="__proto__"),
    r"state: requests.1.block_table.0": request(1, block_table=["1"]),
    r"state: requests.1.block_table.1": request(1, block_table=[1, 0]),
    r"state: requests.0.status": request(0, status="lost"),
    r"state: step": lambda s: s.update(step=-1),
    r"state: cached.0.hash": lambda s: s["cached"][0].update(hash="xyz"),
    r"state: trace_id": lambda s: s.update(trace_id="<b>"),
    r"state: free": lambda s: s.pop("free"),
}


@pytest.mark.parametrize(("where", "change"), UNKNOWN.items(), ids=UNKNOWN.keys())
def test_what_the_format_does_not_have_is_refused_with_its_place(
    where: str, change: Change, file: Path
) -> None:
    tensors = load_file(file)
    state = json.loads(tensors["state"].numpy().tobytes())
    change(state)
    tensors["state"] = torch.frombuffer(bytearray(json.dumps(state).encode()), dtype=torch.uint8)
    about = {"format": "glassbox-moment", "version": "1", "digest": digest_of(tensors)}
    save_file(tensors, file, metadata=about)
    with pytest.raises(MomentError, match=where):
        read_moment(file)


def test_tensors_must_fit_the_pool(moment: Moment, make: Callable[..., AsyncLLM]) -> None:
    name, tensor = next(iter(moment.tensors.items()))
    for tensors, what in (
        ({**moment.tensors, name: tensor[:, 1:]}, "does not fit the pool"),
        ({**moment.tensors, name: tensor.to(torch.float64)}, "does not fit the pool"),
        ({**moment.tensors, "more": tensor}, "more: is in the file or in the pool"),
        ({k: v for k, v in moment.tensors.items() if k != name}, f"{name}: is in the file or"),
    ):
        with pytest.raises(MomentError, match=what):
            make().restore(moment._replace(tensors=tensors))


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_a_key_or_value_that_is_no_number_is_refused_with_its_place(
    odd: float, moment: Moment, make: Callable[..., AsyncLLM]
) -> None:
    engine = make()
    trace = engine.trace
    name, tensor = list(moment.tensors.items())[-1]
    tensor = tensor.clone()
    place = tuple(size - 1 for size in tensor.shape)
    tensor[place] = odd
    block = max(b for one in moment.state.requests for b in one.block_table)
    what = rf"{name}: a value of block {block} is {odd}, at \[{', '.join(map(str, place))}\]"
    with pytest.raises(MomentError, match=what):
        engine.restore(moment._replace(tensors={**moment.tensors, name: tensor}))
    assert engine.trace is trace and engine.failed is None


def test_others_take_steps_while_a_moment_is_restored(
    moment: Moment, make: Callable[..., AsyncLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that takes long is done on the caller's thread."""
    from engine import moment_state

    engine, other = make(), make()
    plain = moment_state.check_integrity

    def check_integrity(*given: Any) -> Any:
        assert threading.current_thread().name != engine.thread.name
        other.submit("hello", SamplingParams(max_tokens=3, ignore_eos=True))
        while other.status.has_work:
            other.step()
        return plain(*given)

    monkeypatch.setattr(moment_state, "check_integrity", check_integrity)
    engine.restore(moment)
    assert other.status.step and not other.num_unfinished and engine.num_unfinished


def test_a_full_disk_leaves_nothing_behind(
    moment: Moment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tensors: Any, path: Path, metadata: Any) -> None:
        path.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        write_moment(moment, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_moment_of_a_failed_engine_cannot_be_had(make: Callable[..., AsyncLLM]) -> None:
    engine = make()
    engine.core.runner.execute_model = None  # type: ignore[method-assign,assignment]
    engine.submit("hello")
    with pytest.raises(EngineError):
        engine.step()
    with pytest.raises(EngineError, match="reset it to go on"):
        engine.take_moment()
