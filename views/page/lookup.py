"""Looking something up: one search over lessons, terms, claims and settings, and the glossary.

What is opened stands in a card below the field, and is lit on the map.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st

from engine.async_llm import AsyncLLM
from lessons.format import Lesson
from lessons.glossary import GLOSSARY, Term, load_glossary
from lessons.map_names import DOCUMENT, Claim, MapNames, read_claims, read_map
from lessons.search import Entry, entries, search
from views.page import documents
from views.page.guard import guarded
from views.page.settings_fields import form_values, settings_by_group
from views.page.words import code, plain, sentence

KINDS = {
    "term": "Term",
    "setting": "Setting",
    "tour": "Tour",
    "lab": "Lab",
    "clinic": "Case",
    "hunt": "Bug hunt",
    "claim": "Claim",
}
_QUERY = "gb-search"
_TERM = "gb-glossary"
_OPENED = "gb-lookup"


class Lit(NamedTuple):
    """What the workspace shows of something that was opened, once for each turn."""

    turn: int
    box: str | None
    claim: int | None


class Opened(NamedTuple):
    """What this tab has open; the turn grows with each."""

    entry: Entry
    turn: int


def results(lessons: list[Lesson]) -> list[Entry] | None:
    """Draw the field, and return what was found; None where nothing is looked for."""
    query = st.text_input(
        "Search",
        key=_QUERY,
        type="search",
        live=True,
        max_chars=200,
        placeholder="A symptom, a term, a setting…",
        icon=":material/search:",
    )
    if not query or not query.strip():
        return None
    found = search(entries(lessons, _terms(), _claims()), query)
    said = f"{len(found)} found" if found else "Nothing has all these words. Try fewer, or one."
    st.caption(said)
    return found


def offer(entry: Entry) -> None:
    """Draw something that was found, as a button that opens it."""
    label = f"{KINDS[entry.kind]}: {plain(entry.title)}"
    key = f"gb-found-{entry.kind}-{entry.id}"
    st.button(label, key=key, width="stretch", on_click=_open, args=(entry,))


def glossary() -> None:
    """Draw the terms: one to be chosen, and all to be read."""
    terms = _terms()
    with st.expander(f"Glossary ({len(terms)})", icon=":material/dictionary:", key="gb-terms"):
        names = [term.term for term in terms]
        say = "A term of the field"
        st.selectbox(
            say,
            names,
            None,
            key=_TERM,
            placeholder=say,
            on_change=_chosen,
            label_visibility="collapsed",
        )
        st.markdown("\n\n".join(f"**{plain(term.term)}**  \n{plain(term.says)}" for term in terms))


def card(llm: AsyncLLM | None) -> Lit | None:
    """Draw what is open, if anything is, and return what is lit of it."""
    opened = st.session_state.get(_OPENED)
    if not isinstance(opened, Opened):
        return None
    entry = opened.entry
    with st.container(border=True, key="gb-lookup-card"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{plain(entry.title)}**")
            st.button("Close", key="gb-lookup-close", type="tertiary", on_click=_close)
        match entry.kind:
            case "term":
                return _term(opened, _named(entry.id))
            case "claim":
                st.markdown(claim_links(int(entry.id), _map().boxes))
                return Lit(opened.turn, None, int(entry.id))
        _setting(entry.id, llm)
        term = next((term for term in _terms() if term.term == entry.id), None)
        return None if term is None else _term(opened, term)


def claim_links(number: int, labels: dict[str, str]) -> str:
    """Return where a claim's card is, and which boxes it is about, as Markdown with links."""
    said = f"[Claim {number}](#gb-claim-{number}) is beside the map: what is said, and what holds."
    claim = next((each for each in _claims() if each.number == number), None)
    boxes = [] if claim is None else [box for box in claim.components if box in labels]
    links = [f"[{plain(labels[box])}](#gb-box-{box})" for box in boxes]
    return f"{said} It is about {', '.join(links)}." if links else said


def _term(opened: Opened, term: Term | None) -> Lit | None:
    if term is None:
        return None
    if term.also:
        st.caption(plain(f"also: {', '.join(term.also)}"))
    st.markdown(plain(term.says))
    names = _map()
    here = names if term.document is None else names.others[term.document]
    st.markdown(f"On the map: [{plain(here.boxes[term.box])}](#gb-box-{term.box})")
    with st.container(horizontal=True):
        for other in term.see:
            entry = Entry("term", other, other)
            key = f"gb-see-{other}"
            st.button(plain(other), key=key, type="tertiary", on_click=_open, args=(entry,))
    return Lit(opened.turn, term.box, None)


def _setting(name: str, llm: AsyncLLM | None) -> None:
    for group, settings in settings_by_group().items():
        for setting in settings:
            if setting.name == name or setting.name.startswith(f"{name}."):  # of a table
                st.markdown(plain(sentence(setting.description)))
                if setting.help:
                    st.markdown(setting.help)
                now = "" if llm is None else _now(form_values(llm.config).get(name))
                link = f"[change it in the menu *Engine*](#gb-setting-{name})"
                st.caption(f"{now}You {link}, under {group}.")


def _now(value: Any) -> str:
    return f"Now: {code(str(value))}. " if value is not None else "Now: not set. "


# -- what there is --------------------------------------------------------------------------------


def _named(term: str) -> Term | None:
    return next((each for each in _terms() if each.term == term), None)


def _terms() -> list[Term]:
    return _read_terms(GLOSSARY, GLOSSARY.stat().st_mtime_ns)


@st.cache_resource(max_entries=4, show_spinner=False)
def _read_terms(path: Path, changed: int) -> list[Term]:
    return load_glossary(path)


@st.cache_resource(max_entries=4, show_spinner=False)
def _claims() -> list[Claim]:
    return read_claims()


@st.cache_resource(max_entries=4, show_spinner=False)
def _map() -> MapNames:
    return read_map(DOCUMENT)


# -- clicks ---------------------------------------------------------------------------------------


@guarded
def _open(entry: Entry) -> None:
    before = st.session_state.get(_OPENED)
    turn = before.turn + 1 if isinstance(before, Opened) else 1
    st.session_state[_OPENED] = Opened(entry, turn)
    st.session_state[_QUERY] = ""
    term = _named(entry.id)
    if entry.kind == "term" and term is not None:
        documents.show_map(term.document)
    elif entry.kind == "setting":
        documents.show_map(None)


@guarded
def _chosen() -> None:
    term = st.session_state.get(_TERM)
    if term:
        _open(Entry("term", term, term))
        st.session_state[_TERM] = None


@guarded
def _close() -> None:
    st.session_state.pop(_OPENED, None)
