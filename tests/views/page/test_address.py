"""The part of a link that the server reads: the document, and the lesson."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from engine.config import EngineConfig, SpeculativeConfig
from tests.views.document.samples import text_of, with_value
from tests.views.page.test_documents import (
    HOSTILE,
    PAGE,
    folder,
    foreign,
    key,
    open_path,
    open_upload,
    served,
    title,
    words,
    write,
)
from tests.waiting import PATIENCE_S
from views.page import address as page_address
from views.page import state, uploads
from views.page.compare_knobs import as_link, first_values, from_link, knobs

__all__ = ["folder", "key", "served"]  # fixtures

TURN = 1 << 45  # later than any session begins


def open_link(**parts: str) -> AppTest:
    page = AppTest.from_file(PAGE, default_timeout=PATIENCE_S)
    for part, value in parts.items():
        page.query_params[part] = value
    page.run()
    assert not page.exception
    return page


def address(page: AppTest) -> dict[str, str]:
    """The query; what the test gave is a list there, what the page sets is not."""
    held = {name: page.query_params[name] for name in page.query_params}
    return {name: value if isinstance(value, str) else value[0] for name, value in held.items()}


def test_a_document_stands_in_the_address_and_comes_back_by_it(key: str, folder: Path) -> None:
    write(folder / "mine.json", with_value("meta", "title", "Mine"))
    page = open_link()
    assert address(page) == {}
    open_path(page, "mine.json")
    assert address(page) == {"document": "mine.json"}
    again = open_link(document="mine.json")
    assert title(again) == "Mine"
    again.button(key="gb-document-home").click().run()
    assert address(again) == {}


def test_an_upload_comes_back_while_the_server_has_it(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_upload(open_link(), "theirs.json", text_of(foreign()).encode())
    name = address(page)["document"]
    assert uploads.is_token(name)
    assert "theirs.json" in words(open_link(document=name))
    monkeypatch.setattr(uploads, "MOST_UPLOADS", 0)
    uploads.hold("x", b"y")
    gone = open_link(document=name)
    assert "the server does not have it any more" in words(gone)
    assert address(gone) == {}


@pytest.mark.parametrize("name", ["../../etc/passwd", HOSTILE, "x" * 5_000, "none.json", ""])
def test_what_cannot_be_shown_is_said(key: str, folder: Path, name: str) -> None:
    page = open_link(document=name, lesson=name)
    said = words(page)
    assert "cannot be shown" in said and "There is no lesson" in said
    assert "<img" not in said
    assert address(page) == {}


def test_a_lesson_is_offered_and_resets_nothing_by_itself(key: str, served: Any) -> None:
    log = served.get(key).status.trace_id
    page = open_link(lesson="count-the-blocks")
    assert served.get(key).status.trace_id == log
    assert any("your link names" in item.value for item in page.caption)
    starts = [button.key for button in page.button if (button.key or "").startswith("gb-start-")]
    assert starts[0] == "gb-start-count-the-blocks"
    page.button(key="gb-lessons").click().run()
    assert address(page) == {}


# --- what the browser tells of a fragment ---------------------------------------------------------


def arriving(monkeypatch: pytest.MonkeyPatch, page: AppTest, **place: Any) -> dict[str, Any]:
    """What the workspace is told after the browser told of a place; the page is run once more."""
    told: list[dict[str, Any]] = []
    shown = page_address.shown
    monkeypatch.setattr(state, "told", {"arrived": {"turn": TURN, **place}}.get)
    monkeypatch.setattr(
        page_address, "shown", lambda opened: (told.append(shown(opened)), told[-1])[1]
    )
    page.run()
    assert not page.exception
    page.run()
    assert not page.exception
    monkeypatch.undo()
    return told[-1]


def test_a_link_opens_the_comparison_with_its_setting(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"compare": "memory-pressure", "setting": "num_gpu_blocks", "a": "40", "b": "none"}
    now = arriving(monkeypatch, open_link(), **wanted)
    assert {name: now[name] for name in wanted} == {**wanted, "b": now["b"]}
    assert now["turn"] == TURN and now["problems"] == ["num_gpu_blocks has no value “none”"]


def test_the_comparison_has_its_setting_when_it_is_opened_again(key: str) -> None:
    page = open_link()
    page.button(key="gb-compare-toggle").click().run()
    page.selectbox(key="gb-compare-source").set_value("memory-pressure").run()
    page.selectbox(key="gb-compare-knob").set_value("num_gpu_blocks").run()
    values = [each for each in page.number_input if "gb-compare" in str(each.key)]
    values[1].set_value(30).run()
    page.selectbox(key="gb-compare-repetitions").set_value(5).run()
    before = values[0].value
    page.button(key="gb-compare-close").click().run()
    assert "gb-compare-repetitions" not in [each.key for each in page.selectbox]
    page.button(key="gb-compare-toggle").click().run()
    assert not page.exception
    assert page.selectbox(key="gb-compare-source").value == "memory-pressure"
    assert page.selectbox(key="gb-compare-knob").value == "num_gpu_blocks"
    values = [each for each in page.number_input if "gb-compare" in str(each.key)]
    assert [each.value for each in values] == [before, 30]
    assert page.selectbox(key="gb-compare-repetitions").value == 5


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"compare": HOSTILE}, "there are no requests “<img"),
        ({"compare": "speculation", "setting": "__class__"}, "no setting “__class__”"),
        ({"compare": "speculation", "setting": "dtype", "a": "x" * 500}, "dtype has no value “xxx"),
        ({"compare": "recorded", "setting": "num_gpu_blocks", "a": "-1"}, "must be 0 or more"),
        ({"lesson_step": 3}, "no lesson is open"),
    ],
)
def test_what_a_place_has_not_is_told(
    key: str, monkeypatch: pytest.MonkeyPatch, place: dict[str, Any], said: str
) -> None:
    problems = arriving(monkeypatch, open_link(), **place)["problems"]
    assert len(problems) == 1 and said in problems[0] and len(problems[0]) < 200


@pytest.mark.parametrize("place", [None, 7, [], {}, {"turn": "1"}, {"turn": True, "compare": [1]}])
def test_what_is_no_place_changes_nothing(key: str, place: Any) -> None:
    page_address.arrive(place)


def test_a_place_has_its_turn_until_all_of_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class CutShort(BaseException):
        """As Streamlit ends a run, wherever it touches the session's state."""

    opened: list[str | None] = []

    def open_linked(wanted: Any) -> list[str]:
        opened.append(wanted.compare)
        if len(opened) == 1:
            raise CutShort
        return []

    monkeypatch.setattr(page_address.st, "session_state", {})
    monkeypatch.setattr(page_address.compare_place, "open_linked", open_linked)
    place = {"turn": TURN, "compare": "recorded"}
    with pytest.raises(CutShort):
        page_address.arrive(place)
    page_address.arrive(place)
    page_address.arrive(place)  # what the user does after that is not undone
    assert opened == ["recorded", "recorded"]


def test_a_step_is_offered_with_its_lesson(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = open_link(lesson="one-request")
    assert arriving(monkeypatch, page, lesson_step=3)["lesson_step"] == 3
    page.run()
    page.button(key="gb-start-at-one-request").click().run()
    assert any("Step 3 of" in item.proto.text for item in page.get("progress"))


# --- values of a comparison -----------------------------------------------------------------------


@pytest.mark.parametrize("speculates", [False, True])
def test_every_value_of_a_comparison_comes_back_from_its_link(speculates: bool) -> None:
    drafts = SpeculativeConfig(method="ngram", num_speculative_tokens=3) if speculates else None
    base = EngineConfig(speculative_config=drafts)
    for setting in knobs(base).values():
        for value in (*first_values(setting, base), *setting.choices):
            found = from_link(setting, as_link(value))
            assert found == value or {found, value} == {None, ""}, setting.name
        for wrong in (HOSTILE, "", "1e999", "nan", "-", "9" * 40, "\0"):
            with pytest.raises(ValueError, match="has no value"):
                from_link(setting, wrong)
