"""The inside of the process that interprets kernels (box `paged-attn`); see `process.py`."""

from __future__ import annotations

import importlib
import os
import select
import sys
import traceback
from typing import Any

import torch

from engine.paged_attention.triton.process import packed, receive, send, unpacked

IDLE_SECONDS = 300.0
LONGEST_TEXT = 300


def main() -> None:
    """Run what stdin asks for until it closes or nothing comes for a while."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what kernels and libraries print must not come between
    torch.set_num_threads(1)  # the interpreter is Python and NumPy
    while select.select([sys.stdin], [], [], IDLE_SECONDS)[0]:
        try:
            message = receive(sys.stdin.buffer)
        except EOFError:
            return
        send(answers, packed(answer_to(message)))


def answer_to(message: bytes) -> dict[str, Any]:
    """The result of the function that is asked for, or what went wrong."""
    try:
        asked = unpacked(message)
        module, _, name = asked["function"].partition(":")
        return {"result": getattr(importlib.import_module(module), name)(asked["task"])}
    except Exception as error:
        print(traceback.format_exc(limit=-5)[-10_000:], file=sys.stderr)
        return {"error": said(error)}


def said(error: BaseException) -> str:
    """An error in a line. The interpreter wraps errors in errors that quote whole tensors."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).splitlines() or [""]
    return f"the kernel did not run: {type(error).__name__}: {lines[0][:LONGEST_TEXT]}"
