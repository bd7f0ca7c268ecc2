"""Limits of the server that whoever starts it may set, by environment variables.

No box of its own. vLLM 0.26.0 has its own in `vllm/envs.py`.
"""

from __future__ import annotations

import logging
import os

PREFIX = "GLASSBOX_"

log = logging.getLogger("glassbox")


def named(name: str) -> str:
    """What a refusal says at its end, so that who runs the server knows what to change."""
    return f"({PREFIX}{name} is the server's setting for it)"


def limit(name: str, default: int, most: int | None = None) -> int:
    """The setting GLASSBOX_<name>, a whole number from 1 to `most`; what is none is said, and
    the default stays."""
    given = os.environ.get(PREFIX + name, "").strip()
    if not given:
        return default
    if given.isdecimal() and 1 <= int(given) <= (most or int(given)):
        return int(given)
    upto = f" to {most:,}" if most is not None else " on"
    log.warning(
        "%s%s: %.40r is no whole number from 1%s; it stays at %s",
        PREFIX,
        name,
        given,
        upto,
        f"{default:,}",
    )
    return default
