"""The container's recipe: in step with the project, and what it copies is enough to serve."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import httpx
import pytest

from engine.api.serve import DEFAULT_PORT
from scripts.setup import OLDEST, REQUIREMENTS
from tests.servers import ROOT, AppProcess

RECIPE = ROOT / "Containerfile"
IGNORED = ("__pycache__", "*.pyc")


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the recipe with what follows it, on one line."""
    text = "".join(f"{line}\n" for line in RECIPE.read_text().splitlines() if line[:1] != "#")
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines if line]


def arguments(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def copied() -> list[tuple[str, str]]:
    """What comes from the project in the last stage: a source, and where it goes."""
    last = max(i for i, (name, _) in enumerate(instructions()) if name == "FROM")
    pairs = []
    for name, rest in instructions()[last:]:
        if name == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            pairs += [(source, target) for source in sources]
    return pairs


def environment() -> dict[str, str]:
    (variables,) = arguments("ENV")
    return dict(variable.partition("=")[::2] for variable in shlex.split(variables))


def allowed() -> set[str]:
    """What `.containerignore` lets into the build; all else stays out."""
    lines = (ROOT / ".containerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    return {rule[1:] for rule in rules if rule.startswith("!")}


def test_every_file_that_it_copies_is_there_and_is_let_in() -> None:
    sources = {
        source
        for rest in arguments("COPY")
        if not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert sources == allowed()
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {"requirements.txt", "constraints.txt", REQUIREMENTS["run"]} <= sources


def test_it_names_what_the_project_names() -> None:
    found = [re.search(r"python:(\d+)\.(\d+)-slim", rest) for rest in arguments("ARG")]
    (version,) = [(int(each[1]), int(each[2])) for each in found if each]
    assert version >= OLDEST
    assert arguments("EXPOSE") == [str(DEFAULT_PORT)] == [environment()["PORT"]]
    (health,) = arguments("HEALTHCHECK")
    assert "/health" in health
    # One process that hears SIGTERM itself: lists, no shell.
    assert json.loads(arguments("CMD")[-1]) == [".venv/bin/python", "app.py"]
    assert json.loads(health.partition("CMD ")[2])[0] == ".venv/bin/python"


def test_it_runs_as_nobody_in_particular_and_holds_no_secret() -> None:
    users = [i for i, (name, _) in enumerate(instructions()) if name == "USER"]
    (place,) = users
    assert instructions()[place][1] not in ("root", "0")
    assert all(name != "USER" for name, _ in instructions()[place + 1 :])
    assert not re.search(r"(?i)(token|secret|password|api_key)", RECIPE.read_text())
    assert not arguments("ADD")


@pytest.mark.parametrize("document", ["", "docs/process-topology.architecture.json"])
def test_what_it_copies_serves_and_writes_nothing_beside_itself(
    tmp_path: Path, document: str
) -> None:
    folder, home = tmp_path / "app", tmp_path / "data"
    home.mkdir()
    for source, target in copied():
        path = ROOT / source
        if path.is_dir():
            shutil.copytree(path, folder / target, ignore=shutil.ignore_patterns(*IGNORED))
        else:
            (folder / target).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / target)
    before = sorted(folder.rglob("*"))
    variables = environment() | {"HOST": "127.0.0.1", "PORT": "0", "DOCUMENT": document}
    app = AppProcess(
        [str(folder / "app.py")],
        cwd=tmp_path,
        **variables | {"HOME": str(home), "GLASSBOX_CACHE": str(home)},  # type: ignore[arg-type]
    )
    try:
        url = app.wait_for(r"Glassbox is at (http://\S+)")
        assert httpx.get(url).status_code == 200
        assert httpx.get(f"{url}/health").status_code == 200
        assert httpx.get(f"{url}/assets/workspace.js").status_code == 200
        assert "engine/scheduler.py" in httpx.get(f"{url}/api/source", timeout=60).text
    finally:
        app.end()
    assert "Traceback" not in "".join(app.lines), "".join(app.lines)
    assert sorted(folder.rglob("*")) == before
