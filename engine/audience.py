"""Who may send requests to the shared engine, and how much: what a class that watches one needs.

Beside box `client-req`. vLLM 0.26.0 has no counterpart: who serves many people with one engine puts
a gateway before it. Nothing of this is known to the scheduler; a request that is let in is one as
any other, with the name that its sender chose as its `source`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from engine.config import ConfigError
from engine.engine_errors import EngineBusy, EngineError
from engine.input_processor import Encoded

KEY = "gb-class-"  # begins the key of somebody with a name
NAMED = "class:"  # begins the source of their requests; what follows is the name
KNOWN_SECONDS = 5.0  # a name is looked up again after that
MOST_KNOWN = 2_000

OpenTo = Literal["everybody", "class", "nobody"]


class Rules(NamedTuple):
    """What the shared engine takes; 0 is no limit."""

    open_to: OpenTo = "everybody"
    most_requests: int = 0  # unfinished sequences of one sender
    most_tokens: int = 0  # of a request: of its prompt, and those that it may generate


class NotAdmitted(EngineError):
    """The shared engine takes nothing from this sender; the message says why."""


class Audience:
    """The rules of the shared engine, and whose key is whose."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.rules = Rules()
        self.look_up: Callable[[str], str | None] = lambda key: None  # the name behind a key
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, float]] = {}

    def name_of(self, key: str) -> str | None:
        """The name of who has this key; None where it is nobody's."""
        if not key.startswith(KEY):
            return None
        with self._lock:
            name, until = self._known.get(key, ("", 0.0))
        if until > self._clock():
            return name
        found = self.look_up(key)
        with self._lock:
            self._known.pop(key, None)
            if found is not None:
                while len(self._known) >= MOST_KNOWN:
                    del self._known[next(iter(self._known))]
                self._known[key] = (found, self._clock() + KNOWN_SECONDS)
        return found

    def source_of(self, key: str) -> str:
        """What the log has as the source of a request that comes over HTTP with this key."""
        name = self.name_of(key)
        return "http" if name is None else NAMED + name

    def admit(self, batch: Sequence[Encoded], source: str, held: int) -> None:
        """Let requests in; `held` sequences of their source are under way. On the engine thread.

        Raises NotAdmitted, ConfigError (field "max_tokens") and EngineBusy. Whoever directs the
        engine from the page is let in always.
        """
        rules = self.rules
        if source == "page":
            return
        if rules.open_to == "nobody":
            raise NotAdmitted("the shared engine takes no requests at the moment; ask the teacher")
        if rules.open_to == "class" and not source.startswith(NAMED):
            raise NotAdmitted(
                "the shared engine takes requests of its class alone; join it, and send with the "
                "key that Connect then shows"
            )
        for item in batch if rules.most_tokens else ():
            check_tokens(item, rules.most_tokens)
        wanted = sum(item.params.n for item in batch)
        if rules.most_requests and held + wanted > rules.most_requests:
            who = "you have" if source.startswith(NAMED) else "those without a name have"
            raise EngineBusy(
                f"the shared engine takes {rules.most_requests} of a sender at once, {who} {held} "
                f"under way, and this would add {wanted}; wait until some have ended"
            )


def check_tokens(item: Encoded, most: int) -> None:
    """Raise ConfigError where a request may have more tokens than `most`."""
    prompt, wanted = len(item.token_ids), item.params.max_tokens
    if prompt + wanted > most:
        left = most - prompt
        mend = f"set max_tokens to {left} or less" if left > 0 else "shorten the prompt"
        raise ConfigError(
            f"max_tokens: a prompt of {prompt} tokens and {wanted} to generate are "
            f"{prompt + wanted}, and the shared engine takes {most} of a request; {mend}",
            field="max_tokens",
        )
