"""What is to be compared: the requests, the setting with its two values, and how often.

The requests are those that the tab's engine was given, a preset, or a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import streamlit as st

from engine.async_llm import AsyncLLM, EngineError
from engine.comparison import workload as workloads
from engine.comparison.workload import Workload, WorkloadError
from engine.config import ConfigError, EngineConfig, SpeculativeConfig
from engine.input_processor import TOKENIZING, InputProcessor, RequestRefusedError
from engine.sessions import registry
from views.page import state
from views.page.compare_knobs import (
    as_link,
    compared,
    first_values,
    from_link,
    knobs,
    label,
    short,
)
from views.page.drafts import compose
from views.page.guard import guarded
from views.page.presets import PRESETS, preset_by_id
from views.page.settings_fields import Setting
from views.page.settings_form import setting_field
from views.page.tab_engine import find_engine
from views.page.words import plain, sentence

_TROUBLE = "gb-compare-trouble"
_READ = "gb-compare-read"
_LINKED = "gb-compare-linked"
_NAMED = "gb-compare-named"
_SOURCE, _KNOB = "gb-compare-source", "gb-compare-knob"
_REPEATED, _REPEATED_LAST = "gb-compare-repetitions", "gb-compare-repeated-last"
_ANY_DRAFTS = SpeculativeConfig(method="ngram", num_speculative_tokens=1)
_UPLOAD_MB = 32
_RECORDED, _FILE = "recorded", "file"
_REPETITIONS = (1, 3, 5, 7, 9)
_FIRST_REPETITIONS = 3
_UNFINISHED = "Those that have not ended yet run to their end."
_OVERLAPS = (
    "Both run without async\\_scheduling: what it gains is that two steps run at once, and here "
    "each step is a turn of its own."
)
_HELP = (
    "All else is the same in both. async_scheduling is not among them: a comparison runs a step a "
    "turn, and its steps would not overlap. Drafts are switched by their number."
)
_REPETITIONS_HELP = (
    "How often each side runs, in the order A B B A A B, each time on a fresh engine. Of times, "
    "the median of its runs is shown, and how far they lie apart."
)
_TROUBLES = (ConfigError, EngineError, RequestRefusedError, WorkloadError)


class Named(NamedTuple):
    """What a link names of this place: what is run, the setting, its values; None: it is closed."""

    compare: str | None = None
    setting: str | None = None
    a: str | None = None
    b: str | None = None


class Source(NamedTuple):
    """What is to be run, and the settings that both engines have but for one."""

    name: str
    base: EngineConfig
    workload: Workload | None
    problem: str = ""  # why there is none


def form(llm: AsyncLLM, key: str, running: bool) -> None:
    """Draw what is to be chosen, and what was wrong with it."""
    left, middle, right, last = st.columns(
        [1.15, 1.15, 1.5, 0.6], gap="small", vertical_alignment="bottom"
    )
    with left:
        source = _source(llm)
    with middle:
        choices = knobs(source.base)
        if st.session_state.get(_KNOB) not in choices:
            st.session_state.pop(_KNOB, None)
        knob = st.selectbox(
            "Setting that differs",
            list(choices),
            key=_KNOB,
            help=_HELP,
            on_change=_forget_trouble,
        )
    setting = choices[knob]
    first = first_values(setting, source.base)
    linked, values = st.session_state.get(_LINKED, ("", {}))
    if linked == knob:
        first = values.get(0, first[0]), values.get(1, first[1])
    with right:
        a, b = st.columns(2, gap="small")
        # Another engine has other values to begin with, and so other fields.
        kind = f"{knob}-{hash((source.name, *map(str, first)))}"
        with a:
            one = setting_field(setting, f"A: {short(knob)}", first[0], f"gb-compare-{kind}-a")
        with b:
            other = setting_field(setting, f"B: {short(knob)}", first[1], f"gb-compare-{kind}-b")
    st.session_state[_NAMED] = Named(st.session_state[_SOURCE], knob, as_link(one), as_link(other))
    with last:
        repetitions = st.selectbox(
            "Runs of each",
            _REPETITIONS,
            0 if _REPEATED in st.session_state else _REPETITIONS.index(_FIRST_REPETITIONS),
            key=_REPEATED,
            help=_REPETITIONS_HELP,
        )
    st.session_state[_REPEATED_LAST] = repetitions
    if source.problem:
        st.info(plain(sentence(source.problem)))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Run both",
            key="gb-compare-run",
            type="primary",
            icon=":material/play_arrow:",
            disabled=running or source.workload is None,
            on_click=_start,
            args=(key, source, setting, one, other, repetitions),
        )
        if source.workload is not None:
            st.download_button(
                "Save the workload",
                source.workload.to_json(),
                f"glassbox-workload-{len(source.workload.requests)}.json",
                "application/json",
                key="gb-compare-save",
                icon=":material/download:",
                on_click="ignore",
            )
            said = [_summary(source)]
            if source.name == _RECORDED and llm.num_unfinished:
                said.append(_UNFINISHED)
            if llm.requested_config.async_scheduling:
                said.append(_OVERLAPS)
            st.caption(" ".join(said))
    trouble = st.session_state.get(_TROUBLE)
    if trouble:
        st.error(plain(trouble))


def _forget_trouble() -> None:
    """What was wrong with other choices is over."""
    st.session_state.pop(_TROUBLE, None)


def _summary(source: Source) -> str:
    workload = source.workload
    assert workload is not None
    steps = 1 + max(request.arrival_step for request in workload.requests)
    number = len(workload.requests)
    what = "1 request" if number == 1 else f"{number} requests"
    came = "all at once" if steps == 1 else f"over {steps} steps"
    prompts = sum(len(request.prompt_token_ids) for request in workload.requests)
    return plain(f"{what}, {came}; {prompts} tokens of prompts.")


# -- links --------------------------------------------------------------------------------------


def named() -> Named:
    """Return what a link to this form is to name."""
    found = st.session_state.get(_NAMED)
    return found if isinstance(found, Named) else Named()


def forget_linked() -> None:
    """Begin with the engine's own values again."""
    st.session_state.pop(_LINKED, None)


def choose_last() -> None:
    """Have the form begin with what stood in it: Streamlit forgets fields that are not drawn."""
    if named() != Named():
        choose_linked(named())
    st.session_state[_REPEATED] = st.session_state.get(_REPEATED_LAST, _FIRST_REPETITIONS)


def choose_linked(wanted: Named) -> list[str]:
    """Have the form begin with what a link names; return what of it there is not."""
    problems = []
    if wanted.compare in _sources():
        st.session_state[_SOURCE] = wanted.compare
    else:
        problems.append(f"there are no requests “{str(wanted.compare)[:60]}” to compare with")
    setting = knobs(EngineConfig(speculative_config=_ANY_DRAFTS)).get(wanted.setting or "")
    if setting is not None:
        st.session_state[_KNOB] = setting.name
        values, wrong = _linked_values(setting, wanted)
        st.session_state[_LINKED] = setting.name, values
        problems += wrong
    elif wanted.setting is not None:
        problems.append(f"there is no setting “{wanted.setting[:60]}” to compare")
    return problems


def _linked_values(setting: Setting, wanted: Named) -> tuple[dict[int, Any], list[str]]:
    """Return a link's values by their side, and what of them is none of this setting."""
    values, wrong = {}, []
    for side, text in enumerate((wanted.a, wanted.b)):
        try:
            if text is not None:
                values[side] = from_link(setting, text)
        except ValueError as error:
            wrong.append(str(error))
    return values, wrong


# -- requests -----------------------------------------------------------------------------------


def _sources() -> dict[str, str]:
    """Return what can be run, by what a link calls it."""
    names = {_RECORDED: "What my engine was given"}
    names |= {preset.id: f"Preset: {preset.label}" for preset in PRESETS}
    return names | {_FILE: "A file"}


def _source(llm: AsyncLLM) -> Source:
    names = _sources()
    chosen = st.selectbox(
        "Requests",
        list(names),
        0 if _SOURCE in st.session_state else int(llm.is_fresh),
        format_func=names.__getitem__,
        key=_SOURCE,
        on_change=_forget_trouble,
    )
    try:
        if chosen == _RECORDED:
            trace = llm.trace
            workload = _read_once(
                f"{trace.header.trace_id}:{trace.next_seq}",
                lambda: workloads.of_trace(trace, "what the engine was given"),
            )
            return Source(chosen, llm.requested_config, workload)
        if chosen == _FILE:
            return _of_file(llm)
        return _of_preset(llm, chosen)
    except _TROUBLES as error:
        return Source(chosen, llm.requested_config, None, str(error))


def _of_file(llm: AsyncLLM) -> Source:
    uploaded = st.file_uploader(
        "A saved workload or a saved trace",
        ["json", "jsonl"],
        key="gb-compare-file",
        max_upload_size=_UPLOAD_MB,
    )
    if uploaded is None:
        return Source(_FILE, llm.requested_config, None, "Choose a file to run")
    workload = _read_once(
        uploaded.file_id, lambda: workloads.read(uploaded.getvalue(), uploaded.name)
    )
    return Source(f"file {uploaded.file_id}", llm.requested_config, workload)


def _read_once(key: str, read: Callable[[], Workload]) -> Workload:
    """Return what was read under this key, until there is another one: a log can be long."""
    known, found = st.session_state.get(_READ, ("", None))
    if known != key:
        try:
            found = read()
        except WorkloadError as error:
            found = error
        st.session_state[_READ] = (key, found)
    if isinstance(found, Workload):
        return found
    raise WorkloadError(str(found))


def _of_preset(llm: AsyncLLM, preset_id: str) -> Source:
    """A preset comes with the settings that it is made for."""
    preset = preset_by_id(preset_id)
    assert preset is not None
    base = llm.requested_config.model_copy(
        update={**preset.missing(llm.requested_config), "async_scheduling": False}
    )
    resolved = base.resolve(llm.model.max_model_len) if base.num_gpu_blocks else llm.config
    inputs = InputProcessor(llm.model, resolved)
    submissions = compose(preset.draft)
    encoded = TOKENIZING.submit(lambda: inputs.encode_all(submissions)).result()
    workload = workloads.of_prompts(preset.label, llm.model.name, encoded)
    return Source(preset_id, base, workload)


@guarded
def _start(key: str, source: Source, setting: Setting, a: Any, b: Any, repetitions: int) -> None:
    st.session_state.pop(_TROUBLE, None)
    llm = find_engine(state.session_key()).llm
    if llm is None or source.workload is None:
        return
    try:
        asked = compared(setting, source.base, a, b)
        labels = label(setting.name, a), label(setting.name, b)
        registry().comparisons.start(
            key, source.workload, source.base, asked, llm.document, labels, repetitions
        )
    except _TROUBLES as error:
        st.session_state[_TROUBLE] = sentence(str(error))
