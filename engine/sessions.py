"""Who has which engine: one engine a session, and one for everybody else.

A session is its key, which cannot be guessed and which the browser's tab keeps. Its engine is made
on first use, has a small pool of its own, and is put to rest after half an hour without a sign of
its tab; the key stays good, and with the next use the engine goes on from where it stood. Requests
without a key go to the shared engine. vLLM has no counterpart: it serves one engine a process.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.async_llm import AsyncLLM, EngineError, MakeRunner
from engine.background_model import BackgroundModel, LoadModel, ModelStatus
from engine.comparison.comparisons import Comparisons
from engine.config import ConfigError, EngineConfig
from engine.engine_thread import EngineThread, EngineThreadStopped
from engine.garbage import give_back
from engine.kept_moments import Kept, KeptMoments
from engine.limits import limit, named
from engine.moment import read_moment
from engine.trace import Trace, TraceError

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel

IDLE_SECONDS = 60 * limit("IDLE_MINUTES", 30)
SWEEP_SECONDS = 60.0
STUCK_SECONDS = 300.0  # no phase takes so long, graphs and kernels compiled in it included
MAX_SESSIONS = limit("MAX_SESSIONS", 10_000)  # keys remembered
MAX_ENGINES = limit("MAX_ENGINES", 32)  # sessions with an engine at once
YIELD_SECONDS = 60  # unseen for so long, an engine makes room for a new session's
POOL_SHARE = 4  # a pool may take one part in so many of the memory
SHARED_CONFIG = EngineConfig(num_gpu_blocks=256, max_num_batched_tokens=256, max_num_seqs=16)
SHARED_KEY = "EMPTY"  # what clients send that need no key, by custom
RESTED = (
    "This session was not seen for {minutes} minutes, so its engine was put to rest. "
    "A fresh one has been made with the same settings; the old trace is gone."
)
WOKEN = (
    "This session was not seen for {minutes} minutes, so its engine was put to rest. "
    "It goes on from where it stood, paused, and so does its log."
)
WOKEN_WITHOUT_LOG = (
    "This session was not seen for {minutes} minutes, so its engine was put to rest. "
    "It goes on from where it stood, paused; the log before that is gone."
)
ASLEEP = "asleep "  # before a session's key: the moment in which its engine was put to rest


log = logging.getLogger("glassbox")


class TooManySessions(EngineError):
    """Every engine that this server may hold is in use."""


class Health(NamedTuple):
    """What a look at the engines says of the server."""

    alive: bool  # the threads on which all engines run
    busy_seconds: float  # at the job at hand; a forward is one, and so is what captures a graph
    num_failed: int  # engines of sessions that stopped and were not reset since
    shared_failed: str | None  # why the shared engine stopped; its next request begins it again

    @property
    def trouble(self) -> str:
        """Why nobody gets an answer, or ""."""
        if not self.alive:
            return "the thread on which engines run has ended; start the server again"
        if self.busy_seconds >= STUCK_SECONDS:
            return (
                f"an engine has been in one phase for {self.busy_seconds:.0f} seconds, and all "
                "others wait for it; start the server again if that goes on"
            )
        return ""


@dataclass
class Session:
    """What is remembered of a key."""

    last_seen: float
    config: EngineConfig = field(default_factory=EngineConfig)
    engine: AsyncLLM | None = None
    asleep: Future[Kept | None] | None = None  # its last engine was put to rest; as what
    notice: str = ""  # what to tell of that, until the next command
    notice_of: tuple[str, int] | None = None  # the log that it is about, and how long it was


class Sessions:
    """All sessions of the process, the shared engine, and the model that they share."""

    def __init__(
        self,
        load: LoadModel | None = None,
        *,
        shared_enabled: bool | None = None,
        idle_seconds: float = IDLE_SECONDS,
        max_engines: int = MAX_ENGINES,
        clock: Callable[[], float] = time.monotonic,
        make_runner: MakeRunner | None = None,
    ):
        self.thread = EngineThread()
        self.document = ""  # title of the architecture document, for the logs' headers
        self.shared_enabled = (
            shared_from_environment() if shared_enabled is None else shared_enabled
        )
        self.idle_seconds = idle_seconds
        self.max_engines = max_engines
        self.moments = KeptMoments()
        self._sleepers = EngineThread("sleepers")  # writes where engines stand that are put to rest
        self._model = BackgroundModel(load)
        self.comparisons = Comparisons(self._model.get, self.thread, POOL_SHARE, make_runner)
        self._clock = clock
        self._make_runner = make_runner
        self._lock = threading.RLock()  # of what follows; the engine thread never waits for it
        # Held while an engine is made, which waits for the engine thread, perhaps for a whole step.
        # Whoever only looks a session up does not wait for that.
        self._making = threading.Lock()
        self._sessions: dict[str, Session] = {}  # longest unseen first
        self._shared: AsyncLLM | None = None

    # -- the model ------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the model in the background; the page is there meanwhile."""
        if self._model.start():
            self._sweep_later()

    def model_status(self) -> ModelStatus:
        """How far the model is."""
        return self._model.status

    def wait_for_model(self, timeout: float | None = None) -> LoadedModel:
        """The model, once it is loaded; raises `ModelNotReady` if it cannot be, or not in time."""
        self.start()
        return self._model.wait(timeout)

    # -- sessions -------------------------------------------------------------------------------

    def create(self) -> str:
        """A new session's key. Raises TooManySessions where no other may be forgotten for it."""
        key = "gb-" + secrets.token_urlsafe(24)
        with self._lock:
            if len(self._sessions) >= MAX_SESSIONS:
                self._forget_one()
            self._sessions[key] = Session(self._clock())
        return key

    def _forget_one(self) -> None:
        """The longest unseen one that has nothing to lose; else one that was put to rest.

        None that has an engine: whoever makes sessions by the thousand must take nobody's.
        """
        idle = [key for key, session in self._sessions.items() if session.engine is None]
        empty = (key for key in idle if self._sessions[key].asleep is None)
        oldest = next(empty, None) or next(iter(idle), None)
        if oldest is None:
            raise TooManySessions(
                f"this server remembers {MAX_SESSIONS:,} sessions at most, and all are in use; try "
                f"again in some minutes {named('MAX_SESSIONS')}"
            )
        self._rest(oldest, self._sessions.pop(oldest))
        self.moments.forget(oldest)
        self.moments.forget(ASLEEP + oldest)

    def knows(self, key: str) -> bool:
        """Whether this is a session's key."""
        return key in self._sessions

    def touch(self, key: str) -> None:
        """The session's tab is there."""
        with self._lock:
            session = self._sessions.pop(key, None)
            if session is not None:
                session.last_seen = self._clock()
                self._sessions[key] = session

    def get(self, key: str) -> AsyncLLM | None:
        """The session's engine; None for a key that is no session's.

        Raises ModelNotReady, TooManySessions, or ConfigError where no engine can be made.
        """
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                return None
            self.touch(key)
            if session.engine is not None:
                return session.engine
        with self._making:
            if session.engine is None:
                session.engine = self._make_session_engine(key, session)
            return session.engine

    def notice(self, key: str) -> str | None:
        """What the session's tab should be told about its engine, until the next command."""
        session = self._sessions.get(key)
        engine = session.engine if session is not None else None
        if session is None or engine is None or session.notice_of is None:
            return None
        if session.notice_of != length_of(engine.trace):  # it had its first command
            return None
        return session.notice.format(minutes=round(self.idle_seconds / 60))

    def shared(self) -> AsyncLLM | None:
        """The engine of all who bring no key; None where the setting turns it off."""
        if not self.shared_enabled:
            return None
        if self._shared is not None and self._shared.failed is None:
            return self._shared
        with self._making:
            if self._shared is None:
                self._shared = self._make_engine(SHARED_CONFIG, shared=True)
            if self._shared.failed is not None:  # it belongs to nobody who could reset it
                self._shared.reset()
                self._shared.run()
            return self._shared

    def existing(self, key: str) -> AsyncLLM | None:
        """The engine behind a key as it is: none is made, and nobody counts as seen."""
        if key == SHARED_KEY:
            return self._shared
        session = self._sessions.get(key)
        return session.engine if session is not None else None

    def health(self) -> Health:
        """Whether engines can work at all, and which of them have stopped."""
        with self._lock:
            engines = [each.engine for each in self._sessions.values() if each.engine is not None]
        return Health(
            all(thread.alive for thread in self.thread.threads),
            max(thread.busy_seconds for thread in self.thread.threads),
            sum(engine.failed is not None for engine in engines),
            self._shared.failed if self._shared is not None else None,
        )

    def num_engines(self) -> int:
        """Sessions that have an engine now."""
        with self._lock:
            return sum(session.engine is not None for session in self._sessions.values())

    def _make_session_engine(self, key: str, session: Session) -> AsyncLLM:
        self._make_room()
        engine = self._make_engine(session.config)
        session.notice_of = None
        if session.asleep is not None:
            session.notice, session.asleep = self._wake(key, session.asleep, engine), None
            session.notice_of = length_of(engine.trace)
        return engine

    def _wake(self, key: str, asleep: Future[Kept | None], engine: AsyncLLM) -> str:
        """Have a new engine go on from where the one that was put to rest stood; what to say of it.

        For that it waits until the other one's moment is written.
        """
        kept = asleep.result()
        if kept is None:
            return RESTED
        settings, past = engine.requested_config, None
        try:
            past = past_of(kept)
            engine.restore(read_moment(kept.path), past)
        except ConfigError:  # no memory is left for it, or its file had to make room for others'
            return RESTED
        finally:
            self.moments.forget(ASLEEP + key)
        engine.requested_config = settings
        return WOKEN if past is not None else WOKEN_WITHOUT_LOG

    def _make_engine(self, config: EngineConfig, shared: bool = False) -> AsyncLLM:
        return AsyncLLM(
            self._model.get(),
            config,
            self.thread,
            running=shared,
            document=self.document,
            make_runner=self._make_runner,
            pool_share=POOL_SHARE,
            console=shared,  # where every tab has an engine, one of them speaks there
        )

    def _make_room(self) -> None:
        """Where there are too many engines, put the longest unseen one to rest, or refuse."""
        if self.num_engines() < self.max_engines:
            return
        with self._lock:
            for key, session in self._sessions.items():
                unseen = self._clock() - session.last_seen
                if session.engine is not None and unseen >= min(YIELD_SECONDS, self.idle_seconds):
                    self._rest(key, session)
                    return
        raise TooManySessions(
            f"all {self.max_engines} engines of this server are in use; try again in some minutes "
            f"{named('MAX_ENGINES')}"
        )

    # -- rest -----------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Put to rest the engines whose session was not seen for too long."""
        with self._lock:
            now = self._clock()
            for key, session in self._sessions.items():
                if now - session.last_seen >= self.idle_seconds:
                    self._rest(key, session)

    def _rest(self, key: str, session: Session) -> None:
        self.comparisons.forget(key)
        if session.engine is not None:
            session.config = session.engine.requested_config
            session.asleep = self._put_to_rest_soon(key, session.engine)
            session.engine = None

    def _put_to_rest_soon(self, key: str, engine: AsyncLLM) -> Future[Kept | None]:
        return self._sleepers.turn(lambda: self._put_to_rest(key, engine))

    def _put_to_rest(self, key: str, engine: AsyncLLM) -> Kept | None:
        """On a thread of its own: write where the engine stands, and close it."""
        try:
            moment = engine.rest()
            if moment is None:
                return None
            return self.moments.write(ASLEEP + key, moment, engine.trace)
        except (EngineError, ConfigError, EngineThreadStopped) as error:
            log.info("an engine was put to rest and cannot be woken: %s", error)
            return None
        except Exception:  # whatever it was, the session's next use makes a fresh one
            log.exception("an engine was put to rest and cannot be woken")
            return None
        finally:
            with suppress(EngineThreadStopped):
                engine.close_soon()

    def _sweep_later(self) -> None:
        def sweep_up() -> None:
            self.sweep()
            give_back()  # what engines held that have ended meanwhile

        def sweep() -> None:
            # In a thread of its own: the engine thread waits for no lock.
            threading.Thread(target=sweep_up, name="sweep", daemon=True).start()
            self._sweep_later()

        self.thread.later(SWEEP_SECONDS, sweep)

    def close(self) -> None:
        """End all requests and the engine thread; for the end of the process."""
        self.comparisons.close()
        with self._lock:
            engines = [s.engine for s in self._sessions.values() if s.engine is not None]
            engines += [self._shared] if self._shared is not None else []
            for engine in engines:
                engine.close_soon()
        self.thread.stop()
        self._sleepers.stop()
        self.moments.close()


def length_of(log: Trace) -> tuple[str, int]:
    """Which log it is, and how long it is by now; whoever remembers that keeps no log alive."""
    return log.header.trace_id, log.next_seq


def past_of(kept: Kept) -> Trace | None:
    """The log of an engine that was put to rest; None where there is none any more."""
    if kept.log is None:
        return None
    try:
        return Trace.load(kept.log)
    except TraceError as error:  # what was written is not what was read: the disk, or a hand
        log.warning("the log of an engine that rested is lost: %s", error)
        return None


def shared_from_environment() -> bool:
    """GLASSBOX_SHARED_ENGINE=0 turns the shared engine off."""
    return os.environ.get("GLASSBOX_SHARED_ENGINE", "1").strip().lower() not in ("0", "false", "no")


_registry: Sessions | None = None
_registry_lock = threading.Lock()


def registry() -> Sessions:
    """The process's sessions: the same object, whoever asks."""
    global _registry
    with _registry_lock:
        if _registry is None:
            _registry = Sessions()
        return _registry
