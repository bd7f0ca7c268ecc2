"""What a step says of numbers and settings."""

from __future__ import annotations

import pytest

from lessons.loader import lesson_files, load
from lessons.play import Player
from views.page import lesson_step


@pytest.mark.parametrize(
    ("given", "unit", "said"),
    [(1, "requests", "request"), (1, "entries", "entry"), (2, "bytes", "bytes"), (1, "", "")],
)
def test_one_of_a_thing_is_no_plural(given: int, unit: str, said: str) -> None:
    assert lesson_step._of(given, unit) == said


def test_what_a_reset_will_set_is_said_as_the_page_says_settings() -> None:
    lab = load(next(path for path in lesson_files() if path.stem == "two-ceilings"))
    run = next(step.run for step in lab.steps if step.run is not None)
    said = lesson_step._settings(Player(lab, 1), run)
    assert "`enable_prefix_caching off`" in said and "False" not in said


def test_a_saved_moment_is_named_by_the_step_that_saved_it() -> None:
    tour = load(next(path for path in lesson_files() if path.stem == "preemption"))
    assert lesson_step._saved_in(tour, "one-block-left") == "Admitted on what is known"
