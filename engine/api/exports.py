"""The log as a file: an engine's own, and a saved one that is to be read by other programs.

The other end of box `client-req`, beside `event_stream.py`. No counterpart in vLLM.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Literal

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse

from engine.api.access import access, keyed_router
from engine.api.protocol import ApiError
from engine.api.trace_folder import find, listing, traces_folder
from engine.export.formats import KINDS, Format, written
from engine.file_kinds import TRACE, explained, kind_of
from engine.sessions import Sessions
from engine.trace import Trace, TraceError, lines_of

EXPORTING = ThreadPoolExecutor(1, "exporter")  # for everybody, one after the other
NAME = re.compile(r"[^A-Za-z0-9_-]")


def export_routes(sessions: Sessions) -> APIRouter:
    """GET /api/trace, an engine's; GET /api/traces, the saved ones or one of them; POST /api/export
    and /api/file_kind, of the body.
    """
    router = keyed_router(sessions)

    @router.get("/trace")
    async def trace(request: Request, format: Format = Format.JSONL) -> Response:
        log = (await access(sessions, request)).engine.trace
        headers = file_headers(log, format)
        kind = KINDS[format].media_type
        return StreamingResponse(written(log, format), media_type=kind, headers=headers)

    @router.post("/export")
    async def export(request: Request, format: Literal["perfetto", "csv"]) -> Response:
        form = Format(format)
        body = await request.body()
        try:
            work = asyncio.get_running_loop().run_in_executor(EXPORTING, converted, body, form)
            log, pieces = await work
        except TraceError as error:
            why = explained(str(error), body, TRACE)
            raise ApiError(f"the trace cannot be exported: {why}", code="invalid_value") from None
        headers = file_headers(log, form)
        return StreamingResponse(pieces, media_type=KINDS[form].media_type, headers=headers)

    @router.post("/file_kind")
    async def file_kind(request: Request) -> Response:
        return JSONResponse(kind_of(await request.body())._asdict())

    @router.get("/traces")
    async def saved_traces(path: str | None = None) -> Response:
        folder = traces_folder()
        if path is not None:
            found = await run_in_threadpool(find, folder, path)
            return FileResponse(found, media_type=KINDS[Format.JSONL].media_type)
        if folder is None:
            return JSONResponse({"offered": False, "traces": [], "left_out": 0})
        traces, left_out = await run_in_threadpool(listing, folder)
        rows = [trace._asdict() for trace in traces]
        return JSONResponse({"offered": True, "traces": rows, "left_out": left_out})

    return router


def converted(body: bytes, form: Format) -> tuple[Trace, Iterator[bytes]]:
    """A trace file's content, read and written anew, in pieces; `TraceError` where it is none."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(f"the byte at {error.start} is no UTF-8") from None
    log = Trace.parse(lines_of(text))
    pieces = written(log, form)
    try:
        return log, chain([next(pieces)], pieces)  # the first one is when it is judged
    except RecursionError:
        raise TraceError("it is nested too deeply") from None


def file_headers(log: Trace, form: Format) -> dict[str, str]:
    """What names the file that a browser saves; the id is a stranger's where the log is."""
    name = NAME.sub("", log.header.trace_id)[:40] or "trace"
    return {
        "Content-Disposition": f'attachment; filename="glassbox-{name}{KINDS[form].suffix}"',
    }
