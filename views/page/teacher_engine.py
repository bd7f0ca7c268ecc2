"""The shared engine on the teacher's page: which class has the floor, what it takes, who sent what.

The engine itself is commanded from the map: the tab that `_map` opens has the shared engine for its
own, with transport, settings and composer.
"""

from __future__ import annotations

import streamlit as st

from engine.async_llm import AsyncLLM, Sent
from engine.audience import NAMED, OpenTo, Rules
from engine.sessions import SHARED_KEY, registry
from lessons.classroom.register import ClassInfo
from lessons.classroom.school import School
from views.page import teacher_door
from views.page.bootstrap import bootstrap
from views.page.class_place import isolated
from views.page.teacher_class import table
from views.page.teacher_door import for_teacher, looked_up_every
from views.page.words import plain

_EVERY_SECONDS = 2.0
_KEY = "gb-teacher-director"
_MOST_ROWS, _LONGEST_PROMPT = 100, 60
_OPEN_TO: dict[OpenTo, str] = {
    "everybody": "Everybody, with or without a name",
    "class": "The class alone",
    "nobody": "Nobody",
}


def engine_of(found: School, room: ClassInfo) -> None:
    """Draw the shared engine's rules and its requests."""
    if not registry().shared_enabled:
        st.info("This server's shared engine is turned off (GLASSBOX_SHARED_ENGINE=0).")
        return
    _floor(found, room)
    _map(found)
    _rules(found)
    _requests()


def _floor(found: School, room: ClassInfo) -> None:
    has = found.floor == room.id
    st.markdown(
        "One engine for all: learners of the class that has the floor send requests into it from "
        "their own pages, under their names, and everybody watches the same map."
    )
    st.button(
        "Take the floor from this class" if has else "Give this class the floor",
        key="gb-teacher-floor",
        type="secondary" if has else "primary",
        on_click=for_teacher,
        args=(found.take_floor,) if has else (found.give_floor, room.id, teacher_door.shown()),
    )


def _map(found: School) -> None:
    """Draw what opens the map for who directs the engine."""
    if found.floor is None:
        return
    if not registry().knows(st.session_state.get(_KEY, "")):
        st.session_state[_KEY] = registry().create(found.directing(teacher_door.shown()))
    component = st.components.v2.component("direct", js=bootstrap("page/direct.js"))
    component(key="gb-teacher-direct", data={"key": st.session_state[_KEY]}, height="content")


def _rules(found: School) -> None:
    rules = registry().audience.rules
    with st.form("gb-teacher-rules"):
        names = list(_OPEN_TO)
        st.radio(
            "It takes requests of",
            names,
            names.index(rules.open_to),
            key="gb-rules-open",
            format_func=_OPEN_TO.__getitem__,
            horizontal=True,
        )
        with st.container(horizontal=True):
            st.number_input(
                "Requests of a sender at once (0: any)",
                0,
                1_000,
                rules.most_requests,
                key="gb-rules-requests",
            )
            st.number_input(
                "Tokens of a request, prompt and answer (0: any)",
                0,
                1_000_000,
                rules.most_tokens,
                key="gb-rules-tokens",
            )
        st.form_submit_button("Set", on_click=for_teacher, args=(_set_rules, found))
    st.caption(
        f"In force: {_OPEN_TO[rules.open_to].lower()}; requests of a sender at once: "
        f"{rules.most_requests or 'any'}; tokens of a request: {rules.most_tokens or 'any'}."
    )


def _set_rules(found: School) -> None:
    state = st.session_state
    rules = Rules(
        state["gb-rules-open"], int(state["gb-rules-requests"]), int(state["gb-rules-tokens"])
    )
    found.register.set_engine_rules(rules)
    registry().audience.rules = rules


@looked_up_every(_EVERY_SECONDS)
def _requests() -> None:
    llm = registry().existing(SHARED_KEY)
    if llm is None or llm.failed is not None:
        st.info("The shared engine begins with its first request, or when its map is opened.")
        return
    sent = llm.sent()
    under_way = sum(not one.is_finished for one in sent)
    with st.container(horizontal=True, vertical_alignment="center"):
        paused = llm.mode == "paused"
        st.button(
            "Run" if paused else "Pause",
            key="gb-shared-run",
            on_click=for_teacher,
            args=(llm.run if paused else llm.pause,),
        )
        st.button(
            "Abort all",
            key="gb-shared-abort",
            disabled=not under_way,
            on_click=for_teacher,
            args=(_abort, llm, None),
        )
        st.markdown(f"It is {llm.mode}, with {under_way} requests under way.")
    sources = sorted({one.source for one in sent if not one.is_finished})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Sender", sources, key="gb-shared-sender", format_func=_who, disabled=not sources
        )
        st.button(
            "Abort theirs",
            key="gb-shared-abort-theirs",
            disabled=chosen is None,
            on_click=for_teacher,
            args=(_abort, llm, chosen),
        )
    _table(sent)


def _abort(llm: AsyncLLM, source: str | None) -> None:
    llm.abort([one.request_id for one in llm.sent() if source in (None, one.source)])


def _table(sent: list[Sent]) -> None:
    rows = [
        (
            isolated(_who(one.source)),
            plain(one.request_id),
            "ended" if one.is_finished else "under way",
            str(one.num_prompt_tokens),
            str(one.num_output_tokens),
            plain(" ".join(one.prompt[: 2 * _LONGEST_PROMPT].split())[:_LONGEST_PROMPT]),
        )
        for one in reversed(sent[-_MOST_ROWS:])
    ]
    if rows:
        table(("Sender", "Request", "State", "Prompt", "Generated", "It begins"), rows)
        st.caption(f"The latest {_MOST_ROWS}, looked up every {_EVERY_SECONDS:.0f} seconds.")


def _who(source: str) -> str:
    if source.startswith(NAMED):
        return source.removeprefix(NAMED)
    return {"page": "you", "http": "without a name"}.get(source, source)
