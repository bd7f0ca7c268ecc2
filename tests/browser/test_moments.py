"""Through a log by what happened in it: jumps, marks, bookmarks; and what is saved of it."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from engine.conformance import driver_of, load_workload
from engine.export.perfetto import protos
from engine.records import Event
from engine.trace import Trace, record_to_json
from tests.browser.stage import settle, show, wait_until, watched
from tests.browser.stage_server import StageServer
from tests.engine.workloads import workload_path

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Json = dict[str, Any]


@cache
def log_of(name: str) -> Trace:
    """What the engine logs of a recorded workload; no model runs."""
    driver = driver_of(load_workload(workload_path(name))[0])
    list(driver.steps())
    return driver.trace


def pressure() -> Trace:
    """Preemptions, resumptions, hits, evictions, finishes."""
    return log_of("09-preempt-recompute")


def text_of(trace: Trace) -> str:
    return "\n".join(trace.lines()) + "\n"


@pytest.fixture(scope="module")
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    with watched(browser.new_page(viewport={"width": 1280, "height": 900}), server) as page:
        yield page
        page.close()


@pytest.fixture
def shown(page: Page) -> Page:
    """The page with the log under pressure, its cursor before the first record."""
    page.evaluate("sessionStorage.removeItem('glassbox.bookmarks')")
    page.evaluate("window.stage.store.bookmarks.logs = []")
    show(page, text_of(pressure()))
    page.evaluate("window.stage.at(-1)")
    return page


def is_kind(kind: str, event: Json) -> bool:
    facts = event["facts"]
    match kind:
        case "preemption":
            return bool(event["type"] == "request_preempted")
        case "resumption":
            return event["type"] == "request_scheduled" and facts["kind"] == "resumed"
        case "hit":
            return bool(event["type"] == "blocks_hit")
        case "eviction":
            return bool(event["type"] == "block_evicted")
        case "eager":
            return event["type"] == "step_dispatched" and facts["mode"] == "NONE"
        case "rejection":
            return event["type"] == "drafts_verified" and facts["num_accepted"] < len(
                facts["drafts"]
            )
        case "finish":
            return event["type"] == "request_finished" and facts["finish_reason"] != "abort"
        case _:
            return bool(event["type"] == "request_aborted")


KINDS = ("preemption", "resumption", "hit", "eviction", "eager", "rejection", "finish", "abort")


def moments(trace: Trace) -> dict[str, list[int]]:
    """Where the moments of each kind are, by the engine's own records."""
    events = [
        (i, record_to_json(record))
        for i, record in enumerate(trace.records)
        if isinstance(record, Event)
    ]
    return {kind: [i for i, event in events if is_kind(kind, event)] for kind in KINDS}


@pytest.mark.parametrize("name", ["09-preempt-recompute", "13-aborts"])
def test_the_moments_are_those_of_the_log(page: Page, name: str) -> None:
    trace = log_of(name)
    show(page, text_of(trace))
    found = page.evaluate(
        "import('/assets/core/moments.js').then((m) => m.momentsOf(window.stage.store))"
    )
    expected = moments(trace)
    every = sorted(i for places in expected.values() for i in places)
    assert found == {**expected, "any": every}
    assert len([kind for kind in KINDS if expected[kind]]) >= 2


def test_eager_steps_and_rejected_drafts_are_moments(page: Page) -> None:
    events = [
        ("step_dispatched", {"mode": "NONE"}),
        ("step_dispatched", {"mode": "FULL"}),
        ("drafts_verified", {"drafts": [1, 2], "num_accepted": 1}),
        ("drafts_verified", {"drafts": [1, 2], "num_accepted": 2}),
        ("constructor", {}),
    ]
    found = page.evaluate(
        """(events) => import("/assets/core/moments.js").then(({ kindOf }) =>
            events.map(([type, facts]) => kindOf({ kind: "event", type, facts })))""",
        events,
    )
    assert found == ["eager", None, "rejection", None, None]


def test_j_goes_from_one_to_the_next_and_says_where_there_is_none(shown: Page) -> None:
    page = shown
    places = moments(pressure())["preemption"]
    select = page.get_by_label("Moments to jump to")
    select.select_option("preemption")
    assert select.locator("option:checked").inner_text() == f"preemptions ({len(places)})"
    page.locator(".gb-map").click(position={"x": 5, "y": 5})
    seen = []
    for _ in places:
        page.keyboard.press("j")
        seen.append(page.evaluate("window.stage.store.cursor"))
    assert seen == places
    page.keyboard.press("j")
    settle(page)
    hint = page.locator(".gb-hint")
    after = f"No preemption after this moment: all {len(places)} are before it, or here."
    assert after in hint.inner_text() and len(places) > 1
    assert page.evaluate("window.stage.store.cursor") == places[-1]
    for place in reversed(places[:-1]):
        page.keyboard.press("Shift+J")
        assert page.evaluate("window.stage.store.cursor") == place
    settle(page)
    assert "No preemption" not in hint.inner_text()
    select.select_option("rejection")
    page.locator("[data-jump='1']").click()
    settle(page)
    assert "This log has no rejected draft so far." in hint.inner_text()


def test_between_the_events_of_a_phase_it_says_whose_figures_these_are(shown: Page) -> None:
    page = shown
    hint = page.locator(".gb-hint")
    heights = set()
    number = 0  # of the events of a phase
    for i, record in enumerate(pressure().records[:60]):
        number = number + 1 if isinstance(record, Event) else 0
        page.evaluate("index => window.stage.at(index)", i)
        heights.add(page.evaluate("window.stage.root.querySelector('.gb-transport').offsetHeight"))
        outside = record.phase == "command"
        inside = "Outside of the steps" if outside else f"Inside {record.phase}"
        words = rf"{inside}, after (event {number} of \d+|the only event): figures are"
        assert bool(re.search(words, hint.inner_text())) == isinstance(record, Event)
    assert len(heights) == 1, "nothing below moves while one steps"


def test_the_marks_above_the_slider_are_the_chosen_moments(shown: Page) -> None:
    page = shown
    places = moments(pressure())["preemption"]
    page.get_by_label("Moments to jump to").select_option("preemption")
    settle(page)
    strip = page.evaluate(
        """() => {
            const canvas = window.stage.root.querySelector(".gb-scrub canvas");
            const { width } = canvas;
            const row = canvas.getContext("2d").getImageData(0, 5, width, 1).data;
            const inked = [];
            for (let x = 0; x < width; x += 1) if (row[4 * x + 3] > 60) inked.push(x);
            return { width, inked };
        }"""
    )
    room = (strip["width"] - 14) / len(pressure().records)
    for place in places:
        middle = 7 + (place + 1) * room
        assert any(abs(x - middle) <= 2 for x in strip["inked"])
    assert all(
        any(abs(x - (7 + (place + 1) * room)) <= 2 for place in places) for x in strip["inked"]
    )
    slider = page.get_by_label("Position in the log")
    slider.hover(position={"x": 7 + (places[0] + 1) * room, "y": 8})
    expect(slider).to_have_attribute("title", re.compile("preemption of "))


def test_bookmarks_are_set_named_kept_and_saved(shown: Page) -> None:
    page = shown
    page.evaluate("window.stage.at(40)")
    page.locator(".gb-map").click(position={"x": 5, "y": 5})
    page.keyboard.press("b")
    page.evaluate("window.stage.at(90)")
    page.keyboard.press("b")
    page.locator("[data-act=bookmarks]").click()
    names = page.get_by_label("Name of the bookmark")
    names.nth(1).wait_for()  # the list comes with the next frame
    expect(names).to_have_count(2)
    names.first.fill("<b>here</b> it begins")
    names.first.press("Enter")
    assert page.evaluate("window.stage.store.bookmarks.list[0].name") == "<b>here</b> it begins"
    page.get_by_role("button", name="Go", exact=True).first.click()
    assert page.evaluate("window.stage.store.cursor") == 40
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.locator("[data-act=save]").click()
        page.locator("[data-save=jsonl]").click()
    saved = Trace.load(download.value.path())
    assert [each.seq for each in saved.header.bookmarks] == [40, 90]
    assert saved.header.bookmarks[0].name == "<b>here</b> it begins"
    assert saved.records == pressure().records
    page.evaluate("window.stage.store.bookmarks.logs = []")
    show(page, text_of(saved))
    assert page.evaluate("window.stage.store.bookmarks.list.map((each) => each.seq)") == [40, 90]
    page.evaluate("window.stage.at(90)")
    page.keyboard.press("b")
    assert page.evaluate("window.stage.store.bookmarks.list.map((each) => each.seq)") == [40]


def test_bookmarks_of_a_live_log_go_into_its_file(page: Page, server: StageServer) -> None:
    page.evaluate("window.stage.store.backToLive()")
    wait_until(page, "window.stage.store.connection === 'open' && window.stage.store.header")
    page.locator(".gb-map").click(position={"x": 5, "y": 5})
    page.keyboard.press("b")
    with page.expect_download() as download:
        page.locator("[data-act=save]").click()
        page.locator("[data-save=jsonl]").click()
    saved = Trace.load(download.value.path())
    engine = server.sessions.get(page.evaluate("window.stage.store.link.key"))
    assert engine is not None
    assert [each.seq for each in saved.header.bookmarks] == [saved.next_seq - 1]
    saved.header.bookmarks.clear()
    assert saved.header == engine.trace.header
    assert list(saved.lines())[1:] == list(engine.trace.lines())[1:]


def test_a_saved_log_is_exported_without_an_engine(shown: Page) -> None:
    page = shown
    files = {}
    for form in ("perfetto", "csv"):
        with page.expect_download() as download:
            page.locator("[data-act=save]").click()
            page.locator(f"[data-save={form}]").click()
        files[form] = download.value.path().read_bytes()
        settle(page)
    parsed = protos().Trace()
    parsed.ParseFromString(files["perfetto"])
    assert len(parsed.packet) > 100
    assert "requests.csv" in zipfile.ZipFile(io.BytesIO(files["csv"])).namelist()


@pytest.mark.parametrize(
    ("bookmarks", "said"),
    [
        (7, "bookmarks must be a list"),
        ([{"seq": 1}], "bookmarks[0].name must be a text"),
        ([{"name": "x"}], "bookmarks[0].seq must be a whole number"),
        ([{"seq": 1, "name": "x" * 121}], "name is longer than 120"),
        ([{"seq": 1, "name": "x"}] * 201, "201 items; 200 at most"),
    ],
)
def test_spoilt_bookmarks_are_refused(page: Page, bookmarks: Any, said: str) -> None:
    lines = list(pressure().lines())
    header = json.dumps({**json.loads(lines[0]), "bookmarks": bookmarks})
    with pytest.raises(Exception, match="line 1") as error:
        show(page, "\n".join([header, *lines[1:]]))
    assert said in str(error.value)
