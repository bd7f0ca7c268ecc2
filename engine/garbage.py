"""Keeps Python's garbage collector from looking again and again at what stays.

Part of no box. vLLM 0.26.0: `freeze_gc_heap` in `vllm/utils/gc_utils.py`.
"""

from __future__ import annotations

import gc

# Containers that may be made before a collection, by default 700. A step makes thousands of small
# records, none in a cycle: nearly all collections would walk the log in vain.
BEFORE_COLLECTION = 20_000


def keep_what_is_here() -> None:
    """What there is now stays for good, as in a server once it is set up: modules, a model."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(BEFORE_COLLECTION)
