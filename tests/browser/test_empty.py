"""Where there is nothing to see yet the page says in a sentence why, and what to do for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.browser.stage import context, own_engine, page, settle
from tests.browser.stage_server import StageServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["context", "page"]  # fixtures

ASK = "Nobody has asked anything yet. Send a prompt, or take a preset, then press Phase."
PANELS = {
    "request-lifecycle": {".gb-panel": f"{ASK} The tokens of a request"},
    "block-allocation": {".gbp-table": "No request yet. The blocks that one holds stand here"},
    "cuda-acceleration": {
        ".gbp-dispatch": ASK,
        ".gbp-clocks": "The model has not run in this step so far: its phase execute does",
        ".gbp-batchside": "No batch has been laid out in this step so far: its phase prepare does",
        ".gbp-captured": "No graph is captured yet",
        ".gbp-pages": "Attention has not run in this step so far",
        ".gbp-kernel": ASK,
        ".gbp-past": "No step has run yet.",
    },
}
ROOMS = {
    "client-req": ASK,
    "async-engine": ASK,
    "scheduler": ASK,
    "gpu-runner": ASK,
    "cuda-graph": ASK,
    "physical-vram": "not yet",
    "shared-gqa": "not yet",
}


def test_each_place_of_a_fresh_engine_says_what_it_will_show(
    page: Page, server: StageServer
) -> None:
    for view, places in PANELS.items():
        page.evaluate("id => window.stage.store.setView(id)", view)
        for place, said in places.items():
            expect(page.locator(place).first).to_contain_text(said)
    expect(page.locator(".gbp-history")).to_be_hidden()
    for room, said in ROOMS.items():
        page.evaluate("id => window.stage.store.openBox(id)", room)
        expect(page.locator(".gb-room-inside")).to_contain_text(said)
    page.evaluate("window.stage.store.openBox('scheduler')")
    own_engine(page, server).submit("hello")
    expect(page.locator(".gb-room-said")).to_have_text(
        "Nobody has been given tokens so far in this step."
    )


NO_ENGINE: list[tuple[dict[str, Any], str, str]] = [
    ({"stage": "convert", "message": "the model is not ready yet"}, "loading", "made ready"),
    ({"stage": "failed", "message": "no model at ./nowhere"}, "no model", "what to mend"),
]


def test_without_an_engine_one_sentence_stands_for_figures_and_nothing_can_be_pressed(
    page: Page,
) -> None:
    for status, label, said in NO_ENGINE:
        page.evaluate(
            """status => {
              const { store } = window.stage;
              store.link.close(); // nothing more comes
              Object.assign(store, { connection: "open", modelStatus: status, header: null });
              store.openBox(null);
              store.changed();
            }""",
            status,
        )
        settle(page)
        expect(page.locator(".gb-status")).to_have_text(label)
        expect(page.locator(".gb-panel-area > .gb-empty")).to_contain_text(said)
        expect(page.locator(".gb-panel")).to_be_hidden()
        expect(page.locator("[data-act=run]")).to_be_disabled()
        page.locator("#gb-side-tab-log").click()
        expect(page.locator("#gb-side-log")).to_contain_text(said)
        page.evaluate("window.stage.store.openBox('scheduler')")
        expect(page.locator(".gb-room-empty")).to_contain_text(said)


def test_what_to_do_depends_on_what_is_looked_at(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          const { nobodyAsked } = await import("/assets/words/empty.js");
          return [
            [true, "own", true], [true, "own", false], [true, "shared", true],
            [false, "own", false], [false, "own", true],
          ].map(([live, engine, atHead]) => nobodyAsked({ live, engine, atHead }));
        }"""
    )
    assert told[0] == ASK
    assert told[1] == told[3] and told[1].endswith("at this moment: press Phase to go on from it.")
    assert told[2].endswith("Connect says how a client does.")
    assert told[4] == "This saved trace has no request in it."
