"""Opening: the server's saved traces in a list, and files that are no traces at all."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.export.formats import Format, written
from tests.browser.stage import context, page, settle, wait_until
from tests.browser.stage_server import FOREIGN_DOCUMENT, StageServer
from tests.browser.test_moments import pressure, text_of
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = "<img src=x onerror=alert(1)>\n\u202e.jsonl"
OPEN = "[data-act=open]"
NOTE = ".gb-open [role=status]"

__all__ = ["context", "page"]  # fixtures


def says(page: Page, text: str) -> None:
    wait_until(page, "window.stage.root.textContent.includes(argument)", text)


def give(page: Page, name: str, data: bytes) -> None:
    page.get_by_label("Open a saved trace", exact=True).set_input_files(
        {"name": name, "mimeType": "application/octet-stream", "buffer": data}
    )


# --- the folder -----------------------------------------------------------------------------------


def test_an_empty_list_says_how_it_is_filled(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRACES", raising=False)
    page.locator(OPEN).click()
    says(page, "Started with TRACES=FOLDER")
    page.keyboard.press("Escape")
    monkeypatch.setenv("TRACES", str(tmp_path))
    page.locator(OPEN).click()
    says(page, "has none yet. Save a trace")


def test_traces_of_the_folder_are_listed_opened_and_linked(
    page: Page, server: StageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACES", str(tmp_path))
    (tmp_path / "class").mkdir()
    for name in ("class/one.jsonl", HOSTILE):
        (tmp_path / name).write_text(text_of(pressure()))
    (tmp_path / "bad.jsonl").write_text("hello")
    entries = page.evaluate("history.length")
    page.locator(OPEN).click()
    rows = page.locator(".gb-saved li")
    rows.nth(2).wait_for(timeout=PATIENCE_S * 1000)
    assert page.locator(".gb-saved img").count() == 0
    texts = {row.locator("bdi").inner_text().split()[0]: row for row in rows.all()}
    bad = texts["bad.jsonl"]
    assert "no trace" in bad.inner_text() and bad.locator("a, button").count() == 0
    one = texts["class/one.jsonl"]
    last = pressure().records[-1]
    assert f"up to step {last.step}" in one.inner_text()
    assert f"{len(pressure().records)} records" in one.inner_text()
    one.get_by_role("button").click()
    says(page, "The link is copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == f"{server.url}/#saved=class%2Fone.jsonl"
    one.get_by_role("link").click()
    wait_until(page, "!window.stage.store.live && window.stage.store.savedPath")
    assert page.evaluate("window.stage.store.traceName") == "class/one.jsonl"
    wait_until(page, "history.state?.glassbox && location.hash.includes('trace=')")
    assert page.evaluate("history.length") == entries + 1
    page.go_back()
    wait_until(page, "window.stage.store.live && window.stage.store.header")
    page.locator(OPEN).click()
    page.locator(".gb-saved a", has_text="onerror").click()
    wait_until(page, "window.stage.store.traceName === argument", HOSTILE)


def test_a_long_list_is_searched(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACES", str(tmp_path))
    for number in range(1_005):
        (tmp_path / f"run-{number}.jsonl").write_text("{}")
    page.locator(OPEN).click()
    says(page, "5 older ones are not listed")
    page.get_by_label("Search the saved traces").fill("run-77")
    settle(page)
    names = page.locator(".gb-saved bdi").all_inner_texts()
    assert names and all("run-77" in name for name in names) and len(names) < 12
    page.get_by_label("Search the saved traces").fill("nothing")
    says(page, "None of them is called like that.")


# --- other files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("log.perfetto-trace", "is a trace for Perfetto, and no saved trace. ui.perfetto.dev"),
        ("log.csv.zip", "is a zip file of tables"),
        ("log.jsonl.gz", "is a file compressed by gzip, and no saved trace. Unpack it"),
        ("shot.png", "is a picture, and no saved trace."),
        ("net.har", "browser's network log (HAR)"),
        ("empty.jsonl", "is an empty file"),
        ("broken.jsonl", "broken.jsonl cannot be opened: line 3: not JSON"),
    ],
)
def test_a_file_that_is_no_trace_is_named(same_page: Page, name: str, said: str) -> None:
    log = pressure()
    lines = text_of(log).split("\n")
    files = {
        "log.perfetto-trace": lambda: b"".join(written(log, Format.PERFETTO)),
        "log.csv.zip": lambda: b"".join(written(log, Format.CSV)),
        "log.jsonl.gz": lambda: gzip.compress(text_of(log).encode()),
        "shot.png": lambda: b"\x89PNG\r\n\x1a\n" + bytes(200),
        "net.har": lambda: json.dumps({"log": {"creator": {}, "entries": []}}).encode(),
        "empty.jsonl": lambda: b"",
        "broken.jsonl": lambda: "\n".join([*lines[:2], "{", *lines[3:]]).encode(),
    }
    before = same_page.evaluate("window.stage.store.header.trace_id")
    give(same_page, name, files[name]())
    says(same_page, said)
    assert same_page.evaluate("window.stage.store.header.trace_id") == before
    same_page.locator(".gb-banner", has_text=name).get_by_role("button", name="Close").click()
    wait_until(same_page, "!window.stage.root.querySelector('.gb-banners').textContent")


def test_a_document_is_offered_to_be_drawn(page: Page) -> None:
    give(page, "shop.json", FOREIGN_DOCUMENT.encode())
    says(page, "shop.json is an architecture document, and no saved trace.")
    page.get_by_role("button", name="Draw it").click()
    wait_until(page, "window.stage.told.wishes?.at(-1).value?.name === 'shop.json'")
    assert page.evaluate("window.stage.told.wishes.at(-1).value.text") == FOREIGN_DOCUMENT
    wait_until(page, "!window.stage.root.textContent.includes('and no saved trace')")


# --- the whole page -------------------------------------------------------------------------------


def test_a_document_is_drawn_and_its_errors_stand_beside_the_map(
    browser: Browser, server_url: str, documents: Path
) -> None:
    good = json.loads(FOREIGN_DOCUMENT)
    file = documents / "shop.json"
    file.write_text(json.dumps(good))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_S * 1000)
    page.goto(server_url)
    page.wait_for_selector(".st-key-gb-send button:not([disabled])", timeout=PATIENCE_S * 1000)
    page.wait_for_selector(".gb-box[data-component=scheduler]")
    give(page, "shop.json", FOREIGN_DOCUMENT.encode())
    page.get_by_role("button", name="Draw it").click()
    page.wait_for_selector(".gb-box[data-component=orders]", timeout=PATIENCE_S * 1000)
    give(page, "bad.json", FOREIGN_DOCUMENT.replace("database", "robot").encode())
    page.get_by_role("button", name="Draw it").click()
    banner = page.locator(".gb-banner")
    banner.filter(has_text="bad.json cannot be drawn").wait_for(timeout=PATIENCE_S * 1000)
    banner.filter(has_text="bad.json").get_by_role("button", name="Close").click()
    banner.filter(has_text="bad.json").wait_for(state="detached")

    page.goto(f"{server_url}/?document=shop.json")
    page.wait_for_selector(".gb-box[data-component=store]", timeout=PATIENCE_S * 1000)
    spoilt = json.loads(FOREIGN_DOCUMENT)
    spoilt["components"][2]["type"] = "robot"
    spoilt["cards"][0]["dot"] = "mauve"
    file.write_text(json.dumps(spoilt))
    banner.filter(has_text="shop.json was changed").wait_for(timeout=PATIENCE_S * 1000)
    assert banner.filter(has_text="$.components[2].type (store)").count() == 1
    assert banner.filter(has_text="has all 2 places").count() == 1
    faulty = page.locator(".gb-box.is-faulty")
    assert [box.get_attribute("data-component") for box in faulty.all()] == ["store"]
    page.get_by_role("button", name="Show the box").click()
    page.wait_for_selector(".gb-box.is-selected[data-component=store]")
    file.write_text(json.dumps(good))
    faulty.wait_for(state="detached", timeout=PATIENCE_S * 1000)
    banner.filter(has_text="shop.json").first.wait_for(state="detached", timeout=PATIENCE_S * 1000)
    page.close()
