"""What the page asks about kernels: a trace of one over the real pages, its source and listings.

The other end of box `client-req`, beside `commands.py`. No counterpart in vLLM.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr
from starlette.responses import JSONResponse, Response

from engine.api.access import access, keyed_router
from engine.api.protocol import ApiError
from engine.async_llm import AsyncLLM
from engine.kernel_trace.errors import Cause, KernelTraceError
from engine.kernel_trace.tracer import KernelTracer, Question
from engine.sessions import Sessions

T = TypeVar("T")
Text = Literal["ttir", "ttgir", "ptx", "sass"]
Arch = Literal["80", "89", "90", "100"]
Dtype = Literal["bf16", "fp32"]

COMPILING = ThreadPoolExecutor(1, "kernel-compiler")  # for everybody, one after the other
SHARED_SECONDS = 10.0  # a look holds all clients of the shared engine up, and takes no key
SOURCE_FILE = "engine/paged_attention/triton/kernels.py"

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


class Pace:
    """Lets something be done by one at a time, and so many seconds later at the earliest."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self._seconds, self._clock = seconds, clock
        self._next = 0.0

    def may_begin(self) -> bool:
        """Whether it may now; then it has begun, until `end`."""
        if self._clock() < self._next:
            return False
        self._next = math.inf
        return True

    def end(self) -> None:
        """It is over."""
        self._next = self._clock() + self._seconds


def kernel_routes(sessions: Sessions) -> APIRouter:
    """POST /api/engine/kernel_trace, GET /api/kernels and /api/kernels/{kernel}."""
    router = keyed_router(sessions)
    tracer, shared = KernelTracer(), Pace(SHARED_SECONDS)

    @router.post("/engine/kernel_trace")
    async def kernel_trace(request: Request, body: TraceQuestion) -> Response:
        found = await access(sessions, request)
        if found.is_shared and not shared.may_begin():
            raise ApiError(
                f"the shared engine's kernels are traced once in {SHARED_SECONDS:g} seconds, for "
                "everybody: try again shortly, or trace your own engine's",
                429,
                code="busy",
            )
        question = Question(body.request, body.layer, body.kv_head, body.step)
        try:
            told = await in_words(tracer.trace(found.engine, question))
            return await asyncio.to_thread(JSONResponse, told)
        finally:
            if found.is_shared:
                shared.end()

    @router.get("/kernels")
    async def kernels(request: Request) -> Response:
        await access(sessions, request)
        from engine.paged_attention.triton.compile import KERNELS

        root = Path(__file__).resolve().parents[2]
        source = (root / SOURCE_FILE).read_text(encoding="utf-8")
        return JSONResponse({"kernels": KERNELS, "file": SOURCE_FILE, "source": source})

    @router.get("/kernels/{kernel}")
    async def listing(
        kernel: str, request: Request, arch: Arch = "90", dtype: Dtype = "bf16", text: Text = "ptx"
    ) -> Response:
        engine = (await access(sessions, request)).engine
        work = COMPILING.submit(compile_for, engine, kernel, int(arch), dtype, text)
        return JSONResponse(await in_words(asyncio.wrap_future(work)))

    return router


async def in_words(work: Awaitable[T]) -> T:
    """What comes of `work`; where there is no kernel, ApiError."""
    try:
        return await work
    except KernelTraceError as error:
        raise ApiError(
            str(error), STATUS[error.cause], param=error.field, code=error.cause
        ) from None


def compile_for(engine: AsyncLLM, kernel: str, arch: int, dtype: str, text: Text) -> dict[str, Any]:
    """A kernel compiled for the shape of this engine's model: its numbers and one of its texts."""
    from engine.paged_attention.triton.compile import KERNELS, Shape, compiled
    from engine.paged_attention.triton.process import KernelProcessError

    if kernel not in KERNELS:
        raise KernelTraceError(
            f"kernel: there is no {kernel!r:.60}; there are {', '.join(KERNELS)}",
            "not_found",
            "kernel",
        )
    model = engine.trace.header.model
    shape = Shape(
        model["num_attention_heads"],
        model["num_kv_heads"],
        model["head_dim"],
        engine.config.block_size,
    )
    try:
        made = compiled(kernel, arch, dtype, shape)
    except KernelProcessError as error:
        raise KernelTraceError(str(error), "no_kernel") from None
    texts = {"ttir", "ttgir", "ptx", "sass"}
    numbers = {name: value for name, value in made._asdict().items() if name not in texts}
    return {**numbers, "shape": shape._asdict(), "text": getattr(made, text)}
