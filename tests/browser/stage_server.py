"""The real API with the assets and a bare page around the workspace, for tests in a browser."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from engine.api.guard import guards
from engine.api.serve import lifespan_of
from engine.api.server import routes
from engine.model_loader import load_model
from engine.sessions import Sessions
from tests.servers import in_thread
from views.architecture import load_document, load_page
from views.page.server_config import content_security_policy

HERE = Path(__file__).parent
ASSETS = HERE.parent.parent / "views" / "assets"

# Somebody else's system, with markup where a name is expected.
FOREIGN_DOCUMENT = """{
  "schema_version": 1, "diagram_type": "architecture",
  "meta": {"title": "A shop <b>of somebody</b>", "views": [
    {"id": "order", "label": "An order", "focus": ["web", "orders"], "note": "Follow an order."},
    {"id": "night", "label": "At night", "focus": ["orders", "store"]}]},
  "components": [
    {"id": "web", "type": "frontend", "label": "<img src=x onerror=alert(1)>",
     "sublabel": "Browser", "pos": [40, 60], "size": [140, 60]},
    {"id": "orders", "type": "messagebus", "label": "Orders", "pos": [300, 60], "size": [140, 60]},
    {"id": "store", "type": "database", "label": "Store", "pos": [560, 60], "size": [140, 60]}],
  "connections": [
    {"id": "buy", "from": "web", "to": "orders", "label": "<script>alert(2)</script>"},
    {"id": "keep", "from": "orders", "to": "store", "variant": "dashed"}],
  "cards": [{"dot": "rose", "title": "<i>Card</i>", "items": ["one <u>item</u>"]}]
}"""


# Of servers that have ended: at the same address, the next one's files are in the cache already.
PORTS: list[int] = []


class Unchanging(StaticFiles):
    """Files that the browser need not ask for again: as long as tests run they stay as they are."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "max-age=86400"
        return response


@dataclass
class StageServer:
    """A running server and the sessions behind it."""

    url: str
    sessions: Sessions


@contextlib.contextmanager
def stage_server(*, shared_enabled: bool, max_engines: int = 50) -> Iterator[StageServer]:
    """Serve the tiny model on a free port, in a thread; it is loaded when this yields."""
    sessions = Sessions(
        lambda report: load_model("tiny-random", report),
        shared_enabled=shared_enabled,
        max_engines=max_engines,
    )
    app = Starlette(
        routes=[
            *routes(sessions),
            Route("/harness/document/{name}", _document),
            Route("/", _page),
            Mount("/assets", Unchanging(directory=ASSETS)),
            Mount("/harness", StaticFiles(directory=HERE)),
        ],
        middleware=guards(content_security_policy()),
        lifespan=lifespan_of(sessions),
    )
    with in_thread(app, port=PORTS.pop() if PORTS else 0) as url:
        sessions.wait_for_model()
        yield StageServer(url, sessions)
    PORTS.append(int(url.rpartition(":")[2]))


async def _page(request: Request) -> Response:
    return FileResponse(HERE / "harness.html")


async def _document(request: Request) -> Response:
    if request.path_params["name"] == "own":
        return JSONResponse(load_page())
    return JSONResponse(load_document(FOREIGN_DOCUMENT).to_page())
