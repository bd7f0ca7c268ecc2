"""What the API's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.model_loader import load_model
from engine.sessions import Sessions
from tests.api.live_server import Server, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server that most tests share; each takes a session of its own."""
    sessions = Sessions(
        lambda report: load_model("tiny-random", report), shared_enabled=True, max_engines=200
    )
    with serving(sessions) as server:
        sessions.wait_for_model()
        yield server
