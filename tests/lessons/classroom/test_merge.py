"""Two tabs of one learner: what either did is there after."""

from __future__ import annotations

from typing import Any

from lessons.classroom.merge import merge


def state(step: str, locked: tuple[str, ...] = (), **questions: Any) -> dict[str, Any]:
    empty = {"given": None, "attempts": 0, "hints": 0, "judged": None}
    return {
        "lesson": "lab",
        "seed": 1,
        "step": step,
        "locked": sorted(locked),
        "questions": [
            {"step": "p", "question": name, **empty, **values} for name, values in questions.items()
        ],
    }


def worth(given: int, attempt: int) -> dict[str, Any]:
    return {"given": given, "attempt": attempt, "right": True, "points": 1, "wrong": None}


def test_each_tab_answered_another_question() -> None:
    here = state("p", a={"given": 1, "attempts": 1, "judged": worth(1, 1)})
    mine = state("q", b={"given": 2, "attempts": 3, "hints": 1})
    both = merge(here, mine)
    assert both["step"] == "q"
    assert {each["question"]: each["given"] for each in both["questions"]} == {"a": 1, "b": 2}
    assert merge(both, both) == both


def test_the_later_attempt_is_the_answer_and_hints_stay_open() -> None:
    later = {"given": 5, "attempts": 4, "judged": worth(5, 4)}
    sooner = {"given": 3, "attempts": 2, "hints": 2}
    for here, mine in ((later, sooner), (sooner, later)):
        (found,) = merge(state("p", a=here), state("p", a=mine))["questions"]
        assert (found["given"], found["attempts"], found["hints"]) == (5, 4, 2)
        assert found["judged"] == worth(5, 4)


def test_a_locked_prediction_stays_what_it_was() -> None:
    here = state("p", ("p",), a={"given": 1, "attempts": 1})
    mine = state("q", ("p",), a={"given": 2, "attempts": 7, "judged": worth(2, 7)})
    both = merge(here, mine)
    (found,) = both["questions"]
    assert (found["given"], found["judged"], both["locked"]) == (1, None, ["p"])


def test_what_was_judged_in_one_tab_is_judged() -> None:
    here = state("p", ("p",), a={"given": 1, "attempts": 1, "judged": worth(1, 1)})
    mine = state("p", ("p",), a={"given": 1, "attempts": 1})
    for one, other in ((here, mine), (mine, here)):
        assert merge(one, other)["questions"][0]["judged"] == worth(1, 1)
