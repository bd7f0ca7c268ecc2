"""How a test waits for what another thread or the page does: until it holds, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.async_llm import AsyncLLM

# Enough for a machine that is ten times slower. No promise of speed: where all is well, nobody
# waits as long.
PATIENCE_S = 120.0


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until `condition` holds; fail where it does not even on a machine that is busy."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def becomes(read: Callable[[], Any], expected: Any, about: object = "") -> None:
    """Wait until `read` gives this: cards on their way arrive, tables follow their pictures."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := read()) != expected:
        assert time.monotonic() < deadline, f"{about}: {found!r:.2000}, not {expected!r:.2000}"
        time.sleep(0.02)


def rests(engine: AsyncLLM) -> None:
    """Wait until a running engine has nothing to do.

    Looked at on its own thread, so between two turns: a step that has come to its end may not be in
    the log yet, nor counted.
    """
    wait_until(
        lambda: engine.thread.call(lambda: engine.core.is_still and not engine.status.has_work)
    )
