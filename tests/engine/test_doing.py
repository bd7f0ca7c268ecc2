"""What takes longer than a step is told, from what really happens, to whose engine it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from engine.api.event_stream import DoingTeller
from engine.async_llm import AsyncLLM
from engine.comparison.comparisons import Comparison, Setting
from engine.comparison.run import Run
from engine.comparison.workload import of_prompts
from engine.config import EngineConfig, SamplingParams
from engine.cuda_graph import captured
from engine.device import Turns
from engine.doing import Doing, doing, heard_by, holding, tell, wait_and_tell
from engine.engine_thread import EngineThread
from engine.input_processor import Encoded
from engine.model_loader import LoadedModel, load_model
from engine.paged_attention import numba_backend
from tests.waiting import PATIENCE_S, wait_until

GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
SMALL = {"num_gpu_blocks": 24, "max_num_batched_tokens": 32}


@pytest.fixture
def model() -> LoadedModel:
    """One of its own: none of its graphs was captured."""
    return load_model("tiny-random")


@pytest.fixture
def thread() -> Iterator[EngineThread]:
    thread = EngineThread()
    yield thread
    thread.stop()


def heard_of(llm: AsyncLLM) -> list[Doing | None]:
    heard: list[Doing | None] = []

    def hear() -> None:
        if heard[-1:] != [llm.doing]:
            heard.append(llm.doing)

    llm.subscribe(hear)
    return heard


def test_parts_are_told_within_what_is_done() -> None:
    heard: list[Doing | None] = []
    tell("to nobody", 1, 2, "times")
    with heard_by(heard.append), doing("capturing"):
        tell("recording", 50, unit="operations")
        with doing("compiling"):
            tell("kernels", 1, 2, "kernels")
    assert [each and str(each) for each in heard] == [
        "capturing",
        "capturing: recording (50 operations)",
        "capturing: compiling",
        "capturing: compiling: kernels (1 of 2 kernels)",
        "capturing",
        None,
    ]
    tell("to nobody")
    assert len(heard) == 6


def test_it_is_over_where_it_failed() -> None:
    heard: list[Doing | None] = []
    with pytest.raises(RuntimeError), heard_by(heard.append), doing("capturing"):
        raise RuntimeError
    assert heard[-1] is None


@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_that_captures_a_graph_says_so(
    model: LoadedModel, thread: EngineThread, is_async: bool
) -> None:
    config = EngineConfig.parse({**SMALL, "async_scheduling": is_async})
    llm = AsyncLLM(model, config, thread)
    heard = heard_of(llm)
    llm.submit("Once upon a time", GREEDY)
    while llm.num_unfinished:
        llm.step()
    told = [str(each) for each in heard if each is not None]
    graphs = [each.facts for each in llm.trace.records if hasattr(each, "facts")]
    names = {
        f"{each.mode} {each.size}" for each in graphs if type(each).__name__ == "GraphCaptured"
    }
    assert names
    for name in names:
        assert f"capturing the graph {name}: comparing it with the eager forward" in told
    assert any("recording (50 operations)" in each for each in told)
    assert llm.doing is None and heard[-1] is None
    before = len(heard)
    llm.submit("Once upon a time", GREEDY)  # the graphs are there
    while llm.num_unfinished:
        llm.step()
    assert not any(heard[before:])


def test_a_reset_says_what_it_compiles_and_converts(
    model: LoadedModel, thread: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = AsyncLLM(model, EngineConfig.parse(SMALL), thread)
    heard = heard_of(llm)
    monkeypatch.setattr(numba_backend, "_compiled", set())
    monkeypatch.setattr(numba_backend, "attend_once", lambda dtype, pairs: None)
    settings = {"attention_backend": "numba", "kv_cache_dtype": "bfloat16", "dtype": "bfloat16"}
    llm.reset(EngineConfig.parse({**SMALL, **settings}))
    told = [str(each) for each in heard if each is not None]
    kernels = "compiling attention for K and V in bfloat16: once on a machine"
    assert [f"{kernels} ({n} of 2 kernels)" for n in range(2)] == [
        each for each in told if each.startswith(kernels)
    ]
    assert "making the weights in bfloat16" in told
    assert llm.doing is None
    assert numba_backend._compiled == {torch.bfloat16}


def test_a_comparison_says_what_its_run_waits_for(
    model: LoadedModel, thread: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    config = EngineConfig.parse(SMALL)
    workload = of_prompts("", model.name, [Encoded("", [5, 6, 7], GREEDY, 0, "")])

    def look(*given: object) -> object:
        seen.append(comparison.describe()["doing"])
        return compare(*given)  # type: ignore[arg-type]

    compare = captured.compare
    monkeypatch.setattr(captured, "compare", look)
    setting = Setting("max_num_seqs", 4, 2)
    comparison = Comparison(
        workload,
        setting,
        setting.configs(config),
        lambda config, hear: Run(model, config, workload, thread, hear=hear),
    )
    comparison.start()
    assert comparison.wait(60) == "done"
    assert seen and all("comparing it with the eager forward" in str(each) for each in seen)
    assert comparison.describe()["doing"] is None


def test_a_reader_is_told_of_another_thing_at_once_and_of_numbers_now_and_then() -> None:
    now = [0.0]
    teller = DoingTeller(lambda: now[0])
    assert not teller.has_news(None)
    assert teller.has_news(Doing("recording", 50, 0, "operations"))
    assert '"text":"recording (50 operations)"' in teller.data
    now[0] = 0.4
    assert not teller.has_news(Doing("recording", 100, 0, "operations"))
    assert teller.has_news(Doing("comparing"))
    now[0] = 1.0
    assert teller.has_news(Doing("comparing", 1, 2, "rows"))
    assert teller.has_news(None) and teller.data == "null"


class Capture:
    """A capture of graphs that waits for the test, told as far as it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.begun, self.go_on = threading.Event(), threading.Event()
        capture = captured.CapturedGraphs.capture

        def held(graphs: captured.CapturedGraphs, *given: Any) -> Any:
            with doing("capturing a graph"):
                tell("recording", 50, unit="operations")
                self.begun.set()
                assert self.go_on.wait(PATIENCE_S)
            return capture(graphs, *given)

        monkeypatch.setattr(captured.CapturedGraphs, "capture", held)


def test_who_waits_for_anothers_capture_is_told_of_it(
    model: LoadedModel, thread: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = Capture(monkeypatch)
    busy, waits, idle = (AsyncLLM(model, EngineConfig.parse(SMALL), thread) for _ in range(3))
    heard, nothing = heard_of(waits), heard_of(idle)
    workload = of_prompts("", model.name, [Encoded("", [5, 6, 7], GREEDY, 0, "")])
    compared: list[Doing | None] = []
    run = Run(model, EngineConfig.parse(SMALL), workload, thread, hear=compared.append)
    busy.submit("Once upon a time", GREEDY)
    said = "waiting for another engine, which is capturing a graph: recording (50 operations)"
    with ThreadPoolExecutor(3) as pool:
        step = pool.submit(busy.step)
        assert capture.begun.wait(PATIENCE_S)
        try:
            asked = [pool.submit(waits.pause), pool.submit(run.execute, print, lambda: False)]
            wait_until(lambda: waits.doing is not None and compared)
            assert str(waits.doing) == said and str(compared[0]) == said
            assert "recording" in str(busy.doing) and idle.doing is None
        finally:
            capture.go_on.set()
        for each in (step, *asked):
            each.result(PATIENCE_S)
    assert waits.doing is None and nothing == []
    assert str(heard[0]) == said and heard[-1] is None


def test_who_waits_for_an_engine_that_is_stepped_by_hand_during_its_capture_is_told(
    model: LoadedModel, thread: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor captures, and the engine's thread waits for it."""
    capture = Capture(monkeypatch)
    config = EngineConfig.parse({**SMALL, "async_scheduling": True})
    busy, waits = (
        AsyncLLM(model, config, thread),
        AsyncLLM(model, EngineConfig.parse(SMALL), thread),
    )
    heard = heard_of(waits)
    busy.submit("Once upon a time", GREEDY)
    busy.run()
    said = "capturing a graph: recording (50 operations)"
    with ThreadPoolExecutor(2) as pool:
        assert capture.begun.wait(PATIENCE_S)
        try:
            step = pool.submit(busy.step)
            wait_until(lambda: str(thread.doing) == said)
            asked = pool.submit(waits.pause)
            wait_until(lambda: waits.doing is not None)
            assert str(waits.doing) == f"waiting for another engine, which is {said}"
            assert str(busy.doing) == said
        finally:
            capture.go_on.set()
        for each in (step, asked):
            each.result(PATIENCE_S)
    wait_until(lambda: busy.doing is None)
    assert waits.doing is None and thread.doing is None and heard[-1] is None


def test_who_waits_for_the_device_is_told_what_is_done_on_it() -> None:
    turns, heard = Turns(), list[Doing | None]()

    def compute() -> None:
        with heard_by(heard.append), doing("compiling"), turns:
            heard.append(Doing("at work"))

    waiting = threading.Thread(target=compute)
    with turns:
        waiting.start()
        wait_until(lambda: Doing("waiting for another engine's forward") in heard)
        with doing("capturing"):
            said = Doing("waiting for another engine, which is capturing")
            wait_until(lambda: heard[-1] == said)
    waiting.join(PATIENCE_S)
    assert heard[0] == Doing("compiling")
    assert heard[-3:] == [Doing("compiling"), Doing("at work"), None]


def test_a_short_wait_is_not_told() -> None:
    heard: list[Doing | None] = []
    answers = iter([True])
    with heard_by(heard.append):
        wait_and_tell(lambda seconds: next(answers), lambda: Doing("at work"))
    assert heard == []


def test_who_waits_for_a_lock_says_what_for() -> None:
    lock, heard = threading.Lock(), list[Doing | None]()

    def wait() -> None:
        with heard_by(heard.append), holding(lock, "waiting for weights"):
            heard.append(Doing("at work"))

    with holding(lock, "of no interest"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: heard == [Doing("waiting for weights")])
    waiting.join(PATIENCE_S)
    assert heard == [Doing("waiting for weights"), None, Doing("at work")]
    assert not lock.locked()
