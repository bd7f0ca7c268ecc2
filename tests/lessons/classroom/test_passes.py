"""What a teacher's tab has instead of the secret."""

from __future__ import annotations

from lessons.classroom.passes import GOOD_SECONDS, MOST, Passes
from tests.lessons.classroom.conftest import Ticks


def test_a_pass_is_good_for_a_day_and_until_it_is_taken_back() -> None:
    clock = Ticks()
    passes = Passes(clock)
    first, second = passes.give(), passes.give()
    assert first != second
    assert passes.is_good(first)
    for nothing in ("", first + "x", first[:-1], "\ud800"):
        assert not passes.is_good(nothing)
    passes.take_back(second)
    assert not passes.is_good(second)
    clock.now += GOOD_SECONDS - 1
    assert passes.is_good(first)
    clock.now += 1
    assert not passes.is_good(first)


def test_whoever_has_the_secret_cannot_have_the_server_remember_passes_without_end() -> None:
    passes = Passes(Ticks())
    given = [passes.give() for _ in range(MOST + 1)]
    assert [passes.is_good(one) for one in (given[0], given[1], given[-1])] == [False, True, True]
