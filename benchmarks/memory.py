"""Memory of a server with the default model and one session, and of each session more.

README.md, "memory", says what a session has done by then.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_most, figure, not_measured
from benchmarks.pages import VisitedPage, visit
from tests.chromium import chromium
from tests.servers import running_app

MORE_SESSIONS = 4
PROMPTS, PROMPT_TOKENS, MAX_TOKENS = 16, 60, 20  # together more blocks than the pool has
SETTLE_MS = 3000.0
MB = 1e6
SERVER_GOAL, SESSION_GOAL = at_most(1600.0), at_most(20.0)


class Memory(NamedTuple):
    """Of one process, in bytes."""

    rss: int  # pages that are in memory
    pss: int | None  # the same, pages shared with others counted in part; None: not known


class Session(NamedTuple):
    """The server's memory after a session did its work, and the session's pool, in bytes."""

    server: Memory
    pool: int


def measure(effort: Effort) -> list[Figure]:
    """One server; visitors come one after the other, and stay."""
    count = 1 + effort.samples(MORE_SESSIONS)
    with running_app(model="") as (app, url), chromium() as browser, ExitStack() as tabs:
        sessions = [
            session_of(tabs.enter_context(visit(browser, url)), app.process.pid)
            for _ in range(count)
        ]
    more = list(zip(sessions, sessions[1:], strict=False))
    growth = [after.server.rss - before.server.rss for before, after in more]
    beside = [grown - after.pool for grown, (_, after) in zip(growth, more, strict=True)]
    return [
        figure("server with one session, RSS", "MB", [sessions[0].server.rss / MB], SERVER_GOAL),
        pss_figure(sessions[0].server),
        figure("one more session, RSS", "MB", [grown / MB for grown in growth]),
        figure("its pool", "MB", [after.pool / MB for _, after in more]),
        figure("one more session beside its pool", "MB", [b / MB for b in beside], SESSION_GOAL),
    ]


def pss_figure(memory: Memory) -> Figure:
    """Beside RSS, where the system tells it."""
    name = "server with one session, PSS"
    if memory.pss is None:
        return not_measured(name, "MB", "this system does not tell it")
    return figure(name, "MB", [memory.pss / MB])


def session_of(visited: VisitedPage, pid: int) -> Session:
    """Let the visitor's engine work, and look at the server."""
    work(visited)
    visited.page.wait_for_timeout(SETTLE_MS)
    return Session(memory_of(pid), pool_bytes(visited))


def work(visited: VisitedPage) -> None:
    """Fill every block of the pool once: no part of it stays untouched, and so uncounted."""
    prompts = [
        [100 + number * PROMPT_TOKENS + i for i in range(PROMPT_TOKENS)]
        for number in range(PROMPTS)
    ]
    visited.post("/api/engine/run", {})
    visited.post(
        "/v1/completions", {"prompt": prompts, "max_tokens": MAX_TOKENS, "ignore_eos": True}
    )


def pool_bytes(visited: VisitedPage) -> int:
    """The size of the KV-cache pool, computed from what the log's header says."""
    header = visited.store("return { config: s.header.config, model: s.header.model };")
    tokens = header["config"]["num_gpu_blocks"] * header["config"]["block_size"]
    return int(tokens * header["model"]["kv_bytes_per_token"])


def memory_of(pid: int) -> Memory:
    """From /proc, or from `ps` where there is none."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        told = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
        )
        return Memory(int(told.stdout) * 1024, None)
    kilobytes = {
        line.split()[0]: int(line.split()[1]) for line in rollup.splitlines() if "kB" in line
    }
    return Memory(kilobytes["Rss:"] * 1024, kilobytes["Pss:"] * 1024)
