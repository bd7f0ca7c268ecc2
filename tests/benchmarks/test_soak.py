"""What the soak's visitors notice, and what its counts say. Nothing here is timed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from benchmarks.server.link import Link, Message, messages_of
from benchmarks.server.watched import look
from benchmarks.soak import count, more
from benchmarks.soak.reader import Gap, Reader
from engine.async_llm import AsyncLLM
from engine.config import EngineConfig
from engine.model_loader import load_model


def reader() -> Reader:
    link: Any = None
    return Reader(link)


def records(*seqs: int) -> Message:
    return Message("records", f"trace:{seqs[-1]}", [{"seq": seq} for seq in seqs])


def test_a_reader_notices_what_is_missing_or_comes_twice() -> None:
    found = reader()
    found._take(Message("header", "", {"base_seq": 5}))
    found._take(records(5, 6))
    found._take(records(7))
    assert (found.records, found.cursor) == (3, "trace:7")
    with pytest.raises(Gap, match="record 9 came where 8 was due"):
        found._take(records(9))
    with pytest.raises(Gap, match="record 7 came where 8 was due"):
        found._take(records(7))
    with pytest.raises(Gap, match="failed"):
        found._take(Message("failed", "", {}))


def test_messages_are_read_as_they_were_sent() -> None:
    async def lines() -> AsyncIterator[str]:
        for line in (": ping", "", "event: header", "data: {}", "", "id: a:3", "data: [1]", ""):
            yield line

    async def read() -> list[Message]:
        return [message async for message in messages_of(lines())]

    assert asyncio.run(read()) == [Message("header", "", {}), Message("message", "a:3", [1])]


def test_only_what_came_on_top_counts_as_more() -> None:
    figure = more(
        "threads more", Counter({"engine": 1, "old": 2}), Counter({"engine": 3, "new": 1})
    )
    assert (figure.value, figure.verdict, figure.note) == (3, "missed", "engine 2, new 1")
    assert more("files more", Counter("ab"), Counter("a")).verdict == "met"
    assert count("errors", []).verdict == "met"
    assert count("errors", ["late", "late", "lost"]).note == "late (2); lost (1)"


def test_a_look_finds_a_block_that_nobody_asks_for() -> None:
    llm = AsyncLLM(load_model("tiny-random"), EngineConfig(num_gpu_blocks=8))
    try:
        assert look(llm.core) == (0, [])
        llm.core.scheduler.kv_cache_manager.block_pool.get_new_blocks(1, "nobody")
        held, broken = look(llm.core)
        assert held == 1 and any(rule.startswith("leaks") for rule in broken)
    finally:
        llm.close()


def test_a_link_sends_its_key_as_the_page_does() -> None:
    client: Any = None
    assert Link(client, "gb-1").headers == {"Authorization": "Bearer gb-1"}
