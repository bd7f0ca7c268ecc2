"""Read lessons: front matter and body of a Markdown file, with the line of everything wrong in it.

---
id: count-the-blocks
...
steps:
  - id: intro
    title: ...
---
## intro
The text of this step.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from lessons.format import Lesson
from lessons.parts import Place
from lessons.rules import KINDS, broken_rules

FOLDER = Path(__file__).parent
_SECTION = re.compile(r"^## +(\S+) *$")
_FENCE = "---"
_TRUTH = "tag:yaml.org,2002:bool"
_IS_TRUTH = re.compile("(?:true|True|TRUE|false|False|FALSE)$")


class Problem(NamedTuple):
    """Something wrong in a file: where, what, and how to mend it."""

    file: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class LessonError(ValueError):
    """A file that is no lesson; `problems` has each thing that is wrong with it."""

    def __init__(self, problems: list[Problem]):
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Section(NamedTuple):
    """A step's text, and the line at which it begins."""

    text: str
    line: int


@dataclass
class Source:
    """A file taken apart: its front matter as values and lines, and its sections."""

    path: Path
    text: str
    values: dict[str, Any]
    lines: dict[Place, int] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """The line of a place, or of what it lies in; names that stand in no file are skipped."""
        known: Place = ()
        for part in place:
            if (*known, part) in self.lines:
                known = (*known, part)
        return self.lines.get(known, 1)

    def line_of_text(self, place: Place, words: str) -> int:
        """The line of these words in a text that may run over several lines."""
        first = self.line(place)
        lines = self.text.split("\n")
        after = min((line for line in self.lines.values() if line > first), default=len(lines))
        lines = lines[first - 1 : max(after - 1, first)]
        return first + next((n for n, line in enumerate(lines) if words in line), 0)

    def fail(self, place: Place, message: str) -> LessonError:
        """One thing that is wrong."""
        return LessonError([Problem(self.path, self.line(place), message)])


def lesson_files(folder: Path | None = None) -> list[Path]:
    """The files of all lessons, in the order in which they are listed.

    They lie in the folder that GLASSBOX_LESSONS names, or else with the project.
    """
    named = os.environ.get("GLASSBOX_LESSONS", "").strip()
    folder = folder or (Path(named).expanduser() if named else FOLDER)
    return [path for name in KINDS.values() for path in sorted((folder / name).glob("*.md"))]


def in_order(lessons: list[Lesson]) -> list[Lesson]:
    """Tours before labs, those with a number in its order, and the others after them."""
    kinds = list(KINDS)
    return sorted(lessons, key=lambda it: (kinds.index(it.kind), it.number or math.inf, it.id))


def same_place(lessons: list[Lesson]) -> list[str]:
    """What is to be said of lessons that have one id, or that have one number in their kind."""
    found = []
    for one, other in pairwise(sorted(lessons, key=lambda it: it.id)):
        if one.id == other.id:
            which = f"{KINDS[one.kind]}/{one.id}.md and {KINDS[other.kind]}/{other.id}.md"
            found.append(f"{which} have one id; rename one of them")
    for one, other in pairwise(in_order(lessons)):
        if one.number is not None and (one.kind, one.number) == (other.kind, other.number):
            which = f"{KINDS[one.kind]}/{one.id}.md and {KINDS[one.kind]}/{other.id}.md"
            found.append(f"{which} have both the number {one.number}; change one of them")
    return found


def load_each(paths: list[Path]) -> tuple[list[Lesson], list[LessonError]]:
    """The lessons among these files, and what is wrong with the others."""
    found: list[Lesson] = []
    errors: list[LessonError] = []
    for path in paths:
        try:
            found.append(load(path))
        except LessonError as error:
            errors.append(error)
    return found, errors


def load(path: Path) -> Lesson:
    """Read one file; raises LessonError."""
    text = _text_of(path)
    try:
        source = take_apart(path, text)
    except RecursionError:
        message = "the front matter is nested too deeply, or a part of it contains itself"
        raise LessonError([Problem(path, 1, message)]) from None
    lesson = _validate(source, _with_texts(source))
    found = broken_rules(lesson, path)
    if found:
        raise LessonError([_at(source, place, message) for place, message in found])
    return lesson


def read_front(path: Path) -> Source:
    """A file that is a front matter and nothing else; raises LessonError."""
    lines = _text_of(path).split("\n")
    if lines[0].rstrip() != _FENCE:
        raise LessonError([Problem(path, 1, f"begin the file with a line {_FENCE}")])
    return _front_matter(path, "\n".join(lines), "\n".join(lines[1:]))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LessonError([Problem(path, 1, f"cannot be read: {error}")]) from None


# -- the file ----------------------------------------------------------------------------------


def take_apart(path: Path, text: str) -> Source:
    """Front matter and sections of a file's text."""
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise LessonError([Problem(path, 1, f"begin the file with a line {_FENCE}")])
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise LessonError([Problem(path, 1, f"close the front matter with a line {_FENCE}")])
    source = _front_matter(path, text, "\n".join(lines[1:end]))
    source.sections = dict(_sections(path, lines, end + 1))
    return source


class _Loader(yaml.SafeLoader):
    """Reads `on`, `off`, `yes` and `no` as the words that they are, as YAML 1.2 does."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TRUTH]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_TRUTH, _IS_TRUTH, [*"tTfF"])


def _front_matter(path: Path, text: str, front: str) -> Source:
    loader = _Loader(front)
    try:
        node = loader.get_single_node()
        values = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        raise LessonError([Problem(path, line, f"not YAML: {error.problem}; {_HINT}")]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise LessonError([Problem(path, 1, f"not YAML: {error}")]) from None
    finally:
        loader.dispose()
    if not isinstance(values, dict):
        raise LessonError([Problem(path, 2, "the front matter must be fields: `id: ...`")])
    source = Source(path, text, values)
    for place, line in _lines_of(node, ()):
        if place in source.lines:
            raise LessonError([Problem(path, line, f"`{place[-1]}` stands here twice; remove one")])
        source.lines[place] = line
    return source


_HINT = "a text with `: `, ` #`, or that begins with one of {[&*!|>'\"%@` needs quotes"


def _lines_of(node: yaml.Node | None, place: Place) -> Iterator[tuple[Place, int]]:
    """The line of every key and item; the front matter begins in the file's second line."""
    match node:
        case yaml.MappingNode(value=pairs):
            for key, value in pairs:
                here = (*place, str(key.value))
                yield here, key.start_mark.line + 2
                yield from _lines_of(value, here)
        case yaml.SequenceNode(value=items):
            for number, item in enumerate(items):
                here = (*place, number)
                yield here, item.start_mark.line + 2
                yield from _lines_of(item, here)


def _sections(path: Path, lines: list[str], start: int) -> Iterator[tuple[str, Section]]:
    heads = [(n, found[1]) for n in range(start, len(lines)) if (found := _SECTION.match(lines[n]))]
    first = heads[0][0] if heads else len(lines)
    stray = next((n for n in range(start, first) if lines[n].strip()), None)
    if stray is not None:
        message = "text before the first section; begin each with `## ` and the id of its step"
        raise LessonError([Problem(path, stray + 1, message)])
    seen: set[str] = set()
    for (number, name), (end, _) in pairwise([*heads, (len(lines), "")]):
        if name in seen:
            raise LessonError([Problem(path, number + 1, f"a second section `{name}`; join them")])
        seen.add(name)
        yield name, Section("\n".join(lines[number + 1 : end]).strip(), number + 1)


# -- the lesson --------------------------------------------------------------------------------


def _with_texts(source: Source) -> dict[str, Any]:
    """The front matter, with each step's section as its text."""
    values = dict(source.values)
    steps = values.get("steps")
    if not isinstance(steps, list):
        raise source.fail(("steps",), "`steps` must be a list with an item for each step")
    left = dict(source.sections)
    values["steps"] = [_with_text(source, n, step, left) for n, step in enumerate(steps)]
    if left:
        name, section = next(iter(left.items()))
        message = f"section `{name}` belongs to no step; give a step this id, or remove it"
        raise LessonError([Problem(source.path, section.line, message)])
    return values


def _with_text(source: Source, number: int, step: Any, left: dict[str, Section]) -> Any:
    if not isinstance(step, dict) or not isinstance(step.get("id"), str):
        raise source.fail(("steps", number), "a step begins with `id: ...`")
    if "text" in step:
        message = f"a step's text stands in the body, under `## {step['id']}`; move it there"
        raise source.fail(("steps", number, "text"), message)
    section = left.pop(step["id"], None)
    if section is None:
        message = f"step `{step['id']}` has no text; write a section `## {step['id']}`"
        raise source.fail(("steps", number, "id"), message)
    source.lines[("steps", number, "text")] = section.line
    return {**step, "text": section.text}


def _validate(source: Source, values: dict[str, Any]) -> Lesson:
    try:
        return Lesson.model_validate(values)
    except ValidationError as error:
        found = [_problem(source, dict(item)) for item in error.errors(include_url=False)]
    raise LessonError(sorted(set(found), key=lambda problem: problem.line))


def _problem(source: Source, item: dict[str, Any]) -> Problem:
    place: Place = item["loc"]
    context = item.get("ctx", {})
    if item["type"] == "unknown_key":
        place = (*place, context["key"])
    name = place[-1] if place else "lesson"
    wording = _WORDINGS.get(item["type"])
    message = wording.format(name=name, **context) if wording else f"`{name}`: {item['msg']}"
    return _at(source, place, message.replace("Value error, ", ""))


def _at(source: Source, place: Place, message: str) -> Problem:
    """A problem at a place; what it quotes says where in a text of several lines it is."""
    quoted = re.search("`(.+?)`", message.removeprefix(f"`{place[-1] if place else ''}`: "))
    line = source.line_of_text(place, quoted[1]) if quoted else source.line(place)
    return Problem(source.path, line, message)


_WORDINGS = {
    "unknown_key": "there is no {what} `{key}`; {fix}",
    "missing": "`{name}` is missing; add it",
    "union_tag_not_found": "`kind` is missing; add kind: number, choice or box",
    "union_tag_invalid": "there is no kind `{tag}`; there are {expected_tags}",
}
