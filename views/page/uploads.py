"""Documents that visitors uploaded, by what is in them: a reload, or a link, brings one back.

They live in the server's memory, the latest of them. A name of one is made of its content, so that
nobody finds a document that he does not have.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict

MOST_UPLOADS = 32  # of at most `MAX_BYTES` each
NAME = re.compile(r"upload-[0-9a-f]{32}")

_lock = threading.Lock()
_held: OrderedDict[str, tuple[str, bytes]] = OrderedDict()


def hold(name: str, data: bytes) -> str:
    """Keep an uploaded document; return what it is found again by."""
    token = f"upload-{hashlib.sha256(data).hexdigest()[:32]}"
    with _lock:
        _held[token] = (name, data)
        _held.move_to_end(token)
        while len(_held) > MOST_UPLOADS:
            _held.popitem(last=False)
    return token


def find(token: str) -> tuple[str, bytes] | None:
    """Return a document's file name and content; None where it is not held any more."""
    with _lock:
        return _held.get(token)


def is_token(text: str) -> bool:
    """Say whether this is a name that `hold` gives."""
    return NAME.fullmatch(text) is not None
