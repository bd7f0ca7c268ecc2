"""A real server on a free port, with the tiny model: what the API's tests talk to."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.applications import Starlette

from engine.api.guard import guards
from engine.api.serve import lifespan_of
from engine.api.server import routes
from engine.async_llm import AsyncLLM
from engine.sessions import Sessions
from tests.servers import in_thread
from tests.waiting import PATIENCE_S
from views.page.server_config import content_security_policy


@dataclass
class Server:
    """A running server and what is behind it."""

    url: str
    sessions: Sessions

    def client(self, key: str | None = None) -> httpx.Client:
        """An HTTP client with this key."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)

    def session(self) -> tuple[str, AsyncLLM]:
        """A new session's key and engine."""
        with self.client() as client:
            key = client.post("/api/session").json()["key"]
        engine = self.sessions.get(key)
        assert engine is not None
        return key, engine


@contextlib.contextmanager
def serving(sessions: Sessions) -> Iterator[Server]:
    """The API's own routes under uvicorn, in a thread."""
    app = Starlette(
        routes=routes(sessions),
        middleware=guards(content_security_policy()),
        lifespan=lifespan_of(sessions),
    )
    with in_thread(app, log_level="info") as url:
        yield Server(url, sessions)


class Events:
    """What comes out of an event stream, message by message."""

    def __init__(self, answer: httpx.Response):
        assert answer.status_code == 200, answer.read()
        self._lines = answer.iter_lines()

    def next(self) -> tuple[str, str, Any]:
        """The next message but those of what takes long: they come as the machine is busy."""
        while (message := self.message())[0] == "doing":
            continue
        return message

    def message(self) -> tuple[str, str, Any]:
        """The next message: its event, its id, its data."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if not line and "data" in fields:
                return fields["event"], fields.get("id", ""), json.loads(fields["data"])
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
        raise AssertionError("the stream ended")

    def until(self, type_name: str) -> list[dict[str, Any]]:
        """All records up to the first event of this type."""
        records: list[dict[str, Any]] = []
        while not any(record.get("type") == type_name for record in records):
            event, _, data = self.next()
            if event == "records":
                records += data
        return records


def blocks_in_use(engine: AsyncLLM) -> int:
    """As the log has it; the null block is always held."""
    blocks = engine.trace.state()["blocks"]
    return sum(block["ref_cnt"] > 0 for key, block in blocks.items() if key != "0")
