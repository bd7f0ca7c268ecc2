"""Every preset does what it promises: it is run on a real engine and its log is read."""

from __future__ import annotations

from typing import Any

import pytest

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig
from engine.model_loader import DEFAULT_MODEL, LoadedModel, default_model_ready, load_model
from engine.records import Event
from engine.trace import record_to_json
from views.page.drafts import MAX_AT_ONCE, Submission, compose
from views.page.presets import PRESETS, Preset, preset_by_id

MODELS = ["tiny-random", DEFAULT_MODEL]


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> LoadedModel:
    if request.param == DEFAULT_MODEL and not default_model_ready():
        pytest.skip("the default model is not there; `make setup` fetches it")
    return load_model(request.param)


def submissions(preset: Preset) -> list[Submission]:
    return compose(preset.draft)


def events_of(preset: Preset, model: LoadedModel, **settings: Any) -> list[dict[str, object]]:
    """Run the preset to its end and return the events as the page gets them."""
    llm = AsyncLLM(model, EngineConfig.parse({**preset.settings, **settings}))
    try:
        llm.submit_many(submissions(preset))
        for _ in range(1_000):
            if not llm.status.has_work:
                break
            llm.step()
        assert llm.num_unfinished == 0
        return [record_to_json(r) for r in llm.trace.records if isinstance(r, Event)]
    finally:
        llm.close()
        llm.thread.stop()


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_what_is_promised_happens(preset: Preset, model: LoadedModel) -> None:
    found = promised(preset, events_of(preset, model))
    if preset.id == "shared-prefix":
        hits = [event["facts"]["blocks"] for event in found]  # type: ignore[index]
        assert len(hits) >= 3 and all(len(blocks) > 3 for blocks in hits)


def promised(preset: Preset, events: list[dict[str, object]]) -> list[dict[str, object]]:
    """The events that the preset promises: one at least."""
    found = [
        event
        for event in events
        if event["type"] == preset.promise.event
        and (
            preset.promise.reason is None
            or (event.get("reason") or {})["code"] == preset.promise.reason  # type: ignore[index]
        )
        and (preset.promise.fact is None or event["facts"][preset.promise.fact])  # type: ignore[index]
    ]
    assert found, f"{preset.label} promises {preset.promise}"
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"dtype": "bfloat16"},
        {"dtype": "float16"},
        {"async_scheduling": True},
        {"gpu_memory_utilization": 0.5, "kv_cache_memory_bytes": 1},
        {"cache_uncomputed_blocks": True},
    ],
    ids=lambda settings: "-".join(settings),
)
@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_what_is_promised_happens_with_settings_that_do_not_matter(
    preset: Preset, settings: dict[str, Any]
) -> None:
    if preset.settings.keys() & settings.keys():
        pytest.skip("it matters to this preset, which sets it itself")
    assert preset.missing(EngineConfig.parse({**preset.settings, **settings})) == {}
    promised(preset, events_of(preset, load_model("tiny-random"), **settings))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_a_preset_fits_the_composer(preset: Preset) -> None:
    assert len(submissions(preset)) == len(preset.prompts) <= MAX_AT_ONCE
    assert preset_by_id(preset.id) is preset
    assert preset.watch.endswith(".")
    assert preset.missing(EngineConfig.parse(preset.settings)) == {}


def test_missing_names_only_what_differs() -> None:
    pressure = preset_by_id("memory-pressure")
    assert pressure is not None
    assert pressure.missing(EngineConfig(num_gpu_blocks=14, seed=1)) == {"max_num_seqs": 4}
    changed = EngineConfig(num_gpu_blocks=14, max_num_seqs=4, watermark=0.5)
    assert pressure.missing(changed) == {"watermark": 0.0}
    fits = EngineConfig(num_gpu_blocks=14, max_num_seqs=4).resolve(8192)  # as it is saved
    assert fits.max_model_len == 208 and pressure.missing(fits) == {}
    shorter = fits.model_copy(update={"max_model_len": 100})
    assert pressure.missing(shorter) == {"max_model_len": None}
    assert preset_by_id("no such") is None
