"""What the page remembers between two runs of the script, by name.

Streamlit runs the script from top to bottom whenever something is clicked; whatever must survive
lies in `st.session_state`, and only this module knows under which keys.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import streamlit as st

from views.composer import Draft, SamplingFields
from views.presets import Preset

WORKSPACE = "workspace"
NoteKind = Literal["hint", "sent", "watch", "error"]

_NOTE = "gb-note"
_PRESET = "gb-preset"

# The composer's widgets and what they hold at first.
COMPOSER: dict[str, Any] = {
    "prompt": "The capital of France is",
    "mode": "prompt",
    "split": "one",
    "copies": 1,
    "system": "",
    "priority": 0,
    "max_tokens": 16,
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": 0,
    "sampling_seed": None,
    "min_tokens": 0,
    "stop": "",
    "stop_token_ids": "",
    "ignore_eos": False,
}


class Note(NamedTuple):
    """The line below the composer."""

    kind: NoteKind
    text: str


def prepare() -> None:
    """Give every widget of the composer its first value."""
    for name, value in COMPOSER.items():
        st.session_state.setdefault(name, value)


def session_key() -> str | None:
    """Return the key of this tab's engine, once the workspace has told it."""
    workspace = st.session_state.get(WORKSPACE)
    key = getattr(workspace, "session", None)
    return key if isinstance(key, str) and key else None


def say(kind: NoteKind, text: str) -> None:
    """Put a line below the composer."""
    st.session_state[_NOTE] = Note(kind, text)


def note() -> Note | None:
    """Return the line below the composer."""
    found = st.session_state.get(_NOTE)
    return found if isinstance(found, Note) else None


def draft() -> Draft:
    """Return the composer's fields as they stand."""
    value = st.session_state.get
    return Draft(
        text=value("prompt") or "",
        mode=value("mode") or "prompt",
        split=value("split") or "one",
        copies=value("copies"),
        system=value("system") or "",
        priority=value("priority"),
        sampling=SamplingFields(
            max_tokens=value("max_tokens"),
            temperature=value("temperature"),
            top_p=value("top_p"),
            top_k=value("top_k"),
            seed=value("sampling_seed"),
            min_tokens=value("min_tokens"),
            stop=value("stop") or "",
            stop_token_ids=value("stop_token_ids") or "",
            ignore_eos=bool(value("ignore_eos")),
        ),
    )


def fill(preset: Preset) -> None:
    """Fill the composer with a preset's requests, which can be edited before they are sent."""
    st.session_state.update(COMPOSER)
    st.session_state.update(
        prompt=preset.text,
        mode=preset.mode,
        split="lines",
        system=preset.system,
        max_tokens=preset.max_tokens,
        ignore_eos=preset.ignore_eos,
    )
    st.session_state[_PRESET] = preset.id


def chosen_preset() -> str | None:
    """Return the id of the preset that the composer was filled with last."""
    found = st.session_state.get(_PRESET)
    return found if isinstance(found, str) else None


def forget_preset() -> None:
    """The composer's text is the user's own again."""
    st.session_state.pop(_PRESET, None)
