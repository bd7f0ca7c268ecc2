"""A lesson's texts, as they are read out."""

from __future__ import annotations

from lessons.expressions import Scope, Template
from lessons.loader import lesson_files, load
from lessons.text import texts, told


def test_what_is_told_has_values_and_names_and_no_markup() -> None:
    text = Template.parse(
        "**{{2 + 3}} blocks** of [[scheduler]], `n` of [[request r0|it]]: {{kind}}"
    )
    scope = Scope({"kind": "<b>"})
    assert (
        told(text, scope, {"scheduler": "The Scheduler"})
        == "5 blocks of The Scheduler, n of it: <b>"
    )


def test_no_text_has_the_code_of_a_reason() -> None:
    """`reason` is for comparing; what is read is `because`."""
    bare = [
        (path.stem, expression.text)
        for path in lesson_files()
        for text in texts(load(path))
        for expression in text.expressions
        if expression.text.startswith("reason(")
    ]
    assert bare == []
