"""A reader of a session's log that leaves and comes back, and misses nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from benchmarks.server.link import Link, Message


class Gap(RuntimeError):
    """A record is missing, or came twice."""


class Reader:
    """Follows the log as a tab does: after a break it goes on from the record that it had last."""

    def __init__(self, link: Link):
        self.link = link
        self.cursor = ""
        self.next_seq = 0
        self.records = 0
        self._reading: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to read, or go on."""
        self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        """Leave; raises what went wrong while it read."""
        task, self._reading = self._reading, None
        if task is None:
            return
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _read(self) -> None:
        while True:
            async with self.link.messages(self.cursor) as messages:
                async for message in messages:
                    self._take(message)
            await asyncio.sleep(0.1)  # the engine was put to rest: come again, as the page does

    def _take(self, message: Message) -> None:
        if message.event == "header":
            self.next_seq = message.data["base_seq"]
        elif message.event == "records":
            self._follow(message.data)
            self.cursor = message.id
        elif message.event == "failed":
            raise Gap(f"the stream failed: {message.data}")

    def _follow(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            if record["seq"] != self.next_seq:
                raise Gap(f"record {record['seq']} came where {self.next_seq} was due")
            self.next_seq += 1
        self.records += len(records)
