"""Streamlit's log-in, configured as docs/class.md has it, with a provider of the tests' own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.test_class import SECRET, Teacher
from tests.browser.test_lessons import Learner
from tests.browser.test_page import Tab
from tests.identity_provider import CLIENT, CLIENT_SECRET, IdentityProvider
from tests.servers import LOAD_SECONDS, AppProcess, in_thread

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SECRETS = """
[auth]
redirect_uri = "{url}/oauth2callback"
cookie_secret = "a long secret of the cookie's own"
client_id = "{client}"
client_secret = "{client_secret}"
server_metadata_url = "{provider}/.well-known/openid-configuration"
"""


@pytest.fixture(scope="module")
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture(scope="module")
def url(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`python app.py` with a class, and a log-in: its address is known before it starts."""
    home: Path = tmp_path_factory.mktemp("home")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with in_thread(provider.app) as at:
        (home / ".streamlit").mkdir()
        (home / ".streamlit" / "secrets.toml").write_text(
            SECRETS.format(url=address, client=CLIENT, client_secret=CLIENT_SECRET, provider=at)
        )
        app = AppProcess(
            ["app.py"],
            HOST="127.0.0.1",
            PORT=str(port),
            HOME=str(home),
            GLASSBOX_TEACHER_SECRET=SECRET,
            GLASSBOX_DATA=str(home / "data"),
        )
        try:
            app.wait_for(r"Glassbox is at (http://\S+)", LOAD_SECONDS)
            yield address
        finally:
            app.end()
    assert "Traceback" not in "".join(app.lines), "".join(app.lines)


def test_who_logs_in_has_a_name_and_finds_their_work_in_another_browser(
    browser: Browser, url: str, provider: IdentityProvider
) -> None:
    from playwright.sync_api import expect

    provider.person = {"sub": "ada-1815", "name": "Ada <b>L.</b>", "email": "ada@example.org"}
    front = browser.new_context(viewport={"width": 1280, "height": 900})
    code = Teacher(front.new_page(), url).begin("Logged in")
    for visit in range(2):  # each in a browser that knows nothing
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        learner = Learner(Tab(context.new_page(), url).open())
        page = learner.tab.page
        page.get_by_role("button", name="Class", exact=True).click()
        with page.expect_navigation():  # to the provider, which leads back at once
            page.get_by_role("button", name="Log in").click()
        learner.tab.wait_for("s.connection", "open")
        page.get_by_role("button", name="Class", exact=True).click()
        expect(page.get_by_label("Your name")).to_have_value(provider.person["name"])
        page.get_by_label("Class code").fill(code)
        page.get_by_role("button", name="Join").click()
        learner.tab.has(".gb-note", f"You are in the class as {provider.person['name']}.")
        page.keyboard.press("Escape")
        if visit == 0:
            learner.start("lose-a-hit")
            learner.side.get_by_text("The full ones, each under a hash").click()
            learner.side.get_by_role("button", name="Answer").first.click()
            learner.reads("A block with an empty slot would change yet")
        else:
            page.get_by_role("button", name="Class", exact=True).click()
            page.get_by_text("1 answer is kept.").wait_for()
        context.close()
    front.close()
