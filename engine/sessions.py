"""Who has which engine: one engine a session, and one for everybody else.

A session is its key, which cannot be guessed and which the browser's tab keeps. Its engine is made
on first use, has a small pool of its own, and is put to rest after half an hour without a sign of
its tab; the key stays good, and the next use makes a fresh engine. Requests without a key go to
the shared engine. Has no counterpart in vLLM, which serves one engine a process.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.async_llm import AsyncLLM, EngineError, MakeRunner
from engine.background_model import BackgroundModel, LoadModel, ModelStatus
from engine.config import EngineConfig
from engine.engine_thread import EngineThread

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel
    from engine.trace import Trace

IDLE_SECONDS = 30 * 60
SWEEP_SECONDS = 60.0
MAX_SESSIONS = 10_000  # keys remembered; the longest unseen one is forgotten first
MAX_ENGINES = 32  # sessions with an engine at once
YIELD_SECONDS = 60  # unseen for so long, an engine makes room for a new session's
POOL_SHARE = 4  # a pool may take one part in so many of the memory
SHARED_CONFIG = EngineConfig(num_gpu_blocks=256, max_num_batched_tokens=256, max_num_seqs=16)
SHARED_KEY = "EMPTY"  # what clients send that need no key, by custom
RESTED = (
    "This session was not seen for {minutes} minutes, so its engine was put to rest. "
    "A fresh one has been made with the same settings; the old trace is gone."
)


class TooManySessions(EngineError):
    """Every engine that this server may hold is in use."""


@dataclass
class Session:
    """What is remembered of a key."""

    last_seen: float
    config: EngineConfig = field(default_factory=EngineConfig)
    engine: AsyncLLM | None = None
    rested: bool = False  # its last engine was put to rest
    fresh_log: Trace | None = None  # of the engine that was made in its place


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
        self._model = BackgroundModel(load)
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
        """A new session's key."""
        key = "gb-" + secrets.token_urlsafe(24)
        with self._lock:
            while len(self._sessions) >= MAX_SESSIONS:
                self._rest(self._sessions.pop(next(iter(self._sessions))))
            self._sessions[key] = Session(self._clock())
        return key

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
                session.engine = self._make_session_engine(session)
            return session.engine

    def notice(self, key: str) -> str | None:
        """What the session's tab should be told about its engine, until the next command."""
        session = self._sessions.get(key)
        engine = session.engine if session is not None else None
        if session is None or engine is None or engine.trace is not session.fresh_log:
            return None
        if not engine.is_fresh:  # it has had its first command
            return None
        return RESTED.format(minutes=round(self.idle_seconds / 60))

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

    def num_engines(self) -> int:
        """Sessions that have an engine now."""
        with self._lock:
            return sum(session.engine is not None for session in self._sessions.values())

    def _make_session_engine(self, session: Session) -> AsyncLLM:
        self._make_room()
        engine = self._make_engine(session.config)
        session.fresh_log = engine.trace if session.rested else None
        session.rested = False
        return engine

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
            for session in self._sessions.values():
                unseen = self._clock() - session.last_seen
                if session.engine is not None and unseen >= min(YIELD_SECONDS, self.idle_seconds):
                    self._rest(session)
                    return
        raise TooManySessions(
            f"all {self.max_engines} engines of this server are in use; try again in some minutes"
        )

    # -- rest -----------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Put to rest the engines whose session was not seen for too long."""
        with self._lock:
            now = self._clock()
            for session in self._sessions.values():
                if now - session.last_seen >= self.idle_seconds:
                    self._rest(session)

    def _rest(self, session: Session) -> None:
        if session.engine is not None:
            session.config = session.engine.requested_config
            session.engine.close_soon()
            session.engine, session.rested = None, True

    def _sweep_later(self) -> None:
        def sweep() -> None:
            # In a thread of its own: the engine thread waits for no lock.
            threading.Thread(target=self.sweep, name="sweep", daemon=True).start()
            self._sweep_later()

        self.thread.later(SWEEP_SECONDS, sweep)

    def close(self) -> None:
        """End all requests and the engine thread; for the end of the process."""
        with self._lock:
            engines = [s.engine for s in self._sessions.values() if s.engine is not None]
            engines += [self._shared] if self._shared is not None else []
            for engine in engines:
                engine.close_soon()
        self.thread.stop()


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
