"""The place to compare in a real browser: run both, look at both, open one on the map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from tests.servers import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SHOTS = ROOT / "test-results"
STORE = "async () => { const s = (await import('/assets/workspace.js')).store(); return %s; }"


def choose(page: Page, key: str, option: str) -> None:
    page.locator(f".st-key-{key} [role=combobox], .st-key-{key} button").last.click()
    page.get_by_role("option", name=option, exact=True).click()


def test_two_runs_side_by_side(browser: Browser, server_url: str) -> None:
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": 1280, "height": 900})
    faults: list[str] = []
    loaded: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: loaded.append(request.url))
    page.on("console", lambda said: "Content Security" in said.text and faults.append(said.text))
    page.goto(server_url)
    page.wait_for_selector(".st-key-gb-send button:not([disabled])")
    page.locator(".st-key-gb-compare-toggle button").click()
    choose(page, "gb-compare-source", "Preset: Shared prefix")
    choose(page, "gb-compare-knob", "enable_prefix_caching")
    expect(page.get_by_label("A: enable_prefix_caching")).to_be_checked()
    expect(page.get_by_label("B: enable_prefix_caching")).not_to_be_checked()
    assert not any("Plotly" in url for url in loaded), "charts are loaded when there are some"
    page.locator(".st-key-gb-compare-run button").click()

    strips = page.locator(".gbc-strip")
    expect(strips).to_have_count(2)
    expect(page.locator(".gbc-told")).to_contain_text("They part in step 5, over r1.")
    expect(page.locator(".gbc-side[data-side=A]")).to_contain_text("r1 shares cached blocks")
    expect(page.locator(".gbc-side[data-side=B]")).to_contain_text("r1 hits no cached block")
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(4)
    expect(page.locator(".modebar-btn[data-title*='Download']")).to_have_count(4)
    figures = page.locator(".gb-compare-figures section")
    expect(figures.nth(0)).to_contain_text("All 3 runs of each side decided the same.")
    expect(figures.nth(0)).to_contain_text("prefix cache hit rate")
    expect(figures.nth(0)).to_contain_text("time to first token: from a request's coming")
    expect(figures.nth(1)).to_contain_text("in 3 runs of each side, in the order A B B A A B")
    times = figures.nth(1).locator("tr", has_text="TTFT, P99").locator("td small")
    expect(times).to_have_count(2)
    expect(times.first).to_contain_text(" to ")

    # The page's policy lets a chart be saved as a picture.
    chart = page.locator(".js-plotly-plot").first
    chart.hover()
    with page.expect_download() as saved:
        chart.locator(".modebar-btn[data-title*='Download']").click()
    assert saved.value.suggested_filename == "glassbox-latencies.png"
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")

    SHOTS.mkdir(exist_ok=True)
    page.set_viewport_size({"width": 1280, "height": 2400})
    page.screenshot(path=SHOTS / "compare-light.png")
    page.emulate_media(color_scheme="dark")
    expect(page.locator(".gbc")).to_have_attribute("data-theme", "dark")
    # Closed and opened again it is as it was; its charts have hues for both themes.
    for count in (0, 2):
        page.locator(".st-key-gb-compare-toggle button").click()
        expect(strips).to_have_count(count)
    blue = page.locator("path.point[style*='rgb(52, 115, 234)']")  # run A's marks
    expect(blue.first).to_be_attached()
    page.screenshot(path=SHOTS / "compare-dark.png")
    page.emulate_media(color_scheme="light")
    expect(page.locator(".gbc")).to_have_attribute("data-theme", "light")
    found = Axe().run(page, context=".st-key-gb-compare")
    # The widgets themselves are Streamlit's and Plotly's.
    ours = [
        (violation["id"], node["html"][:160])
        for violation in found.response["violations"]
        for node in violation["nodes"]
        if "gb" in node["html"]
    ]
    assert ours == []
    page.set_viewport_size({"width": 1280, "height": 900})

    # One cursor: an arrow in one timeline moves both.
    strips.nth(0).locator("canvas.gbp-rows").press("ArrowRight")
    for strip in (strips.nth(0), strips.nth(1)):
        expect(strip.locator(".gbp-sentence")).to_contain_text("Step 6")

    page.get_by_role("button", name="Open B on the map").click()
    expect(page.locator(".gb-banner")).to_contain_text("B: enable_prefix_caching off")
    assert page.evaluate(STORE % "s.header.config.enable_prefix_caching") is False
    assert page.evaluate(STORE % "s.stepAt(s.cursor).step") == 6
    marked = page.evaluate(
        STORE % "s.bookmarks.list.map(({name, seq}) => [name, s.stepAt(seq).step])"
    )
    assert marked == [["first difference", 5]]
    assert faults == []
    page.close()
