"""The composer: prompt or chat, sampling, several requests at once, presets, a line of notes."""

from __future__ import annotations

import html

import streamlit as st

from engine.async_llm import AsyncLLM, EngineError, RequestRefusedError
from engine.config import ConfigError
from views.page import state
from views.page.drafts import ComposerError, compose, count
from views.page.guard import guarded
from views.page.presets import PRESETS, preset_by_id
from views.page.settings_form import apply
from views.page.words import sentence

_IDLE = "Send a prompt, then press Run, or Phase to go through one step piece by piece."
_NEXT = {
    "paused": "Press Run, or Phase to go through a step piece by piece.",
    "running": "The engine is running.",
}


def composer(llm: AsyncLLM | None) -> None:
    """Draw the composer; without an engine its fields can be filled, but nothing can be sent."""
    fields = state.composer_fields()
    with st.container(key="gb-composer"):
        left, right = st.columns([1.15, 1], gap="small")
        with left:
            _prompt(fields, llm)
        with right:
            _options(fields, llm)
            _presets()
    _note(llm)


def _prompt(fields: state.Fields, llm: AsyncLLM | None) -> None:
    # The form has one button: Ctrl+Enter presses whichever it was told of first.
    with (
        st.form("composer", border=False, enter_to_submit=True),
        st.container(horizontal=True, wrap=False, vertical_alignment="top"),
    ):
        st.text_area(
            "Prompt",
            fields.first["prompt"],
            key=fields.key("prompt"),
            label_visibility="collapsed",
            placeholder="Write a prompt. Ctrl+Enter sends it.",
        )
        st.form_submit_button(
            "Send",
            key="gb-send",
            type="primary",
            icon=":material/send:",
            disabled=llm is None,
            on_click=_send,
            args=(llm,),
        )


def _options(fields: state.Fields, llm: AsyncLLM | None) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.segmented_control(
            "Mode",
            ["prompt", "chat"],
            default=fields.first["mode"],
            key=fields.key("mode"),
            required=True,
            format_func=str.capitalize,
            label_visibility="collapsed",
        )
        with st.popover("Sampling", icon=":material/tune:"):
            _sampling_fields(fields)
        with st.popover(_requests_label(), icon=":material/stacks:", key="gb-requests"):
            _request_fields(fields, llm)


def _requests_label() -> str:
    draft = state.draft()
    number = count(draft.text, draft.split, draft.copies)
    what = "1 request" if number == 1 else f"{number} requests"
    return f"{what}, shared beginning" if draft.system.strip() else what


def _sampling_fields(fields: state.Fields) -> None:
    left, right = st.columns(2)
    with left:
        _number(fields, "max_tokens", "tokens to generate")
        _number(fields, "temperature", "0 is greedy", 0.1)
        _number(fields, "seed", "empty: derived from the engine's seed and the request's id")
        _text(fields, "stop", "stop: strings, one a line; \\n is a line break", 80)
    with right:
        _number(fields, "min_tokens", "nothing but max_model_len ends it before")
        _number(fields, "top_p", "nucleus, 1 is all", 0.05)
        _number(fields, "top_k", "0 is all")
        st.text_input(
            "stop_token_ids: with commas",
            fields.first["stop_token_ids"],
            key=fields.key("stop_token_ids"),
        )
        st.checkbox(
            "ignore_eos: go on to max_tokens",
            fields.first["ignore_eos"],
            key=fields.key("ignore_eos"),
        )


def _request_fields(fields: state.Fields, llm: AsyncLLM | None) -> None:
    by_priority = llm is not None and llm.config.scheduling_policy == "priority"
    st.segmented_control(
        "The text is",
        ["one", "lines"],
        default=fields.first["split"],
        key=fields.key("split"),
        required=True,
        format_func={"one": "One request", "lines": "A request a line"}.__getitem__,
    )
    left, right = st.columns(2)
    with left:
        _number(fields, "copies", "of each request")
    with right:
        description = "lower goes first; needs scheduling_policy priority"
        _number(fields, "priority", description, disabled=not by_priority)
    _text(fields, "system", "Shared beginning: a chat's system message, or before each prompt", 120)


def _number(
    fields: state.Fields,
    name: str,
    description: str,
    step: int | float = 1,
    disabled: bool = False,
) -> None:
    # No limits here: the browser would drop what is outside them, and the engine says why it is.
    label, first, key = f"{name}: {description}", fields.first[name], fields.key(name)
    st.number_input(label, value=first, step=step, key=key, disabled=disabled)


def _text(fields: state.Fields, name: str, label: str, height: int) -> None:
    st.text_area(label, fields.first[name], key=fields.key(name), height=height)


def _presets() -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="gb-try"):
        st.html('<span class="gb-try-label">Try</span>', width="content")
        for preset in PRESETS:
            st.button(preset.label, key=f"gb-try-{preset.id}", on_click=_take, args=(preset.id,))


@guarded
def _take(preset_id: str) -> None:
    preset = preset_by_id(preset_id)
    if preset is not None:
        state.fill(preset)
        state.say("watch", f"{preset.label}: {preset.watch}")


@guarded
def _send(llm: AsyncLLM | None) -> None:
    if llm is None:
        state.say("error", "The engine is not ready yet; your text is still here.")
        return
    try:
        submissions = compose(state.draft())
        llm.submit_many(submissions)
    except RequestRefusedError as error:
        state.say("error", sentence(f"{error}. Shorten it, or change the engine's settings"))
        return
    except (ComposerError, ConfigError, EngineError) as error:
        state.say("error", sentence(str(error)))
        return
    what = "1 request" if len(submissions) == 1 else f"{len(submissions)} requests"
    state.say("sent", f"{what} sent. {_what_to_watch() or _NEXT[llm.mode]}")


def _what_to_watch() -> str:
    """Return a preset's sentence where what was sent is still the preset's text."""
    preset = preset_by_id(state.chosen_preset() or "")
    return preset.watch if preset and state.draft().text == preset.text else ""


def _note(llm: AsyncLLM | None) -> None:
    note = state.note() or state.Note("hint", _IDLE)
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", key="gb-note"):
        role = "alert" if note.kind == "error" else "status"
        st.html(
            f'<div class="gb-note" role="{role}" data-kind="{note.kind}">'
            f"{html.escape(note.text)}</div>"
        )
        if note.kind == "watch" and llm is not None:
            _suggest(llm)


def _suggest(llm: AsyncLLM) -> None:
    preset = preset_by_id(state.chosen_preset() or "")
    missing = preset.missing(llm.requested_config) if preset else {}
    if not preset or not missing:
        return
    wanted = ", ".join(f"{name} {value}" for name, value in missing.items())
    st.button(
        f"Reset with {wanted}",
        key="gb-apply",
        icon=":material/restart_alt:",
        on_click=_apply,
        args=(llm, missing),
    )


@guarded
def _apply(llm: AsyncLLM, settings: dict[str, object]) -> None:
    trouble = apply(llm, settings)
    if trouble:
        state.say("error", trouble)
