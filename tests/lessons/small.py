"""A small lesson, for tests that change one thing of it, and the log of a recorded workload."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from engine.conformance import Conformance, load_workload
from engine.trace import Trace
from lessons.format import Lesson
from lessons.loader import load
from tests.engine.workloads import workload_path

SMALL = """---
id: small
kind: tour
title: Small
summary: A request.
minutes: 1
variant:
  size: {choose: [4]}
  prompt: {from: 9, to: 11}
steps:
  - id: first
    title: First
  - id: second
    title: Second
    focus: {view: block-allocation, box: block-manager, request: r0}
    run:
      reset: true
      config: {block_size: =size, num_gpu_blocks: 16}
      send:
        - prompt: Once upon a time
          tokens: =prompt
          sampling: {max_tokens: 3, ignore_eos: true}
      until: {phase: schedule}
    questions:
      - id: blocks
        kind: number
        ask: How many blocks?
        answer: blocks('r0')
        right: Right.
        wrong:
          - value: prompt // size
            says: The last block is missing.
          - value: prompt
            says: A block holds {{size}} tokens.
        otherwise: Not {{given}}.
---
## first
Something of {{prompt}} tokens.

## second
[[block-manager]] gave {{blocks('r0')}} blocks.
"""


def write(folder: Path, text: str = SMALL, name: str = "small") -> Path:
    """The lesson as a file."""
    path = folder / f"{name}.md"
    path.write_text(text)
    return path


def small(folder: Path, old: str = "", new: str = "") -> Lesson:
    """The lesson, with one thing of it changed."""
    assert old in SMALL
    return load(write(folder, SMALL.replace(old, new, 1)))


@cache
def recorded(name: str) -> Trace:
    """The engine's log of a recorded workload, run to its end."""
    workload, _ = load_workload(workload_path(name))
    conformance = Conformance(workload)
    for _ in conformance.steps():
        pass
    return conformance.trace
