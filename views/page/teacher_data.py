"""A class's data: exports, a learner's file read back, new personal codes, and what is deleted."""

from __future__ import annotations

import logging

import streamlit as st

from lessons.classroom.export import MOST_BYTES, WorkError, as_csv, as_json, read_work
from lessons.classroom.register import ClassInfo, LearnerInfo, RegisterError, Rule
from lessons.classroom.school import School
from lessons.classroom.standing import ClassWork, work_of
from views.page import teacher_door
from views.page.class_place import isolated
from views.page.teacher_class import table
from views.page.teacher_door import for_teacher
from views.page.words import plain, sentence

_NEW_CODE = "gb-teacher-new-code"
_MOST_ROWS = 200


class _PassEnded(RegisterError):
    """An export was asked for without a good pass."""


def _told_in_a_line(record: logging.LogRecord) -> bool:
    """Let Streamlit log a refused export as what it is, not as a program's fault."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and isinstance(error.__cause__, _PassEnded):
        record.msg, record.args = f"No export was made: {error.__cause__}.", ()
        record.exc_info, record.levelno, record.levelname = None, logging.INFO, "INFO"
    return True


# Streamlit makes a file for a download outside of any run, and logs whatever is raised in full.
logging.getLogger("streamlit.runtime.backend_operation_handler").addFilter(_told_in_a_line)


def data(found: School, room: ClassInfo) -> None:
    """Draw what can be taken out, read, and deleted."""
    learners = found.register.learners(room.id)
    _exports(found, room)
    _read_back(found)
    st.subheader("A learner", anchor=False)
    if learners:
        _learner(found, learners)
    else:
        st.markdown("Nobody has joined yet.")
    st.subheader("The class", anchor=False)
    takes = room.takes_learners
    st.button(
        "Take nobody in any more" if takes else "Take learners in again",
        key="gb-teacher-takes",
        on_click=for_teacher,
        args=(found.register.take_learners, room.id, not takes),
    )
    sure = st.checkbox("Delete this class, its learners and all their answers", key="gb-sure-class")
    st.button(
        "Delete the class",
        key="gb-delete-class",
        disabled=not sure,
        on_click=for_teacher,
        args=(found.delete_class, room.id),
    )


def _exports(found: School, room: ClassInfo) -> None:
    """Draw what downloads everything, as it is when that is asked for: learners go on meanwhile."""
    register, is_good = found.register, found.passes.while_good(teacher_door.shown())

    def class_now() -> tuple[list[LearnerInfo], ClassWork, dict[str, Rule]]:
        if not is_good():
            raise _PassEnded(teacher_door.ENDED)
        return (
            register.learners(room.id),
            work_of(register.database, room.id),
            register.rules(room.id),
        )

    st.subheader("Export", anchor=False)
    # Without a run of the page's after the click: it would delete the file that the click had made.
    with st.container(horizontal=True):
        st.download_button(
            "All answers, as a table (CSV)",
            lambda: as_csv(*class_now()),
            f"glassbox-{room.code}.csv",
            "text/csv",
            on_click="ignore",
            key="gb-export-csv",
        )
        st.download_button(
            "Everything, as data (JSON)",
            lambda: as_json(room, *class_now()),
            f"glassbox-{room.code}.json",
            "application/json",
            on_click="ignore",
            key="gb-export-json",
        )
    st.caption(
        "A row is an answer: learner, lesson, seed, digest of the lesson's file, version of the "
        "engine, points. A cell that a spreadsheet would take for a formula begins with an "
        "apostrophe."
    )


def _read_back(found: School) -> None:
    st.subheader("Read a learner's file", anchor=False)
    uploaded = st.file_uploader(
        "What a learner saved with “Save my work”", ["json"], max_upload_size=MOST_BYTES >> 20
    )
    if uploaded is None:
        return
    try:
        work = read_work(uploaded.getvalue(), found.seal_key)
    except WorkError as error:
        st.error(plain(sentence(f"{uploaded.name[:80]}: {error}")))
        return
    points = sum(row["points"] for row in work.attempts if row["right"])
    st.markdown(
        f"**{isolated(work.learner)}** in {isolated(work.class_title)}, {plain(work.written)}"
    )
    if work.is_sealed:
        st.success("The file is as this server wrote it.")
    else:
        st.warning("The file was changed, or another server wrote it.")
    table(
        ("Lesson", "Question", "Attempt", "Answer", "Right", "Points"),
        [
            (
                plain(row["lesson"]),
                plain(row["question"]),
                str(row["attempt"]),
                plain(row["answer"]),
                "yes" if row["right"] else "no",
                f"{row['points']} of {row['of']}",
            )
            for row in work.attempts[:_MOST_ROWS]
        ],
    )
    left = max(0, len(work.attempts) - _MOST_ROWS)
    st.caption(f"{len(work.attempts)} answers, {points} points in right ones. {left} not shown.")


def _learner(found: School, learners: list[LearnerInfo]) -> None:
    names = {learner.id: learner.name for learner in learners}
    chosen = st.selectbox(
        "Learner", list(names), key="gb-teacher-learner", format_func=names.__getitem__
    )
    if chosen is None:
        return
    if st.button("Give a new personal code", key="gb-teacher-code"):
        for_teacher(_give_code, found, chosen)
    given = st.session_state.get(_NEW_CODE)
    if given is not None and given[0] == chosen:
        st.markdown("The old one is good no more. The learner writes this under *Class*:")
        st.code(given[1], language=None, wrap_lines=True)
    sure = st.checkbox("Delete this learner and all their answers", key=f"gb-sure-{chosen}")
    st.button(
        "Delete the learner",
        key="gb-delete-learner",
        disabled=not sure,
        on_click=for_teacher,
        args=(found.register.delete_learner, chosen),
    )


def _give_code(found: School, learner_id: int) -> None:
    st.session_state[_NEW_CODE] = (learner_id, found.register.new_secret(learner_id))
