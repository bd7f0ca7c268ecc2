"""A pack of exercises: lessons, and whose numbers are which, in one file that needs no network.

A learner's numbers follow from their name and the lesson alone (`seed_for`), so whoever makes a
pack of a list of names knows what each will get, on any machine. What the engine answers to each of
these exercises stands in it as a digest: the same pack elsewhere, played again, must come to the
same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.async_llm import AsyncLLM
from engine.source_sites import source_version
from lessons.classroom.names import NameRefused, clean_name, numbered, sort_name
from lessons.format import Lesson
from lessons.grading import model_answer
from lessons.loader import LessonError, load
from lessons.play import Player
from lessons.rules import KINDS
from lessons.variants import seed_of

KIND = "glassbox exercises"
VERSION = 1
MOST_BYTES = 8 << 20
MOST_NAMES = 1_000
_FILE = re.compile(rf"(?:{'|'.join(KINDS.values())})/[a-z0-9][a-z0-9-]*\.md")


class PackError(ValueError):
    """What is no pack, or cannot become one; the message says why and what helps."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class PackedLesson(_Part):
    """A lesson's file."""

    file: str = Field(pattern=f"^{_FILE.pattern}$", max_length=100)
    text: str


class PackedLearner(_Part):
    """A learner, and the seed of each lesson."""

    name: str
    seeds: dict[str, int]


class Pack(_Part):
    """A pack as its file has it."""

    kind: str
    version: int
    engine_version: str
    model: str
    lessons: list[PackedLesson] = Field(min_length=1)
    learners: list[PackedLearner] = Field(min_length=1)
    answers: dict[str, str]  # by lesson and seed: the digest of what the engine answers

    def to_json(self) -> str:
        """The file's text: the same pack is the same text."""
        return json.dumps(self.model_dump(), ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def seed_for(name: str, lesson: str, turn: int = 0) -> int:
    """The seed that a learner of this name gets, when they begin the lesson for the first time."""
    return seed_of(f"name {sort_name(name)}", lesson, turn)


def make(paths: list[Path], names: Iterable[str], llm: AsyncLLM) -> Pack:
    """A pack of these lessons for these names. Raises LessonError and PackError.

    Of two names that look alike the second gets a number, as it does in a class.
    """
    lessons = [(path, load(path)) for path in dict.fromkeys(paths)]
    learners = [
        PackedLearner(
            name=name, seeds={lesson.id: seed_for(name, lesson.id) for _, lesson in lessons}
        )
        for name in _told_apart(names)
    ]
    answers = {
        _key(lesson.id, seed): answers_of(lesson, seed, llm)
        for _, lesson in lessons
        for seed in sorted({learner.seeds[lesson.id] for learner in learners})
    }
    return Pack(
        kind=KIND,
        version=VERSION,
        engine_version=source_version(),
        model=llm.model.name,
        lessons=[
            PackedLesson(file=f"{KINDS[lesson.kind]}/{lesson.id}.md", text=path.read_text("utf-8"))
            for path, lesson in lessons
        ],
        learners=learners,
        answers=answers,
    )


def read(content: bytes) -> Pack:
    """A pack's file, read with distrust. Raises PackError."""
    if len(content) > MOST_BYTES:
        raise PackError(f"the file is larger than {MOST_BYTES >> 20} MB")
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise PackError("the file is not JSON: take the one that `lessons pack` wrote") from None
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise PackError("kind: this is no pack: take the file that `lessons pack` wrote")
    if value.get("version") != VERSION:
        raise PackError(f"version: {value.get('version')!r:.20}; this one reads {VERSION}")
    try:
        return Pack.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise PackError(f"{where}: {first['msg']}; make the pack anew") from None


def unpack(pack: Pack, folder: Path) -> list[Path]:
    """Write the lessons into a folder, as `GLASSBOX_LESSONS` takes it. Raises OSError."""
    paths = []
    for lesson in pack.lessons:
        path = folder / lesson.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lesson.text, encoding="utf-8")
        paths.append(path)
    return paths


def problems(
    pack: Pack, folder: Path, llm: AsyncLLM, said: Callable[[str], None] = lambda _: None
) -> list[str]:
    """All that does not come out as the pack says; its lessons are written to `folder` for that.

    `said` is told what was played.
    """
    try:
        lessons = {lesson.id: lesson for lesson in map(load, unpack(pack, folder))}
    except LessonError as error:
        return [str(problem) for problem in error.problems]
    found = []
    for learner in pack.learners:
        for lesson_id in lessons:
            told, right = learner.seeds.get(lesson_id), seed_for(learner.name, lesson_id)
            if told != right:
                found.append(f"{learner.name}, {lesson_id}: the seed is {right}, not {told}")
    for lesson in lessons.values():
        seeds = sorted({learner.seeds.get(lesson.id, 0) for learner in pack.learners} - {0})
        for seed in seeds:
            if pack.answers.get(_key(lesson.id, seed)) != answers_of(lesson, seed, llm):
                found.append(f"{lesson.id}, seed {seed}: the engine answers otherwise here")
        said(f"{lesson.id}: {len(seeds)} variants played")
    return found


def answers_of(lesson: Lesson, seed: int, llm: AsyncLLM) -> str:
    """The digest of what the engine answers to the questions of a lesson's variant."""
    player = Player(lesson, seed)
    for index in range(len(lesson.steps)):
        player.index = index
        player.bring(llm)
        player.look(llm, run_there=True)
    answers = []
    for asked in player.questions():
        right = model_answer(asked.question, player.scope(player.judged_at(asked)))
        answers.append([*asked.key, right])
    return hashlib.sha256(json.dumps(answers).encode()).hexdigest()


def _key(lesson: str, seed: int) -> str:
    return f"{lesson} {seed}"


def _told_apart(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    taken: set[str] = set()
    for line, written in enumerate(names, start=1):
        if not written.strip():
            continue
        try:
            name = clean_name(written)
        except NameRefused as error:
            raise PackError(f"name {line}: {error}") from None
        if len(found) == MOST_NAMES:
            raise PackError(f"name {line}: a pack has at most {MOST_NAMES:,} learners")
        numbers = (numbered(name, number) for number in range(1, MOST_NAMES + 2))
        name = next(each for each in numbers if sort_name(each) not in taken)
        taken.add(sort_name(name))
        found.append(name)
    if not found:
        raise PackError("there is no name; write one a line")
    return found
