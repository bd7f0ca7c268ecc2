"""What stands before every HTTP request: who may ask, how much, and what browsers may do.

Box `client-req`, its other end. vLLM 0.26.0 has no page to guard; its middlewares are under
`vllm/entrypoints/`. Pure ASGI, so that streams pass as they are.
"""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api.protocol import ApiError

MAX_BODY_BYTES = 8 << 20
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
GUARDED_PATHS = ("/api", "/v1")

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def guards(content_security_policy: str) -> list[Middleware]:
    """The middleware of the application, outermost first; what its pages may load is theirs."""
    return [
        Middleware(SecurityHeaders, content_security_policy=content_security_policy),
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
    return any(scope["path"].startswith(path + "/") for path in GUARDED_PATHS)


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
                raise too_large()
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
