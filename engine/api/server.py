"""The OpenAI-compatible API of the engines, under /v1, /health and /metrics.

The other end of box `client-req`. vLLM 0.26.0: `vllm/entrypoints/openai/api_server.py`. A request
with a session's key runs on that session's engine, one without a key on the shared engine. A
client that goes away takes its request along.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from sse_starlette.sse import AppStatus
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from engine.api.access import access, keyed_router
from engine.api.answers import Answer, ChatAnswer, CompletionAnswer, Piece, abort_streams
from engine.api.errors import create_app, to_api_error
from engine.api.event_stream import EventStream
from engine.api.metrics import metrics_of
from engine.api.page import create_page_api
from engine.api.protocol import ApiError, ChatRequest, CompletionRequest, GenerationRequest
from engine.async_llm import AsyncLLM
from engine.config import SamplingParams
from engine.input_processor import Prompt, Submission
from engine.sessions import Sessions

DISCONNECT_POLL = 0.25  # seconds
CUT_OFF = "the request ended before its answer was complete"

T = TypeVar("T")


def routes(sessions: Sessions) -> list[BaseRoute]:
    """What the API adds to the application that serves the page."""
    return [
        *at("/v1", create_openai_api(sessions)),
        *at("/api", create_page_api(sessions)),
        Route("/health", health_of(sessions), methods=["GET"]),
        Route("/metrics", metrics_of(sessions), methods=["GET"]),
    ]


def at(path: str, app: FastAPI) -> list[BaseRoute]:
    """The application at `path`, and the bare path as well, which would be the page's otherwise."""
    return [Route(path, app), Mount(path, app)]


def health_of(sessions: Sessions) -> Any:
    """The answer to GET /health, which is there before the model is."""

    async def health(request: Request) -> Response:
        status = sessions.model_status()
        engines = sessions.health()
        failed = status.stage == "failed" or bool(engines.trouble)
        state = "failed" if failed else "ok" if status.stage == "ready" else "loading"
        body = {
            "status": state,
            "trouble": engines.trouble,
            "engines": {**engines._asdict(), "busy_seconds": round(engines.busy_seconds, 1)},
            "model_status": status._asdict(),
            "sessions_with_engine": sessions.num_engines(),
            "shared_engine": sessions.shared_enabled,
        }
        return JSONResponse(body, 503 if failed else 200)

    return health


def create_openai_api(sessions: Sessions) -> FastAPI:
    """The application mounted at /v1."""
    app = create_app("Glassbox: OpenAI-compatible API", "/v1")
    router = keyed_router(sessions)

    @router.get("/models")
    async def list_models(request: Request) -> Response:
        engine = (await access(sessions, request)).engine
        return JSONResponse({"object": "list", "data": [model_card(engine)]})

    @router.get("/models/{name:path}")
    async def get_model(name: str, request: Request) -> Response:
        engine = (await access(sessions, request)).engine
        check_model(name, engine)
        return JSONResponse(model_card(engine))

    @router.post("/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        engine, source = await checked_engine(sessions, request, body)
        params = body.sampling_params()
        asked = [submission(body, prompt, params) for prompt in body.prompts()]
        streams = await until_left(request, engine.submit_many_async(asked, source))
        return await respond(request, body, CompletionAnswer(engine, streams, body))

    @router.post("/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        engine, source = await checked_engine(sessions, request, body)
        messages = [message.plain() for message in body.messages]
        # Without a limit an answer may be as long as the model's context; the engine caps it.
        params = body.sampling_params(engine.config.max_model_len or 1)
        asked = [submission(body, messages, params)]
        streams = await until_left(request, engine.submit_many_async(asked, source))
        return await respond(request, body, ChatAnswer(engine, streams, body))

    app.include_router(router)
    return app


# -- what a request asks for -----------------------------------------------------------------------


async def checked_engine(
    sessions: Sessions, request: Request, body: GenerationRequest
) -> tuple[AsyncLLM, str]:
    """The engine for `body`, once all that can be wrong about its parameters is not, and who asks
    (the request's `source`).
    """
    key, engine, _ = await access(sessions, request)
    body.check()
    if body.model is not None:
        check_model(body.model, engine)
    if body.priority and engine.config.scheduling_policy != "priority":
        raise ApiError(
            "priority: this engine schedules first come first served; it takes priorities only "
            "with scheduling_policy `priority`",
            param="priority",
        )
    return engine, sessions.audience.source_of(key)


def submission(body: GenerationRequest, prompt: Prompt, params: SamplingParams) -> Submission:
    """One of the body's prompts as the engine takes it."""
    return Submission(prompt, params, body.priority, body.cache_salt or "")


def check_model(name: str, engine: AsyncLLM) -> None:
    """ApiError 404 where another model is meant."""
    if name != engine.model.name:
        raise ApiError(
            f"model: there is no {name!r:.200} here; this server runs {engine.model.name!r}",
            404,
            param="model",
            code="model_not_found",
        )


def model_card(engine: AsyncLLM) -> dict[str, Any]:
    """OpenAI's model object; `max_model_len` as vLLM adds it."""
    return {
        "id": engine.model.name,
        "object": "model",
        "created": int(engine.trace.header.started_at),
        "owned_by": "glassbox",
        "max_model_len": engine.config.max_model_len,
    }


# -- the way of a request -------------------------------------------------------------------------


async def respond(request: Request, body: GenerationRequest, answer: Answer) -> Response:
    """The answer as a stream of chunks or as one object."""
    headers = {"X-Request-Id": ",".join(stream.request_id for stream in answer.streams)}
    if body.stream:
        return EventStream(
            chunks(answer, body),
            last=(json.dumps(ApiError(CUT_OFF, 503, code="shutting_down").body()), "[DONE]"),
            headers=headers,
            # For a client that leaves before the first chunk, when `chunks` has not begun.
            background=BackgroundTask(abort_streams, answer.engine, answer.streams),
        )
    told = await until_left(request, answer.whole())
    # Half a million log-probabilities take seconds to write; others' answers do not wait for them.
    return await asyncio.to_thread(JSONResponse, told, headers=headers)


async def chunks(answer: Answer, body: GenerationRequest) -> AsyncIterator[dict[str, str]]:
    """The answer as server-sent events; an error in the middle becomes the last but one.

    As in vLLM, the first chunk comes with the first token, and each token has one, text or none:
    that is what clients measure times by.
    """

    def event(choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> dict[str, str]:
        told = {"usage": usage} if body.wants_usage else {}
        return {
            "data": json.dumps({**answer.head(answer.chunk_object), "choices": choices, **told})
        }

    def worded_event(piece: Piece, so_far: dict[str, Any] | None) -> dict[str, str]:
        return event([answer.chunk_choice(piece)], so_far)

    def usage_so_far(choice: int, tokens: int) -> dict[str, Any] | None:
        return answer.usage_of(choice, tokens) if body.wants_usage_so_far else None

    opened = False
    try:
        async for piece in answer.pieces():
            for opening in () if opened else answer.openings():
                yield event([opening], usage_so_far(opening["index"], 0))
            opened = True
            so_far = usage_so_far(piece.choice, answer.tokens[piece.choice])
            worded = partial(worded_event, piece, so_far)
            # Where a long prompt is echoed, in another thread.
            yield await asyncio.to_thread(worded) if piece.num_prompt_tokens else worded()
        if body.wants_usage:
            yield event([], answer.usage())
    except Exception as error:
        yield {"data": json.dumps(to_api_error(error).body())}
    finally:
        abort_streams(answer.engine, answer.streams)
    yield {"data": "[DONE]"}


async def until_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of `work`, which is cancelled when its client goes away or the server does."""
    task = asyncio.create_task(work)
    async with watching(request) as left:
        try:
            await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            complete = task.done()
            task.cancel()
        if complete:
            return task.result()
        with suppress(asyncio.CancelledError):
            await task
        raise ApiError(CUT_OFF, 503)


@asynccontextmanager
async def watching(request: Request) -> AsyncIterator[asyncio.Task[None]]:
    """A task that ends when the client goes away, or the server begins to shut down."""

    async def watch() -> None:
        while not (AppStatus.should_exit or await request.is_disconnected()):
            await asyncio.sleep(DISCONNECT_POLL)

    task = asyncio.create_task(watch())
    try:
        yield task
    finally:
        task.cancel()
