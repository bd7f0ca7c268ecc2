"""What 30 sessions that each receive 5 updates a second cost the server, and when they get them.

README.md, "viewers", says what is compared and how.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import NamedTuple

import httpx

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_least, at_most, figure
from benchmarks.server.link import Link
from benchmarks.server.watched import watched_server

SESSIONS = 30
RATE = 5.0  # steps a second of each engine; each step is an update
ROUNDS, ROUND_SECONDS = 10, 8.0
SETTLE_SECONDS = 1.5
CATCH_UP_SECONDS, FRESH_MS = 60.0, 1_000.0  # a reader that is behind is not measured yet
# Four requests each, in decode throughout, whose tokens and blocks change in every step.
WORK = {"prompt": [[3 + i] * 32 for i in range(4)], "max_tokens": 1900, "ignore_eos": True}
CONFIG = {"num_gpu_blocks": 600}
COST_GOAL, LATENCY_GOAL = at_most(15.0), at_most(100.0)
RATE_GOAL = at_least(0.95 * RATE)  # with fewer, the others say nothing


class Seen(NamedTuple):
    """What one stream received in one round."""

    updates: int  # steps, by their records
    messages: int
    latencies: list[float]  # ms from the first record of a message being made to its being read


class Round(NamedTuple):
    """A round without viewers and one with them."""

    alone: float  # CPU seconds a second, of the server's process
    watched: float
    seen: list[Seen]


def measure(effort: Effort) -> list[Figure]:
    """The server in a process of its own; the clients are in this one."""
    with watched_server("tiny-random", OMP_NUM_THREADS="1") as (_, url):
        rounds = asyncio.run(measure_rounds(url, effort.samples(ROUNDS)))
    streams = [seen for found in rounds for seen in found.seen]
    latencies = [ms for seen in streams for ms in seen.latencies]
    cost = [(found.watched - found.alone) * 100 for found in rounds]
    p95 = statistics.quantiles(latencies, n=20)[-1]
    per_second = [seen.updates / ROUND_SECONDS for seen in streams]
    messages = [seen.messages / max(1, seen.updates) for seen in streams]
    return [
        figure("engines alone", "% core", [found.alone * 100 for found in rounds]),
        figure("viewers beside them", "% core", cost, COST_GOAL),
        figure("updates a session", "1/s", per_second, RATE_GOAL),
        figure("messages an update", "", messages),
        figure("made to received", "ms", latencies),
        figure("made to received, P95", "ms", [p95], LATENCY_GOAL),
    ]


async def measure_rounds(url: str, count: int) -> list[Round]:
    """Let all engines work, and look at them by turns."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=None) as client:
        while (await client.get("/health")).json()["status"] != "ok":
            await asyncio.sleep(0.2)
        links = [await Link.open(client) for _ in range(SESSIONS)]
        work = [asyncio.create_task(begin(link)) for link in links]
        await asyncio.sleep(SETTLE_SECONDS)
        viewers = [Viewer(link) for link in links]
        rounds = []
        for number in range(count):
            if number % 2:
                watched, seen = await with_viewers(viewers)
                rounds.append(Round(await cpu_of_round(client), watched, seen))
            else:
                alone = await cpu_of_round(client)
                rounds.append(Round(alone, *await with_viewers(viewers)))
        for task in work:
            if task.done():  # an engine that ran dry measures nothing
                raise RuntimeError(f"an engine's requests ended: {task.result()}")
            task.cancel()
        return rounds


async def begin(link: Link) -> str:
    """Set the engine going; its client waits for the answer, which comes after the measurement."""
    (await link.post("/api/engine/reset", {"config": CONFIG})).raise_for_status()
    (await link.post("/api/engine/run", {"rate": RATE})).raise_for_status()
    return (await link.post("/v1/completions", WORK)).text


class Viewer:
    """Reads a session's event stream, and notes what comes since `begin`."""

    def __init__(self, link: Link):
        self.link = link
        self.cursor = ""
        self.started_at = 0.0
        self.begin()

    def begin(self) -> None:
        """Forget what has come so far."""
        self.steps: set[int] = set()
        self.messages = 0
        self.latencies: list[float] = []

    @property
    def is_up_to_date(self) -> bool:
        """Whether what came last was just made."""
        return bool(self.latencies) and self.latencies[-1] < FRESH_MS

    @property
    def seen(self) -> Seen:
        """What has come since."""
        return Seen(len(self.steps), self.messages, self.latencies)

    async def read(self) -> None:
        """Follow the log from where it was read to."""
        self.latencies = []
        async with self.link.messages(self.cursor) as messages:
            async for message in messages:
                received = time.time()
                if message.event == "header":
                    self.started_at = message.data["started_at"]
                elif message.event == "records":
                    self.cursor = message.id
                    made = self.started_at + message.data[0]["t_us"] / 1e6
                    self.messages += 1
                    self.steps.update(record["step"] for record in message.data)
                    self.latencies.append((received - made) * 1e3)


async def with_viewers(viewers: list[Viewer]) -> tuple[float, list[Seen]]:
    """A round in which each session has its stream open."""
    for viewer in viewers:
        viewer.begin()  # what an earlier round read does not make it up to date
    reading = [asyncio.create_task(viewer.read()) for viewer in viewers]
    try:
        async with asyncio.timeout(CATCH_UP_SECONDS):
            while not all(viewer.is_up_to_date for viewer in viewers):
                await asyncio.sleep(0.1)
        for viewer in viewers:
            viewer.begin()
        cpu = await cpu_of_round(viewers[0].link.client)
        return cpu, [viewer.seen for viewer in viewers]
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def cpu_of_round(client: httpx.AsyncClient) -> float:
    """CPU seconds a second that the server takes during a round."""
    began, before = time.perf_counter(), await cpu_seconds(client)
    await asyncio.sleep(ROUND_SECONDS)
    after = await cpu_seconds(client)
    return (after - before) / (time.perf_counter() - began)


async def cpu_seconds(client: httpx.AsyncClient) -> float:
    """Of the server's process so far."""
    return float((await client.get("/watched")).json()["cpu_seconds"])
