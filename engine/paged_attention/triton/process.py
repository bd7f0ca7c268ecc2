"""The process in which kernels are interpreted, as the server sees it (box `paged-attn`).

Triton reads TRITON_INTERPRET when it is imported, and then interprets every kernel of the process.
So there is one process for that, started when it is first needed. It ends with the server, or when
nobody needed it for a while. `worker.py` is its inside.
"""

from __future__ import annotations

import atexit
import importlib.util
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

import torch

BOOT = Path(__file__).with_name("boot.py")
HEADER_BYTES = 8  # the length of a message, before it
LONGEST_SECONDS = 600.0
# What the server's Python says to pip; constraints.txt has the version that is tested.
INSTALL = "install it with `.venv/bin/python -m pip install -c constraints.txt triton`"


class KernelProcessError(RuntimeError):
    """A kernel did not run; the message says why."""


class KernelProcess:
    """Runs functions with triton in a process of its own, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None  # what the process prints

    def run(self, function: str, task: dict[str, Any]) -> dict[str, Any]:
        """What `function` ("module:name") makes of `task`; both hold tensors and plain values.

        Raises KernelProcessError where triton is missing, the function raised, or the process died.
        """
        if not triton_is_installed():
            raise KernelProcessError(f"Triton is not installed: {INSTALL}")
        message = packed({"function": function, "task": task})
        with self._lock:
            answer = self._ask(message)
        if "error" in answer:
            raise KernelProcessError(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        """End the process; whoever runs something afterwards starts another one."""
        with self._lock:
            self._end()

    def _ask(self, message: bytes) -> dict[str, Any]:
        while True:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            watchdog = threading.Timer(LONGEST_SECONDS, process.kill)
            watchdog.start()
            try:
                send(process.stdin, message)
                return unpacked(receive(process.stdout))
            except (OSError, EOFError):
                if process.wait() == 0:  # it had just gone to rest
                    self._end()
                    continue
                raise KernelProcessError(self._last_words(process.returncode)) from None
            finally:
                watchdog.cancel()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._log = tempfile.TemporaryFile()  # noqa: SIM115
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(BOOT), "engine.paged_attention.triton.worker:main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=os.environ | {"TRITON_INTERPRET": "1"},
                start_new_session=True,  # Ctrl-C is for the server, which then closes the pipe
            )
            atexit.register(self.close)
        return self._process

    def _end(self) -> None:
        """Close the pipe, which is the sign to go, and wait; who is at work is ended."""
        process, self._process = self._process, None
        atexit.unregister(self.close)
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError):  # it may have gone already
            process.stdin.close()
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if self._log is not None:
            self._log.close()

    def _last_words(self, status: int) -> str:
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        because = ""
        if status > 0 and self._log is not None:  # it has said why
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").strip().splitlines()
            because = f": {lines[-1][:300]}" if lines else ""
        self._end()
        return f"the process that interprets kernels ended {how}{because}"


@cache
def interpreter() -> KernelProcess:
    """The one of this process."""
    return KernelProcess()


def triton_is_installed() -> bool:
    """Whether a process could import it."""
    return importlib.util.find_spec("triton") is not None


def packed(message: dict[str, Any]) -> bytes:
    """The bytes of a message."""
    buffer = io.BytesIO()
    torch.save(message, buffer)
    return buffer.getvalue()


def unpacked(message: bytes) -> dict[str, Any]:
    """The message of these bytes. Tensors and plain values, never code."""
    content: dict[str, Any] = torch.load(io.BytesIO(message), weights_only=True)
    return content


def send(stream: IO[bytes], message: bytes) -> None:
    """Write a message; the other end calls `receive`."""
    stream.write(len(message).to_bytes(HEADER_BYTES, "big"))
    stream.write(message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """The next message. EOFError where the other end closed."""
    length = int.from_bytes(exactly(stream, HEADER_BYTES), "big")
    return exactly(stream, length)


def exactly(stream: IO[bytes], length: int) -> bytes:
    """So many bytes."""
    content = stream.read(length)
    if len(content) < length:
        raise EOFError("the other end of the pipe is closed")
    return content
