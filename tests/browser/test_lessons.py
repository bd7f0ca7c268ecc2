"""Lessons played on the page: a tour's first steps, the whole lab, and a learner who strays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from tests.browser.test_page import READY, SHOTS, Tab
from tests.waiting import becomes, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator


class Learner:
    """A tab, seen by somebody who takes lessons in it."""

    def __init__(self, tab: Tab):
        self.tab = tab
        self.side: Locator = tab.page.locator("[data-testid=stSidebar]")

    def start(self, lesson: str) -> Learner:
        self.tab.page.get_by_role("button", name="Lessons").click()
        self.side.locator(f".st-key-gb-start-{lesson} button").click()
        self.reads("Step 1 of")
        return self

    def next(self, title: str) -> None:
        self.side.get_by_role("button", name="Next").click()
        self.reads(title)

    def reads(self, text: str | re.Pattern[str]) -> None:
        from playwright.sync_api import expect

        expect(self.side).to_contain_text(text)
        self.tab.page.wait_for_selector(READY)
        self.tab.page.mouse.move(0, 0)  # a button's help may lie over the next one

    def answer(self, given: int, button: str = "Answer") -> None:
        self.side.locator("input[type=number]").last.fill(str(given))
        self.side.get_by_role("button", name=button).last.click()

    def knob(self, value: int) -> None:
        self.side.locator("input[type=number]").last.fill(str(value))
        self.side.get_by_role("button", name="Run with these").click()

    def shown(self) -> list[Any]:
        found: list[Any] = self.tab.store("[s.view, s.selection.component, s.selection.request]")
        return found

    def is_shown(self, view: str, box: str | None, request: str | None, seq: int) -> None:
        """The page looks at this; the cursor walks there."""
        self.tab.wait_for("[s.view, s.selection.component]", [view, box])
        self.tab.wait_for("s.selection.request", request)
        self.tab.wait_for("s.header.base_seq + s.cursor", seq)

    def number(self, pattern: str) -> int:
        found = re.search(pattern, self.side.inner_text().replace("\n", " "))
        assert found, (pattern, self.side.inner_text())
        return int(found[1])


@pytest.fixture
def learner(browser: Browser, server_url: str) -> Iterator[Learner]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Learner(Tab(context.new_page(), server_url).open())
    context.close()


def test_the_tour_steps_the_engine_and_lights_what_it_speaks_of(learner: Learner) -> None:
    tab = learner.start("one-request").tab
    learner.reads("Next resets your engine: its requests and log end")
    prompt = learner.number(r"one request of (\d+) tokens")
    before = tab.log().header["trace_id"]
    learner.next("A client asks")
    log = tab.log()
    assert log.header["trace_id"] != before
    assert log.state["requests"]["r0"]["num_prompt_tokens"] == prompt
    learner.reads(f"The prompt has {prompt} of them")
    learner.is_shown("request-lifecycle", "client-req", "r0", log.records[-1]["seq"])

    learner.next("The front end")
    learner.reads("The queue has 1 request now")
    learner.answer(prompt // 16 + 1)
    learner.reads("nobody has looked for room yet")
    learner.answer(0)
    learner.reads("Right. A waiting request is a name")
    learner.side.get_by_role("link", name="AsyncLLM Engine").click()
    tab.wait_for("s.selection.component", "async-engine")
    learner.side.get_by_role("link", name="Show that moment").click()
    arrived = tab.log().events("request_arrived")[0]["seq"]
    learner.is_shown("request-lifecycle", "scheduler", "r0", arrived)
    assert "#gb-" not in tab.page.url

    learner.next("The scheduler")
    log = tab.log()
    assert log.state["engine"]["next_phase"] == "prepare"
    scheduled = log.events("request_scheduled")[0]
    learner.reads(f"It got {scheduled['facts']['num_tokens']}")
    learner.is_shown("request-lifecycle", "scheduler", "r0", scheduled["seq"])

    learner.next("Room for keys and values")
    assert len(tab.log().records) == len(log.records)  # the same moment, in another view
    learner.is_shown("block-allocation", "block-manager", "r0", log.records[-1]["seq"])
    learner.reads(f"{log.state['queues']['free']['length']} blocks are still free")


def test_a_learner_may_stray_and_is_brought_back(learner: Learner) -> None:
    tab = learner.start("one-request").tab
    for title in ("A client asks", "The front end", "The scheduler"):
        learner.next(title)
    trace = tab.log().header["trace_id"]
    tab.press("Step")  # to the end of the log, then of the step: past where the tour goes next
    tab.press("Step")
    tab.wait_for("s.headEngine.step", 1)
    tab.view(0)
    learner.side.get_by_role("button", name="Show me").click()
    scheduled = tab.log().events("request_scheduled")[0]["seq"]
    learner.is_shown("request-lifecycle", "scheduler", "r0", scheduled)
    learner.next("Room for keys and values")
    learner.next("The batch as the model sees it")
    prepared = [r for r in tab.log().records if r["kind"] == "patch" and r["phase"] == "prepare"]
    learner.is_shown("cuda-acceleration", "gpu-runner", "r0", prepared[0]["seq"])
    assert tab.log().header["trace_id"] == trace

    tab.store("s.command('reset', {config: null})")
    tab.wait_for(f"s.header.trace_id !== '{trace}'", True)
    tab.page.get_by_role("button", name="Show me").click()
    learner.reads("Your engine was reset since")
    learner.side.get_by_role("button", name="Reset it and bring it back here").click()
    tab.wait_for("s.state.engine?.next_phase", "execute")
    learner.is_shown("cuda-acceleration", "gpu-runner", "r0", prepared[0]["seq"])
    learner.side.get_by_role("button", name="Leave").click()
    learner.reads("A tour explains")
    learner.side.get_by_role("button", name="Go on at step 6").click()
    learner.reads("The batch as the model sees it")
    learner.side.get_by_role("button", name="Leave").click()
    learner.reads("A tour explains")
    learner.side.get_by_role("button", name="Close").click()
    learner.side.wait_for(state="detached")


def test_the_lab_is_predicted_run_compared_and_explained(learner: Learner) -> None:
    from playwright.sync_api import expect

    tab = learner.start("count-the-blocks").tab
    learner.next("How blocks are filled")
    learner.next("Write down what you expect")
    side = learner.side
    expect(side.get_by_role("button", name="Next")).to_be_disabled()
    size = learner.number(r"blocks of (\d+) tokens")
    prompt = learner.number(r"a prompt of (\d+) tokens")
    answer = learner.number(r"generate (\d+) tokens")
    fields = side.locator("input[type=number]")
    fields.first.fill(str(prompt // size))
    side.get_by_role("button", name="Lock my predictions").click()
    learner.reads("Fill in every prediction")
    side.get_by_role("button", name="Hint 1 of 3").first.click()
    learner.reads("put a fence after every")
    fields.first.fill(str(prompt // size))  # the partly filled block is forgotten
    fields.last.fill(str(-(-(prompt + answer - 1) // size)))
    side.get_by_role("button", name="Lock my predictions").click()
    learner.reads("Your predictions are locked")
    expect(fields.first).to_be_disabled()
    learner.reads(f"it begins anew with block_size {size}")

    learner.next("The prompt is computed")
    table = tab.log().state["requests"]["r0"]["block_table"]
    learner.reads(re.compile(rf"You predicted\s*{prompt // size} blocks"))
    learner.reads(re.compile(rf"The engine took\s*{len(table)} blocks"))
    learner.reads("These are the full blocks")
    learner.is_shown("block-allocation", "block-manager", "r0", tab.log().records[-1]["seq"])
    learner.next("The answer is complete")
    learner.reads("The engine took as many as you said")

    learner.next("Explain: the missing token")
    side.get_by_text("The token that ends the text.").click()
    side.get_by_role("button", name="Answer").click()
    learner.reads("No such token came up")
    side.get_by_text("The last token of the answer.").click()
    side.get_by_role("button", name="Answer").click()
    learner.reads("one step after it was sampled")

    learner.next("Explain: who gives blocks")
    side.get_by_role("combobox").click()
    tab.page.get_by_role("option", name="Chunked Scheduler").click()
    side.get_by_role("button", name="Answer").first.click()
    learner.reads("the books are not its own")
    tab.page.locator(".gb-map [data-component=block-manager]").first.click()
    expect(side.get_by_role("combobox")).to_have_value("KVCacheManager")
    side.get_by_role("button", name="Answer").first.click()
    learner.reads("It keeps the free queue")
    learner.answer(0)
    learner.reads("it is the null block")

    learner.next("Now it is your turn")
    learner.knob(4 * size - 1)
    learner.reads("2 of 4 points")
    learner.reads("Four blocks they are")
    learner.knob(4 * size)
    learner.reads(f"Done: {4 * size} tokens in 4 blocks")
    assert len(tab.log().state["requests"]["r0"]["block_table"]) == 4

    learner.next("What you have seen")
    learner.reads("You have 5 of 8 questions right. That gives 8 of 9 points")
    side.get_by_role("button", name="Again with other numbers").click()
    learner.reads("Step 1 of")
    learner.next("How blocks are filled")
    learner.next("Write down what you expect")
    expect(fields.first).to_have_value("")


def test_a_locked_choice_keeps_its_mark(learner: Learner) -> None:
    from playwright.sync_api import expect

    side = learner.start("who-was-evicted").side
    learner.next("The free queue")
    learner.next("Three requests come")
    side.get_by_text("Those of r1, which came last.").click()
    learner.answer(3, "Lock my predictions")
    learner.reads("Your predictions are locked")
    chosen = side.get_by_role("radio", name="Those of r1, which came last.")
    for _ in range(2):  # now, and when its reader comes back
        expect(chosen).to_be_checked()
        expect(chosen).to_be_disabled()
        side.get_by_role("button", name="Back").click()
        learner.reads("Step 2 of 6")
        learner.next("Three requests come")


def look_for_the_hit(learner: Learner, point: Callable[[int], None]) -> None:
    """The beginning of *Lose a hit*, once two questions are asked: to the event that tells why.

    `point` fills in a record; the first one is right in part only.
    """
    tab, side = learner.tab, learner.side
    learner.next("What one token is needed for")
    learner.next("Your engine has blocks of")
    learner.answer(1, "Lock my predictions")
    learner.reads("Your predictions are locked")
    learner.next("Step the engine yourself")
    tab.press("Step")
    learner.reads("the prefix cache keeps")
    learner.next("r1 came with the very same")
    learner.next("What you look for happened just before")
    log = tab.log()
    for event, says in (("blocks_hit", "1 of 2 points"), ("prefix_looked_up", "2 of 2 points")):
        found = [each for each in log.events(event) if each["facts"]["request"] == "r1"]
        point(found[0]["seq"])
        side.get_by_role("button", name="Answer").first.click()
        learner.reads(says)


def lose_it_by_one_token(learner: Learner) -> None:
    """The knob of *Lose a hit*, wrong at first."""
    learner.next("One token more or less")
    learner.knob(24)
    learner.reads("The prompt ends with a full block")
    learner.knob(25)
    learner.reads("Done: r1")


def test_a_lab_waits_takes_a_moment_and_holds_elsewhere(learner: Learner) -> None:
    """The second lab: its learner steps, points at an event, and turns a knob."""
    tab, side = learner.start("lose-a-hit").tab, learner.side

    def point(seq: int) -> None:
        tab.store(f"s.seek({seq} - s.header.base_seq)")
        tab.wait_for("s.header.base_seq + s.cursor", seq)
        side.get_by_role("button", name="This one").click()
        becomes(lambda: side.locator("input[type=number]").first.input_value(), str(seq))

    look_for_the_hit(learner, point)
    lose_it_by_one_token(learner)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lessons_can_be_read_by_everybody(browser: Browser, server_url: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    learner = Learner(Tab(context.new_page(), server_url).open()).start("one-request")
    learner.next("A client asks")
    learner.next("The front end")
    learner.answer(1000)
    learner.reads("nothing was handed to it")
    SHOTS.mkdir(exist_ok=True)
    learner.tab.page.screenshot(path=SHOTS / f"lesson-{scheme}.png")
    found = Axe().run(learner.tab.page, context={"include": ["[data-testid=stSidebar]"]})
    faults = [item["id"] for item in found.response["violations"]]
    context.close()
    assert faults == []


def test_on_a_phone_a_lesson_stands_above_what_it_lights_and_can_be_closed(
    browser: Browser, server_url: str
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    learner = Learner(Tab(context.new_page(), server_url).open()).start("one-request")
    page = learner.tab.page
    learner.next("A client asks")
    page.get_by_role("button", name="Collapse sidebar").click()
    page.get_by_role("button", name="Lessons").click()
    learner.next("The front end")
    main = page.locator("[data-testid=stMain]")
    becomes(lambda: main.evaluate("element => element.scrollWidth") <= 390, True)
    main.evaluate("element => element.scrollTo(0, element.scrollHeight)")
    learner.side.get_by_role("button", name="Show me").click()
    lit = page.locator(".gb-box.is-selected .card")

    def is_in_sight() -> bool:
        side, box, bar = (
            each.bounding_box() for each in (learner.side, lit, page.locator(".gb-transport"))
        )
        assert side is not None and box is not None and bar is not None
        return side["y"] + side["height"] <= box["y"] and box["y"] + box["height"] <= bar["y"]

    becomes(is_in_sight, True)
    learner.side.get_by_role("button", name="Present").click()
    page.locator(".gb-tour").wait_for()
    side = learner.side.bounding_box()
    assert side is not None and side["width"] == 390
    assert [each["id"] for each in Axe().run(page).response["violations"]] == []
    context.close()


def test_the_panel_is_in_sight_beside_a_lesson_and_the_inspector_beside_it(
    learner: Learner,
) -> None:
    learner.start("one-request").next("A client asks")
    page = learner.tab.page

    def is_beside() -> bool:  # once the lesson's column has come
        panel, inspector, map_ = (
            page.locator(name).bounding_box()
            for name in (".gb-panel-area", ".gb-inspector", ".gb-map")
        )
        assert panel is not None and inspector is not None and map_ is not None
        return (
            panel["y"] < 620
            and abs(inspector["y"] - panel["y"]) < 1
            and inspector["x"] >= panel["x"] + panel["width"]
            and map_["width"] > panel["width"] + inspector["width"]
        )

    becomes(is_beside, True)


def test_the_keyboard_stays_in_the_lesson_when_its_button_goes(learner: Learner) -> None:
    page = learner.tab.page
    page.get_by_role("button", name="Lessons").click()
    learner.side.locator(".st-key-gb-start-one-request button").focus()
    page.keyboard.press("Enter")
    learner.reads("Step 1 of")
    page.wait_for_selector("[data-testid=stSidebarContent]:focus")
    page.keyboard.press("Tab")
    assert learner.side.get_by_role("button", name="Leave").evaluate(
        "button => button === document.activeElement"
    )


def test_what_is_looked_up_is_lit_and_a_case_is_found_by_its_thread(learner: Learner) -> None:
    from playwright.sync_api import expect

    tab, side = learner.tab, learner.side
    tab.page.get_by_role("button", name="Lessons").click()
    field = side.get_by_role("searchbox", name="Search")
    field.fill("gpu worker")
    field.press("Enter")
    side.get_by_role("button", name="Term: Worker").press("Enter")
    learner.reads("On the map: GPU Worker")  # which is another one than the engine's own
    tab.wait_for("s.selection.component", "worker")
    tab.page.locator(".gb-brand").click()
    tab.page.keyboard.press("/")
    expect(field).to_be_focused()
    tab.page.keyboard.type("max_num_s")  # the rest is found as it is typed
    side.get_by_role("button", name="Setting: max_num_seqs").press("Enter")
    learner.reads("Now: 8. You change it in the menu Engine, under Scheduling.")
    tab.wait_for("s.selection.component", "scheduler")
    side.get_by_role("link", name="change it in the menu Engine").click()
    expect(tab.page.get_by_label("max_num_seqs: most requests")).to_be_focused()
    tab.page.keyboard.press("Escape")
    field.fill("#46283")
    field.press("Enter")
    side.locator(".st-key-gb-start-abort-leak button").click()
    thread = side.get_by_role("link", name="#46283")
    expect(thread).to_have_attribute("href", "https://github.com/vllm-project/vllm/issues/46283")
    learner.reads("A correct engine does not do this. The one here is broken on purpose.")
    learner.next("A client hangs up")
    learner.reads("This engine is broken on purpose.")
    tab.page.locator(".gb-brand").click()
    tab.page.keyboard.press("/")
    tab.has(".gb-transport", "press Leave first")


def test_a_claim_that_a_step_shows_leads_to_its_card_and_its_boxes(
    browser: Browser, server_url: str
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = Tab(context.new_page(), f"{server_url}/?lesson=preemption#lesson_step=6").open()
    learner = Learner(tab)
    learner.side.get_by_role("button", name="Start at step 6").click()
    learner.reads("Claim 6 is beside the map: what is said, and what holds. It is about")
    learner.side.get_by_role("link", name="Chunked Scheduler").click()
    tab.wait_for("s.selection.component", "scheduler")
    tab.page.get_by_role("tab", name="Inspector").click()
    learner.side.get_by_role("link", name="Claim 6").click()
    tab.has("[data-claim='6']", "swapped to CPU memory")
    learner.next("The same moment, and one more")
    tab.wait_for("s.header.state.engine?.step", 1)  # the log begins where the engine was saved
    context.close()


def test_a_tour_is_presented_with_a_clicker_and_notes_beside_it(learner: Learner) -> None:
    from playwright.sync_api import expect

    page = learner.start("one-request").tab.page
    page.locator(".gb-brand").click()

    def is_presented() -> bool:
        """The page may be drawn before its script has heard what there is to present."""
        page.keyboard.press("f")
        return page.locator("html[data-gb-tour] .gb-tour").count() > 0

    wait_until(is_presented)
    expect(page.locator(".st-key-gb-composer")).to_be_hidden()
    page.keyboard.press("PageDown")
    learner.reads("A client asks")
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Notes").click()
    notes = popup.value
    expect(notes.get_by_role("heading")).to_have_text("A client asks")
    prompt = learner.tab.log().state["requests"]["r0"]["num_prompt_tokens"]
    expect(notes.locator("main")).to_contain_text(f"The request is {prompt} tokens long")
    expect(notes.locator("main")).to_contain_text("Next: The front end")
    notes.keyboard.press("PageUp")
    learner.reads("Step 1 of 13")
    expect(notes.get_by_role("heading")).to_have_text("The map")
    page.keyboard.press("Escape")
    expect(page.locator(".st-key-gb-composer")).to_be_visible()
    expect(notes.get_by_role("heading")).to_contain_text("No lesson is being presented")
