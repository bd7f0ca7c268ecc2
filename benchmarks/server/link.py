"""The page's link to its engine, without a page: a session, its commands, its event stream.

The same requests in the same order as `views/assets/core/stream.js` sends them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx


class Message(NamedTuple):
    """One message of the event stream."""

    event: str  # header, records, status, notice, closed, failed
    id: str  # TRACE_ID:SEQ of the last record in it, "" where it has none
    data: Any


class Link:
    """A session of the server, as a tab has it."""

    def __init__(self, client: httpx.AsyncClient, key: str):
        self.client = client
        self.key = key

    @classmethod
    async def open(cls, client: httpx.AsyncClient) -> Link:
        """Make a session; `client` has the server's address."""
        answer = await client.post("/api/session", json={})
        return cls(client, answer.raise_for_status().json()["key"])

    @property
    def headers(self) -> dict[str, str]:
        """What opens this session's engine."""
        return {"Authorization": f"Bearer {self.key}"}

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        """Command the engine; whatever the server answers."""
        return await self.client.post(path, json=body or {}, headers=self.headers)

    @asynccontextmanager
    async def messages(self, after: str = "") -> AsyncIterator[AsyncIterator[Message]]:
        """The event stream, from the record behind `after` on."""
        ticket = (await self.post("/api/events/ticket")).raise_for_status().json()["ticket"]
        query = {"ticket": ticket, **({"after": after} if after else {})}
        async with self.client.stream("GET", "/api/events", params=query) as answer:
            answer.raise_for_status()
            yield messages_of(answer.aiter_lines())


async def messages_of(lines: AsyncIterator[str]) -> AsyncIterator[Message]:
    """Server-sent events, a message each; comments (pings) are left out."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            data = json.loads(fields["data"])
            yield Message(fields.get("event", "message"), fields.get("id", ""), data)
            fields = {}
