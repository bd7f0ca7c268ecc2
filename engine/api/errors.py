"""Whatever goes wrong behind the API, in OpenAI's words: a status, a sentence, a field.

Box `client-req`, its other end. vLLM 0.26.0: the exception handlers under `vllm/entrypoints/`.
No traceback and no exception's own text reaches a client unless it was written for one.
"""

from __future__ import annotations

import logging
import reprlib
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from engine.api.protocol import ApiError
from engine.async_llm import EngineBusy, EngineError, MidStep
from engine.audience import NotAdmitted
from engine.background_model import ModelNotReady
from engine.comparison.comparisons import ComparisonBusy
from engine.comparison.workload import WorkloadError
from engine.config import ConfigError
from engine.engine_thread import EngineThreadStopped
from engine.input_processor import RequestRefusedError
from engine.kept_moments import NoRoom
from engine.output_processor import EngineReplaced, RequestLost
from engine.sessions import TooManySessions
from engine.strict_json import StrictJsonError

log = logging.getLogger("glassbox")

NOT_FOUND = "there is nothing at this address"
WRONG_METHOD = "this address does not take this method"
SHORT = reprlib.Repr()  # of what may have millions of items
SHORT.maxlist, SHORT.maxdict, SHORT.maxstring = 20, 10, 60
MOST_SHOWN = 100  # characters of a field's name, which a stranger chose
UNEXPECTED = "something went wrong inside the server; its log says what"


def create_app(title: str, path: str) -> FastAPI:
    """A FastAPI application whose every error is an error object; it will be mounted at `path`."""
    # Its interactive documentation would be fetched from elsewhere, which the page forbids.
    app = FastAPI(title=title, docs_url=None, redoc_url=None, strict_content_type=False)
    for kind in (
        ApiError,
        ConfigError,
        RequestRefusedError,
        EngineError,
        RequestLost,
        EngineThreadStopped,
        WorkloadError,
        HTTPException,
        RequestValidationError,
    ):
        app.add_exception_handler(kind, answer_error)
    app.add_middleware(CatchAll)
    app.state.path = path
    return app


async def answer_error(request: Request, error: Exception) -> Response:
    """The error object for what a handler raised."""
    api_error = to_api_error(error)
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        api_error.message += f"; here are {addresses(request.app)}"
    if isinstance(error, RequestRefusedError) and request.url.path.endswith("/chat/completions"):
        api_error.param = "messages"
    headers = {"Retry-After": "2"} if api_error.status in (429, 503) else {}
    if isinstance(error, HTTPException):
        headers |= error.headers or {}  # which methods a 405 would take
    if api_error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(api_error.body(), api_error.status, headers)


def addresses(app: FastAPI) -> str:
    """What there is, each with its method: `GET /v1/models, POST /v1/completions`."""
    return ", ".join(
        f"{method.upper()} {app.state.path}{path}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    )


def to_api_error(error: Exception) -> ApiError:
    """What a client is told of an exception."""
    match error:
        case ApiError():
            return error
        case RequestValidationError():
            return validation_error(error)
        case RequestRefusedError():
            return ApiError(str(error), 400, param="prompt", code="context_length_exceeded")
        case ConfigError():
            return ApiError(str(error), 400, param=error.field, code="invalid_value")
        case ModelNotReady() if error.status.stage == "failed":
            return ApiError(str(error), 500, code="model_failed")
        case ModelNotReady():
            return ApiError(str(error), 503, code="model_not_ready")
        case WorkloadError():
            return ApiError(str(error), 400, param="workload", code="invalid_value")
        case EngineBusy() | TooManySessions() | ComparisonBusy():
            return ApiError(str(error), 429, code="engine_busy", kind="rate_limit_error")
        case NotAdmitted():
            return ApiError(str(error), 403, code="not_admitted", kind="permission_error")
        case NoRoom():
            return ApiError(str(error), 507, code="no_room")
        case MidStep():
            return ApiError(str(error), 409, code="mid_step")
        case EngineReplaced():
            return ApiError(str(error), 503, code="engine_replaced")
        case EngineError() | RequestLost():
            return ApiError(str(error), 500, code="engine_stopped")
        case EngineThreadStopped():
            return ApiError(str(error), 503, code="shutting_down")
        case ClientDisconnect():  # nobody hears it, and it is no fault of the server's
            return ApiError("the client went away before its body was complete", 400)
        case HTTPException(status_code=400):  # the only one: the body could not be read
            return ApiError(f"the body is not JSON: {why_unreadable(error)}", code="invalid_value")
        case HTTPException():
            sentence = {404: NOT_FOUND, 405: WRONG_METHOD}.get(error.status_code, error.detail)
            return ApiError(sentence, error.status_code)
    log.error("unexpected error in a request", exc_info=error)
    return ApiError(UNEXPECTED, 500)


def why_unreadable(error: HTTPException) -> str:
    """What was wrong with a body before it could be JSON at all."""
    match error.__cause__:
        case UnicodeDecodeError() as cause:
            return f"the byte at {cause.start} is no UTF-8"
        case StrictJsonError() as cause:
            return str(cause)
    return "it ended too early or was not readable"


def validation_error(error: RequestValidationError) -> ApiError:
    """All that is wrong with a request's body, the first wrong field named."""
    reasons: dict[str, list[str]] = {}
    for item in error.errors():
        field, text = describe(item)
        known = reasons.setdefault(field, [])
        if text not in known:
            known.append(text)
    message = "; ".join(
        f"{field}: {' or '.join(texts[:3])}" if field else texts[0]
        for field, texts in reasons.items()
    )
    return ApiError(message, 400, param=next(iter(reasons)) or None, code="invalid_value")


def describe(item: dict[str, Any]) -> tuple[str, str]:
    """The field that an error of pydantic's is about, and what is wrong with it."""
    place = [repr(str(part)[:MOST_SHOWN])[1:-1] for part in item["loc"][1:]]
    text = str(item["msg"])
    text = text[:1].lower() + text[1:]
    if item["type"] == "json_invalid":
        return "", f"the body is not JSON: {item.get('ctx', {}).get('error', text)}"
    if not place:
        return "", "the body must be a JSON object, sent with `Content-Type: application/json`"
    if item["type"] != "missing":
        text += f" (got {SHORT.repr(item['input']):.60})"
    return place[0], text


class CatchAll:
    """ASGI middleware: what no handler caught becomes a plain 500, and a line in the log."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        started = False

        async def watched(message: Any) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            api_error = to_api_error(error)
            if not started and scope["type"] == "http":
                await JSONResponse(api_error.body(), api_error.status)(scope, receive, send)
