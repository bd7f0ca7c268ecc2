"""Whom the log wakes, and how often."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from engine.api.event_stream import Cursor, follow
from engine.events import TokensReturned
from engine.trace import Trace
from tests.engine.traces import make_trace
from tests.waiting import PATIENCE_S


class Written:
    """What `follow` asks of an engine: a log, and who is told of it."""

    closed, doing = False, None

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.tell: Callable[[], None] = lambda: None

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        self.tell = callback
        return lambda: None


def test_a_reader_that_has_yet_to_look_is_woken_once_and_reads_all() -> None:
    """A step ends seven phases in a few milliseconds, and each tells."""

    async def read() -> tuple[int, list[Any]]:
        engine: Any = Written(make_trace())
        loop, woken = asyncio.get_running_loop(), list[object]()
        messages = follow(engine, Cursor(), lambda: True)
        assert (await anext(messages))["event"] == "header"
        coming = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        plain = loop.call_soon_threadsafe

        def counted(call: Any, *arguments: Any, **more: Any) -> asyncio.Handle:
            woken.append(call)
            return plain(call, *arguments, **more)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        for number in range(7):
            engine.trace.event(TokensReturned(number))
            engine.tell()
            await asyncio.sleep(0)
        message = await asyncio.wait_for(coming, PATIENCE_S)
        await messages.aclose()
        return len(woken), json.loads(message["data"])

    woken, records = asyncio.run(read())
    assert woken == 1
    assert [record["facts"]["num_tokens"] for record in records] == list(range(7))
