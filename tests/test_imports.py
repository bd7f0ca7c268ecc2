"""Who may know whom. Commands go down through the front end, the log comes up: nothing else leaves
the engine, and no view reaches into a scheduler or a pool."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOG = {"events", "reasons", "records", "trace", "trace_header", "why"}
FRONT_END = {"async_llm", "audience", "sessions", "background_model", "input_processor"}
# What is asked of no running engine: it is worked out of settings, or of logs.
WORKED_OUT = {"config", "sizing", "serve_command", "comparison"}
FILES = {"folders", "file_kinds"}  # whether a path stays in its folder, and what a file is
TERMINAL = {"terminal"}  # what of a text would command one
DOORS = {f"engine.{name}" for name in LOG | FRONT_END | WORKED_OUT | FILES | TERMINAL}


def imported(package: str) -> Iterator[tuple[str, str]]:
    """Each file of a package, and what it imports from where."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == package.split(".")[0]:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                within = "." not in node.module  # `from engine import sizing`
                names = [f"{node.module}.{a.name}" for a in node.names] if within else [node.module]
            for name in names:
                yield path.relative_to(ROOT).as_posix(), name


@pytest.mark.parametrize(
    ("package", "never"),
    [
        ("engine", ("views", "lessons", "streamlit", "benchmarks", "tests", "app")),
        ("lessons", ("views", "streamlit", "benchmarks", "tests", "app")),
        ("views", ("benchmarks", "tests", "app")),
    ],
)
def test_no_package_knows_what_stands_on_it(package: str, never: tuple[str, ...]) -> None:
    found = [each for each in imported(package) if each[1].split(".")[0] in never]
    assert found == []


def test_views_know_of_the_engine_its_log_its_settings_and_its_front_end() -> None:
    found = [(path, name) for path, name in imported("views") if name.split(".")[0] == "engine"]
    assert found, "views import nothing any more: is this still looked at?"
    odd = [each for each in found if ".".join(each[1].split(".")[:2]) not in DOORS]
    assert odd == []


def test_views_import_each_other_in_no_circle() -> None:
    """Else it depends on which of them comes first whether the others can be imported."""
    paths = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path
        for path in (ROOT / "views").rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        body = ast.parse(path.read_text("utf-8")).body  # what is imported where it is used is not
        imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.module]
        found = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
        graph[name] = (found | {str(node.module) for node in imports}) & paths.keys()
    assert graph["views.page.workspace"] >= {"views.page.address", "views.page.bootstrap"}
    TopologicalSorter(graph).prepare()
