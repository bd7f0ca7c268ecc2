"""The settings form shows every field that `EngineConfig` has, each once, as what it is."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig, SpeculativeConfig
from views.page import settings_fields
from views.page.settings_fields import form_settings, form_values, settings_by_group, without_gaps
from views.page.settings_form import named


def test_every_field_appears_once() -> None:
    names = [setting.name for group in settings_by_group().values() for setting in group]
    drafter = [f"speculative_config.{name}" for name in SpeculativeConfig.model_fields]
    assert sorted(names) == sorted({*EngineConfig.model_fields, *drafter} - {"speculative_config"})
    assert "More" not in settings_by_group()


def test_a_field_in_no_group_is_not_lost(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(settings_fields, "GROUPS", {"Memory": ("block_size",)})
    more = settings_by_group()["More"]
    assert len(more) == len(form_values(EngineConfig())) - 1


def test_kinds_follow_the_types() -> None:
    by_name = {s.name: s for group in settings_by_group().values() for s in group}
    assert by_name["block_size"].kind == "whole" and not by_name["block_size"].optional
    assert by_name["max_model_len"].kind == "whole" and by_name["max_model_len"].optional
    assert by_name["watermark"].kind == "number"
    assert by_name["enforce_eager"].kind == "switch"
    assert by_name["cudagraph_capture_sizes"].kind == "list"
    assert by_name["scheduling_policy"].choices == ("fcfs", "priority")
    weights = by_name["quantization"]
    assert (weights.kind, weights.optional, weights.empty) == ("choice", True, "none")
    assert weights.choices == ("int8_weight_only", "int4_weight_only")
    assert all(setting.description for setting in by_name.values())
    assert "--num-gpu-blocks-override" in str(by_name["num_gpu_blocks"].help)


def test_a_field_left_empty_is_the_default() -> None:
    values = without_gaps({"block_size": None, "max_num_seqs": 3})
    assert EngineConfig.parse(values).block_size == EngineConfig().block_size


def test_settings_are_told_in_the_form_s_own_words() -> None:
    told = named({"async_scheduling": True, "kv_cache_memory_bytes": None, "max_model_len": None})
    assert told == (
        "async_scheduling on, kv_cache_memory_bytes by utilization, max_model_len as many as fit"
    )
    assert named({"enable_prefix_caching": False, "watermark": 0}) == (
        "enable_prefix_caching off, watermark 0"
    )


@pytest.mark.parametrize(
    "drafter", [None, SpeculativeConfig(method="ngram", num_speculative_tokens=3)]
)
def test_a_table_of_settings_is_there_and_back(drafter: SpeculativeConfig | None) -> None:
    config = EngineConfig(speculative_config=drafter)
    values = form_values(config)
    assert not any(isinstance(value, dict) for value in values.values())
    assert EngineConfig.parse(form_settings(values)) == config


def test_a_list_is_a_field_of_text() -> None:
    config = EngineConfig(cudagraph_capture_sizes=(1, 2, 4))
    values = form_values(config)
    assert values["cudagraph_capture_sizes"] == "1 2 4"
    assert EngineConfig.parse(form_settings(values)) == config
    assert (
        form_settings(values | {"cudagraph_capture_sizes": ""})["cudagraph_capture_sizes"] is None
    )


def test_without_a_method_the_rest_of_its_table_says_nothing() -> None:
    values = form_values(EngineConfig()) | {"speculative_config.num_speculative_tokens": 3}
    assert form_settings(values)["speculative_config"] is None
    assert named({"speculative_config.method": None}) == "speculative_config.method off"
