"""A document by its path: inside the folder, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from views.document.diagnostics import Diagnostic
from views.document.folder import PROJECT, documents_folder, find


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "maps"
    for name in ("one.json", "deep/two.JSON", ".hidden/three.json", ".four.json"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    (tmp_path / "secret.json").write_text("{}")
    (folder / "out.json").symlink_to(tmp_path / "secret.json")
    (folder / "away").symlink_to(tmp_path)
    (folder / "near.json").symlink_to(folder / "one.json")
    (folder / "round.json").symlink_to(folder / "round.json")
    (folder / "folder.json").mkdir()
    return folder


@pytest.mark.parametrize("typed", ["one.json", "deep/two.JSON", "./one.json", "near.json"])
def test_what_lies_in_the_folder_is_found(folder: Path, typed: str) -> None:
    found = find(folder, typed)
    assert isinstance(found, Path) and found.is_file() and found.is_relative_to(folder)


@pytest.mark.parametrize(
    "typed",
    [
        *("../secret.json", "deep/../../secret.json", "deep/../one.json", "..\\secret.json"),
        *("/etc/passwd.json", "//host/a.json", "C:\\a.json", "C:a.json", "\\a.json", "~/a.json"),
        *("out.json", "away/secret.json"),
        *(".hidden/three.json", ".four.json"),
        *("", "  ", "one.json\0", "one.txt", "a" * 500 + ".json"),
    ],
)
def test_what_leads_out_is_refused(folder: Path, typed: str) -> None:
    found = find(folder, typed)
    assert isinstance(found, Diagnostic)
    assert found.code == "file/refused"
    assert "secret" not in found.message + found.fix and str(folder) not in found.message


@pytest.mark.parametrize("typed", ["none.json", "folder.json", "round.json", "one.json/a.json"])
def test_what_is_not_there_is_said(folder: Path, typed: str) -> None:
    found = find(folder, typed)
    assert isinstance(found, Diagnostic)
    assert found.code == "file/unreadable"
    assert "'maps'" in found.message


def test_the_folder_is_the_projects_or_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCUMENTS", raising=False)
    assert documents_folder() == PROJECT
    assert (PROJECT / "architecture.json").is_file()
    monkeypatch.setenv("DOCUMENTS", str(tmp_path))
    assert documents_folder() == tmp_path
