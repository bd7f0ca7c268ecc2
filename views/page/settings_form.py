"""The engine's settings: a form over `EngineConfig`, and the reset that applies it."""

from __future__ import annotations

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

_COLUMNS = 3
_OUTCOME = "gb-settings-outcome"


def settings_form(llm: AsyncLLM) -> None:
    """Draw the form with what the engine has now; what somebody has typed stays typed."""
    shown = _fields(llm)
    _outcome()
    with st.form("settings", border=False, enter_to_submit=False):
        for title, settings in settings_by_group().items():
            st.markdown(f"**{title}**")
            columns = st.columns(_COLUMNS)
            for number, setting in enumerate(settings):
                with columns[number % _COLUMNS]:
                    _field(shown, setting)
        st.form_submit_button(
            "Apply and reset the engine",
            key="gb-settings-apply",
            type="primary",
            on_click=_apply_form,
            args=(llm,),
        )
    st.caption("Applying ends all requests and starts a new trace; save the old one first.")
    settings_command(llm, _fill_form)
    size_card()


def _outcome() -> None:
    """Say what became of the last change, where it is seen however far the form is scrolled."""
    outcome = st.session_state.pop(_OUTCOME, None)
    with st.container(key="gb-settings-outcome"):
        if outcome:
            draw = {"error": st.error, "warning": st.warning, "ok": st.success}[outcome[0]]
            draw(outcome[1])


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
    now = form_values(llm.requested_config)
    typed = _fields(llm).values()
    trouble = apply(llm, form_settings(typed))
    if trouble:
        st.session_state[_OUTCOME] = ("error", trouble)
        return
    state.keep_settings()  # a preset that is still in the composer must not undo them
    state.forget_note()
    said = named({name: value for name, value in typed.items() if now[name] != value})
    st.session_state[_OUTCOME] = (
        "ok",
        f"The engine was reset with {said}." if said else "The engine was reset, as it was set.",
    )


@guarded
def _fill_form(llm: AsyncLLM) -> None:
    st.session_state[_OUTCOME] = fill_form(llm, _fields(llm))


def _fields(llm: AsyncLLM) -> Fields:
    """Return the form's fields, with the engine's settings where these changed since."""
    values = form_values(llm.requested_config)
    found = fields("settings", values)
    found.show(values)
    return found


def _field(shown: Fields, setting: Setting) -> None:
    # Plain text: a reader of the screen is told the label as it is written here.
    label = f"{setting.name}: {setting.description}"
    first, key = shown.first[setting.name], shown.key(setting.name)
    match setting.kind:
        case "switch":
            st.checkbox(label, first, key=key, help=setting.help)
        case "choice":
            choices = (None, *setting.choices) if setting.optional else setting.choices
            st.selectbox(
                label,
                choices,
                choices.index(first),
                format_func=lambda choice: choice or setting.empty,
                key=key,
                help=setting.help,
            )
        case "whole":
            placeholder = setting.empty if setting.optional else None
            st.number_input(
                label, value=first, step=1, key=key, placeholder=placeholder, help=setting.help
            )
        case "list":
            st.text_input(label, first, key=key, placeholder=setting.empty, help=setting.help)
        case "number":
            st.number_input(label, value=first, step=0.01, format="%g", key=key, help=setting.help)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return empty_text(name)
    if isinstance(value, SpeculativeConfig):
        given = value.model_dump(exclude_none=True)
        return f"({', '.join(f'{field} {each}' for field, each in given.items())})"
    return ("off", "on")[value] if isinstance(value, bool) else str(value)
