"""What stands before every HTTP request: who may ask, and how much.

Box `client-req`, its other end. vLLM 0.26.0 has no page to guard; its middlewares are under
`vllm/entrypoints/`. Pure ASGI, so that streams pass as they are.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api.headers import SecurityHeaders
from engine.api.protocol import ApiError
from engine.limits import limit, named
from engine.moment import max_moment_bytes
from engine.terminal import EscapeCommands


class BodySize(NamedTuple):
    """How large a body may be, and the server's setting for it."""

    num_bytes: int
    setting: str


ANY_BODY = BodySize(limit("MAX_BODY_MB", 8) << 20, "MAX_BODY_MB")
# Where a body may be larger than any prompt.
BODIES = {
    "/api/export": BodySize(limit("MAX_TRACE_MB", 64) << 20, "MAX_TRACE_MB"),
    "/api/engine/restore": BodySize(max_moment_bytes(), "MAX_MOMENT_MB"),
}
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
GUARDED_PATHS = ("/api", "/v1")
ANY_HOST = "*"


def guards(
    content_security_policy: str, environ: Mapping[str, str] = os.environ
) -> list[Middleware]:
    """The middleware of the application, outermost first; what its pages may load is theirs."""
    return [
        Middleware(SecurityHeaders, content_security_policy=content_security_policy),
        Middleware(KnownHost, allowed=allowed_hosts(environ)),
        Middleware(SameOrigin),
        Middleware(BodyLimit),
    ]


def allowed_hosts(environ: Mapping[str, str]) -> frozenset[str]:
    """Names that this server goes by: this machine's, HOST, and those of ALLOWED_HOSTS."""
    own = socket.gethostname().lower()
    listed = (environ.get("ALLOWED_HOSTS") or "").replace(",", " ").lower().split()
    names = ["localhost", own, f"{own}.local", environ.get("HOST", "").lower(), *listed]
    return frozenset(name for name in names if name)


class KnownHost:
    """Names that somebody else made point here are not answered to (DNS rebinding).

    An address in numbers cannot be made to point elsewhere, so all of those pass. Starlette's own
    TrustedHostMiddleware takes no IPv6 address and answers in plain text.
    """

    def __init__(self, app: ASGIApp, allowed: frozenset[str]):
        self.app = app
        self.allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self.knows(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            error = unknown_host(Headers(scope=scope).get("host", ""))
            await JSONResponse(error.body(), error.status)(scope, receive, send)

    def knows(self, scope: Scope) -> bool:
        """Whether the request was made to a name that is this server's, or to an address."""
        name = host_name(Headers(scope=scope).get("host", ""))
        if ANY_HOST in self.allowed or name in self.allowed or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def host_name(host: str) -> str:
    """A Host header's name, without port and brackets."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.strip().lower().removesuffix(".")


def unknown_host(host: str) -> ApiError:
    """What is said to who came by another name."""
    return ApiError(
        f"this server does not answer to the name {host!r:.200}: start it with that name in "
        "ALLOWED_HOSTS (names with commas between them, * for any), or use an address in numbers",
        403,
        code="unknown_host",
    )


class SameOrigin:
    """Other sites' pages must not command engines: this server listens where browsers reach it.

    Nor may they open a web socket. Streamlit would look for the machine's public address before it
    refuses one, which asks a server elsewhere and holds everybody up meanwhile.
    """

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and is_foreign(scope):
            await send({"type": "websocket.close", "code": 1008})
        elif may_command(scope) and is_foreign(scope):
            error = ApiError("a page of another site may not send this", 403, code="foreign_origin")
            await JSONResponse(error.body(), error.status)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def may_command(scope: Scope) -> bool:
    """Whether it asks the API for more than to be told something."""
    return scope["type"] == "http" and scope["method"] not in SAFE_METHODS and is_guarded(scope)


def is_guarded(scope: Scope) -> bool:
    """Whether the address is one of the API's."""
    return any(f"{scope['path']}/".startswith(f"{path}/") for path in GUARDED_PATHS)


def is_foreign(scope: Scope) -> bool:
    """Whether a page of another site sends this. Programs send no Origin."""
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


class BodyLimit:
    """No body of the API's may be larger than what any prompt needs; a log's may be."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_guarded(scope):
            await self.app(scope, receive, send)
            return
        most = BODIES.get(scope["path"], ANY_BODY)
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdigit() and int(declared) > most.num_bytes:
            await JSONResponse(too_large(most).body(), 413)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most.num_bytes:
                # Of FastAPI's own kind: any other that comes out of a body becomes its 400.
                raise HTTPException(413, too_large(most).message)
            return message

        await self.app(scope, counted, send)


def too_large(most: BodySize) -> ApiError:
    """What is said of a body that is larger than it may be."""
    size = f"the body is larger than {most.num_bytes >> 20} MB"
    return ApiError(f"{size} {named(most.setting)}", 413, code="too_large")


class HideSecrets(logging.Filter):
    """Takes what opens an engine out of what is logged: addresses, messages, tracebacks."""

    IN_ADDRESS = re.compile(r"(?i)\b(ticket|key|api_key|token)=[^&\s]*")
    KEY = re.compile(r"\bgbl?-[\w-]{32,}")  # of a session, of a learner (`Register`)
    TRACEBACK = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self._clean(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(self._clean(item) for item in record.args)
        if record.exc_info and not record.exc_text:  # formatters take the text that is there
            record.exc_text = self.TRACEBACK.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = str(self._clean(record.exc_text))
        return True

    def _clean(self, item: Any) -> Any:
        """What has no secret in it stays what it is."""
        text = str(item)
        shown = self.KEY.sub("gb-hidden", self.IN_ADDRESS.sub(r"\1=hidden", text))
        return item if shown == text else shown


def guard_logs() -> None:
    """Once uvicorn has set up its loggers: no secret is logged, and nothing commands a terminal."""
    for name in ("uvicorn.access", "uvicorn.error", "asyncio", "glassbox"):
        logger = logging.getLogger(name)
        for kind in (HideSecrets, EscapeCommands):
            if not any(isinstance(item, kind) for item in logger.filters):
                logger.addFilter(kind())
