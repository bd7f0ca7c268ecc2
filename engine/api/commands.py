"""What the page's buttons do: commands to a session's engine.

The way there of connection `client-to-engine`. No counterpart in vLLM, whose engine nobody stops.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, StrictBool, StrictFloat, StrictInt, StrictStr
from starlette.responses import JSONResponse, Response

from engine.api.access import keyed_router, own_access
from engine.api.protocol import ApiError, NoBody
from engine.async_llm import AsyncLLM, EngineStatus
from engine.config import EngineConfig
from engine.sessions import Sessions


class StepCommand(BaseModel):
    """Whether all rules are checked after each phase."""

    model_config = ConfigDict(extra="forbid")

    check: StrictBool = False


class RunCommand(BaseModel):
    """How fast to run; null is as fast as it goes."""

    model_config = ConfigDict(extra="forbid")

    rate: StrictFloat | StrictInt | None = None


class AbortCommand(BaseModel):
    """Which request to take back."""

    model_config = ConfigDict(extra="forbid")

    request: StrictStr


class CompareCommand(BaseModel):
    """Which request to compare with fp32."""

    model_config = ConfigDict(extra="forbid")

    request: StrictStr


class ResetCommand(BaseModel):
    """With which settings to begin again; null keeps those it has."""

    model_config = ConfigDict(extra="forbid")

    config: dict[str, Any] | None = None


def command_routes(sessions: Sessions) -> APIRouter:
    """POST /api/engine/*."""
    router = keyed_router(sessions)

    async def own_engine(request: Request) -> AsyncLLM:
        return (await own_access(sessions, request)).engine

    @router.post("/engine/phase")
    async def run_phase(request: Request, body: StepCommand | None = None) -> Response:
        engine = await own_engine(request)
        return done(await engine.step_async(False, body is not None and body.check))

    @router.post("/engine/step")
    async def run_step(request: Request, body: StepCommand | None = None) -> Response:
        engine = await own_engine(request)
        return done(await engine.step_async(True, body is not None and body.check))

    @router.post("/engine/run")
    async def run(request: Request, body: RunCommand | None = None) -> Response:
        engine = await own_engine(request)
        return done(await engine.run_async(body.rate if body is not None else None))

    @router.post("/engine/pause")
    async def pause(request: Request, body: NoBody | None = None) -> Response:
        engine = await own_engine(request)
        return done(await engine.pause_async())

    @router.post("/engine/check")
    async def check(request: Request, body: NoBody | None = None) -> Response:
        engine = await own_engine(request)
        found = await engine.check_integrity_async()
        return done(engine.status, **found._asdict())

    @router.post("/engine/compare_kv")
    async def compare_kv(request: Request, body: CompareCommand | None = None) -> Response:
        engine = await own_engine(request)
        if body is None:
            raise ApiError(
                'request: the body must name the request to compare, as in {"request": "r0"}',
                param="request",
            )
        found = await engine.compare_kv_async(body.request)
        if found is None:
            raise ApiError(f"request: {body.request!r:.60} is not known", 404, param="request")
        return done(engine.status, **found._asdict())

    @router.post("/engine/abort")
    async def abort(request: Request, body: AbortCommand | None = None) -> Response:
        engine = await own_engine(request)
        if body is None:
            raise ApiError(
                'request: the body must name the request to take back, as in {"request": "r0"}',
                param="request",
            )
        aborted = await engine.abort_async(body.request)
        if not aborted:
            raise ApiError(f"request: {body.request!r:.60} is not under way", 404, param="request")
        return done(engine.status, aborted=aborted)

    @router.post("/engine/reset")
    async def reset(request: Request, body: ResetCommand | None = None) -> Response:
        engine = await own_engine(request)
        config = None
        if body is not None and body.config is not None:
            config = EngineConfig.parse(body.config)
        return done(await engine.reset_async(config))

    @router.post("/engine/reset_prefix_cache")
    async def reset_prefix_cache(request: Request, body: NoBody | None = None) -> Response:
        engine = await own_engine(request)
        dropped = await engine.reset_prefix_cache_async()
        return done(engine.status, reset=dropped)

    return router


def done(status: EngineStatus, **more: Any) -> Response:
    """The answer to a command: where the engine stands now."""
    return JSONResponse({"ok": True, **describe_status(status), **more})


def describe_status(status: EngineStatus) -> dict[str, Any]:
    """An engine's status as JSON."""
    return {**status._asdict(), "next_phase": str(status.next_phase)}
