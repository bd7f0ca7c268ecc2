"""What the page asks about kernels: a trace of one over the real pages.

The other end of box `client-req`, beside `commands.py`. No counterpart in vLLM.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr
from starlette.responses import JSONResponse, Response

from engine.api.access import access, keyed_router
from engine.api.protocol import ApiError
from engine.kernel_trace.errors import Cause, KernelTraceError
from engine.kernel_trace.tracer import KernelTracer, Question
from engine.sessions import SHARED_KEY, Sessions

STATUS: dict[Cause, int] = {
    "nothing_run": 409,
    "pages_changed": 409,
    "not_found": 404,
    "not_possible": 400,
    "busy": 429,
    "no_kernel": 501,
}


class TraceQuestion(BaseModel):
    """Whose attention is traced, and where."""

    model_config = ConfigDict(extra="forbid")

    request: StrictStr
    layer: StrictInt = 0
    kv_head: StrictInt = 0
    step: StrictInt | None = None  # None: the last one that computed something of the request


def kernel_routes(sessions: Sessions) -> APIRouter:
    """POST /api/engine/kernel_trace."""
    router = keyed_router(sessions)
    tracer = KernelTracer()

    @router.post("/engine/kernel_trace")
    async def kernel_trace(request: Request, body: TraceQuestion) -> Response:
        found = await access(sessions, request)
        if found.key == SHARED_KEY:
            raise ApiError(
                "the shared engine's kernels are not traced: send to your own engine, with its key",
                403,
            )
        question = Question(body.request, body.layer, body.kv_head, body.step)
        try:
            return JSONResponse(await tracer.trace(found.engine, question))
        except KernelTraceError as error:
            raise ApiError(
                str(error), STATUS[error.cause], param=error.field, code=error.cause
            ) from None

    return router
