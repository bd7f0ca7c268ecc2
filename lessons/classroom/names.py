"""Names and codes as people type them: what is kept of a name, and which of two are the same."""

from __future__ import annotations

import re
import secrets
import unicodedata

LONGEST = 40  # of a name, in characters; a suffix that tells two apart comes on top
MARKS_IN_A_ROW = 2  # more of them climb out of their line
CODE_LENGTH = 6
ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ23456789"  # nothing that is read as something else
_JOINERS = {"\u200c", "\u200d"}  # of scripts and of emoji; all other marks of format go
_SPACES = re.compile(r"\s+")


class NameRefused(ValueError):
    """A name that cannot be shown; the message says what to change."""


def clean_name(text: str) -> str:
    """A name as it is kept and shown; raises NameRefused.

    Control characters, marks that turn the direction of writing, private and unassigned code points
    go; letters of every script, emoji and signs stay. What a name looks like in HTML or Markdown is
    the business of whoever shows it.
    """
    kept: list[str] = []
    marks = 0
    for character in unicodedata.normalize("NFC", text[: 20 * LONGEST]):
        category = unicodedata.category(character)
        if character.isspace():
            character, category = " ", "Zs"
        elif category[0] == "C" and character not in _JOINERS:
            continue
        marks = marks + 1 if category[0] == "M" else 0
        if marks <= MARKS_IN_A_ROW:
            kept.append(character)
    name = _SPACES.sub(" ", "".join(kept)).strip(" \u200c\u200d")
    if not any(unicodedata.category(c)[0] not in "CMZ" and not _is_blank(c) for c in name):
        raise NameRefused("Write a name with at least one letter, digit or sign that can be seen")
    if len(name) > LONGEST:
        raise NameRefused(f"A name has at most {LONGEST} characters, and this one {len(name)}")
    return name


def _is_blank(character: str) -> bool:
    """Letters by category that show nothing: Hangul's fillers and Braille's empty cell."""
    return character in "\u115f\u1160\u3164\uffa0\u2800"


def sort_name(name: str) -> str:
    """What two names share that a reader would take for one: case, width, spaces, joiners."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(c for c in folded if not c.isspace() and c not in _JOINERS)


def numbered(name: str, number: int) -> str:
    """The name with a suffix, for the second of that name and those after."""
    return name if number == 1 else f"{name} ({number})"


def new_code() -> str:
    """A class's code, to be read out and typed."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))


def clean_code(text: str) -> str:
    """A code as it is kept, however it was typed: `kxm-472`, `KXM 472`; "" where it is none."""
    code = "".join(c for c in text[:100].upper() if c.isascii() and c.isalnum())
    return code if len(code) == CODE_LENGTH and set(code) <= set(ALPHABET) else ""


def spelled(code: str) -> str:
    """A code as it is shown: `KXM-472`."""
    return f"{code[:3]}-{code[3:]}"
