"""What every kind of answer of the whole application tells a browser, and whom it lets in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from engine.api.headers import DATA_POLICY
from tests.servers import running_app

PAGE_POLICY = {
    "default-src": "'none'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "manifest-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
FOREIGN = "http://elsewhere.example"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_app(model="tiny-random") as (_, url):
        yield url


def policy_of(answer: httpx.Response) -> dict[str, str]:
    directives = answer.headers["content-security-policy"].split("; ")
    return dict(directive.partition(" ")[::2] for directive in directives)


def script_of(url: str) -> str:
    found = re.search(r'src="\.(/static/js/index\.[^"]+)"', httpx.get(url).text)
    assert found
    return found[1]


@pytest.mark.parametrize("path", ["/", "/no/such/page", "/assets/workspace.js", "a script"])
def test_a_page_loads_and_runs_only_what_is_the_servers(url: str, path: str) -> None:
    answer = httpx.get(url + (script_of(url) if path == "a script" else path))
    assert answer.status_code == 200
    policy = policy_of(answer)
    scripts = policy.pop("script-src").split()
    assert scripts[:2] == ["'self'", "blob:"]
    assert all(re.fullmatch(r"'sha256-[\w+/]{43}='", script) for script in scripts[2:])
    assert policy == PAGE_POLICY


@pytest.mark.parametrize("path", ["/", "/assets/workspace.js"])
def test_a_page_that_has_not_changed_keeps_the_policy_it_had(url: str, path: str) -> None:
    etag = httpx.get(url + path).headers["etag"]
    answer = httpx.get(url + path, headers={"If-None-Match": etag})
    assert answer.status_code == 304
    assert "content-security-policy" not in answer.headers  # it would replace the one kept
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/assets/shell.css", 200),
        ("/assets/fonts/inter-latin-wght-normal.woff2", 200),
        ("/assets/nothing.js", 404),
        ("/health", 200),
        ("/metrics", 200),
        ("/api/session", 200),
        ("/api/nothing", 404),
        ("/api/events", 401),
        ("/api/source", 200),
        ("/v1/nothing", 404),
        ("/v1/completions", 405),
        ("/media/nothing", 404),
        ("/_stcore/host-config", 200),
        ("/favicon.png", 200),
    ],
)
def test_what_is_no_page_can_do_nothing(url: str, path: str, status: int) -> None:
    answer = httpx.get(url + path)
    assert answer.status_code == status
    assert answer.headers["content-security-policy"] == DATA_POLICY


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/assets/workspace.js",
        "/assets/no.js",
        "/api/session",
        "/v1/nothing",
        "/_stcore/health",
    ],
)
def test_every_answer_says_the_rest(url: str, path: str) -> None:
    headers = httpx.get(url + path, headers={"Origin": FOREIGN}).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "camera=()" in headers["permissions-policy"]
    assert "access-control-allow-origin" not in headers


def test_a_refusal_has_the_headers_too(url: str) -> None:
    for headers, path in (
        ({"Origin": FOREIGN}, "/api/session"),
        ({"Host": "elsewhere.example"}, "/v1/completions"),
    ):
        answer = httpx.post(url + path, json={}, headers=headers)
        assert answer.status_code == 403
        assert answer.headers["content-security-policy"] == DATA_POLICY
        assert answer.headers["referrer-policy"] == "no-referrer"
    huge = httpx.post(f"{url}/v1/completions", content=bytes(9 << 20))
    assert huge.status_code == 413 and "content-security-policy" in huge.headers


def test_no_other_site_is_told_that_it_may_ask(url: str) -> None:
    for path in ("/v1/completions", "/api/session", "/api/events/ticket"):
        asks = {
            "Origin": FOREIGN,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        answer = httpx.options(url + path, headers=asks)
        assert not [name for name in answer.headers if name.startswith("access-control")]


def opens(url: str, origin: str | None) -> bool:
    """Whether the page's web socket opens to a page of this origin."""

    async def ask() -> bool:
        address = url.replace("http", "ws", 1) + "/_stcore/stream"
        try:
            async with connect(address, subprotocols=["streamlit"], origin=origin):  # type: ignore
                return True
        except InvalidStatus as refusal:
            assert refusal.response.status_code == 403
            return False

    return asyncio.run(ask())


def test_a_web_socket_opens_to_the_servers_own_page_alone(url: str) -> None:
    assert opens(url, url)
    assert opens(url, None)  # a program
    # Streamlit itself would let `localhost` in by any port, and look for other names elsewhere.
    for origin in (
        FOREIGN,
        "null",
        "http://127.0.0.1:1",
        "http://localhost",
        url + ".evil.example",
    ):
        assert not opens(url, origin), origin
