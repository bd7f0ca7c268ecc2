"""Whether numba is there, and how many threads its kernels may use. No box of the map."""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from functools import cache

import torch

_told = threading.local()


def numba_is_installed() -> bool:
    """Whether it is there and may compile; it is imported when a kernel is needed."""
    compiles = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
    return compiles and importlib.util.find_spec("numba") is not None


@cache
def has_threads() -> bool:
    """Whether numba can share OpenMP's way of waiting; its own threads take one caller at most."""
    try:
        importlib.import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    return True


def threads() -> int:
    """As many as torch has: each of the two sleeps while the other one works."""
    if not has_threads():
        return 1
    import numba

    wanted = min(torch.get_num_threads(), int(numba.config.NUMBA_NUM_THREADS))
    if wanted != getattr(_told, "threads", None):
        numba.set_num_threads(wanted)  # numba keeps it for each thread that calls
        _told.threads = wanted
    return wanted
