"""`python -m lessons check [FILE ...]` proves lessons on an engine; `probes` lists the probes.

Exit status: 0 where all is well, 1 where a lesson has a problem, 2 where nothing could be checked.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from engine.async_llm import AsyncLLM
from engine.engine_thread import EngineThread
from engine.model_loader import (
    DEFAULT_MODEL,
    TINY_MODEL,
    ModelError,
    default_model_ready,
    load_model,
)
from lessons.check import SEEDS, Report, check_lesson
from lessons.glossary import load_glossary, not_on_the_map
from lessons.loader import LessonError, lesson_files, load_each, same_place
from lessons.map_names import DOCUMENT, DocumentError, MapNames, read_map
from lessons.probes import PROBES, arguments_of


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m lessons", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("probes", help="list the probes that a lesson may use")
    check = commands.add_parser("check", help="prove lessons on an engine")
    check.add_argument(
        "files", nargs="*", type=Path, help="lessons; all of them where none is named"
    )
    check.add_argument("--model", help=f"default: {DEFAULT_MODEL} if it is here, else {TINY_MODEL}")
    check.add_argument("--seeds", nargs="+", type=int, default=SEEDS, metavar="N")
    check.add_argument("--document", type=Path, default=DOCUMENT, help="architecture document")
    options = parser.parse_args(arguments)
    if options.command == "probes":
        return list_probes()
    try:
        return check_files(options)
    except (DocumentError, ModelError) as error:
        print(f"lessons: {error}", file=sys.stderr)
        return 2


def list_probes() -> int:
    """One line a probe."""
    for name, function in PROBES.items():
        parameters = ", ".join(str(p) for p in arguments_of(name).parameters.values())
        print(f"{name}({parameters.replace(': str', '').replace(': int', '')})")
        print(f"    {(function.__doc__ or '').strip()}")
    return 0


def check_files(options: argparse.Namespace) -> int:
    """Check each file by itself: one that cannot be read does not keep the others from it."""
    began = time.monotonic()
    names = read_map(options.document)
    lessons, unreadable = load_each(options.files or lesson_files())
    others = same_place(lessons)
    others += [] if options.files else check_glossary(names)
    for error in (*unreadable, *others):
        print(error)
    reports: list[Report] = []
    if lessons:
        model = load_model(
            options.model or (DEFAULT_MODEL if default_model_ready() else TINY_MODEL)
        )
        thread = EngineThread()
        try:
            llm = AsyncLLM(model, thread=thread)
            for lesson in lessons:
                reports.append(check_lesson(lesson, llm, names, tuple(options.seeds)))
                print_report(reports[-1])
        finally:
            thread.stop()
        seeds = ", ".join(str(seed) for seed in options.seeds)
        print(f"{model.name}, seeds {seeds}, {time.monotonic() - began:.0f} s")
    return int(bool(unreadable or others) or any(report.problems for report in reports))


def check_glossary(names: MapNames) -> list[str]:
    """What is wrong with the glossary; one line says so where nothing is."""
    try:
        terms = load_glossary()
    except LessonError as error:
        return [str(error)]
    problems = [f"glossary: {what}" for what in not_on_the_map(terms, names)]
    if not problems:
        print(f"ok     glossary: {len(terms)} terms")
    return problems


def print_report(report: Report) -> None:
    """One line a lesson, and one a problem."""
    lesson = report.lesson
    if report.problems:
        print(f"FAILED {lesson.kind} {lesson.id}")
        for problem in report.problems:
            print(f"       {problem}")
        return
    said = f"{len(lesson.steps)} steps, {report.questions} questions"
    print(f"ok     {lesson.kind} {lesson.id}: {said}, {report.refused} wrong answers refused")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
