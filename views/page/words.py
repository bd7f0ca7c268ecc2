"""How the page words what the engine tells it."""

from __future__ import annotations


def sentence(text: str) -> str:
    """Return a message as a sentence: with a capital, and a full stop where it has none."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def plain(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]()<>#+-.!|~$:" else c for c in text)


def code(text: str) -> str:
    """Return text that Markdown shows as code."""
    return f"`{text.replace('`', chr(39))}`"
