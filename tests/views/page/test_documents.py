"""Opening another document: for one visitor alone, never in place of a map by one with errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from engine import sessions
from engine.model_loader import load_model
from engine.sessions import Sessions
from tests.views.document.samples import sample, text_of, with_value
from tests.waiting import PATIENCE_S
from views.page import state, tab_engine

PAGE = str(Path(__file__).parents[3] / "views" / "page" / "script.py")
HOSTILE = "<img src=x onerror=alert(1)> **bold** `code` $x$ [a](http://b) \u202egnol"


@pytest.fixture(scope="module")
def served() -> Any:
    made = Sessions(lambda report: load_model("tiny-random"))
    made.wait_for_model()
    yield made
    made.close()


@pytest.fixture
def key(served: Sessions, monkeypatch: pytest.MonkeyPatch) -> str:
    key = served.create()
    monkeypatch.setattr(sessions, "_registry", served)
    monkeypatch.setattr(state, "session_key", lambda: key)
    monkeypatch.setattr(tab_engine, "_EVERY_SECONDS", None)
    return key


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCUMENTS", str(tmp_path))
    return tmp_path


def write(path: Path, document: Any) -> None:
    path.write_text(document if isinstance(document, str) else text_of(document), "utf-8")


def foreign() -> dict[str, Any]:
    document = sample()
    for i, component in enumerate(document["components"]):
        component["id"] = f"box{i}"
    document["meta"] = {"title": HOSTILE}
    document["boundaries"], document["connections"] = [], []
    return document


def open_page() -> AppTest:
    page = AppTest.from_file(PAGE, default_timeout=PATIENCE_S).run()
    assert not page.exception
    return page


def open_path(page: AppTest, typed: str) -> AppTest:
    page.text_input(key="gb-document-path").set_value(typed)
    page.button(key="gb-document-open").click().run()
    assert not page.exception
    return page


def open_upload(page: AppTest, name: str, data: bytes) -> AppTest:
    page.file_uploader[0].set_value((name, data, "application/json")).run()
    assert not page.exception
    return page


def words(page: AppTest) -> str:
    return "\n".join(str(item.proto.body) for item in page.get("html"))


def title(page: AppTest) -> str:
    return words(page).split('<p title="')[1].split('"')[0]


def can_go_home(page: AppTest) -> bool:
    return any(button.key == "gb-document-home" for button in page.button)


def test_a_document_of_the_folder_is_shown_to_its_visitor_alone(key: str, folder: Path) -> None:
    write(folder / "mine.json", with_value("meta", "title", "Mine"))
    page = open_page()
    first = title(page)
    assert not can_go_home(page)
    open_path(page, "mine.json")
    assert title(page) == "Mine"
    assert title(open_page()) == first
    page.button(key="gb-document-home").click().run()
    assert title(page) == first and not can_go_home(page)


def test_an_upload_is_shown_and_a_static_one_says_so(key: str) -> None:
    page = open_upload(open_page(), "theirs.json", text_of(foreign()).encode())
    assert "None of its boxes is a part of the engine" in words(page)
    assert "uploaded by you" in words(page)
    assert can_go_home(page)


def test_nothing_of_a_document_is_markup(key: str, folder: Path) -> None:
    page = open_upload(open_page(), "<b>.json", text_of(foreign()).encode())
    write(folder / "bad.json", with_value("meta", "title", 7) | {HOSTILE: 1})
    open_path(page, "bad.json")
    assert "<img" not in words(page) and "<b>.json" not in words(page)
    assert "&lt;img" in words(page)
    said = [
        item.value
        for kind in ("markdown", "caption", "error", "warning")
        for item in getattr(page, kind)
    ]
    assert not any("img" in text or "bold" in text for text in said)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ("{", "json/syntax"),
        (with_value("components", 0, "type", "robot"), "field/value"),
        (with_value("components", 1, "pos", [0, 0]), "layout/overlap"),
    ],
)
def test_a_document_with_errors_leaves_the_map(
    key: str, folder: Path, document: Any, code: str
) -> None:
    write(folder / "bad.json", document)
    page = open_page()
    before = title(page)
    open_path(page, "bad.json")
    assert title(page) == before
    assert f"<code>{code}</code>" in words(page) and "To mend it:" in words(page)
    open_upload(page, "bad.json", (folder / "bad.json").read_bytes())
    assert title(page) == before and f"<code>{code}</code>" in words(page)
    write(folder / "good.json", sample())
    open_path(page, "good.json")
    assert title(page) == "Sample" and code not in words(page)


def test_a_path_that_leads_out_is_refused_with_its_reason(key: str, folder: Path) -> None:
    page = open_path(open_page(), "../x.json")
    assert "file/refused" in words(page) and "leads out of the folder" in words(page)


def test_a_file_that_is_spoilt_later_leaves_its_last_good_map(key: str, folder: Path) -> None:
    write(folder / "mine.json", with_value("meta", "title", "Mine"))
    page = open_path(open_page(), "mine.json")
    write(folder / "mine.json", "{")
    page.run()
    assert title(page) == "Mine" and "json/syntax" in words(page)
    write(folder / "mine.json", with_value("meta", "title", "Mended"))
    page.run()
    assert title(page) == "Mended" and "json/syntax" not in words(page)


def test_a_server_can_start_with_another_document(
    key: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "first.json", with_value("meta", "title", "First"))
    monkeypatch.setenv("DOCUMENT", str(folder / "first.json"))
    page = open_page()
    assert title(page) == "First"
    page.button(key="gb-document-home").click().run()
    assert "vLLM" in title(page)


def test_a_first_document_that_is_not_there_says_so_and_offers_the_engines_map(
    key: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCUMENT", str(folder / "none.json"))
    page = open_page()
    assert "file/unreadable" in words(page)
    page.button(key="gb-document-home").click().run()
    assert "vLLM" in title(page)


def test_the_log_names_the_document_beside_it(key: str, served: Sessions, folder: Path) -> None:
    write(folder / "mine.json", with_value("meta", "title", "Mine"))
    page = open_page()
    llm = served.get(key)
    open_path(page, "mine.json")
    llm.thread.call(lambda: None)  # the name is given on the engine's thread
    assert json.loads(next(llm.trace.lines()))["document"] == "Mine"
    llm.reset()
    assert llm.trace.header.document == "Mine"
