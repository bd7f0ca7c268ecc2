"""`python -m lessons check [FILE ...]` proves lessons on an engine; `probes` lists the probes.

`pack` makes one file of lessons and whose numbers are which, `check-pack` proves it, and `unpack`
writes its lessons to a folder for GLASSBOX_LESSONS.

Exit status: 0 where all is well, 1 where a lesson has a problem, 2 where nothing could be checked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from engine.source_sites import source_version
from engine.terminal import LAYOUT, escaped
from lessons import pack
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
    make = commands.add_parser("pack", help="one file of lessons for these learners")
    make.add_argument("lessons", nargs="+", help="ids of lessons, or files")
    make.add_argument("--names", type=Path, required=True, help="a file with a name a line")
    make.add_argument("--to", type=Path, default=Path("exercises.json"), metavar="FILE")
    make.add_argument("--model", help="as of check")
    prove = commands.add_parser("check-pack", help="play a pack, and compare what comes out")
    prove.add_argument("file", type=Path)
    prove.add_argument("--model", help="as of check")
    write = commands.add_parser("unpack", help="write a pack's lessons to a folder")
    write.add_argument("file", type=Path)
    write.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    run = {
        "probes": list_probes,
        "check": check_files,
        "pack": make_pack,
        "check-pack": check_pack,
        "unpack": unpack,
    }[options.command]
    try:
        return run(options)
    except (DocumentError, LessonError, ModelError, OSError, pack.PackError) as error:
        print(f"lessons: {escaped(str(error), LAYOUT)}", file=sys.stderr)
        return 2


def list_probes(_: argparse.Namespace) -> int:
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
        with engine_of(options.model) as llm:
            for lesson in lessons:
                reports.append(check_lesson(lesson, llm, names, tuple(options.seeds)))
                print_report(reports[-1])
        seeds = ", ".join(str(seed) for seed in options.seeds)
        print(f"{llm.model.name}, seeds {seeds}, {time.monotonic() - began:.0f} s")
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


@contextmanager
def engine_of(model: str | None) -> Iterator[AsyncLLM]:
    """An engine of this model, or of the default one where it is here, or else of the tiny one."""
    thread = EngineThread()
    try:
        name = model or (DEFAULT_MODEL if default_model_ready() else TINY_MODEL)
        yield AsyncLLM(load_model(name), thread=thread)
    finally:
        thread.stop()


def make_pack(options: argparse.Namespace) -> int:
    """Write a pack."""
    known = {path.stem: path for path in lesson_files()}
    paths = [known.get(name, Path(name)) for name in options.lessons]
    gone = [str(path) for path in paths if not path.exists()]
    if gone:
        raise pack.PackError(f"there is no lesson {', '.join(gone)}; name ids, or files")
    names = options.names.read_text("utf-8-sig", "replace").splitlines()
    with engine_of(options.model) as llm:
        made = pack.make(paths, names, llm)
    options.to.write_text(made.to_json(), encoding="utf-8")
    what = f"lessons: {len(made.lessons)}, learners: {len(made.learners)}"
    print(f"{options.to}: {what}, variants played with {made.model}: {len(made.answers)}")
    return 0


def check_pack(options: argparse.Namespace) -> int:
    """Prove a pack: the same seeds for the same names, and the same answers on this machine."""
    found = pack.read(options.file.read_bytes())
    with engine_of(options.model) as llm, tempfile.TemporaryDirectory() as folder:
        if llm.model.name != found.model:
            raise pack.PackError(
                f"{options.file} was made with {found.model}, and this is {llm.model.name}: name "
                "that model with --model"
            )
        wrong = pack.problems(found, Path(folder), llm, print)
    for problem in wrong:
        print(f"FAILED {escaped(problem, LAYOUT)}")
    if wrong and found.engine_version != source_version():
        print("The engine is of another version than the one that made the pack.")
    return int(bool(wrong))


def unpack(options: argparse.Namespace) -> int:
    """Write a pack's lessons to a folder."""
    paths = pack.unpack(pack.read(options.file.read_bytes()), options.folder)
    folder = options.folder.resolve()
    print(f"lessons: {len(paths)}. Serve them with GLASSBOX_LESSONS={folder} make run")
    return 0


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
