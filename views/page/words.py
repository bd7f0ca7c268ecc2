"""How the page words what the engine tells it."""

from __future__ import annotations

import re

# What Markdown makes links of without being asked: https://..., www...., a@b.
_LINKED = re.compile(r"https?://|www(?=\.)|@", re.IGNORECASE)


def sentence(text: str) -> str:
    """Return a message as a sentence: with a capital, and a full stop where it has none."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def plain(text: str) -> str:
    """Return text that Markdown shows as it is; a word joiner keeps addresses from being links."""
    text = _LINKED.sub("\\g<0>\u2060", text)
    return "".join(f"\\{c}" if c in "\\`*_{}[]()<>#+-.!|~$:" else c for c in text)


def code(text: str) -> str:
    """Return text that Markdown shows as code."""
    return f"`{text.replace('`', chr(39))}`"
