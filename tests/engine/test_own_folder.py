"""What a process keeps in the system's place for temporary files goes with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from engine.own_folder import LOCK, OwnFolder, remove_abandoned

ROOT = Path(__file__).resolve().parents[2]
KEEPER = """
import sys
from engine.kept_moments import KeptMoments
moments = KeptMoments()
print(moments.new_path(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def keeper(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that keeps a moment, and the file."""
    process = subprocess.Popen(
        [sys.executable, "-c", KEEPER],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_server_kept_is_removed_and_what_a_living_one_keeps_is_not(
    place: Path,
) -> None:
    (dead, lost), (alive, kept) = keeper(place), keeper(place)
    try:
        assert remove_abandoned("glassbox-moments-") == []
        dead.send_signal(signal.SIGKILL)
        dead.communicate()
        assert lost.exists()
        assert remove_abandoned("glassbox-moments-") == [lost.parent]
        assert not lost.parent.exists() and kept.exists()
    finally:
        alive.communicate("end\n")
    assert list(place.iterdir()) == []  # who ends in order leaves nothing


def test_only_folders_with_a_free_lock_are_removed(place: Path, tmp_path: Path) -> None:
    """Not one that is just made, nor what a link leads to, nor a file, nor another program's."""
    for name in ("gb-new", "other-1", "elsewhere"):
        (place / name).mkdir()
    for name in ("other-1", "elsewhere"):
        (place / name / LOCK).touch()
    (place / "gb-link").symlink_to(place / "elsewhere")
    (place / "gb-file").touch()
    (place / "gb-odd").mkdir()
    (place / "gb-odd" / LOCK).symlink_to(place / "elsewhere" / LOCK)
    before = sorted(place.iterdir())
    own = OwnFolder("gb-")
    assert remove_abandoned("gb-") == []
    own.close()
    assert sorted(place.iterdir()) == before and (place / "elsewhere" / LOCK).exists()


def test_it_is_its_owners_alone(place: Path) -> None:
    own = OwnFolder("gb-")
    assert own.path.parent == place and own.path.stat().st_mode & 0o077 == 0
    own.close()
    assert not own.path.exists()
