"""What a lesson's end says of its questions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from views.page.lesson_sidebar import standing


@pytest.mark.parametrize(
    ("judged", "points", "said"),
    [
        (0, 3, "You have 0 of 2 questions right. That gives 0 of 3 points. 2 are still open."),
        (1, 0, "You have 1 of 2 questions right. 1 is still open."),
        (2, 3, "You have 2 of 2 questions right. That gives 3 of 3 points."),
    ],
)
def test_who_skipped_a_question_is_told_so(judged: int, points: int, said: str) -> None:
    player: Any = SimpleNamespace(
        score=lambda: (judged, 2),
        points=lambda: (points if judged == 2 else 0, points),
        judged=dict.fromkeys(range(judged)),
    )
    assert standing(player) == said
