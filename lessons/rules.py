"""What a lesson must keep to that none of its fields can know by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lessons.format import Lesson, Place, expressions

KINDS = {"tour": "tours", "lab": "labs"}  # and the folder of their files

Broken = tuple[Place, str]  # where, and what is wrong


def broken_rules(lesson: Lesson, path: Path) -> list[Broken]:
    """All that does not go together in a lesson."""
    found = [*_wrong_names(lesson), *_wrong_steps(lesson), *_wrong_place(path, lesson)]
    found += _wrong_predictions(lesson)
    if lesson.kind == "lab":
        found += _wrong_lab(lesson)
    return found


def _wrong_names(lesson: Lesson) -> Iterator[Broken]:
    """Expressions that ask for values which there are not."""
    known = list(lesson.variant)
    for place, expression in expressions(lesson):
        there = set(known) | ({"given"} if "questions" in place else set())
        if place[0] == "variant":
            there = set(known[: known.index(str(place[1]))])  # those above it
        for name in sorted(expression.names - there):
            listed = ", ".join(sorted(there)) or "none"
            yield place, f"`{expression.text}`: there is no value `{name}` here; there are {listed}"


def _wrong_steps(lesson: Lesson) -> Iterator[Broken]:
    seen: set[str] = set()
    began = False
    for number, step in enumerate(lesson.steps):
        here: Place = ("steps", number)
        if step.id in seen:
            yield (*here, "id"), f"a second step `{step.id}`; rename one of them"
        seen.add(step.id)
        asked = [question.id for question in step.questions]
        if len(set(asked)) < len(asked):
            yield (*here, "questions"), "two questions with one id; rename one of them"
        if step.run is None:
            continue
        if number == 0:
            yield (*here, "run"), "the first step cannot run the engine: say first what will happen"
        if not began and not step.run.reset:
            yield (*here, "run"), "the first run must begin with reset: true"
        began = True


def _wrong_place(path: Path, lesson: Lesson) -> Iterator[Broken]:
    if path.parent.name in KINDS.values() and path.parent.name != KINDS[lesson.kind]:
        yield ("kind",), f"a {lesson.kind} belongs in the folder {KINDS[lesson.kind]}"
    if lesson.id != path.stem:
        yield ("id",), f"the id must be the file's name: {path.stem}"


def _wrong_lab(lesson: Lesson) -> Iterator[Broken]:
    """A lab predicts, compares and explains, and helps in three levels."""
    kinds = [step.kind for step in lesson.steps if step.kind != "read"]
    order = [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]
    if order != ["predict", "compare", "explain"]:
        yield (
            ("steps",),
            "a lab has steps of kind predict, compare and explain, in this order",
        )
    for number, step in enumerate(lesson.steps):
        for at, question in enumerate(step.questions):
            if not question.hints:
                message = f"question `{question.id}` of a lab needs hints in three levels"
                yield ("steps", number, "questions", at), message


def _wrong_predictions(lesson: Lesson) -> Iterator[Broken]:
    """What is predicted must be compared later, and nothing else is."""
    for number, step in enumerate(lesson.steps):
        for at, question in enumerate(step.questions):
            here: Place = ("steps", number, "questions", at)
            if step.kind == "compare":
                yield here, f"a compare step asks nothing new; move question `{question.id}`"
            if step.kind != "predict":
                if question.compare_in is not None:
                    yield here, f"`{question.id}` is no prediction; take compare_in away"
                continue
            target = lesson.step(question.compare_in or "")
            if target is None or target <= number or lesson.steps[target].kind != "compare":
                yield (
                    here,
                    f"prediction `{question.id}` needs compare_in: the id of a later compare step",
                )
