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
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.async_llm import AsyncLLM, EngineError, MakeRunner
from engine.audience import Audience
from engine.background_model import BackgroundModel, LoadModel, ModelStatus
from engine.comparison.comparisons import Comparisons
from engine.config import EngineConfig
from engine.engine_thread import EngineThread
from engine.garbage import give_back
from engine.kept_moments import KeptMoments
from engine.limits import limit, named
from engine.sleepers import Asleep, Sleepers
from engine.trace import Trace

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
    # It has none of its own: it commands the shared one, and is nobody's key once it may not.
    directs_while: Callable[[], bool] | None = None
    making: threading.Lock = field(default_factory=threading.Lock)  # held while it gets an engine
    is_making: bool = False  # it has a place among the engines already
    asleep: Future[Asleep | None] | None = None  # its last engine was put to rest; as what
    notice: str = ""  # what to tell of that, until the next command
    notice_of: tuple[str, int] | None = None  # the log that it is about, and how long it was

    @property
    def is_good(self) -> bool:
        """Whether its key opens anything."""
        return self.directs_while is None or self.directs_while()

    @property
    def has_place(self) -> bool:
        """Whether it counts among those that have an engine."""
        return self.engine is not None or self.is_making


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
        self._sleepers = Sleepers(self.moments)
        self._model = BackgroundModel(load)
        self.comparisons = Comparisons(self._model.get, self.thread, POOL_SHARE, make_runner)
        self._clock = clock
        self._make_runner = make_runner
        # Of what follows; the engine thread never waits for it. Nobody holds it while an engine is
        # made or woken, which waits for the engine thread and the disk.
        self._lock = threading.RLock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # longest unseen first
        self._making_shared = threading.Lock()
        self._shared: AsyncLLM | None = None
        self.audience = Audience()  # of the shared engine

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

    def create(self, directs_while: Callable[[], bool] | None = None) -> str:
        """A new session's key. Raises TooManySessions where no other may be forgotten for it.

        With `directs_while` its engine is the shared one, which it may command as long as that
        says so; it is asked with every use of the key.
        """
        key = "gb-" + secrets.token_urlsafe(24)
        with self._lock:
            if len(self._sessions) >= MAX_SESSIONS:
                self._forget_one()
            self._sessions[key] = Session(self._clock(), directs_while=directs_while)
        return key

    def _forget_one(self) -> None:
        """The longest unseen one that has nothing to lose; else one that was put to rest.

        None that has an engine, or commands the shared one: whoever makes sessions by the thousand
        must take nobody's.
        """
        idle = [
            key
            for key, session in self._sessions.items()
            if not session.has_place and not self.directs(key)
        ]
        empty = (key for key in idle if self._sessions[key].asleep is None)
        oldest = next(empty, None) or next(iter(idle), None)
        if oldest is None:
            raise TooManySessions(
                f"this server remembers {MAX_SESSIONS:,} sessions at most, and all are in use; try "
                f"again in some minutes {named('MAX_SESSIONS')}"
            )
        forgotten = self._sessions.pop(oldest)
        self._rest(oldest, forgotten)
        self.moments.forget(oldest)
        if forgotten.asleep is not None:
            self._sleepers.forget(oldest, forgotten.asleep)

    def _find(self, key: str) -> Session | None:
        session = self._sessions.get(key)
        return session if session is not None and session.is_good else None

    def knows(self, key: str) -> bool:
        """Whether this is a session's key, and good."""
        return self._find(key) is not None

    def directs(self, key: str) -> bool:
        """Whether this key commands the shared engine."""
        session = self._find(key)
        return session is not None and session.directs_while is not None

    def is_shared(self, key: str) -> bool:
        """Whether this key may send to the shared engine and watch it, and no more."""
        return key == SHARED_KEY or self.audience.name_of(key) is not None

    def _leads_to_shared(self, key: str) -> bool:
        return self.directs(key) or self.is_shared(key)

    def touch(self, key: str) -> None:
        """The session's tab is there."""
        with self._lock:
            session = self._sessions.get(key)
            if session is not None:
                session.last_seen = self._clock()
                self._sessions.move_to_end(key)  # it is there all the time: `knows` takes no lock

    def get(self, key: str) -> AsyncLLM | None:
        """The session's engine; None for a key that is no session's.

        Raises ModelNotReady, TooManySessions, or ConfigError where no engine can be made.
        """
        with self._lock:
            session = self._find(key)
            if session is None:
                return None
            self.touch(key)
            if session.engine is not None:
                return session.engine
        if session.directs_while is not None:
            return self.shared()
        with session.making:
            if session.engine is not None:  # somebody else made it meanwhile
                return session.engine
            if not self._take_place(key, session):
                return None
            try:
                engine = session.engine = self._make_session_engine(key, session)
            finally:
                session.is_making = False
            return engine

    def at_hand(self, key: str) -> AsyncLLM | None:
        """The engine behind a key where it is there and works; nobody waits for it to be made."""
        if self._leads_to_shared(key):
            shared = self._shared
            return shared if shared is not None and shared.failed is None else None
        with self._lock:
            session = self._sessions.get(key)
            if session is None or session.engine is None:
                return None
            self.touch(key)
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
        if (shared := self.at_hand(SHARED_KEY)) is not None:
            return shared
        with self._making_shared:
            if self._shared is None:
                self._shared = self._make_engine(SHARED_CONFIG, shared=True)
            if self._shared.failed is not None:  # it belongs to nobody who could reset it
                self._shared.reset()
                self._shared.run()
            return self._shared

    def existing(self, key: str) -> AsyncLLM | None:
        """The engine behind a key as it is: none is made, and nobody counts as seen."""
        if self._leads_to_shared(key):
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
        engine = self._make_engine(session.config)
        session.notice_of = None
        if session.asleep is not None:
            session.notice = self._sleepers.wake(key, session.asleep, engine)
            session.asleep = None
            session.notice_of = length_of(engine.trace)
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
            admit=self.audience.admit if shared else None,
        )

    def _take_place(self, key: str, session: Session) -> bool:
        """Where there are too many engines, put the longest unseen one to rest, or refuse.

        False where the session was forgotten meanwhile.
        """
        with self._lock:
            if self._sessions.get(key) is not session:
                return False
            if sum(each.has_place for each in self._sessions.values()) >= self.max_engines:
                self._make_room()
            session.is_making = True
            return True

    def _make_room(self) -> None:
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
            session.asleep = self._sleepers.put_to_rest(key, session.engine)
            session.engine = None

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
        self._sleepers.close()
        self.moments.close()


def length_of(log: Trace) -> tuple[str, int]:
    """Which log it is, and how long it is by now; whoever remembers that keeps no log alive."""
    return log.header.trace_id, log.next_seq


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
