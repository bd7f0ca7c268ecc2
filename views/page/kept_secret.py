"""A secret that the browser keeps for its visitor, and tells in each session anew.

What is to be kept goes to the browser with a growing number (`turn`); until it has told it back,
what this session did itself holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypedDict

import streamlit as st

_LONGEST = 200


class ForBrowser(TypedDict):
    """What the browser is to keep, and what it has told."""

    turn: int
    secret: str | None
    known: str | None


class KeptSecret:
    """One secret of this session's visitor; `told` is what the browser said last."""

    def __init__(self, key: str, told: Callable[[], Any]):
        self._key = key
        self._read = told

    def keep(self, secret: str | None) -> None:
        """Have the browser keep this secret, or none."""
        turn = max(int(time.time() * 1000), self._own()["turn"] + 1)
        st.session_state[self._key] = {"turn": turn, "secret": secret, "confirmed": False}

    def now(self) -> str | None:
        """Return the secret; "" or None where there is none."""
        own, told = self._own(), self.told()
        if not own["confirmed"]:
            if (told or None) != own["secret"]:
                return own["secret"]  # type: ignore[no-any-return]
            own["confirmed"] = True
        return told

    def told(self) -> str | None:
        """Return what the browser told; None where it has told nothing yet."""
        told = self._read()
        return told[:_LONGEST] if isinstance(told, str) else None

    def for_browser(self) -> ForBrowser:
        """Return what the browser's part is given (`KeptSecret` of `kept_secret.js`)."""
        own = self._own()
        return {"turn": own["turn"], "secret": own["secret"], "known": self.told()}

    def _own(self) -> dict[str, Any]:
        found = st.session_state.get(self._key)
        return found if isinstance(found, dict) else {"turn": 0, "secret": None, "confirmed": True}
