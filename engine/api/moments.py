"""Moments over HTTP: an engine between two steps as a file, and an engine from such a file.

Part of connection `client-to-engine`. No counterpart in vLLM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from engine.api.access import keyed_router, own_access
from engine.api.commands import done
from engine.api.protocol import ApiError, NoBody
from engine.async_llm import EngineError
from engine.kept_moments import Kept, no_room
from engine.moment import MomentError, read_moment
from engine.sessions import Sessions

PIECE = 1 << 20  # bytes read at once


def moment_routes(sessions: Sessions) -> APIRouter:
    """GET /api/engine/moment; POST /api/engine/{restore,restore_kept,finish}."""
    router = keyed_router(sessions)

    @router.get("/engine/moment")
    async def save(request: Request) -> Response:
        found = await own_access(sessions, request)
        moment = await found.engine.take_moment_async()
        kept = await asyncio.to_thread(sessions.moments.write, found.key, moment)
        return download(kept)

    @router.post("/engine/restore")
    async def restore(request: Request) -> Response:
        found = await own_access(sessions, request)
        path = sessions.moments.new_path()
        try:
            await receive(request, path)
            moment = await asyncio.to_thread(read_moment, path)
            status = await found.engine.restore_async(moment)
            kept = sessions.moments.keep(found.key, path, moment)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return done(status, moment=describe_kept(kept))

    @router.post("/engine/restore_kept")
    async def restore_kept(request: Request, body: NoBody | None = None) -> Response:
        found = await own_access(sessions, request)
        kept = sessions.moments.of(found.key)
        if kept is None:
            raise ApiError(
                "no moment of this session is kept here: save one, or restore one from a file",
                409,
                code="no_moment",
            )
        moment = await asyncio.to_thread(read_moment, kept.path)
        return done(await found.engine.restore_async(moment), moment=describe_kept(kept))

    @router.post("/engine/finish")
    async def finish(request: Request, body: NoBody | None = None) -> Response:
        return done(await (await own_access(sessions, request)).engine.finish_steps_async())

    return router


async def receive(request: Request, path: Path) -> None:
    """Write the body as a file; how large it may be, the guard knows."""
    try:
        with path.open("wb") as file:
            async for piece in request.stream():
                file.write(piece)
    except OSError as error:
        raise no_room(error) from None
    if not path.stat().st_size:
        raise MomentError("the body is empty; send the file that a moment was saved as")


def download(kept: Kept) -> Response:
    """The file, which may be replaced meanwhile: it is open already."""
    try:
        file = kept.path.open("rb")
    except OSError as error:
        raise EngineError(
            f"the moment is not there any more ({error.strerror}); save it again"
        ) from None
    return StreamingResponse(
        pieces(file),
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f'attachment; filename="{kept.file_name}"',
            "Content-Length": str(kept.num_bytes),
        },
    )


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """All of the file."""
    with file:
        while piece := file.read(PIECE):
            yield piece


def describe_kept(kept: Kept | None) -> dict[str, str | int] | None:
    """What the page says of the moment that it can come back to."""
    if kept is None:
        return None
    return {"file_name": kept.file_name, "step": kept.step, "num_bytes": kept.num_bytes}
