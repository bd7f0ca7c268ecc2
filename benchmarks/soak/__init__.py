"""30 sessions of mixed clients for ten minutes: what went wrong, and what the server still holds.

README.md, "soak", says who visits, and what is compared.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, NamedTuple

import httpx

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, Goal, at_most, figure
from benchmarks.memory import MB, memory_of
from benchmarks.server.link import Link
from benchmarks.server.watched import watched_server
from benchmarks.soak.page import visit_page
from benchmarks.soak.visitor import PATIENCE, Visitor

SESSIONS = 30
SECONDS, WARM_UP = 600.0, 120.0  # in all, and of these until the first count
QUICK_SECONDS, QUICK_WARM_UP = 60.0, 20.0
REST_SECONDS = 25.0  # unseen for so long, an engine is put to rest; a stream is seen every 10
SWEEP_SECONDS = 5.0
SETTLE_SECONDS = 60.0  # at most; a count is taken when nothing has changed for some time
PAGE_KEPT_SECONDS = 125.0  # Streamlit holds a page's session for two minutes after it has left
STILL = 4  # looks in a row that find the same
# A log keeps fewer records than usual, so that all are full by the first count.
ENVIRONMENT = {"GLASSBOX_MAX_RECORDS": "3000", "GLASSBOX_KEPT_MOMENTS_MB": "64"}
NONE, GROWTH_GOAL = at_most(0.0), at_most(5.0)
# Pools of threads that grow to their bound and stay, and those of which there is one once used.
POOLED = ("executor", "asyncio_", "AnyIO worker", "ThreadPoolExecutor", "tokenizing")


class Held(NamedTuple):
    """What the server holds while nobody wants anything."""

    rss: int
    threads: Counter[str]
    tasks: Counter[str]
    files: Counter[str]
    engines: dict[str, Any]  # `Engines`, before all were reset


class Ledger:
    """What was done, and what went wrong."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.troubles: list[str] = []

    def note(self, act: str, trouble: str) -> None:
        """An act has ended."""
        self.done[act] += 1
        if trouble:
            self.troubles.append(f"{act}: {trouble}")


def measure(effort: Effort) -> list[Figure]:
    """The server in a process of its own; the visitors are in this one."""
    seconds = (QUICK_SECONDS, QUICK_WARM_UP) if effort.quick else (SECONDS, WARM_UP)
    with watched_server("tiny-random", **ENVIRONMENT) as (app, url):
        soak = Soak(url, app.process.pid)
        first, last = asyncio.run(soak.run(*seconds))
    said = [line for line in app.lines if "Traceback" in line or "ERROR" in line]
    growth = (last.rss - first.rss) / first.rss * 100
    troubles, engines = soak.ledger.troubles, last.engines
    return [
        figure("things done", "", [sum(soak.ledger.done.values())], note=told(soak.ledger.done)),
        count("errors", troubles),
        count("tracebacks in the log", said),
        count("broken rules", [*first.engines["broken"], *engines["broken"]]),
        count("engines that failed", [*first.engines["failed"], *engines["failed"]]),
        figure("blocks held by nobody", "", [engines["blocks_held"]], NONE),
        figure("requests still open", "", [engines["open_requests"]], NONE),
        figure("readers still there", "", [engines["readers"]], NONE),
        more("threads more", first.threads, last.threads),
        more("tasks more", first.tasks, last.tasks),
        more("files more", first.files, last.files),
        figure("memory after the warm-up", "MB", [first.rss / MB]),
        figure("memory at the end", "MB", [last.rss / MB]),
        figure("growth of memory", "%", [growth], GROWTH_GOAL),
    ]


def count(name: str, found: list[str], goal: Goal = NONE) -> Figure:
    """How many there are; the note has the first and the most frequent."""
    note = "; ".join(f"{text} ({n})" for text, n in Counter(found).most_common(5))
    return figure(name, "", [len(found)], goal, note=note[:600])


def more(name: str, before: Counter[str], after: Counter[str]) -> Figure:
    """How many there are beyond those that were there before."""
    new = after - before
    return figure(name, "", [new.total()], NONE, note=told(new))


def told(found: Counter[str]) -> str:
    """Names, each with its number."""
    return ", ".join(f"{name} {n}" for name, n in found.most_common())


class Soak:
    """The visitors of one server."""

    def __init__(self, url: str, pid: int):
        self.url = url
        self.pid = pid
        self.ledger = Ledger()

    async def run(self, seconds: float, warm_up: float) -> tuple[Held, Held]:
        """What the server holds after the warm-up, and at the end."""
        async with self._client() as client:
            while (await client.get("/health")).json()["status"] != "ok":
                await asyncio.sleep(0.2)
            links = [await Link.open(client) for _ in range(SESSIONS)]
        visitors = [Visitor(number, link, self.url) for number, link in enumerate(links)]
        first = await self._visited(visitors, warm_up)
        return first, await self._visited(visitors, seconds - warm_up)

    def _client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None)
        return httpx.AsyncClient(base_url=self.url, limits=limits, timeout=PATIENCE)

    async def _visited(self, visitors: list[Visitor], seconds: float) -> Held:
        """Let them act for so long; all connections are closed by the time of the count."""
        until = time.monotonic() + seconds
        async with self._client() as client:
            for visitor in visitors:
                visitor.link.client = client
            sweeping = asyncio.create_task(self._sweep(client))
            try:
                acting = (
                    visitor.visit(lambda: time.monotonic() >= until, self.ledger.note)
                    for visitor in visitors
                )
                await asyncio.gather(*acting)
            finally:
                sweeping.cancel()
        return await self._held(visitors)

    async def _sweep(self, client: httpx.AsyncClient) -> None:
        while True:
            await client.post("/watched/rest", params={"seconds": REST_SECONDS})
            await asyncio.sleep(SWEEP_SECONDS)

    async def _held(self, visitors: list[Visitor]) -> Held:
        """Look at the engines as they were left; then bring each into the same state and count."""
        async with self._client() as client:
            engines = await settled(client, "/watched/engines")
            for visitor in visitors:
                visitor.link.client = client
                await visitor.reset()
        await asyncio.sleep(PAGE_KEPT_SECONDS)
        await visit_page(self.url, 1)  # which lets those go, and is held itself
        async with self._client() as client:  # one connection
            process = await settled(client, "/watched?collect=1")
        threads = [name for name in process["threads"] if not name.startswith(POOLED)]
        return Held(
            memory_of(self.pid).rss,
            Counter(threads),
            Counter(process["tasks"]),
            Counter(process["files"]),
            engines,
        )


async def settled(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    """What is found there once it stays the same, or after all when the time is over."""
    deadline = time.monotonic() + SETTLE_SECONDS
    last, same = None, 0
    while same < STILL and time.monotonic() < deadline:
        found = (await client.get(path)).json()
        state = {key: value for key, value in found.items() if key != "cpu_seconds"}
        same = same + 1 if state == last else 0
        last = state
        await asyncio.sleep(1.0)
    return last or {}
