"""What a lesson must keep to that none of its fields can know by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lessons.format import Lesson, expressions
from lessons.parts import Place
from lessons.questions import BoxQuestion, ChangeQuestion, ChoiceQuestion, MomentQuestion
from lessons.runs import Run

KINDS = {
    "tour": "tours",
    "lab": "labs",
    "clinic": "clinic",
    "hunt": "hunts",
}  # and the folder of their files

Broken = tuple[Place, str]  # where, and what is wrong


def broken_rules(lesson: Lesson, path: Path) -> list[Broken]:
    """All that does not go together in a lesson."""
    found = [*_wrong_names(lesson), *_wrong_steps(lesson), *_wrong_place(path, lesson)]
    found += [*_wrong_predictions(lesson), *_wrong_questions(lesson), *_wrong_saves(lesson)]
    if lesson.kind == "lab":
        found += _wrong_lab(lesson)
    elif lesson.kind in ("clinic", "hunt"):
        found += _wrong_case(lesson)
    elif lesson.number is not None:
        found += _wrong_end(lesson)
    return found


def _wrong_names(lesson: Lesson) -> Iterator[Broken]:
    """Expressions that ask for values which there are not."""
    known = list(lesson.variant)
    for place, expression in expressions(lesson):
        there = set(known) | _of_question(lesson, place)
        if place[0] == "variant":
            there = set(known[: known.index(str(place[1]))])  # those above it
        for name in sorted(expression.names - there):
            listed = ", ".join(sorted(there)) or "none"
            yield place, f"`{expression.text}`: there is no value `{name}` here; there are {listed}"


def _of_question(lesson: Lesson, place: Place) -> set[str]:
    """What the expressions of a question can see beside the variant."""
    match place:
        case ("steps", int(step), "questions", int(at), *_):
            question = lesson.steps[step].questions[at]
            return set(question.knobs) if isinstance(question, ChangeQuestion) else {"given"}
    return set()


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
        if step.seen is not None and (step.run is None or step.run.wait is None):
            yield (*here, "seen"), "`seen` is said when a `wait` is over; add one to the run"
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


ORDER = {  # of the steps of a lab; those of one rank may stand in any order
    "recall": 0,
    "predict": 1,
    "observe": 2,
    "compare": 2,
    "explain": 3,
    "change": 4,
    "fix": 5,
}
LEAST_KINDS = 3
RECALLED = 2


def _wrong_lab(lesson: Lesson) -> Iterator[Broken]:
    """A lab goes from predicting to mending, and helps in three levels."""
    ranks = [ORDER[step.kind] for step in lesson.steps if step.kind in ORDER]
    if ranks != sorted(ranks) or len(set(ranks)) < LEAST_KINDS:
        yield (
            ("steps",),
            "a lab has steps of at least three of these kinds, in this order: recall, predict, "
            "observe or compare, explain, change, fix",
        )
    for number, step in enumerate(lesson.steps):
        if step.kind == "recall" and len(step.questions) != RECALLED:
            yield ("steps", number), f"a step that recalls asks {RECALLED} questions"
        for at, question in enumerate(step.questions):
            if not question.hints and step.kind != "recall" and not step.self_check:
                message = f"question `{question.id}` of a lab needs hints in three levels"
                yield ("steps", number, "questions", at), message


MISTAKES = "Common mistakes"


def _wrong_end(lesson: Lesson) -> Iterator[Broken]:
    """A tour of the course has its learner check what stayed, and ends with common mistakes."""
    check = next((step for step in lesson.steps[-2:-1] if step.self_check), None)
    if check is None or not check.questions:
        yield (
            ("steps",),
            "a tour of the course has self_check: true in the step before its last one",
        )
    if lesson.steps[-1].title != MISTAKES:
        where: Place = ("steps", len(lesson.steps) - 1, "title")
        yield where, f"a tour of the course ends with a step `{MISTAKES}`"


def _wrong_case(lesson: Lesson) -> Iterator[Broken]:
    """A symptom or a defect is found on the map or in the log, and then made to go away."""
    asked = [question for step in lesson.steps for question in step.questions]
    if not any(isinstance(question, BoxQuestion | MomentQuestion) for question in asked):
        yield ("steps",), f"a {lesson.kind} asks for the box or the moment; add such a question"
    if not any(isinstance(question, ChangeQuestion) for question in asked):
        yield ("steps",), f"a {lesson.kind} has a knob that ends it; add a question of kind: change"
    if lesson.shown_by is None:
        yield ("kind",), "say in `shown_by` what shows it: engine, fault, card or simulated"
    faults = [step.run for step in lesson.steps if step.run is not None and step.run.fault]
    if bool(faults) != (lesson.shown_by in ("fault", "simulated")):
        yield ("shown_by",), "`shown_by: fault` or simulated goes with a run that has a fault"
    if lesson.kind == "clinic" and not lesson.threads:
        yield ("kind",), "name in `threads` where it was reported: ['#48803']"


def _wrong_questions(lesson: Lesson) -> Iterator[Broken]:
    """Knobs and points that do not fit their question."""
    for number, step in enumerate(lesson.steps):
        for at, question in enumerate(step.questions):
            here: Place = ("steps", number, "questions", at)
            wrongs = question.options if isinstance(question, ChoiceQuestion) else question.wrong
            for wrong in wrongs:
                if wrong.points and wrong.points >= question.points:
                    yield here, f"`{question.id}`: a wrong answer gets less than its points"
            if not isinstance(question, ChangeQuestion):
                continue
            if step.kind == "predict":
                yield here, f"`{question.id}` runs the engine: it cannot be a prediction"
            for name in question.knobs.keys() & lesson.variant.keys():
                yield here, f"knob `{name}` is a value of the variant as well; rename one of them"
            examples = [question.answer, *(wrong.knobs for wrong in question.wrong)]
            for name in dict.fromkeys(key for each in examples for key in each):
                if name not in question.knobs:
                    listed = ", ".join(question.knobs)
                    yield here, f"there is no knob `{name}`; there are {listed}"


def _wrong_saves(lesson: Lesson) -> Iterator[Broken]:
    """States that are saved twice, of a broken engine, or restored and not there."""
    saved: list[str] = []
    is_broken = False
    for number, step in enumerate(lesson.steps):
        here: Place = ("steps", number)
        if step.run is not None:
            yield from _wrong_restore(step.run, (*here, "run"), saved)
            is_broken = step.run.fault is not None or is_broken and not step.run.begins_anew
            if step.run.save is not None:
                where: Place = (*here, "run", "save")
                if step.run.save in saved:
                    yield where, f"`{step.run.save}` is saved twice; give one of them another name"
                if is_broken:
                    yield where, "this engine is broken, and a restored one is sound; save another"
                saved.append(step.run.save)
        for at, question in enumerate(step.questions):
            if isinstance(question, ChangeQuestion):
                yield from _wrong_restore(question.run, (*here, "questions", at, "run"), saved)


def _wrong_restore(run: Run, place: Place, saved: list[str]) -> Iterator[Broken]:
    if run.restore is not None and run.restore not in saved:
        there = f"there are {', '.join(saved)}" if saved else "save one with `save` in a run"
        yield (
            (*place, "restore"),
            f"nothing was saved as `{run.restore}` in a step before; {there}",
        )


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
