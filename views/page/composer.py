"""The composer: prompt or chat, sampling, several requests at once, presets, a line of notes."""

from __future__ import annotations

import dataclasses
import html
from typing import Any

import streamlit as st

from engine.async_llm import AsyncLLM, EngineError
from engine.config import ConfigError
from engine.input_processor import RequestRefusedError
from views.page import class_floor, state
from views.page.drafts import ComposerError, Draft, SamplingFields, compose, count
from views.page.guard import guarded
from views.page.presets import PRESETS, Preset, preset_by_id
from views.page.settings_form import apply, named
from views.page.tab_engine import Found, find_engine
from views.page.words import sentence

SAMPLING = frozenset(field.name for field in dataclasses.fields(SamplingFields))
_IDLE = "Send a prompt, then press Run, or Phase to go through one step piece by piece."
_NO_ENGINE = "Nothing can be sent before there is an engine: write meanwhile, or take a preset."
_PRESSED_TWICE = "Pressed twice in a moment, it was sent once: Requests has copies."
_NEXT = {
    "paused": "Press Run, or Phase to go through a step piece by piece.",
    "running": "The engine is running.",
}


def composer(found: Found) -> None:
    """Draw the composer; without an engine its fields can be filled, but nothing can be sent."""
    llm = found.llm
    fields = state.composer_fields()
    settings = {} if class_floor.sender() is not None else _settings_to_apply(llm)
    with st.container(key="gb-composer"):
        left, right = st.columns([1.15, 1], gap="small")
        with left:
            _prompt(fields, llm, settings)
        with right:
            _options(fields, llm)
            _presets()
    _note(found, settings)


def _settings_to_apply(llm: AsyncLLM | None) -> dict[str, Any]:
    """Return the settings that sending changes, for the preset that the composer is filled with."""
    preset = _preset()
    if llm is None or preset is None or state.keeps_settings():
        return {}
    return preset.missing(llm.requested_config)


def _preset() -> Preset | None:
    return preset_by_id(state.chosen_preset() or "")


def _prompt(fields: state.Fields, llm: AsyncLLM | None, settings: dict[str, Any]) -> None:
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
            args=(settings,),  # those that the page has announced, and no others
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
        class_floor.choice()
        with st.popover("Sampling", icon=":material/tune:"):
            _sampling_fields(fields)
        with st.popover(_requests_label(), icon=":material/stacks:", key="gb-requests"):
            _request_fields(fields, llm)


def _requests_label() -> str:
    draft = state.draft()
    number = count(draft)
    what = "1 request" if number == 1 else f"{number} requests"
    return f"{what}, shared beginning" if draft.system.strip() else what


def _sampling_fields(fields: state.Fields) -> None:
    left, right = st.columns(2)
    with left:
        _number(fields, "max_tokens", "tokens to generate")
        _number(fields, "temperature", "0 is greedy", 0.1)
        _number(fields, "seed", "derived where empty")
        _text(fields, "stop", "stop: strings, one a line; \\n is a line break", 80)
    with right:
        _number(fields, "min_tokens", "at least so many")
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
    with st.expander("min_p, penalties and bias"):
        _penalty_fields(fields)


def _penalty_fields(fields: state.Fields) -> None:
    left, right = st.columns(2)
    with left:
        _number(fields, "min_p", "part of the likeliest", 0.05)
        _number(fields, "repetition_penalty", "1 is none", 0.1)
    with right:
        _number(fields, "presence_penalty", "once a token", 0.1)
        _number(fields, "frequency_penalty", "each time", 0.1)
    label = "logit_bias: token ids and what is added (±100), as 198: -100, 260: 2.5"
    st.text_input(label, fields.first["logit_bias"], key=fields.key("logit_bias"))


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
    description = "lower goes first" if by_priority else "unused under fcfs"
    left, middle, right = st.columns(3)
    with left:
        _number(fields, "copies", "of each request")
    with middle:
        _number(fields, "n", "sequences of each")
    with right:
        _number(fields, "priority", description, disabled=not by_priority)
    st.text_input(
        "cache_salt: shares cached blocks only with the same salt",
        fields.first["cache_salt"],
        key=fields.key("cache_salt"),
    )
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
def _send(settings: dict[str, Any]) -> None:
    draft, preset, sending = state.draft(), _preset(), state.sending()
    # Not the engine that the page was drawn with: that one may have been put to rest since.
    learner = class_floor.sender()
    found = find_engine(state.session_key()) if learner is None else class_floor.engine()
    source = "page" if learner is None else class_floor.source_of(learner)
    with sending.lock:
        # The session's state is not touched in here: a second press may have ended this run.
        if sending.is_done(draft, _log_of(found.llm)):
            note = sending.note._replace(text=f"{sending.note.text} {_PRESSED_TWICE}")
        else:
            note = _hand_in(found, draft, preset, settings, source)
            sending.finish(draft if note.kind == "sent" else None, _log_of(found.llm), note)
    # A note goes with the log of this tab's own engine; one on the class's stands.
    state.say(*(note if learner is None else note._replace(log="")))
    if note.kind == "sent":
        state.mark_sent("own" if learner is None else "shared")


def _log_of(llm: AsyncLLM | None) -> str:
    return llm.status.trace_id if llm is not None else ""


def _hand_in(
    found: Found, draft: Draft, preset: Preset | None, settings: dict[str, Any], source: str
) -> state.Note:
    """Hand the draft's requests to an engine; return what is to be said of it."""
    llm = found.llm
    if llm is None:
        why = sentence(found.trouble or "The engine is not ready yet")
        return state.Note("error", f"{why} Your text is still here.")
    was_reset = ""
    try:
        submissions = compose(draft)
        if settings:
            trouble = apply(llm, settings)
            if trouble:
                return state.Note("error", trouble)
            was_reset = f"Engine reset ({named(settings)}). "
        llm.submit_many(submissions, source)
    except RequestRefusedError as error:
        why = sentence(f"{error}. Shorten it, or change the engine's settings")
        return state.Note("error", f"{was_reset}{why}")
    except (ComposerError, ConfigError, EngineError) as error:
        where = "Sampling: " if getattr(error, "field", "") in SAMPLING else ""
        return state.Note("error", f"{was_reset}{sentence(f'{where}{error}')}")
    number = sum(one.params.n for one in submissions)
    what = "1 request" if number == 1 else f"{number} requests"
    if source != "page":
        goes_on = "" if llm.mode == "running" else " It is paused: your teacher has it go on."
        return state.Note("sent", f"{what} sent to the class's engine.{goes_on}", _log_of(llm))
    # What is to be seen holds only for the preset as it is, in an engine that has nothing else.
    watch = _what_to_watch(llm, draft, preset) if llm.num_unfinished <= number else ""
    # One of both: the transport says what to press as well, and a second line would move the map.
    text = f"{was_reset}{what} sent. {watch or _NEXT[llm.mode]}"
    return state.Note("sent", text, _log_of(llm))


def _what_to_watch(llm: AsyncLLM, draft: Draft, preset: Preset | None) -> str:
    """Return a preset's sentence where its requests and settings are those that were sent."""
    if preset is None or preset.missing(llm.requested_config) or draft != preset.draft:
        return ""
    return preset.watch


def _note(found: Found, settings: dict[str, Any]) -> None:
    llm = found.llm
    idle = state.Note("hint", _NO_ENGINE if found.loading or found.trouble else _IDLE)
    note = state.note() or idle
    if note.log and note.log != _log_of(llm):
        state.forget_note()  # its engine is gone: a lesson began, or a saved engine came
        note = idle
    preset = _preset()
    if note.kind == "watch" and llm is not None and preset is not None and state.keeps_settings():
        missing = preset.missing(llm.requested_config)
        if missing:
            note = state.Note("watch", _kept(preset, missing))
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", key="gb-note"):
        said = f"{note.text} {_announced(settings)}" if settings else note.text
        role = "alert" if note.kind == "error" else "status"
        st.html(
            f'<div class="gb-note" role="{role}" data-kind="{note.kind}">{html.escape(said)}</div>'
        )
        if settings:
            st.button(
                "Keep my settings", key="gb-keep", icon=":material/lock:", on_click=_keep_settings
            )


def _announced(settings: dict[str, Any]) -> str:
    return f"Send resets your engine with {named(settings)}: its requests and log end."


def _kept(preset: Preset, missing: dict[str, Any]) -> str:
    return (
        f"{preset.label}, with your settings: it is made for {named(missing)} and may show nothing "
        "of its kind. Choose it again to send it with its own."
    )


@guarded
def _keep_settings() -> None:
    state.keep_settings()
