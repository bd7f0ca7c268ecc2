"""Names and codes as somebody who means no good types them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessons.classroom.names import (
    LONGEST,
    NameRefused,
    clean_code,
    clean_name,
    new_code,
    sort_name,
    spelled,
)


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("  Ada   Lovelace ", "Ada Lovelace"),
        ("Ada\r\n\tLovelace\u2029x", "Ada Lovelace x"),
        ("\u202eadA\u202c \u2066x\u2069\u200f", "adA x"),  # turned round
        ("A\u0000d\u0007a\x1b[31m", "Ada[31m"),
        ("A\u200bd\ufeffa\u00ad", "Ada"),  # nothing that is not seen
        ("👩‍🏫 Ada", "👩‍🏫 Ada"),  # an emoji of three, joined
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),  # shown as it is
        ("=HYPERLINK(1)", "=HYPERLINK(1)"),
        ("e\u0301", "é"),
        ("Z" + "\u0335\u0336\u0337\u0338" * 5, "Z\u0335\u0336"),
        ("李小龍", "李小龍"),
        ("مريم", "مريم"),
        ("'; DROP TABLE learners; --", "'; DROP TABLE learners; --"),
    ],
)
def test_what_is_kept_of_a_name(typed: str, kept: str) -> None:
    assert clean_name(typed) == kept


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("", "at least one letter"),
        (" \u200d\u2028\u202e ", "at least one letter"),
        ("\u3164\u2800", "at least one letter"),
        ("\u0301\u0301", "at least one letter"),
        ("x" * (LONGEST + 1), f"at most {LONGEST}"),
        ("x" * 1_000_000, f"at most {LONGEST}"),
    ],
)
def test_what_is_no_name(typed: str, why: str) -> None:
    with pytest.raises(NameRefused, match=why):
        clean_name(typed)


@given(st.text(max_size=80))
def test_whatever_is_typed_is_refused_or_can_be_shown_in_a_line(typed: str) -> None:
    try:
        name = clean_name(typed)
    except NameRefused:
        return
    assert clean_name(name) == name
    assert 1 <= len(name) <= LONGEST
    assert not any(unicodedata.bidirectional(c) in BIDI for c in name)
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Co", "Zl", "Zp") for c in name)


BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.mark.parametrize(
    ("one", "other"), [("Ada", "ada"), ("Ada", "Ａｄａ"), ("Ada L", "A dal"), ("ﬁ", "FI")]
)
def test_names_that_look_alike_count_as_one(one: str, other: str) -> None:
    assert sort_name(clean_name(one)) == sort_name(clean_name(other))


def test_codes_are_read_however_they_are_typed() -> None:
    code = new_code()
    assert clean_code(f" {spelled(code).lower()} ") == code
    assert clean_code(f"{code[:2]} {code[2:]}") == code
    for wrong in (
        "",
        code[:-1],
        code + "A",
        "O" * 6,
        "%" * 6,
        "x" * 10**6,
        "\u0391" * 6,
        "A\0BCDE",
    ):
        assert clean_code(wrong) == "", wrong
