"""Servers for tests and benchmarks: an application in a thread, or `app.py` as users start it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue

import httpx
import uvicorn
from starlette.applications import Starlette

from tests.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = PATIENCE_S
LOAD_SECONDS = 600.0


@contextlib.contextmanager
def in_thread(app: Starlette, log_level: str = "error", port: int = 0) -> Iterator[str]:
    """Serve `app` on a port, or on a free one where that is taken; yields its address."""
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError:
        listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level=log_level, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


class AppProcess:
    """A process that serves the application."""

    def __init__(self, command: list[str], cwd: Path = ROOT, **environ: str):
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd,
            env={**os.environ, "MODEL": "tiny-random", "HOST": "", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._queue: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._queue.put(line)

    def wait_for(self, pattern: str, seconds: float = START_SECONDS) -> str:
        """The first group of the first line that matches."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise AssertionError(f"no {pattern!r} in {self.lines}") from None
            match = re.search(pattern, line)
            if match:
                return match[1]

    def end(self) -> None:
        """End the process in order, or by force where it does not."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running_app(model: str, **environ: str) -> Iterator[tuple[AppProcess, str]]:
    """`python app.py` with this model ("": the default one) on a free port, and its address.

    `environ` are further variables of its environment.
    """
    app = AppProcess(["app.py"], HOST="127.0.0.1", PORT="0", MODEL=model, **environ)
    try:
        yield app, app.wait_for(r"Glassbox is at (http://\S+)")
    finally:
        app.end()


@contextlib.contextmanager
def ready_app(model: str, **environ: str) -> Iterator[tuple[AppProcess, str]]:
    """`running_app` once its model is there, however long that is loaded and compiled for."""
    with running_app(model, **environ) as (app, url):
        with httpx.Client(base_url=url) as client:

            def is_ready() -> bool:
                """Asked now and then only: it is busy with what is waited for."""
                time.sleep(0.2)
                return bool(client.get("/health").json()["status"] == "ok")

            wait_until(is_ready, LOAD_SECONDS)
        yield app, url
