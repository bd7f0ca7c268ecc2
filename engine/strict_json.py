"""JSON of strangers, read by the letter: what Python's parser takes beyond it is refused.

A key that is there twice means one thing to one reader and another to the next; NaN, and numbers
that are too large to be one, are no JSON and cannot be sent on. No counterpart in vLLM.
"""

from __future__ import annotations

import json
import math
from typing import Any

MOST_SHOWN = 60  # characters of a key or a number


class StrictJsonError(ValueError):
    """What is wrong with a text that `json.loads` would take, or gives no place for."""


def loads(text: str | bytes) -> Any:
    """The value; `json.JSONDecodeError` with its place, or `StrictJsonError` with what is wrong.

    Bytes that are no UTF-8 raise UnicodeDecodeError.
    """
    if isinstance(text, bytes):  # json.loads would guess UTF-16 as well
        text = text.decode("utf-8")
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float
        )
    except (json.JSONDecodeError, StrictJsonError):
        raise
    except RecursionError:
        raise StrictJsonError("it is nested too deeply") from None
    except ValueError:  # an integer of more digits than Python reads
        raise StrictJsonError("a number in it has too many digits") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise StrictJsonError(f"the key {shown(twice)} is there more than once; keep one of them")
    return found


def _constant(name: str) -> Any:
    raise StrictJsonError(f"{name} is no number of JSON")


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise StrictJsonError(f"the number {shown(digits)} is too large")
    return number


def shown(text: str) -> str:
    """As a message has it: cut, and with its control characters and surrogates escaped."""
    return ascii(text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "...")
