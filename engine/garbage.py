"""Keeps Python's garbage collector from looking at what stays, and gives back what is free.

Part of no box. vLLM 0.26.0: `freeze_gc_heap` in `vllm/utils/gc_utils.py`.
"""

from __future__ import annotations

import ctypes
import gc
import os

# Containers that may be made before a collection, by default 700. A step makes thousands of small
# records, none in a cycle: nearly all collections would walk the log in vain.
BEFORE_COLLECTION = 20_000
M_ARENA_MAX = -8  # of glibc's malloc.h
ARENAS = 2


def keep_what_is_here() -> None:
    """What there is now stays for good, as in a server once it is set up: modules, a model."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(BEFORE_COLLECTION)


def share_heaps() -> bool:
    """Have all threads take memory from two heaps; whether the system's allocator was told.

    glibc has eight for each core, one for each of the first threads. What is free in one is of no
    use to the others, so that a server of many threads grows for long though it holds no more.
    Early, as heaps that are there stay. Whoever set `MALLOC_ARENA_MAX` is heard.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return False
    told = _of_libc("mallopt")
    return told is not None and bool(told(M_ARENA_MAX, ARENAS))


def give_back() -> bool:
    """Give the system the free pages inside the heaps; whether there were any.

    Takes a tenth of a second where much is free, of which Python's other threads notice nothing.
    """
    trim = _of_libc("malloc_trim")
    return trim is not None and bool(trim(0))


def _of_libc(name: str) -> ctypes._NamedFuncPointer | None:
    """A function of the system's allocator; None where it is another one."""
    try:
        function: ctypes._NamedFuncPointer = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # musl, macOS; Windows
        return None
    return function
