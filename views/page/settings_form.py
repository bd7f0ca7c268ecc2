"""The engine's settings: a form over `EngineConfig`, and the reset that applies it."""

from __future__ import annotations

import html
import re
from typing import Any

import streamlit as st

from engine.async_llm import AsyncLLM
from engine.config import ConfigError, EngineConfig, SpeculativeConfig
from views.page import state
from views.page.guard import guarded
from views.page.settings_command import fill_form, settings_command
from views.page.settings_fields import (
    Setting,
    empty_text,
    form_settings,
    form_values,
    settings_by_group,
    without_gaps,
)
from views.page.size_card import size_card
from views.page.state import Fields, fields
from views.page.words import plain

_COLUMNS = 3
# A field that was changed: the names of the fields are known, nothing typed gets in here.
_MARK = "border-left: 3px solid #c2410c; padding-left: 0.5rem;"
_OUTCOME = "gb-settings-outcome"
_OUTCOME_OF = "gb-settings-outcome-of"  # the log and the form that it was shown with first


def settings_form(llm: AsyncLLM) -> None:
    """Draw the form with what the engine has now; what somebody has typed stays typed."""
    shown = _fields(llm)
    _outcome(llm, shown)
    for title, settings in settings_by_group().items():
        with st.expander(title, expanded=True):
            columns = st.columns(_COLUMNS)
            for number, setting in enumerate(settings):
                with columns[number % _COLUMNS]:
                    _field(shown, setting)
    settings_command(llm, _fill_form)
    size_card()
    _apply_bar(llm, shown)


def _apply_bar(llm: AsyncLLM, shown: Fields) -> None:
    """Say what would change, and do it; this stays in sight, however far the form is scrolled."""
    changed = _changed(llm, shown)
    with st.container(
        horizontal=True, wrap=False, vertical_alignment="center", key="gb-settings-bar"
    ):
        st.button(
            "Apply and reset the engine",
            key="gb-settings-apply",
            type="primary",
            on_click=_apply_form,
            args=(llm,),
        )
        marks = ", ".join(f".st-key-{_css_name(shown.key(name))}" for name in changed)
        style = f"<style>{marks} {{ {_MARK} }}</style>" if changed else ""
        st.html(f'{style}<div class="gb-settings-said" role="status">{_said(changed)}</div>')


def _said(changed: dict[str, Any]) -> str:
    ends = "Applying ends all requests and starts a new trace; save the old one first."
    if not changed:
        return f"Nothing is changed. {ends}"
    return f"<b>{len(changed)} changed:</b> {html.escape(named(changed))}. {ends}"


def _changed(llm: AsyncLLM, shown: Fields) -> dict[str, Any]:
    """Return what stands in the form otherwise than in the engine."""
    now = form_values(llm.requested_config)
    return {name: value for name, value in shown.values().items() if now[name] != value}


def _css_name(key: str) -> str:
    """Return a widget's key as Streamlit has it in its class."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", key)


def _outcome(llm: AsyncLLM, shown: Fields) -> None:
    """Say what became of the last change, where it is seen however far the form is scrolled.

    It stays until something else is typed, or the engine begins another log.
    """
    now = (llm.status.trace_id, shown.values())
    outcome = st.session_state.get(_OUTCOME)
    if outcome and st.session_state.setdefault(_OUTCOME_OF, now) != now:
        outcome = st.session_state[_OUTCOME] = None
    with st.container(key="gb-settings-outcome"):
        if outcome:
            draw = {"error": st.error, "warning": st.warning, "ok": st.success}[outcome[0]]
            draw(outcome[1])


def _became(kind: str, text: str) -> None:
    st.session_state[_OUTCOME] = (kind, text)
    st.session_state.pop(_OUTCOME_OF, None)


def apply(llm: AsyncLLM, settings: dict[str, Any]) -> str:
    """Reset the engine with these settings changed; return what is wrong, or nothing."""
    values = {**llm.requested_config.model_dump(), **settings}
    try:
        llm.reset(EngineConfig.parse(without_gaps(values)))
    except ConfigError as error:
        return f"{error}. The engine goes on with its old settings."
    return ""


def named(settings: dict[str, Any]) -> str:
    """Return settings as words: `num_gpu_blocks 14, max_num_seqs 4`."""
    return ", ".join(f"{name} {_shown(name, value)}" for name, value in settings.items())


@guarded
def _apply_form(llm: AsyncLLM) -> None:
    typed = _fields(llm)
    changed = _changed(llm, typed)
    trouble = apply(llm, form_settings(typed.values()))
    if trouble:
        _became("error", plain(trouble))
        return
    state.keep_settings()  # a preset that is still in the composer must not undo them
    state.forget_note()
    said = plain(named(changed))
    said = f"The engine was reset with {said}." if said else "The engine was reset, as it was set."
    _became("ok", said)


@guarded
def _fill_form(llm: AsyncLLM) -> None:
    _became(*fill_form(llm, _fields(llm)))


def _fields(llm: AsyncLLM) -> Fields:
    """Return the form's fields, with the engine's settings where these changed since."""
    values = form_values(llm.requested_config)
    found = fields("settings", values)
    found.show(values)
    return found


def _field(shown: Fields, setting: Setting) -> None:
    # Plain text: a reader of the screen is told the label as it is written here.
    label = f"{setting.name}: {setting.description}"
    setting_field(setting, label, shown.first[setting.name], shown.key(setting.name))


def setting_field(setting: Setting, label: str, first: Any, key: str) -> Any:
    """Draw the field of a setting; return what stands in it."""
    match setting.kind:
        case "switch":
            return st.checkbox(label, first, key=key, help=setting.help)
        case "choice":
            choices = (None, *setting.choices) if setting.optional else setting.choices
            return st.selectbox(
                label,
                choices,
                choices.index(first),
                format_func=lambda choice: choice or setting.empty,
                key=key,
                placeholder=setting.empty if setting.optional else None,  # None is shown by it
                help=setting.help,
            )
        case "whole":
            placeholder = setting.empty if setting.optional else None
            return st.number_input(
                label, value=first, step=1, key=key, placeholder=placeholder, help=setting.help
            )
        case "list":
            return st.text_input(
                label, first, key=key, placeholder=setting.empty, help=setting.help
            )
        case "number":
            return st.number_input(
                label, value=first, step=0.01, format="%g", key=key, help=setting.help
            )


def _shown(name: str, value: Any) -> str:
    if value is None:
        return empty_text(name)
    if isinstance(value, SpeculativeConfig):
        given = value.model_dump(exclude_none=True)
        return f"({', '.join(f'{field} {each}' for field, each in given.items())})"
    return ("off", "on")[value] if isinstance(value, bool) else str(value)
