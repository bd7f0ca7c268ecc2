"""Engines that are put to rest, and how they wake: where each stood is a file of the server's.

No box of its own, and no counterpart in vLLM. What is kept is a moment with the log beside it; of
an engine that had stopped, the log alone.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from engine.async_llm import AsyncLLM, EngineError
from engine.config import ConfigError
from engine.engine_thread import EngineThread, EngineThreadStopped
from engine.kept_moments import Kept, KeptMoments
from engine.moment import read_moment
from engine.trace import Trace, TraceError

_UNSEEN = "This session was not seen for {minutes} minutes, so its engine"
RESTED = (
    f"{_UNSEEN} was put to rest. A fresh one has been made with the same settings; the old trace "
    "is gone."
)
WOKEN = f"{_UNSEEN} was put to rest. It goes on from where it stood, paused, and so does its log."
WOKEN_WITHOUT_LOG = (
    f"{_UNSEEN} was put to rest. It goes on from where it stood, paused; the log before that is "
    "gone."
)
WOKEN_STOPPED = (
    f"{_UNSEEN}, which had stopped, was put to rest. Its log is here as it was; reset the engine "
    "to go on."
)
ASLEEP = "asleep "  # before a session's key: the moment in which its engine was put to rest

log = logging.getLogger("glassbox")


class Asleep(NamedTuple):
    """What is left of an engine that was put to rest."""

    kept: Kept  # its moment and its log; where it had stopped, its log alone
    failed: str | None  # why it had stopped

    @property
    def log(self) -> Path | None:
        """The file of its log; None where the disk did not take it."""
        return self.kept.log if self.failed is None else self.kept.path


class Sleepers:
    """Puts engines to rest on a thread of its own, and wakes them."""

    def __init__(self, moments: KeptMoments):
        self._moments = moments
        self._thread = EngineThread("sleepers")

    def put_to_rest(self, key: str, engine: AsyncLLM) -> Future[Asleep | None]:
        """Write soon where the session's engine stands, and close it. None: it cannot wake."""
        return self._thread.turn(lambda: self._put_to_rest(key, engine))

    def wake(self, key: str, left: Future[Asleep | None], engine: AsyncLLM) -> str:
        """Have a new engine go on from where the one that was put to rest stood; what to say of it.

        For that it waits until what is left of the other one is written.
        """
        asleep = left.result()
        if asleep is None:
            return RESTED
        settings, past = engine.requested_config, None
        try:
            past = past_of(asleep.log)
            if asleep.failed is not None:
                if past is None:
                    return RESTED
                engine.stay_stopped(past, asleep.failed)
                return WOKEN_STOPPED
            engine.restore(read_moment(asleep.kept.path), past)
        except ConfigError:  # no memory is left for it, or its file had to make room for others'
            return RESTED
        finally:
            self.forget(key, left)
        engine.requested_config = settings
        return WOKEN if past is not None else WOKEN_WITHOUT_LOG

    def forget(self, key: str, left: Future[Asleep | None]) -> None:
        """Delete what is left of the session's engine, once it is written."""
        left.add_done_callback(lambda _: self._moments.forget(ASLEEP + key))

    def close(self) -> None:
        """For the end of the process."""
        self._thread.stop()

    def _put_to_rest(self, key: str, engine: AsyncLLM) -> Asleep | None:
        try:
            moment = engine.rest()
            if moment is not None:
                return Asleep(self._moments.write(ASLEEP + key, moment, engine.trace), None)
            if engine.failed is not None:
                return Asleep(self._moments.write_log(ASLEEP + key, engine.trace), engine.failed)
        except (EngineError, ConfigError, EngineThreadStopped) as error:
            log.info("an engine was put to rest and cannot be woken: %s", error)
        except Exception:  # whatever it was, the session's next use makes a fresh one
            log.exception("an engine was put to rest and cannot be woken")
        finally:
            with suppress(EngineThreadStopped):
                engine.close_soon()
        return None


def past_of(file: Path | None) -> Trace | None:
    """The log of an engine that was put to rest; None where there is none any more."""
    if file is None:
        return None
    try:
        return Trace.load(file)
    except TraceError as error:  # what was written is not what was read: the disk, or a hand
        log.warning("the log of an engine that rested is lost: %s", error)
        return None
