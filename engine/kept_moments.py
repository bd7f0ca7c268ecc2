"""The moment that each session can come back to: its last one, as a file of the server's.

An engine that was put to rest is kept as a moment as well, with its log beside it.

No box of its own, and no counterpart in vLLM. The files lie in a folder of the process
(`engine/own_folder.py`) and go with it; what a killed one left goes at the next start. Together
they have a limit; beyond it the one that was kept longest goes first.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.async_llm import EngineError
from engine.limits import limit
from engine.moment import Moment, MomentError, max_moment_bytes, write_moment
from engine.own_folder import OwnFolder

if TYPE_CHECKING:
    from engine.trace import Trace

FOLDER = "glassbox-moments-"  # what its name begins with
KEPT_MB = 2_048  # of all sessions together; GLASSBOX_KEPT_MOMENTS_MB sets another limit

messages = logging.getLogger("glassbox")


class NoRoom(EngineError):
    """The server could not write a file; the engine is as it was."""


class Kept(NamedTuple):
    """A session's moment."""

    path: Path
    file_name: str  # for those who take it away
    step: int  # the next one
    num_bytes: int
    log: Path | None = None  # of an engine that was put to rest
    num_log_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """On the disk."""
        return self.num_bytes + self.num_log_bytes


def most_kept_bytes() -> int:
    """What all kept moments may take of the disk; one of them always may be there."""
    return max(limit("KEPT_MOMENTS_MB", KEPT_MB) << 20, max_moment_bytes())


class KeptMoments:
    """By session. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: OwnFolder | None = None
        self._kept: dict[str, Kept] = {}  # the one kept longest first

    def new_path(self) -> Path:
        """An empty file, for its owner alone, that may be written and `keep` told of.

        Raises NoRoom.
        """
        with self._lock:
            if self._folder is None:
                try:
                    self._folder = OwnFolder(FOLDER)
                except OSError as error:
                    raise no_room(error) from None
            path = self._folder.path / secrets.token_urlsafe(16)
        try:
            path.touch(0o600, exist_ok=False)
        except OSError as error:
            raise no_room(error) from None
        return path

    def write(self, key: str, moment: Moment, log: Trace | None = None) -> Kept:
        """Write a session's moment and keep it in place of the one before. Raises NoRoom.

        With `log`, the engine's: it is kept beside the moment where the disk takes it.
        """
        path = self.new_path()
        try:
            write_moment(moment, path)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise no_room(error) from None
        except MomentError:
            path.unlink(missing_ok=True)
            raise
        return self.keep(key, path, moment, None if log is None else self._beside(log))

    def write_log(self, key: str, log: Trace) -> Kept:
        """Keep the log alone of a session's engine, which had stopped. Raises NoRoom."""
        path = self._written(log)
        return self._keep(key, Kept(path, "", log.step, path.stat().st_size))

    def _beside(self, log: Trace) -> Path | None:
        try:
            return self._written(log)
        except NoRoom as error:
            messages.warning("the log of an engine that rests could not be written: %s", error)
            return None

    def _written(self, log: Trace) -> Path:
        path = self.new_path()
        try:
            with path.open("w", encoding="utf-8") as file:
                log.save(file)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise no_room(error) from None
        return path

    def keep(self, key: str, path: Path, moment: Moment, log: Path | None = None) -> Kept:
        """Keep the file, which holds `moment`, in place of the session's one before."""
        num_bytes = path.stat().st_size
        num_log_bytes = 0 if log is None else log.stat().st_size
        kept = Kept(path, moment.file_name, moment.state.step, num_bytes, log, num_log_bytes)
        return self._keep(key, kept)

    def _keep(self, key: str, kept: Kept) -> Kept:
        with self._lock:
            self._forget(key)
            self._kept[key] = kept
            while sum(each.total_bytes for each in self._kept.values()) > most_kept_bytes():
                self._forget(next(iter(self._kept)))
        return kept

    def of(self, key: str) -> Kept | None:
        """The session's moment; None where it has none, or had to give it up."""
        return self._kept.get(key)

    def forget(self, key: str) -> None:
        """The session is gone."""
        with self._lock:
            self._forget(key)

    def _forget(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            kept.path.unlink(missing_ok=True)
            if kept.log is not None:
                kept.log.unlink(missing_ok=True)

    def close(self) -> None:
        """Delete all of them."""
        with self._lock:
            self._kept.clear()
            if self._folder is not None:
                self._folder.close()
                self._folder = None


def no_room(error: OSError) -> NoRoom:
    """With why, and how to mend it."""
    return NoRoom(
        f"the moment could not be written on the server ({error.strerror or error}); make room "
        f"where it has its temporary files ({tempfile.gettempdir()}), or set TMPDIR to another "
        "place and start it again"
    )
