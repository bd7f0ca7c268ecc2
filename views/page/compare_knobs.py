"""Which setting a comparison changes: the form's own fields, with two values to begin with."""

from __future__ import annotations

import re
from typing import Any

from engine.comparison.comparisons import Setting as Compared
from engine.config import ConfigError, EngineConfig
from views.page.settings_fields import (
    Setting,
    empty_text,
    form_settings,
    form_values,
    settings_by_group,
)

_TABLE = "speculative_config"
_DRAFTS = f"{_TABLE}.num_speculative_tokens"
_FIRST = (
    "max_num_batched_tokens",
    "num_gpu_blocks",
    "block_size",
    "max_num_seqs",
    "enable_prefix_caching",
    "enforce_eager",
    "scheduling_policy",
    "kv_cache_dtype",
    _DRAFTS,
)
# Steps that overlap have no step to come in; drafts are switched by how many there are.
_NEVER = ("async_scheduling", f"{_TABLE}.method")
# As a link has values.
_NOTHING = "none"
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?(e-?[0-9]{1,2})?")
_LIST = re.compile(r"[0-9]{1,9}( [0-9]{1,9})*")
_OTHER = {"kv_cache_dtype": "fp8", "dtype": "bfloat16", "attention_backend": "torch"}


def knobs(base: EngineConfig) -> dict[str, Setting]:
    """Return the settings that can be compared, those that are asked for most before the others."""
    found = {s.name: s for group in settings_by_group().values() for s in group}
    speculates = base.speculative_config is not None
    lookups = [n for n in found if n.startswith(f"{_TABLE}.") and n != _DRAFTS and not speculates]
    names = [*_FIRST, *(name for name in found if name not in _FIRST)]
    return {name: found[name] for name in names if name not in (*_NEVER, *lookups)}


def first_values(setting: Setting, base: EngineConfig) -> tuple[Any, Any]:
    """Return what stands in both fields at first: the engine's value, and another that can be."""
    now = form_values(base)[setting.name]
    match setting.kind:
        case "switch":
            return now, not now
        case "choice":
            others = [choice for choice in setting.choices if choice != now]
            wanted = _OTHER.get(setting.name, others[0])
            return now, wanted if wanted != now else others[0]
        case "whole" if setting.name == _DRAFTS:
            return now, None if now else 3
        case "whole" if now:
            return now, max(1, now // 2)
        case "number" if now:
            return now, round(now / 2, 4)
    return now, now


def compared(setting: Setting, base: EngineConfig, a: Any, b: Any) -> Compared:
    """Return the setting as the engine names it, with these two values of its field."""

    def value(typed: Any) -> Any:
        values = form_values(base) | {setting.name: typed}
        if setting.name == _DRAFTS:
            values[f"{_TABLE}.method"] = "ngram" if typed else None
        return form_settings(values)[setting.name.partition(".")[0]]

    return Compared(setting.name.partition(".")[0], value(a), value(b))


def short(name: str) -> str:
    """Return a setting's name without that of the table that it is in."""
    return name.rpartition(".")[2]


def label(name: str, value: Any) -> str:
    """Return a value with its setting's name: `max_num_seqs 4`, `enforce_eager on`."""
    if value is None or value == "":
        return f"{short(name)} {empty_text(name)}"
    return f"{short(name)} {('off', 'on')[value] if isinstance(value, bool) else value}"


def as_link(value: Any) -> str:
    """Return a field's value as a link has it."""
    return _NOTHING if value is None or value == "" else str(value)


def from_link(setting: Setting, text: str) -> Any:
    """Return the value of a setting's field that a link names; ValueError where it is none."""
    value = _read(setting, text)
    if setting.name == _DRAFTS and value is None:
        return value  # it switches drafts off
    values = form_values(EngineConfig())
    if setting.name.startswith(f"{_TABLE}."):
        values |= {f"{_TABLE}.method": "ngram", _DRAFTS: 1}
    try:
        EngineConfig.parse(form_settings(values | {setting.name: value}))
    except ConfigError as error:  # what is said of other fields depends on the rest of them
        found = [line for line in str(error).split("; ") if line.startswith(f"{setting.name}: ")]
        if found:
            raise ValueError(found[0]) from None
    return value


def _read(setting: Setting, text: str) -> Any:
    if text == _NOTHING and (setting.optional or setting.kind == "list"):
        return None if setting.kind != "list" else ""
    match setting.kind:
        case "switch" if text in ("True", "False"):
            return text == "True"
        case "choice" if text in setting.choices:
            return text
        case "whole" if _WHOLE.fullmatch(text):
            return int(text)
        case "number" if _NUMBER.fullmatch(text):
            return float(text)
        case "list" if _LIST.fullmatch(text):
            return text
    shown = text if len(text) <= 60 else f"{text[:59]}…"
    raise ValueError(f"{setting.name} has no value “{shown}”")
