"""What the tests in a browser share: a server of the tiny model, one a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.stage_server import StageServer, stage_server


@pytest.fixture(scope="module")
def server() -> Iterator[StageServer]:
    with stage_server(shared_enabled=True, max_engines=200) as server:
        yield server
