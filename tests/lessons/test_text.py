"""A lesson's texts, as they are read out."""

from __future__ import annotations

from lessons.expressions import Scope, Template
from lessons.text import told


def test_what_is_told_has_values_and_names_and_no_markup() -> None:
    text = Template.parse(
        "**{{2 + 3}} blocks** of [[scheduler]], `n` of [[request r0|it]]: {{kind}}"
    )
    scope = Scope({"kind": "<b>"})
    assert (
        told(text, scope, {"scheduler": "The Scheduler"})
        == "5 blocks of The Scheduler, n of it: <b>"
    )
