"""A visitor of the soak: a session that does one thing after the other, drawn by chance.

Each act raises where the server did other than it should; what an act allows, it says itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import httpx
from openai import APIStatusError, AsyncOpenAI

from benchmarks.server.link import Link
from benchmarks.soak.page import visit_page
from benchmarks.soak.reader import Reader

T = TypeVar("T")

# Engines that differ in what may leak: pressure on the pool, two lanes, drafts, other K and V.
CONFIGS: list[dict[str, Any]] = [
    {},
    {"num_gpu_blocks": 24, "block_size": 8},
    {"async_scheduling": True},
    {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
    {"kv_cache_dtype": "fp8"},
    {"enforce_eager": True, "enable_prefix_caching": False},
    {"scheduling_policy": "priority", "max_num_seqs": 2},
]
WORDS = ("once upon a time ", "the cache ", "block after block ", "again ")
LONG, SHORT = 160, 12  # tokens
PATIENCE = 600.0  # seconds; what hangs is an error, what is slow is none
AWAY_SECONDS = 32.0  # long enough for an engine to be put to rest (`REST_SECONDS` of the soak)
COMPARED = {"knob": "max_num_batched_tokens", "values": [64, 32]}


class Wrong(RuntimeError):
    """The server did not do what it should."""


class Visitor:
    """One session, with its own client of each kind."""

    openai: AsyncOpenAI  # while it visits

    def __init__(self, number: int, link: Link, url: str):
        self.link = link
        self.url = url
        self.draw = random.Random(number)
        self.reader = Reader(link)

    async def visit(self, until: Callable[[], bool], done: Callable[[str, str], None]) -> None:
        """Act after act while `until` is false; `done` hears of each, and what went wrong in it."""
        base = f"{self.url}/v1"
        self.openai = AsyncOpenAI(base_url=base, api_key=self.link.key, timeout=PATIENCE)
        while not until():
            act = self.draw.choices(list(ACTS), list(ACTS.values()))[0]
            trouble = ""
            try:
                if self.reader._reading is None:
                    self.reader.open()
                async with asyncio.timeout(PATIENCE):
                    await act(self)
                if self.draw.random() < 0.2:
                    await self.reader.close()
            except Exception as error:
                trouble = f"{type(error).__name__}: {error}"[:300]
                await self.start_again()
            done(act.__name__, trouble)
            await asyncio.sleep(self.draw.uniform(0.0, 0.5))
        await self.leave(done)

    async def start_again(self) -> None:
        """After an act that failed, have an engine that runs."""
        with suppress(Exception):
            await self.reader.close()
        with suppress(Exception):
            await self.reset()

    async def leave(self, done: Callable[[str, str], None]) -> None:
        """Close what is open, connections too."""
        await self.openai.close()
        trouble = ""
        try:
            await self.reader.close()
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"[:300]
        done("leave", trouble)

    # -- what acts are made of --------------------------------------------------------------------

    def prompt(self) -> str:
        """Some words, often with a beginning that others have too."""
        return "".join(self.draw.choices(WORDS, k=self.draw.randint(1, 4)))

    def body(self, max_tokens: int = SHORT, **more: Any) -> dict[str, Any]:
        """A completion."""
        return {"prompt": self.prompt(), "max_tokens": max_tokens, "ignore_eos": True, **more}

    async def post(self, path: str, body: Any = None) -> Any:
        """An answer that must be a good one."""
        answer = await self.link.post(path, body)
        if answer.status_code >= 300:
            raise Wrong(f"{path}: {answer.status_code} {answer.text[:200]}")
        return answer.json()

    async def reset(self, config: dict[str, Any] | None = None) -> None:
        """A fresh engine that runs."""
        await self.post("/api/engine/reset", {"config": config or {}})
        await self.post("/api/engine/run")

    async def running(self) -> None:
        """See that the engine runs: it was paused, put to rest, or never begun."""
        await self.post("/api/engine/run")


def check_lost(answer: httpx.Response) -> None:
    """Of a request whose engine was reset: it was complete, or its client is told."""
    if answer.status_code != 200 and answer.json()["error"]["code"] != "engine_replaced":
        raise Wrong(f"a request that was reset away: {answer.status_code} {answer.text[:200]}")


@asynccontextmanager
async def beside(asked: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """A request that is under way meanwhile; nobody waits for it any more afterwards."""
    task = asyncio.create_task(asked)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- acts ---------------------------------------------------------------------------------------


async def complete(visitor: Visitor) -> None:
    """Ask, and wait for the whole answer."""
    await visitor.running()
    answer = await visitor.post("/v1/completions", visitor.body(logprobs=3))
    tokens = answer["choices"][0]["logprobs"]["tokens"]
    if len(tokens) != SHORT:
        raise Wrong(f"{len(tokens)} tokens came of {SHORT}")


async def complete_several(visitor: Visitor) -> None:
    """Two prompts, three sequences of each."""
    await visitor.running()
    prompts = [visitor.prompt(), visitor.prompt()]
    answer = await visitor.post(
        "/v1/completions", visitor.body(n=3, temperature=0.9, seed=1) | {"prompt": prompts}
    )
    if len(answer["choices"]) != 6:
        raise Wrong(f"{len(answer['choices'])} choices came of 6")


async def stream(visitor: Visitor) -> None:
    """OpenAI's client, streaming, to the end."""
    await visitor.running()
    chunks = await visitor.openai.completions.create(
        model="tiny-random", prompt=visitor.prompt(), max_tokens=SHORT, stream=True, logprobs=2
    )
    reason = None
    async for chunk in chunks:
        reason = chunk.choices[0].finish_reason or reason
    if reason not in ("length", "stop"):
        raise Wrong(f"the stream ended with {reason}")


async def chat(visitor: Visitor) -> None:
    """OpenAI's client, a chat, now and then as a stream."""
    await visitor.running()
    messages: Any = [{"role": "user", "content": visitor.prompt()}]
    if visitor.draw.random() < 0.5:
        answer = await visitor.openai.chat.completions.create(
            model="tiny-random", messages=messages, max_tokens=SHORT, n=2
        )
        if len(answer.choices) != 2:
            raise Wrong(f"{len(answer.choices)} choices came of 2")
        return
    chunks = await visitor.openai.chat.completions.create(
        model="tiny-random", messages=messages, max_tokens=SHORT, stream=True
    )
    async for _ in chunks:
        pass


async def leave_a_stream(visitor: Visitor) -> None:
    """Go away after some tokens of many."""
    await visitor.running()
    chunks = await visitor.openai.completions.create(
        model="tiny-random", prompt=visitor.prompt(), max_tokens=LONG, stream=True, n=2
    )
    async for _ in chunks:
        if visitor.draw.random() < 0.3:
            break
    await chunks.close()


async def leave_an_answer(visitor: Visitor) -> None:
    """Go away while the engine stands, before anything has come."""
    await visitor.post("/api/engine/pause")
    async with beside(visitor.link.post("/v1/completions", visitor.body(LONG))):
        await visitor.post("/api/engine/step")
        await asyncio.sleep(visitor.draw.uniform(0, 0.3))
    await visitor.running()


async def take_back(visitor: Visitor) -> None:
    """Abort a request of one's own; its stream ends."""
    await visitor.running()
    async with visitor.link.client.stream(
        "POST",
        "/v1/completions",
        json=visitor.body(LONG, stream=True),
        headers=visitor.link.headers,
    ) as answer:
        name = answer.headers["x-request-id"]
        taken = await visitor.link.post("/api/engine/abort", {"request": name})
        if taken.status_code not in (200, 404):  # 404: it had ended already
            raise Wrong(f"abort: {taken.status_code} {taken.text[:200]}")
        lines = [line async for line in answer.aiter_lines() if line]
    if lines[-1] != "data: [DONE]":
        raise Wrong(f"the aborted stream ended with {lines[-1]!r}")


async def reset_under_way(visitor: Visitor) -> None:
    """Reset to other settings while a request is under way; its client is told."""
    await visitor.running()
    async with beside(visitor.link.post("/v1/completions", visitor.body(LONG))) as asking:
        await asyncio.sleep(visitor.draw.uniform(0, 0.2))
        await visitor.reset(visitor.draw.choice(CONFIGS))
        check_lost(await asking)


async def step_by_hand(visitor: Visitor) -> None:
    """Step and check after each phase, while a client waits."""
    await visitor.post("/api/engine/pause")
    async with beside(visitor.post("/v1/completions", visitor.body())) as asking:
        for command in ("step", "phase", "phase", "step"):
            await visitor.post(f"/api/engine/{command}", {"check": True})
        found = await visitor.post("/api/engine/check")
        if found["num_violations"]:
            raise Wrong(f"integrity: {found['messages']}")
        await visitor.running()
        await asking


async def save_and_restore(visitor: Visitor) -> None:
    """Save the engine in the middle of its work, and go on from the file."""
    link = visitor.link
    await visitor.running()
    async with beside(link.post("/v1/completions", visitor.body(LONG))) as asking:
        await asyncio.sleep(visitor.draw.uniform(0, 0.1))
        await visitor.post("/api/engine/finish")
        answer = await link.client.get("/api/engine/moment", headers=link.headers)
        if answer.status_code != 200:
            raise Wrong(f"moment: {answer.status_code} {answer.text[:200]}")
        restored = await link.client.post(
            "/api/engine/restore", content=answer.content, headers=link.headers
        )
        if restored.status_code != 200:
            raise Wrong(f"restore: {restored.status_code} {restored.text[:200]}")
        if visitor.draw.random() < 0.5:
            await visitor.post("/api/engine/restore_kept")
        check_lost(await asking)
    await visitor.running()


async def compare(visitor: Visitor) -> None:
    """Compare two settings on a small workload; sometimes only begin to."""
    await visitor.reset()
    await visitor.post("/v1/completions", visitor.body())
    begun = await visitor.link.post("/api/compare", COMPARED)
    if begun.status_code == 429:  # as many run as may
        return
    if begun.status_code != 202:
        raise Wrong(f"compare: {begun.status_code} {begun.text[:200]}")
    client, headers = visitor.link.client, visitor.link.headers
    if visitor.draw.random() < 0.3:
        await client.delete("/api/compare", headers=headers)
    while (found := (await client.get("/api/compare", headers=headers)).json())[
        "stage"
    ] == "running":
        await asyncio.sleep(0.2)
    if found["stage"] not in ("done", "cancelled"):
        raise Wrong(f"compare: {found}")


async def read_elsewhere(visitor: Visitor) -> None:
    """Metrics and the whole log in each of its forms."""
    client, headers = visitor.link.client, visitor.link.headers
    for path in ("/metrics", "/api/trace", "/api/trace?format=csv", "/api/trace?format=perfetto"):
        answer = await client.get(path, headers=headers)
        if answer.status_code != 200 or not answer.content:
            raise Wrong(f"{path}: {answer.status_code} {answer.text[:200]}")


async def ask_everybodys(visitor: Visitor) -> None:
    """The shared engine, with no key."""
    answer = await visitor.link.client.post("/v1/completions", json=visitor.body())
    if answer.status_code != 200:
        raise Wrong(f"shared: {answer.status_code} {answer.text[:200]}")


async def ask_wrongly(visitor: Visitor) -> None:
    """What must be refused, in words."""
    link = visitor.link
    wrong = {"prompt": "a", "max_tokens": -1}
    for path, body, status in (
        ("/v1/completions", wrong, 400),
        ("/v1/completions", {"prompt": "long " * 3_000}, 400),
        ("/api/engine/reset", {"config": {"block_size": 7.5}}, 400),
        ("/api/engine/abort", {"request": "nobody"}, 404),
        ("/api/engine/restore", {"no": "moment"}, 400),
    ):
        answer = await link.post(path, body)
        if answer.status_code != status or "message" not in answer.json()["error"]:
            raise Wrong(f"{path} {body!s:.60}: {answer.status_code} {answer.text[:200]}")
    try:
        stranger = visitor.openai.with_options(api_key="gb-nobody")
        await stranger.completions.create(model="tiny-random", prompt="a")
        raise Wrong("a key that nobody has was let in")
    except APIStatusError as error:
        if error.status_code != 401:
            raise Wrong(f"a strange key: {error}") from None


async def look_at_the_page(visitor: Visitor) -> None:
    """Open the page, click about, leave."""
    await visit_page(visitor.url, visitor.draw.randint(1, 3))


async def go_away(visitor: Visitor) -> None:
    """Leave for so long that the engine is put to rest, and come back."""
    await visitor.reader.close()
    await asyncio.sleep(AWAY_SECONDS)
    visitor.reader.open()
    await complete(visitor)


Act = Callable[[Visitor], Awaitable[None]]
ACTS: dict[Act, int] = {  # how often, beside each other
    complete: 10,
    complete_several: 5,
    stream: 10,
    chat: 10,
    leave_a_stream: 8,
    leave_an_answer: 5,
    take_back: 8,
    reset_under_way: 6,
    step_by_hand: 5,
    save_and_restore: 4,
    compare: 2,
    read_elsewhere: 2,
    ask_everybodys: 3,
    ask_wrongly: 3,
    look_at_the_page: 2,
    go_away: 2,
}
