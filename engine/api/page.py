"""What the page asks of its session's engine, under /api: commands down, the log up.

The other end of box `client-req`, beside OpenAI's API. No counterpart in vLLM.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

from engine.api.access import bearer_key, check_key, engine_of, keyed_router
from engine.api.commands import command_routes, describe_status
from engine.api.compare import compare_routes
from engine.api.errors import create_app
from engine.api.event_stream import Tickets, log_routes
from engine.api.exports import export_routes
from engine.api.kernels import kernel_routes
from engine.api.moments import describe_kept, moment_routes
from engine.api.protocol import NoBody
from engine.api.source import source_routes
from engine.sessions import Sessions


def create_page_api(sessions: Sessions) -> FastAPI:
    """The application mounted at /api."""
    app = create_app("Glassbox: the page's API", "/api")
    app.include_router(session_routes(sessions))
    app.include_router(command_routes(sessions))
    app.include_router(moment_routes(sessions))
    app.include_router(kernel_routes(sessions))
    app.include_router(compare_routes(sessions))
    app.include_router(source_routes())
    app.include_router(log_routes(sessions, Tickets()))
    app.include_router(export_routes(sessions))
    return app


def session_routes(sessions: Sessions) -> APIRouter:
    """GET /api/session; POST, which makes one and needs no key."""
    router = keyed_router(sessions)

    async def create_session(body: NoBody | None = None) -> Response:
        return JSONResponse({"key": sessions.create()})

    router.add_api_route(
        "/session", create_session, methods=["POST"], route_class_override=APIRoute
    )

    @router.get("/session")
    async def describe_session(request: Request) -> Response:
        key = check_key(sessions, bearer_key(request))
        status = sessions.model_status()
        answer: dict[str, Any] = {
            "config": None,
            "trace_id": None,
            "model": None,
            "model_status": status._asdict(),
            "shared": sessions.is_shared(key),
            "shared_engine": sessions.shared_enabled,  # whether there is one to look at
            "moment": describe_kept(sessions.moments.of(key)),  # to come back to
        }
        if status.stage == "ready":
            engine = await engine_of(sessions, key)
            answer |= {
                "config": engine.config.model_dump(mode="json"),
                "trace_id": engine.status.trace_id,
                "model": engine.trace.header.model,
                "engine": describe_status(engine.status),
            }
            notice = sessions.notice(key)
            if notice is not None:
                answer["notice"] = notice
        return JSONResponse(answer)

    return router
