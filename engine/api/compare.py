"""Two fresh runs of a workload with one setting changed: begin, look, take back.

Box `client-req`, its other end. No counterpart in vLLM.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr
from starlette.responses import JSONResponse, Response

from engine.api.access import access, bearer_key, check_key, keyed_router
from engine.api.protocol import ApiError
from engine.comparison.comparisons import MAX_REPETITIONS, Comparison, Setting
from engine.comparison.result import Result
from engine.comparison.workload import Workload, of_trace
from engine.config import EngineConfig
from engine.sessions import Sessions

NONE_YET = (
    'this session has no comparison; begin one, as in {"knob": "max_num_batched_tokens", '
    '"values": [64, 32]}'
)


class CompareBody(BaseModel):
    """One setting with its two values; the workload is what the session's engine was given."""

    model_config = ConfigDict(extra="forbid")

    knob: StrictStr
    values: list[Any] = Field(min_length=2, max_length=2)
    workload: dict[str, Any] | None = None  # a saved one
    config: dict[str, Any] | None = None  # of both engines, but for the knob; null: the session's
    repetitions: StrictInt = Field(1, ge=1, le=MAX_REPETITIONS)  # runs of each side


def compare_routes(sessions: Sessions) -> APIRouter:
    """/api/compare."""
    router = keyed_router(sessions)

    def own_key(request: Request) -> str:
        key = check_key(sessions, bearer_key(request))
        if not sessions.knows(key):
            raise ApiError(
                "a comparison belongs to a session: send a session's key (POST /api/session)", 403
            )
        return key

    def latest(request: Request) -> Comparison:
        found = sessions.comparisons.get(own_key(request))
        if found is None:
            raise ApiError(NONE_YET, 404)
        return found

    def result(request: Request) -> Result:
        found = latest(request)
        if found.result is None:
            raise ApiError(f"the comparison has no result: it is {found.stage}", 409)
        return found.result

    @router.post("/compare")
    async def start(body: CompareBody, request: Request) -> Response:
        key = own_key(request)
        engine = (await access(sessions, request)).engine
        base = engine.requested_config if body.config is None else EngineConfig.parse(body.config)

        def begin() -> Comparison:
            given = body.workload
            workload = of_trace(engine.trace) if given is None else Workload.parse(given)
            setting = Setting(body.knob, *body.values)
            return sessions.comparisons.start(
                key, workload, base, setting, engine.document, repetitions=body.repetitions
            )

        return JSONResponse((await asyncio.to_thread(begin)).describe(), 202)  # no result yet

    @router.get("/compare")
    async def look(request: Request) -> Response:
        found = latest(request)
        return await asyncio.to_thread(lambda: JSONResponse(found.describe()))

    @router.delete("/compare")
    async def cancel(request: Request) -> Response:
        found = latest(request)
        found.cancel()
        return await asyncio.to_thread(lambda: JSONResponse(found.describe()))

    @router.get("/compare/workload")
    async def workload(request: Request) -> Response:
        own_key(request)
        engine = (await access(sessions, request)).engine
        recorded = await asyncio.to_thread(of_trace, engine.trace)
        return Response(recorded.to_json(), media_type="application/json")

    @router.get("/compare/trace/{side}")
    async def trace(side: Literal["a", "b"], request: Request) -> Response:
        found = result(request)
        run = found.a if side == "a" else found.b
        return Response(await asyncio.to_thread(lambda: run.file), media_type="application/jsonl")

    return router
