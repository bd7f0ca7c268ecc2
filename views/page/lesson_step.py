"""One step of a lesson, drawn: its text, its questions with their verdicts, what comes next.

Texts are Markdown without HTML. Values that were read from the log are dressed, and names of boxes,
requests, blocks and moments are links that the workspace catches (`assets/page/lesson.js`).
"""

from __future__ import annotations

import threading
from typing import Any

import streamlit as st

from engine.async_llm import AsyncLLM
from lessons.expressions import Scope, Template
from lessons.format import SHOWN_BY, Lesson, address_of
from lessons.grading import Given, Verdict, model_answer
from lessons.play import Asked, Player
from lessons.questions import (
    BoxQuestion,
    ChangeQuestion,
    ChoiceQuestion,
    MomentQuestion,
    NumberQuestion,
)
from lessons.runs import Run
from lessons.stage import config_of
from lessons.text import render, words
from views.page import lesson_change, lesson_wait, lookup
from views.page.guard import guarded
from views.page.words import plain

Labels = dict[str, str]


def draw(player: Player, llm: AsyncLLM, labels: Labels, bringing: threading.Lock) -> None:
    """Draw the step at which the player is; the engine has done what it needs.

    `bringing` is held while a lesson has the engine run.
    """
    step, scope = player.step, player.first_scope()
    if player.is_broken:
        st.warning(
            "**This engine is broken on purpose.** What it does is not what vLLM does; with its "
            "next reset it is sound again.",
            icon=":material/build:",
        )
    if player.index == 0:
        _case(player.lesson)
    st.markdown(_text(step.text, scope, labels))
    if step.look is not None:
        with st.container(key="gb-lesson-look"):
            st.markdown(f":material/visibility: {_text(step.look, scope, labels)}")
    if step.focus.claim is not None:
        st.caption(lookup.claim_links(step.focus.claim, labels))
    if player.waits:
        lesson_wait.draw(player, llm)
        return
    if step.seen is not None:
        st.markdown(_text(step.seen, player.scope(), labels))
    predicted = list(player.predictions())
    for asked in predicted:
        if len(predicted) > 1:
            st.caption(_text(asked.question.ask, player.scope(), labels))
        _outcome(player, asked, labels)
    if step.kind == "predict":
        _predictions(player, labels)
        return
    if step.kind == "recall":
        st.caption("Two questions on what came before. They give no points.")
    elif step.self_check:
        st.caption("A check for yourself. It gives no points.")
    for question in step.questions:
        _question(player, llm, Asked(step, question), labels, bringing)


def _case(lesson: Lesson) -> None:
    """Say where a symptom was reported, and what it is that shows it here."""
    if lesson.threads:
        links = [f"[{plain(thread)}]({address_of(thread)})" for thread in lesson.threads]
        st.markdown(f"Reported in public: {', '.join(links)}")
    if lesson.shown_by is not None:
        st.caption(SHOWN_BY[lesson.shown_by])


def announcement(player: Player, llm: AsyncLLM) -> str:
    """Return what going on will do to the engine, as Markdown; nothing where it does nothing."""
    missing = player.missing(llm, player.index + 1)
    resets = [number for number in missing if player.resets(number)]
    run = player.lesson.steps[player.index + 1].run
    until = None if run is None else run.until
    if resets:
        begun = player.lesson.steps[resets[-1]].run
        assert begun is not None
        if begun.restore is not None:
            return (
                ":material/history: **Next brings your engine back** to the moment that was saved "
                f"in the step *{plain(_saved_in(player.lesson, begun.restore))}*: its requests and "
                "log end, and it goes on from there."
            )
        return (
            ":material/restart_alt: **Next resets your engine**: its requests and log end, and it "
            f"begins anew with {_settings(player, begun)}."
        )
    if not missing or until is None:
        return ""
    return f"Next runs your engine {lesson_wait.described(until)}."


def _saved_in(lesson: Lesson, name: str) -> str:
    return next(step.title for step in lesson.steps if step.run and step.run.save == name)


def _settings(player: Player, run: Run) -> str:
    changed = config_of(run, player.scope()).model_dump(exclude_defaults=True)
    shown = {name: _setting(value) for name, value in changed.items()}
    named = ", ".join(f"`{name} {value}`" for name, value in shown.items())
    return f"{named} (the rest as at first)" if named else "its first settings"


def _setting(value: Any) -> str:
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def box_question(player: Player) -> Asked | None:
    """Return the step's question for a box that still waits for the right one."""
    return _open_question(player, BoxQuestion)


def moment_question(player: Player) -> Asked | None:
    """The same of a moment."""
    return _open_question(player, MomentQuestion)


def _open_question(player: Player, kind: type[BoxQuestion | MomentQuestion]) -> Asked | None:
    for question in () if player.waits else player.step.questions:
        asked = Asked(player.step, question)
        if isinstance(question, kind) and asked.step.id not in player.locked:
            verdict = player.verdict(asked)
            if verdict is None or not verdict.right:
                return asked
    return None


def fill(player: Player, asked: Asked, given: str | int) -> None:
    """Put an answer into a question's field; it is given when its button is pressed."""
    st.session_state[_key(player, asked)] = given


# -- texts --------------------------------------------------------------------------------------


def _text(template: Template, scope: Scope, labels: Labels) -> str:
    return render(template, scope, labels, lambda found: f":primary[**{found or 'nothing yet'}**]")


def _says(player: Player, asked: Asked, verdict: Verdict, labels: Labels) -> str:
    """Return a verdict's message, with a link to the moment that shows it."""
    scope = player.judged_scope(asked)
    said = _text(verdict.says, scope, labels)
    points, cost = asked.question.points, player.hint_cost(asked)
    if player.counts(asked) and (points > 1 or cost):
        got, less = max(0, verdict.points - cost), f", {cost} less for hints" if cost else ""
        said = f"**{got} of {points} points**{less}. {said}"
    gives_away = isinstance(asked.question, MomentQuestion) and not verdict.right
    if asked.question.evidence is None or gives_away:
        return said
    seq = asked.question.evidence.whole(scope)
    link = Template.parse(f"[[moment {seq}|Show that moment]]")
    return f"{said}  \n{_text(link, scope, labels)} (record {seq} of the log)"


# -- questions ----------------------------------------------------------------------------------


def _question(
    player: Player, llm: AsyncLLM, asked: Asked, labels: Labels, bringing: threading.Lock
) -> None:
    key = _key(player, asked)
    with st.form(f"{key}-form", enter_to_submit=True):
        if isinstance(asked.question, ChangeQuestion):
            lesson_change.fields(player, asked, _text(asked.question.ask, player.scope(), labels))
            lesson_change.button(player, llm, asked, bringing)
        else:
            _field(player, asked, labels)
            st.form_submit_button("Answer", on_click=_answer, args=(player, asked))
    if isinstance(asked.question, MomentQuestion):
        _this_one(player, asked)
    trouble = lesson_change.trouble(player, asked)
    if trouble:
        st.error(plain(trouble))
    verdict = player.verdict(asked)
    if verdict is not None:
        draw_it = st.success if verdict.right else st.warning
        draw_it(_says(player, asked, verdict, labels))
    if verdict is None or not verdict.right:
        _hints(player, asked, labels)


def _this_one(player: Player, asked: Asked) -> None:
    """Draw the button that takes the record at the cursor; the workspace tells which it is."""
    if moment_question(player) == asked:
        st.button(
            "This one: the moment at the cursor",
            key="gb-lesson-mark",
            icon=":material/my_location:",
            help="Step the log, or click an event, until the page shows the moment you mean.",
        )


def _field(player: Player, asked: Asked, labels: Labels, disabled: bool = False) -> None:
    question, scope = asked.question, player.scope()
    ask, key = _text(question.ask, scope, labels), _key(player, asked)
    given: Any = player.answers.get(asked.key)
    match question:
        case NumberQuestion():
            unit = question.unit or "a number"
            st.number_input(ask, value=given, step=1, key=key, placeholder=unit, disabled=disabled)
        case MomentQuestion():
            if given is not None:
                st.session_state.setdefault(key, given)
            say = "the number of a record"
            st.number_input(ask, 0, None, None, 1, key=key, placeholder=say, disabled=disabled)
        case BoxQuestion():
            if given in labels:
                st.session_state.setdefault(key, given)
            say, shown = "Click a box, or choose", labels.__getitem__
            st.selectbox(ask, list(labels), None, shown, key, placeholder=say, disabled=disabled)
        case ChoiceQuestion():
            texts = [_text(option.text, scope, labels) for option in question.options]
            order = player.option_order(asked)
            index = order.index(given) if given in order else None
            own = None if disabled else key  # a locked one is another: this one would lose its mark
            st.radio(ask, order, index, texts.__getitem__, own, disabled=disabled)


def _hints(player: Player, asked: Asked, labels: Labels) -> None:
    hints = asked.question.hints
    opened = player.hints.get(asked.key, 0)
    for number, hint in enumerate(hints[:opened], 1):
        st.caption(f"Hint {number}: {_text(hint, player.scope(), labels)}")
    if opened < len(hints):
        st.button(
            f"Hint {opened + 1} of {len(hints)}",
            key=f"{_key(player, asked)}-hint",
            type="tertiary",
            icon=":material/lightbulb:",
            on_click=_open_hint,
            args=(player, asked),
        )


# -- predictions --------------------------------------------------------------------------------


def _predictions(player: Player, labels: Labels) -> None:
    """One form for all of them: they are locked together, before the engine runs."""
    every = [Asked(player.step, question) for question in player.step.questions]
    locked = not player.waits_for_predictions
    with st.form(f"gb-predict-{player.lesson.id}-{player.seed}-{player.step.id}"):
        for asked in every:
            _field(player, asked, labels, disabled=locked)
        st.form_submit_button(
            "Lock my predictions",
            icon=":material/lock:",
            type="primary",
            disabled=locked,
            on_click=_lock,
            args=(player, every),
        )
    if locked:
        st.caption("Your predictions are locked. The engine will show how it is.")
        return
    if any(player.attempts.get(asked.key) for asked in every):
        st.warning("Fill in every prediction before you lock them.")
    for number, asked in enumerate(every, 1):
        st.markdown(f"Stuck with prediction {number}?")
        _hints(player, asked, labels)


def _outcome(player: Player, asked: Asked, labels: Labels) -> None:
    """Draw what was predicted beside what the engine did."""
    verdict = player.verdict(asked)
    if verdict is None:
        return
    given = player.answers[asked.key]
    truth = model_answer(asked.question, player.scope(player.judged_at(asked)))
    if isinstance(asked.question, ChoiceQuestion):
        text = asked.question.options[int(given)].text  # type: ignore[arg-type]
        st.markdown(f"You predicted: *{_text(text, player.scope(), labels)}*")
    else:
        unit = asked.question.unit if isinstance(asked.question, NumberQuestion) else ""
        yours, engines = st.columns(2)
        yours.metric("You predicted", f"{_shown(given, labels)} {_of(given, unit)}".strip())
        engines.metric("The engine took", f"{_shown(truth, labels)} {_of(truth, unit)}".strip())
    draw_it = st.success if verdict.right else st.warning
    draw_it(_says(player, asked, verdict, labels))


def _of(given: Given, unit: str) -> str:
    """Return the unit, which lessons name in the plural."""
    if given != 1:
        return unit
    return f"{unit[:-3]}y" if unit.endswith("ies") else unit.removesuffix("s")


def _shown(given: Given, labels: Labels) -> str:
    if isinstance(given, dict):
        return "your settings"
    return labels.get(given, given) if isinstance(given, str) else words(given)


# -- clicks -------------------------------------------------------------------------------------


def _key(player: Player, asked: Asked) -> str:
    return f"gb-q-{player.lesson.id}-{player.seed}-{asked.step.id}-{asked.question.id}"


@guarded
def _answer(player: Player, asked: Asked) -> None:
    given = st.session_state.get(_key(player, asked))
    if isinstance(given, int | float | str):
        player.answer(asked, given)


@guarded
def _lock(player: Player, every: list[Asked]) -> None:
    for asked in every:
        _answer(player, asked)
    player.lock()


@guarded
def _open_hint(player: Player, asked: Asked) -> None:
    player.hints[asked.key] = player.hints.get(asked.key, 0) + 1
