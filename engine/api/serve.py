"""The process around the application: its life, its address, its last line.

Box `client-req`, its other end. vLLM 0.26.0: `vllm/entrypoints/launcher.py`.
`python app.py` comes here; under `streamlit run` and `uvicorn` only `lifespan_of` does.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvicorn

from engine import kept_moments
from engine.api.guard import guard_logs
from engine.garbage import keep_what_is_here, share_heaps
from engine.own_folder import remove_abandoned
from engine.sessions import Sessions

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8501
GRACE_SECONDS = 2  # for requests under way when the server is told to end
# An idle connection is closed by its client first, and not as the next request is on its way:
# OpenAI's client keeps one for 5 seconds, nginx for 60.
KEEP_ALIVE_SECONDS = 75


class ServeError(RuntimeError):
    """The server cannot start; the message is the line that the user reads."""


def lifespan_of(sessions: Sessions) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """The application's lifespan: load the model beside it, and end all engines after it."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        set_up_log()
        guard_logs()
        share_heaps()
        remove_abandoned(kept_moments.FOLDER)
        keep_what_is_here()  # collections that walk all modules again and again stop the views
        sessions.start()
        try:
            yield
        finally:
            sessions.close()

    return lifespan


def set_up_log() -> None:
    """The project's own messages go to stderr, one line each, unless somebody set it up before."""
    logger = logging.getLogger("glassbox")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("glassbox: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)  # the shared engine's periodic line is one
        logger.propagate = False


def serve(app: Any, environ: Mapping[str, str] = os.environ) -> int:
    """Serve at HOST:PORT until told to stop; the exit code."""
    try:
        listener = listen(environ.get("HOST") or DEFAULT_HOST, environ.get("PORT") or "")
    except ServeError as error:
        print(f"glassbox: {error}", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="websockets-sansio",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = AnnouncingServer(config)
    atexit.register(end_quietly)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # Ctrl-C, after the server has ended in order
    finally:
        listener.close()
    return 0 if server.started else 3


def end_quietly() -> None:
    """The server has ended in order: what bindings (Triton's) miss from here on helps nobody."""
    sys.stderr.flush()
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stderr.fileno())


def listen(host: str, port_text: str) -> socket.socket:
    """The server's socket; ServeError in one clear line where it cannot be had."""
    port = parse_port(port_text)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise ServeError(
            f"cannot listen at {host}:{port} ({reason[:1].lower() + reason[1:]}); "
            "set PORT to another port, or HOST to another address"
        ) from None
    return listener


def parse_port(text: str) -> int:
    """PORT as a number; 0 is any that is free."""
    if not text:
        return DEFAULT_PORT
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ServeError(f"PORT is {text!r}; it must be a number from 0 (any free one) to 65535")
    return int(text)


class AnnouncingServer(uvicorn.Server):
    """Says where it is once it serves."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            print(f"Glassbox is at {url_of(sockets[0])}", flush=True)


def url_of(listener: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # every address; this one works where the server runs
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
