"""A folder for a process's temporary files, which goes with it, even where it was killed.

While the process lives it holds a lock on a file in the folder, which the system gives up with it
however it ends. A folder whose lock can be had is nobody's any more. No counterpart in vLLM.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

LOCK = "lock"

log = logging.getLogger("glassbox")


class OwnFolder:
    """A new folder in the system's place for temporary files, its owner's alone; OSError if none.

    Its name begins with `prefix`.
    """

    def __init__(self, prefix: str):
        self._made = tempfile.TemporaryDirectory(prefix=prefix)  # gone at the process's end
        self.path = Path(self._made.name)
        self._lock = _locked_file(self.path)

    def close(self) -> None:
        """Delete it with all that is in it."""
        self._made.cleanup()
        os.close(self._lock)


def _locked_file(folder: Path) -> int:
    """Named only once it is locked: nobody may see it there and free."""
    unnamed = folder / f"{LOCK}.new"
    lock = os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(folder / LOCK)
    return lock


def remove_abandoned(prefix: str) -> list[Path]:
    """Delete the folders that killed processes of this user left; which they were.

    A folder without a lock may be on its way: it stays.
    """
    found = [path for path in Path(tempfile.gettempdir()).glob(f"{prefix}*") if _abandoned(path)]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
        log.info("removed %s, which a server left that was killed", path)
    return found


def _abandoned(path: Path) -> bool:
    with suppress(OSError):  # it is another user's, or is being deleted, or its lock is held
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
            lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            finally:
                os.close(lock)
    return False
