"""app.py as users start it: one line, one port, an orderly end."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.live_server import Events
from tests.servers import LOAD_SECONDS, ROOT, AppProcess
from tests.waiting import PATIENCE_S, wait_until
from views.architecture import DEFAULT_DOCUMENT, load_document


@pytest.fixture
def started() -> Iterator[list[AppProcess]]:
    apps: list[AppProcess] = []
    yield apps
    for app in apps:
        app.end()


def wait_for_model(url: str) -> None:
    wait_until(lambda: httpx.get(f"{url}/health").json()["status"] == "ok", LOAD_SECONDS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_python_app_serves_from_anywhere_and_ends_with_open_streams(
    started: list[AppProcess], tmp_path: Path, ending: signal.Signals
) -> None:
    app = AppProcess([str(ROOT / "app.py")], cwd=tmp_path, PORT="0")
    started.append(app)
    url = app.wait_for(r"(http://127\.0\.0\.1:\d+)")
    # The page is there before the model is.
    assert "<title>" in httpx.get(url).text
    assert httpx.get(f"{url}/_stcore/health").status_code == 200
    asset = httpx.get(f"{url}/assets/base.css")
    assert asset.status_code == 200 and asset.headers["cache-control"] == "no-cache"
    wait_for_model(url)
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        key = client.post("/api/session").json()["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        # An event stream, and an answer that a paused engine will never give.
        with client.stream("GET", "/api/events") as answer:
            events = Events(answer)
            event, _, header = events.next()
            assert event == "header"
            # Nobody has opened the page, and the log knows all the same which map is its own.
            assert header["document"] == load_document(DEFAULT_DOCUMENT).title != ""
            waiting = threading.Thread(target=post_and_wait, args=(url, key))
            waiting.start()
            events.until("request_submitted")
            app.process.send_signal(ending)
            app.process.wait(PATIENCE_S)  # neither would ever end by itself
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()
    # What Triton's bindings miss when an interpreter ends, on a busy machine, is said last.
    said = "".join(app.lines).partition("nanobind: ")[0]
    assert said == f"Glassbox is at {url}\n"


def post_and_wait(url: str, key: str) -> None:
    try:
        answer = httpx.post(
            f"{url}/v1/completions",
            json={"prompt": "a"},
            headers={"Authorization": f"Bearer {key}"},
            timeout=PATIENCE_S,
        )
        assert answer.status_code == 503
    except httpx.TransportError:
        pass


@pytest.mark.parametrize("command", [["-m", "uvicorn", "app:app"], ["-m", "streamlit", "run"]])
def test_other_ways_to_start_it(started: list[AppProcess], command: list[str]) -> None:
    port = free_port()
    if "streamlit" in command:
        command = [*command, "app.py", "--server.port", str(port)]
    else:
        command = [*command, "--port", str(port)]
    app = AppProcess(command)
    started.append(app)
    url = f"http://127.0.0.1:{port}"
    app.wait_for(rf"({port})")
    wait_for_model(url)
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        key = client.post("/api/session").json()["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        ticket = client.post("/api/events/ticket").json()["ticket"]
        with client.stream("GET", f"/api/events?ticket={ticket}") as answer:
            assert Events(answer).next()[0] == "header"
            app.process.send_signal(signal.SIGTERM)
            app.process.wait(PATIENCE_S)
    output = "".join(app.lines)
    assert ticket not in output and key not in output and "Traceback" not in output


@pytest.mark.parametrize("port", ["eighty", "-1", "65536"])
def test_a_bad_port_is_one_clear_line(started: list[AppProcess], port: str) -> None:
    app = AppProcess(["app.py"], PORT=port)
    started.append(app)
    assert app.process.wait(PATIENCE_S) == 1
    app.wait_for(f"(PORT is '{port}'; it must be a number)")
    assert len(app.lines) == 1


def test_a_port_in_use_is_one_clear_line(started: list[AppProcess]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        app = AppProcess(["app.py"], PORT=str(port))
        started.append(app)
        assert app.process.wait(PATIENCE_S) == 1
        app.wait_for(f"(cannot listen at 127.0.0.1:{port})")
    assert len(app.lines) == 1
