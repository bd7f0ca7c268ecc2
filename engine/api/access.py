"""Whose engine an HTTP request may reach: the key it brings decides.

Box `client-req`, its other end. vLLM 0.26.0 has one engine, and one key for all (`--api-key` of
`vllm/entrypoints/openai/cli_args.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from engine import strict_json
from engine.api.protocol import ApiError
from engine.async_llm import AsyncLLM
from engine.audience import KEY as NAMED_KEY
from engine.sessions import SHARED_KEY, Sessions


class Makers:
    """Threads on which engines are made or woken, which waits for the engine thread or the disk.

    Not the event loop's own ones, which all other answers need. However many ask for one engine
    meanwhile, one thread at most is at it: the others are there for others' engines.
    """

    def __init__(self, threads: int):
        self._pool = ThreadPoolExecutor(threads, "engine-maker")
        self._lock = threading.Lock()
        self._making: dict[tuple[Sessions, str], Future[AsyncLLM | None]] = {}

    def make(self, sessions: Sessions, key: str) -> Future[AsyncLLM | None]:
        """The engine behind a key that opens one, None where it does no more by then."""
        name = sessions, (SHARED_KEY if sessions.is_shared(key) else key)
        with self._lock:
            if name not in self._making:
                self._making[name] = self._pool.submit(self._make, *name)
            return self._making[name]

    def _make(self, sessions: Sessions, key: str) -> AsyncLLM | None:
        try:
            return sessions.shared() if key == SHARED_KEY else sessions.get(key)
        finally:
            with self._lock:
                del self._making[sessions, key]


MAKERS = Makers(8)


class Access(NamedTuple):
    """Whose engine a request goes to."""

    key: str  # a session's, or one of the shared engine
    engine: AsyncLLM
    is_shared: bool  # it may send and watch, and no more


def bearer_key(request: Request) -> str:
    """The key that a request brings; SHARED_KEY where it brings none."""
    header = request.headers.get("authorization", "")
    if not header.strip():
        return SHARED_KEY
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise unauthorized("the Authorization header must read `Bearer KEY`")
    return key.strip()


async def access(sessions: Sessions, request: Request) -> Access:
    """The engine of a request's key; ApiError 401 for a key that nobody has."""
    key = bearer_key(request)
    engine = await engine_of(sessions, key)
    # Asked once: what a name opens can end at any time, and must not become more by that.
    return Access(key, engine, is_shared=not sessions.knows(key))


async def own_access(sessions: Sessions, request: Request) -> Access:
    """`access`, to an engine that may be commanded: a session's own."""
    found = await access(sessions, request)
    if found.is_shared:
        raise ApiError("the shared engine belongs to nobody: it runs, and cannot be commanded", 403)
    return found


def check_key(sessions: Sessions, key: str) -> str:
    """`key` if it opens an engine; ApiError 401 if not."""
    if sessions.is_shared(key):
        if not sessions.shared_enabled:
            raise unauthorized(
                "this server's shared engine is turned off: send a session's key as API key"
            )
    elif key.startswith(NAMED_KEY):
        raise unauthorized(
            "this key sends to the shared engine while its class has the floor, and it has not, or "
            "the key is another one by now: see Connect"
        )
    elif not sessions.knows(key):
        raise unauthorized("unknown API key: take the one that the page shows, or none (or EMPTY)")
    return key


async def known_key(sessions: Sessions, request: Request) -> str:
    """`check_key` of the key that a request brings, without holding up the event loop."""
    key = bearer_key(request)
    if key.startswith(NAMED_KEY):  # the name behind it is looked up on a disk or over a network
        return await asyncio.to_thread(check_key, sessions, key)
    return check_key(sessions, key)


class StrictRequest(Request):
    """A request whose body is JSON by the letter (`engine/strict_json.py`)."""

    async def json(self) -> Any:
        """The body's value; ValueError where it has none."""
        return strict_json.loads(await self.body())


def keyed_router(sessions: Sessions) -> APIRouter:
    """A router that looks at the key before the body: strangers are not told how to ask."""

    class KeyedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()

            async def key_first(request: Request) -> Response:
                await known_key(sessions, request)
                return await handler(StrictRequest(request.scope, request.receive))

            return key_first

    return APIRouter(route_class=KeyedRoute)


def unauthorized(message: str) -> ApiError:
    """A 401 as OpenAI words it."""
    return ApiError(message, 401, code="invalid_api_key", kind="authentication_error")


async def engine_of(sessions: Sessions, key: str) -> AsyncLLM:
    """The engine behind a key, made if need be without holding up the event loop."""
    check_key(sessions, key)
    engine = sessions.at_hand(key)
    if engine is None:
        # Who waits no more takes it from nobody else.
        engine = await asyncio.shield(asyncio.wrap_future(MAKERS.make(sessions, key)))
    if engine is None:
        raise unauthorized("this key is not good any more")
    return engine
