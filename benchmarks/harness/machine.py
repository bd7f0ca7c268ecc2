"""Where a run was made: figures of two machines are not compared."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from engine.memory import memory_bytes
from scripts.setup import SetupError, find_browser

YARDSTICK_TURNS, YARDSTICK_TRIES = 1_000_000, 5
ROOT = Path(__file__).resolve().parents[2]


class Machine(BaseModel):
    """What a figure depends on besides the code."""

    model_config = ConfigDict(frozen=True)

    cpu: str
    cores: int  # that this process may use
    threads: int  # that torch computes with
    memory_bytes: int
    load: float  # processes that wanted a core in the minute before the run; -1: unknown
    yardstick_ms: float = -1.0  # of a fixed loop of Python; -1: unknown, in files of before
    system: str
    python: str
    torch: str
    transformers: str
    streamlit: str
    chromium: str  # "" where there is none
    commit: str  # "+" at its end: with changes that are not committed


def this_machine() -> Machine:
    """The machine, and the code as it is."""
    import torch

    return Machine(
        cpu=cpu_name(),
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        memory_bytes=memory_bytes(torch.device("cpu")),
        load=load(),
        yardstick_ms=yardstick_ms(),
        system=platform.platform(),
        python=platform.python_version(),
        torch=version("torch"),
        transformers=version("transformers"),
        streamlit=version("streamlit"),
        chromium=chromium_version(),
        commit=commit(),
    )


def cpu_name() -> str:
    """The processor as its maker calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return output_of(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.processor()


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float:
    """How busy the machine was before the run: what else runs on it spoils its figures."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else -1.0


def yardstick_ms() -> float:
    """How fast one core is at the moment: the best of several turns of one loop, in CPU time."""
    taken = []
    for _ in range(YARDSTICK_TRIES):
        began, total = time.process_time(), 0
        for number in range(YARDSTICK_TURNS):
            total += number * number
        taken.append(time.process_time() - began)
    return round(min(taken) * 1e3, 1)


def chromium_version() -> str:
    """Of the browser that is looked through."""
    try:
        found = find_browser()
    except SetupError:
        return ""
    return output_of([found, "--version"]) if found else ""


def commit() -> str:
    """The commit that is checked out, marked where the working tree differs from it."""
    head = output_of(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"])
    changed = output_of(["git", "-C", str(ROOT), "status", "--porcelain"])
    return head + "+" * bool(head and changed)


def output_of(command: list[str]) -> str:
    """What a program says, "" where it cannot."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
