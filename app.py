"""Glassbox as one ASGI application: the page, the API, the event stream and the assets.

`python app.py` (reads HOST and PORT), `streamlit run app.py` and `uvicorn app:app` start it; all
three read MODEL and DOCUMENT.
"""

import sys
from pathlib import Path

import streamlit as st
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from engine.api.guard import guards
from engine.api.serve import lifespan_of, serve
from engine.api.server import routes
from engine.sessions import registry
from engine.terminal import escape_all_of
from lessons.classroom.school import attend
from views.architecture import load_document, start_document
from views.page import document_watch
from views.page.server_config import content_security_policy, use_project_settings, warn_only

ROOT = Path(__file__).resolve().parent

use_project_settings(__file__)
escape_all_of("streamlit")
if __name__ == "__main__":
    warn_only()

sessions = registry()
attend(sessions.audience)
sessions.document = load_document(start_document()).title  # for the headers of all logs

app = st.App(
    ROOT / "views" / "page" / "script.py",
    lifespan=lifespan_of(sessions),
    routes=[
        document_watch.route,  # before all else under /api
        *routes(sessions),
        Mount("/assets", StaticFiles(directory=ROOT / "views" / "assets")),
    ],
    middleware=guards(content_security_policy()),
)

if __name__ == "__main__":
    sys.exit(serve(app))
