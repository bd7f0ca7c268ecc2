"""What the page remembers between two runs of the script, by name.

Streamlit runs the script from top to bottom whenever something is clicked; whatever must survive
lies in `st.session_state`, and only this module knows under which keys.

A field in a closed popover is not in the browser yet: a value that is put into the session's state
does not reach it later, when the popover opens. So fields get their values as first values, and
whoever changes them from here (a preset, a reset) makes a new *generation* of fields.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import streamlit as st

from views.page.drafts import Draft, SamplingFields
from views.page.presets import Preset

WORKSPACE = "workspace"
NoteKind = Literal["hint", "sent", "watch", "error"]
SentTo = Literal["own", "shared"]

_NOTE = "gb-note"
_PRESET = "gb-preset"
_KEEP = "gb-keep-settings"
_SENT = "gb-sent"
_SENT_TO = "gb-sent-to"
_SENDING = "gb-sending"
_FIELDS = "gb-fields"

FIRST_PROMPT = "The capital of France is"
DOUBLE_CLICK_SECONDS = 0.6
_clock = time.monotonic


class Note(NamedTuple):
    """The line below the composer."""

    kind: NoteKind
    text: str
    log: str = ""  # of whose engine it speaks; it goes with that


class Sending:
    """One object for all presses of a tab's Send, which tells a double click from two sends.

    The two presses of a double click run in two threads at once. Once the second has come, the
    first one ends where it next touches the session's state: so what it did stands here.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held while requests are handed in
        self.note = Note("hint", "")  # what was said of the last ones
        self._sent: tuple[Draft | None, str] = (None, "")  # and the log that it is in
        self._shown_at: float | None = None  # on `_clock`

    def is_done(self, draft: Draft, log: str) -> bool:
        """Return whether this very draft is in this log, sent last and shown for no time yet."""
        if (draft, log) != self._sent:
            return False
        return self._shown_at is None or _clock() - self._shown_at < DOUBLE_CLICK_SECONDS

    def finish(self, draft: Draft | None, log: str, note: Note) -> None:
        """Remember what was sent, if anything, and what is said of it."""
        self._sent, self.note, self._shown_at = (draft, log), note, None

    def page_is_drawn(self) -> None:
        """Remember when the page first showed what was sent. A run that is cut short does not get
        here, as the one after the first press of two.
        """
        if self._shown_at is None:
            self._shown_at = _clock()


class Fields:
    """The fields of one form: their first values, and which generation of widgets shows them."""

    def __init__(self, form: str, first: dict[str, Any]):
        self.form = form
        self.first = first
        self.generation = 0
        self._told = dict(first)

    def key(self, name: str) -> str:
        """Return the key of a field's widget."""
        return f"gb-{self.form}-{name}-{self.generation}"

    def value(self, name: str) -> Any:
        """Return what stands in a field."""
        return st.session_state.get(self.key(name), self.first[name])

    def values(self) -> dict[str, Any]:
        """Return what stands in all fields."""
        return {name: self.value(name) for name in self.first}

    def show(self, first: dict[str, Any]) -> None:
        """Show other values from the next run on, unless these were told the last time already."""
        if first != self._told:
            self._told = dict(first)
            self.renew(first)

    def renew(self, first: dict[str, Any]) -> None:
        """Show these values from the next run on, whatever has been typed."""
        self.first = dict(first)
        self.generation += 1


def fields(form: str, first: dict[str, Any]) -> Fields:
    """Return the fields of a form, made with these values when it is asked for first."""
    found = st.session_state.get(_FIELDS + form)
    if not isinstance(found, Fields):
        found = st.session_state[_FIELDS + form] = Fields(form, dict(first))
    return found


def composer_fields() -> Fields:
    """Return the composer's fields."""
    return fields("composer", _widgets(Draft(FIRST_PROMPT)))


def session_key() -> str | None:
    """Return the key of this tab's engine, once the workspace has told it."""
    workspace = st.session_state.get(WORKSPACE)
    key = getattr(workspace, "session", None)
    return key if isinstance(key, str) and key else None


def told(name: str) -> Any:
    """Return what the workspace told last under this name, as a stranger's word."""
    return getattr(st.session_state.get(WORKSPACE), name, None)


def say(kind: NoteKind, text: str, log: str = "") -> None:
    """Put a line below the composer, about the engine of a log where one is given."""
    st.session_state[_NOTE] = Note(kind, text, log)


def note() -> Note | None:
    """Return the line below the composer."""
    found = st.session_state.get(_NOTE)
    return found if isinstance(found, Note) else None


def forget_note() -> None:
    """Take the line below the composer away; a hint stands there again."""
    st.session_state.pop(_NOTE, None)


def mark_sent(to: SentTo) -> None:
    """Remember that something was sent, for the workspace to show the engine that got it."""
    st.session_state[_SENT_TO] = to
    st.session_state[_SENT] = max(int(time.time() * 1000), last_sent() + 1)


def sent_to() -> SentTo:
    """Return which engine got what was sent last."""
    return "shared" if st.session_state.get(_SENT_TO) == "shared" else "own"


def sending() -> Sending:
    """Return what this tab sends with."""
    found = st.session_state.get(_SENDING)
    if not isinstance(found, Sending):
        found = st.session_state[_SENDING] = Sending()
    return found


def last_sent() -> int:
    """Return a number that grows with everything that is sent, in later sessions as well."""
    found = st.session_state.get(_SENT)
    return found if isinstance(found, int) else 0


def draft() -> Draft:
    """Return the composer's fields as they stand."""
    first, value = Draft(""), composer_fields().value
    return Draft(
        text=value("prompt") or "",
        sampling=SamplingFields(**_values(SamplingFields(), value)),
        **_values(first, value),
    )


def _widgets(draft: Draft) -> dict[str, Any]:
    """Return what the composer's widgets hold where they show this draft."""
    sampling = {field.name: getattr(draft.sampling, field.name) for field in _own(draft.sampling)}
    others = {field.name: getattr(draft, field.name) for field in _own(draft)}
    return {"prompt": draft.text, **others, **sampling}


def _values(first: Draft | SamplingFields, value: Callable[[str], Any]) -> dict[str, Any]:
    """Return what the widgets of these fields hold; a text without a value is as at first."""
    names = [field.name for field in _own(first)]
    held = {name: value(name) for name in names}
    gone = [n for n in names if held[n] is None and isinstance(getattr(first, n), str | bool)]
    return held | {name: getattr(first, name) for name in gone}


def _own(form: Draft | SamplingFields) -> list[dataclasses.Field[Any]]:
    """Return the fields that have a widget under their own name."""
    return [field for field in dataclasses.fields(form) if field.name not in ("text", "sampling")]


def fill(preset: Preset) -> None:
    """Fill the composer with a preset's requests, which can be edited before they are sent."""
    composer_fields().renew(_widgets(preset.draft))
    st.session_state[_PRESET] = preset.id
    st.session_state[_KEEP] = False


def keep_settings() -> None:
    """Send what a preset filled in to the engine as it is set."""
    st.session_state[_KEEP] = True


def keeps_settings() -> bool:
    """Return whether the engine's settings were chosen over the preset's."""
    return bool(st.session_state.get(_KEEP))


def chosen_preset() -> str | None:
    """Return the id of the preset that the composer was filled with last."""
    found = st.session_state.get(_PRESET)
    return found if isinstance(found, str) else None
