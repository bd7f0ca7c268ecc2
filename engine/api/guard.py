"""What stands before every HTTP request: who may ask, how much, and what browsers may do.

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
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api.protocol import ApiError

MAX_BODY_BYTES = 8 << 20
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
GUARDED_PATHS = ("/api", "/v1")
ANY_HOST = "*"

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


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


class SecurityHeaders:
    """Every answer says what a browser may do with it."""

    def __init__(self, app: ASGIApp, content_security_policy: str):
        self.app = app
        self.headers = {"Content-Security-Policy": content_security_policy, **SECURITY_HEADERS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers[name] = value
                if scope["path"].startswith("/assets/"):
                    headers["Cache-Control"] = "no-cache"
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


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
    """Other sites' pages must not command engines: this server listens where browsers reach it."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS and is_foreign(scope):
            error = ApiError("a page of another site may not send this", 403, code="foreign_origin")
            await JSONResponse(error.body(), error.status)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def is_guarded(scope: Scope) -> bool:
    """Whether the address is one of the API's."""
    return any(f"{scope['path']}/".startswith(f"{path}/") for path in GUARDED_PATHS)


def is_foreign(scope: Scope) -> bool:
    """Whether a page of another site sends this to the API. Programs send no Origin."""
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    if origin is None or not is_guarded(scope):
        return False
    return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


class BodyLimit:
    """No body of the API's may be larger than what any prompt needs."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_guarded(scope):
            await self.app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
            await JSONResponse(too_large().body(), 413)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                # Of FastAPI's own kind: any other that comes out of a body becomes its 400.
                raise HTTPException(413, too_large().message)
            return message

        await self.app(scope, counted, send)


def too_large() -> ApiError:
    """What is said of a body beyond the limit."""
    return ApiError(f"the body is larger than {MAX_BODY_BYTES >> 20} MB", 413)


class HideSecrets(logging.Filter):
    """Takes what opens an engine out of the access log's addresses."""

    SECRET = re.compile(r"(?i)\b(ticket|key|api_key|token)=[^&\s]*")

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(self._clean(item) for item in record.args)
        return True

    def _clean(self, item: Any) -> Any:
        return self.SECRET.sub(r"\1=hidden", item) if isinstance(item, str) else item


def hide_secrets_in_logs() -> None:
    """Once uvicorn has set up its loggers."""
    logger = logging.getLogger("uvicorn.access")
    if not any(isinstance(item, HideSecrets) for item in logger.filters):
        logger.addFilter(HideSecrets())
