"""The page behind a real nginx, set up as `docs/hosting` has it: TLS, web socket, event streams."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.browser.test_page import Tab
from tests.servers import ROOT, ready_app
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
NAME, PASSWORD = "glassbox.example.org", "class:room"

pytestmark = pytest.mark.skipif(
    NGINX is None or shutil.which("openssl") is None,
    reason="nginx and openssl must be installed (on Debian: apt-get install nginx openssl)",
)


@pytest.fixture(scope="module")
def app_url() -> Iterator[str]:
    with ready_app(
        "tiny-random",
        ALLOWED_HOSTS=NAME,
        GLASSBOX_SHARED_ENGINE="0",  # type: ignore[arg-type]
    ) as (app, url):
        yield url
    assert "Traceback" not in "".join(app.lines), "".join(app.lines)


@contextlib.contextmanager
def proxy(config: str, folder: Path, app_url: str) -> Iterator[str]:
    """nginx with this file of `docs/hosting`, with its places put where a test may write."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (ROOT / "docs" / "hosting" / config).read_text()
    for there, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        (f"server_name {NAME}", f"server_name {NAME} localhost"),
        ("/etc/ssl/glassbox", f"{folder}/glassbox"),
        ("/etc/nginx/glassbox.htpasswd", f"{folder}/htpasswd"),
        ("http://127.0.0.1:8501", app_url),
    ):
        assert there in text or there.endswith("htpasswd"), there
        text = text.replace(there, here)
    make_certificate(folder)
    name, _, word = PASSWORD.partition(":")
    (folder / "htpasswd").write_text(f"{name}:{{PLAIN}}{word}\n")
    (folder / "nginx.conf").write_text(
        "daemon off; worker_processes 1; error_log stderr warn;\n"
        + ("user root;\n" if (folder / "glassbox.key").owner() == "root" else "")
        + f"pid {folder}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n"
        + "".join(
            f"{kind}_temp_path {folder}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        + text
        + "}\n"
    )
    command = [str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_port(port, process)
        yield f"https://localhost:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def make_certificate(folder: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        + ["-keyout", str(folder / "glassbox.key"), "-out", str(folder / "glassbox.crt")],
        check=True,
        capture_output=True,
    )


def wait_for_port(port: int, process: subprocess.Popen[str]) -> None:
    def listens() -> bool:
        assert process.poll() is None, process.stderr and process.stderr.read()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    wait_until(listens)


def client(url: str, folder: Path, **more: str) -> httpx.Client:
    trust = ssl.create_default_context(cafile=str(folder / "glassbox.crt"))
    return httpx.Client(base_url=url, verify=trust, timeout=PATIENCE_S, headers=more)


def test_streams_come_through_piece_by_piece(app_url: str, tmp_path: Path) -> None:
    with proxy("nginx.conf", tmp_path, app_url) as url, client(url, tmp_path) as http:
        key = http.post("/api/session", json={}).json()["key"]
        http.headers["Authorization"] = f"Bearer {key}"
        with http.stream("GET", "/api/events") as events:
            lines = events.iter_lines()
            # The engine is there once the model is; then the log begins, and its stream stays open.
            assert next(line for line in lines if line.startswith("event: header"))
        assert http.post("/api/engine/pause", json={}).status_code == 200
        asked = {"prompt": "a", "max_tokens": 3, "ignore_eos": True, "stream": True}
        with http.stream("POST", "/v1/completions", json=asked) as answer:
            lines = answer.iter_lines()
            for _ in range(3):  # each token comes when its step is made by hand, and not before
                assert http.post("/api/engine/step", json={}).status_code == 200
                line = next(line for line in lines if line)
                assert json.loads(line.removeprefix("data: "))["choices"][0]["index"] == 0
            assert [line for line in lines if line][-1] == "data: [DONE]"


def test_it_knows_its_name_and_who_is_foreign(app_url: str, tmp_path: Path) -> None:
    with proxy("nginx.conf", tmp_path, app_url) as url, client(url, tmp_path) as http:
        http.headers["Host"] = NAME
        own, foreign = {"Origin": f"https://{NAME}"}, {"Origin": "https://elsewhere.example"}
        assert http.post("/api/session", json={}, headers=own).status_code == 200
        assert http.post("/api/session", json={}, headers=foreign).status_code == 403
        assert http.get("/health", headers={"Host": "other.example"}).status_code == 403
        answer = http.get("/")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["strict-transport-security"]
        # As large as a saved engine may be; what is no such file is refused by the server itself.
        headers = {"Authorization": f"Bearer {http.post('/api/session', json={}).json()['key']}"}
        large = http.post("/api/engine/restore", content=bytes(20 << 20), headers=headers)
        assert large.status_code == 400 and "message" in large.json()["error"]


def test_the_page_works_through_it(browser: Browser, app_url: str, tmp_path: Path) -> None:
    with proxy("nginx.conf", tmp_path, app_url) as url:
        context = browser.new_context(
            viewport={"width": 1280, "height": 900}, ignore_https_errors=True
        )
        tab = Tab(context.new_page(), url).open()
        step_once(tab)
        context.close()


def test_a_password_is_asked_for_once(browser: Browser, app_url: str, tmp_path: Path) -> None:
    with proxy("nginx-password.conf", tmp_path, app_url) as url:
        with client(url, tmp_path) as http:
            for path in ("/", "/api/session", "/assets/workspace.js", "/health"):
                assert http.get(path).status_code == 401, path
            assert http.post("/api/session", json={}).status_code == 401
            assert http.post("/v1/completions", json={"prompt": "a"}).status_code == 401
        context = browser.new_context(
            viewport={"width": 1280, "height": 900},
            ignore_https_errors=True,
            http_credentials={"username": "class", "password": "room"},
        )
        tab = Tab(context.new_page(), url).open()
        step_once(tab)
        with client(url, tmp_path, Authorization=f"Bearer {tab.key}") as http:
            assert http.get("/v1/models").status_code == 200  # a program, by the page's key
        context.close()


def step_once(tab: Tab) -> None:
    """The engine steps, and the log reaches the page."""
    tab.send("Once upon a time", max_tokens=2)
    tab.press("Step")
    tab.wait_for("s.headEngine.step", 1)
    tab.wait_for("s.connection", "open")
    assert all(url.startswith((tab.url, "blob:", "data:")) for url in tab.requested)
