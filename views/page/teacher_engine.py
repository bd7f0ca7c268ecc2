"""The shared engine on the teacher's page: which class has the floor, what it takes, who sent what.

The engine itself is commanded from the map: the tab that `_map` opens has the shared engine for its
own, with transport, settings and composer.
"""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from engine.async_llm import AsyncLLM, Sent
from engine.audience import NAMED, OpenTo, Rules
from engine.sessions import SHARED_KEY, registry
from lessons.classroom.register import ClassInfo
from lessons.classroom.school import School
from views.page.bootstrap import bootstrap
from views.page.class_place import isolated
from views.page.teacher_class import table
from views.page.words import plain

_EVERY_SECONDS = 2.0
_MOST_ROWS, _LONGEST_PROMPT = 100, 60
_OPEN_TO: dict[OpenTo, str] = {
    "everybody": "Everybody, with or without a name",
    "class": "The class alone",
    "nobody": "Nobody",
}
ForTeacher = Callable[..., None]


def engine_of(found: School, room: ClassInfo, for_teacher: ForTeacher) -> None:
    """Draw the shared engine's rules and its requests."""
    if not registry().shared_enabled:
        st.info("This server's shared engine is turned off (GLASSBOX_SHARED_ENGINE=0).")
        return
    _floor(found, room, for_teacher)
    _map(found)
    _rules(for_teacher)
    _requests(for_teacher)


def _floor(found: School, room: ClassInfo, for_teacher: ForTeacher) -> None:
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
        args=(_give_floor, found, None if has else room.id),
    )


def _give_floor(found: School, room_id: int | None) -> None:
    found.floor = room_id


def _map(found: School) -> None:
    """Draw what opens the map for who directs the engine."""
    if found.floor is None:
        return
    if not registry().knows(found.director):
        found.director = registry().create(directs=True)
    component = st.components.v2.component("direct", js=bootstrap("page/direct.js"))
    component(key="gb-teacher-direct", data={"key": found.director}, height="content")


def _rules(for_teacher: ForTeacher) -> None:
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
        st.form_submit_button("Set", on_click=for_teacher, args=(_set_rules,))
    st.caption(
        f"In force: {_OPEN_TO[rules.open_to].lower()}; requests of a sender at once: "
        f"{rules.most_requests or 'any'}; tokens of a request: {rules.most_tokens or 'any'}."
    )


def _set_rules() -> None:
    state = st.session_state
    registry().audience.rules = Rules(
        state["gb-rules-open"], int(state["gb-rules-requests"]), int(state["gb-rules-tokens"])
    )


@st.fragment(run_every=_EVERY_SECONDS)
def _requests(for_teacher: ForTeacher) -> None:
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
