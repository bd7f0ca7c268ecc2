"""How often a wrong secret may be tried."""

from __future__ import annotations

from lessons.classroom.throttle import Throttle
from tests.lessons.classroom.conftest import Ticks


def test_each_has_some_tries_and_then_waits() -> None:
    clock = Ticks()
    throttle = Throttle(each=2, together=10, seconds=60, clock=clock)
    assert [throttle.take("a") for _ in range(2)] == [0, 0]
    clock.now += 20
    assert throttle.take("a") == 41
    assert throttle.take("b") == 0  # another one does not wait for them
    clock.now += 40
    assert throttle.take("a") == 0


def test_a_try_that_waits_does_not_count() -> None:
    clock = Ticks()
    throttle = Throttle(each=1, together=10, seconds=60, clock=clock)
    assert throttle.take("a") == 0
    for _ in range(50):
        clock.now += 1
        assert throttle.take("a") > 0
    clock.now += 11
    assert throttle.take("a") == 0


def test_all_together_have_some_more() -> None:
    throttle = Throttle(each=1, together=3, clock=Ticks())
    assert [throttle.take(str(n)) for n in range(3)] == [0, 0, 0]
    assert throttle.take("another") > 0


def test_who_was_right_is_forgiven() -> None:
    throttle = Throttle(each=1, together=1, clock=Ticks())
    for _ in range(5):
        assert throttle.take("a") == 0
        throttle.forgive("a")
