"""When the file of a document was written last, for the pages that show it.

A page asks every few seconds while somebody looks at it, and has itself drawn anew when the answer
is another one: whoever edits `architecture.json` sees the map follow.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from views.page import documents


async def changed(request: Request) -> JSONResponse:
    """`?name=` is what the page calls the document; "" where it is no file any more."""
    name = request.query_params.get("name", "")
    return JSONResponse({"changed": await run_in_threadpool(_changed, name)})


def _changed(name: str) -> str:
    path = documents.path_of(name)
    return "" if path is None else documents.written(path)


route = Route("/api/document", changed)
