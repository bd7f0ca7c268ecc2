"""Which backend an engine has: chosen by its settings, refused by name, shown in its log."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from engine.async_llm import AsyncLLM
from engine.config import ConfigError, EngineConfig, SamplingParams
from engine.events import AttentionRun, GraphReplayed, TokenSampled
from engine.kv_cache import LayerKVCache
from engine.model_loader.fetch import Progress
from engine.paged_attention import (
    BACKENDS,
    AttentionOptions,
    PagedAttentionMetadata,
    choice,
    choose_backend,
    numba_backend,
)
from engine.records import Event
from tests.engine.tiny_configs import tiny

USUAL = choice.PREFERRED["cpu"]  # before tests/conftest.py takes numba out of it


def runs(engine: AsyncLLM) -> set[str]:
    """The backends of all steps of an engine that is given something to do."""
    engine.submit([5, 6, 7], SamplingParams(temperature=0.0, max_tokens=3))
    while engine.status.has_work:
        engine.step()
    return {e.facts.backend for e in events_of(engine) if isinstance(e.facts, AttentionRun)}


def events_of(engine: AsyncLLM) -> list[Event]:
    return [record for record in engine.trace.records if isinstance(record, Event)]


def sampled(engine: AsyncLLM) -> list[int]:
    return [e.facts.token for e in events_of(engine) if isinstance(e.facts, TokenSampled)]


def test_the_log_tells_the_backend_of_eager_and_replayed_steps(
    make: Callable[..., AsyncLLM],
) -> None:
    assert runs(make(attention_backend="torch")) == {"torch"}


def test_a_backend_that_cannot_is_refused_by_name_before_anything_is_built(
    make: Callable[..., AsyncLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    never = choice.Backend(BACKENDS["torch"].make, lambda asked: "is not there; set it to auto")
    engine = make()
    before = engine.trace
    monkeypatch.setitem(BACKENDS, "torch", never)
    with pytest.raises(ConfigError, match="attention_backend: torch is not there") as caught:
        engine.reset(EngineConfig(attention_backend="torch"))
    assert caught.value.field == "attention_backend"
    assert engine.trace is before


def test_what_is_not_installed_is_refused_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba_backend, "numba_is_installed", lambda: False)
    with pytest.raises(ConfigError, match="numba needs numba.*`pip install numba`"):
        choose_backend(tiny("llama"), EngineConfig(attention_backend="numba"))
    assert choose_backend(tiny("llama"), EngineConfig()) == "torch"


@pytest.mark.skipif(not numba_backend.numba_is_installed(), reason="numba is not installed")
def test_auto_takes_numba_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert USUAL == ("numba", "torch")
    monkeypatch.setitem(choice.PREFERRED, "cpu", USUAL)
    assert choose_backend(tiny("llama"), EngineConfig()) == "numba"


def test_numba_runs_an_engine_eagerly_and_replayed(make: Callable[..., AsyncLLM]) -> None:
    """A replay is compared with the eager forward, to the bit, when it is captured."""
    texts = []
    for settings in ({"attention_backend": "torch"}, {"attention_backend": "numba"}):
        for enforce_eager in (False, True):
            engine = make(enforce_eager=enforce_eager, **settings)
            assert runs(engine) == {settings["attention_backend"]}
            replayed = [e for e in events_of(engine) if isinstance(e.facts, GraphReplayed)]
            assert bool(replayed) is not enforce_eager
            texts.append(sampled(engine))
    assert all(text == texts[0] for text in texts)


def test_auto_takes_the_first_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    never = choice.Backend(BACKENDS["torch"].make, lambda asked: "cannot")
    monkeypatch.setitem(BACKENDS, "never", never)
    monkeypatch.setitem(choice.PREFERRED, "cpu", ("never", "torch"))
    assert choose_backend(tiny("llama"), EngineConfig()) == "torch"


def test_what_a_backend_compiles_does_not_hold_up_the_engine_thread(
    make: Callable[..., AsyncLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[torch.dtype, threading.Thread]] = []

    def prepare(dtype: torch.dtype) -> None:
        asked.append((dtype, threading.current_thread()))

    monkeypatch.setitem(BACKENDS, "torch", BACKENDS["torch"]._replace(prepare=prepare))
    engine = make()
    engine.reset(EngineConfig(kv_cache_dtype="bfloat16"))
    engine.reset()  # it is there already
    here = threading.current_thread()
    assert asked == [(torch.float32, here), (torch.bfloat16, here)]


def test_kernels_are_compiled_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two want them at a time, and again where it failed."""
    attended: list[int] = []

    def attend_once(dtype: torch.dtype, pairs: int) -> None:
        attended.append(pairs)
        if len(attended) == 1:
            raise RuntimeError("no memory")

    monkeypatch.setattr(numba_backend, "_compiled", set())
    monkeypatch.setattr(numba_backend, "attend_once", attend_once)
    with pytest.raises(RuntimeError):
        numba_backend.compile_for(torch.float32)
    told = list[Progress]()
    threads = [
        threading.Thread(target=numba_backend.compile_for, args=(torch.float32, told.append))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert attended == [0, 0, numba_backend.PARALLEL_FROM]
    assert told == [Progress("compile", done, 2, "kernels") for done in (0, 1)]


@pytest.mark.skipif(not numba_backend.numba_is_installed(), reason="numba is not installed")
def test_numba_writes_where_torch_does() -> None:
    """Whatever way keys and values lie in memory, rows of padding too, whose slot is 0."""
    slots = torch.tensor([9, 2, 14, 0, 0])
    metadata = PagedAttentionMetadata((0, 1, 3), (2, 3), ((2,), (0, 3)), slots, 4)
    wide = torch.randn(5, 6, 8)
    key, value = wide[:, :2].transpose(0, 1), wide[:, 2:4].transpose(0, 1).contiguous()
    pools = [LayerKVCache(torch.zeros(2, 4, 4, 2, 8)) for _ in range(2)]
    plan = numba_backend.NumbaPagedAttention.of(metadata, slots.device)
    plan.forward(pools[0], wide[:, 2:].transpose(0, 1), key, value, AttentionOptions(1.0))
    pools[1].write(slots, key, value)
    assert pools[0].data[1].any()
    assert torch.equal(pools[0].data, pools[1].data)
