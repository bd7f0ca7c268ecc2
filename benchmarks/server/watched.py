"""The application as `python app.py` serves it, with a look inside for whoever measures it.

`python -m benchmarks.server.watched` starts it. It has three addresses more than the application,
which nobody but a benchmark starts: `GET /watched` says what the process holds (`Process`), `GET
/watched/engines` checks every engine (`Engines`), and `POST /watched/rest?seconds=` puts those to
rest whose session was not seen for so long.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.api.serve import serve
from engine.async_llm import AsyncLLM, EngineError
from engine.core import EngineCore
from engine.integrity import check_integrity
from engine.sessions import Sessions
from tests.servers import AppProcess

OPEN_FILES = "/dev/fd"  # what this process has open, on Linux and macOS


class Process(NamedTuple):
    """What the server's process holds."""

    cpu_seconds: float  # of all its threads, since it began
    threads: list[str]  # their names
    tasks: list[str]  # asyncio's: what each runs
    files: list[str]  # what is open: sockets, pipes, files by their folder


class Engines(NamedTuple):
    """What the engines hold, and whether their books are right."""

    engines: int
    open_requests: int  # whose stream has not ended
    readers: int  # of a log: event streams, and whatever else was subscribed
    blocks_held: int  # by engines that have no request
    broken: list[str]  # rules of `engine/integrity.py` that do not hold
    failed: list[str]  # engines that stopped, and why


class Watched:
    """The application, and the addresses that look inside."""

    def __init__(self, app: ASGIApp, sessions: Sessions):
        self.app = app
        self.sessions = sessions
        self.looks = Router(
            [
                Route("/watched", self.process),
                Route("/watched/engines", self.engines),
                Route("/watched/rest", self.rest, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or have the application answer."""
        ours = scope["type"] == "http" and scope["path"].startswith("/watched")
        await (self.looks if ours else self.app)(scope, receive, send)

    async def process(self, request: Request) -> Response:
        """What the process holds, once garbage is collected where `?collect=1` asks for that."""
        if "collect" in request.query_params:
            gc.collect()
        tasks = sorted(getattr(t.get_coro(), "__qualname__", "") for t in asyncio.all_tasks())
        names = sorted(thread.name for thread in threading.enumerate())
        found = Process(time.process_time(), names, tasks, open_files())
        return JSONResponse(found._asdict())

    async def engines(self, request: Request) -> Response:
        """What the engines hold, each looked at between two phases."""
        engines = engines_of(self.sessions)
        held, broken, failed = 0, [], []
        for engine in engines:
            try:
                blocks, rules = await engine.look_async(look)
            except EngineError as error:
                failed.append(str(error))
                continue
            held += blocks
            broken += rules
        found = Engines(
            len(engines),
            sum(engine.num_unfinished for engine in engines),
            sum(len(engine._subscribers) for engine in engines),
            held,
            broken,
            failed,
        )
        return JSONResponse(found._asdict())

    async def rest(self, request: Request) -> Response:
        """Put to rest whoever was not seen for so many seconds, as time alone would."""
        sessions, usual = self.sessions, self.sessions.idle_seconds
        sessions.idle_seconds = float(request.query_params["seconds"])
        try:
            await asyncio.to_thread(sessions.sweep)
        finally:
            sessions.idle_seconds = usual
        return JSONResponse({"engines": sessions.num_engines()})


def open_files() -> list[str]:
    """Of each open handle what it is, without what differs from one to the next."""
    found = []
    for handle in os.listdir(OPEN_FILES):
        try:
            target = os.readlink(f"{OPEN_FILES}/{handle}")
        except OSError:  # closed meanwhile, or a system that does not tell
            continue
        found.append(os.path.dirname(target) if target.startswith("/") else target.split(":")[0])
    return sorted(found)


def engines_of(sessions: Sessions) -> list[AsyncLLM]:
    """All engines that live."""
    found = [session.engine for session in tuple(sessions._sessions.values())]
    return [engine for engine in (*found, sessions._shared) if engine is not None]


def look(core: EngineCore) -> tuple[int, list[str]]:
    """The blocks that are held though nobody asks for anything, and the rules that are broken."""
    report = check_integrity(core)
    pool = core.scheduler.kv_cache_manager.block_pool
    held = len(pool.blocks) - 1 - pool.get_num_free_blocks()
    broken = [f"{violation.rule}: {violation.message}" for violation in report.violations]
    return 0 if core.has_work() else held, broken


@contextmanager
def watched_server(model: str, **environ: str) -> Iterator[tuple[AppProcess, str]]:
    """The server in a process of its own, and its address; `environ` adds to its environment."""
    variables: dict[str, Any] = {"HOST": "127.0.0.1", "PORT": "0", "MODEL": model, **environ}
    app = AppProcess(["-m", "benchmarks.server.watched"], **variables)
    try:
        yield app, app.wait_for(r"Glassbox is at (http://\S+)")
    finally:
        app.end()


if __name__ == "__main__":
    from app import app, sessions
    from views.page.server_config import warn_only

    warn_only()
    sys.exit(serve(Watched(app, sessions)))
