"""What makes the page smooth, counted rather than timed: what a frame draws and what it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.recording import Load, recorded_trace
from engine.model_loader import LoadedModel
from tests.browser.panels import model_trace, show

if TYPE_CHECKING:
    from playwright.sync_api import Page

CROWD = Load(
    unfinished=40,
    prompts=(8, 20),
    outputs=(20, 30),
    settings={"num_gpu_blocks": 4_096, "max_num_seqs": 40, "max_num_batched_tokens": 512},
)
# All that a script can ask which makes the browser lay the page out at once.
COUNT_READS = """
  let reads = 0;
  const restore = [];
  const counted = (owner, name) => {
    const own = Object.getOwnPropertyDescriptor(owner, name);
    const read = own.get ?? own.value;
    const spy = function (...given) {
      reads += 1;
      return read.apply(this, given);
    };
    Object.defineProperty(owner, name, own.get ? { ...own, get: spy } : { ...own, value: spy });
    restore.push(() => Object.defineProperty(owner, name, own));
  };
  for (const name of ["clientWidth", "clientHeight", "scrollWidth", "scrollHeight"])
    counted(Element.prototype, name);
  for (const name of ["offsetWidth", "offsetHeight", "offsetTop", "offsetLeft"])
    counted(HTMLElement.prototype, name);
  for (const name of ["getBoundingClientRect", "getClientRects"]) counted(Element.prototype, name);
"""


@pytest.fixture(scope="module")
def crowd() -> str:
    """Forty requests at a time in a pool of 4,096 blocks."""
    return recorded_trace(CROWD, 12)


# --- what a frame draws ------------------------------------------------------------------------


def test_where_frames_are_slow_every_part_has_its_turn(page: Page) -> None:
    """The first part is due again with each frame of 120 ms, and the second is asked after it."""
    drawn = page.evaluate(
        """async () => {
          const { Pace } = await import("/views/assets/page/pace.js");
          const real = performance.now;
          let now = real.call(performance) + 1e6;
          performance.now = () => now;
          const drawn = [0, 0];
          const store = { clock: { walking: true, stepMs: 33 }, changed() {} };
          const paces = drawn.map((_, i) => new Pace(store, () => (drawn[i] += 1)));
          for (let frame = 0; frame < 12; frame += 1) {
            now += 120;
            for (const pace of paces) pace.update();
          }
          for (const pace of paces) pace.stop();
          performance.now = real;
          return drawn;
        }"""
    )
    assert drawn[0] == 12 and drawn[1] >= 3


@pytest.mark.parametrize("frame_ms", [1000 / 60, 80])
@pytest.mark.parametrize(("rate", "own"), [(2, True), (6, True), (10, True), (30, False)])
def test_a_step_that_can_be_read_has_its_own_words(
    page: Page, rate: int, own: bool, frame_ms: float
) -> None:
    """Of ten steps and eight parts: how many parts said each step's words before it ended."""
    told = page.evaluate(
        """async ([rate, frame]) => {
          const { Parts } = await import("/views/assets/page/pace.js");
          const real = performance.now;
          let now = real.call(performance) + 1e6;
          performance.now = () => now;
          let step = 0;
          const said = Array.from({ length: 10 }, () => new Set());
          const store = { clock: { walking: true, stepMs: 1000 / rate }, changed() {} };
          const draws = [...Array(8).keys()].map((part) => () => said[step].add(part));
          const parts = new Parts(store, draws);
          for (let time = 0; time < 10000 / rate; time += frame, now += frame) {
            step = Math.floor((time * rate) / 1000);
            parts.update();
          }
          parts.stop();
          performance.now = real;
          return said.map(({ size }) => size);
        }""",
        [rate, frame_ms],
    )
    assert (min(told[1:]) == 8) is own, told


def test_a_box_glows_unless_steps_follow_too_soon(page: Page) -> None:
    glows = page.evaluate(
        """async () => {
          const { Motion } = await import("/views/assets/map/motion.js");
          const event = { connection: null, component: "scheduler" };
          const store = { cursor: 1, stepAt: () => null, eventsBetween: () => [event] };
          let glows = 0;
          const pulse = { animate: () => (glows += 1) };
          const boxByLive = new Map([["scheduler", { pulse }]]);
          const map = { store, boxByLive, linesByLive: new Map(), reduced: { matches: false } };
          const motion = new Motion(map);
          return [[true, 33], [true, 166], [false, 33]].map(([walking, stepMs]) => {
            store.clock = { walking, stepMs };
            motion.fly(event, 0);
            return glows;
          });
        }"""
    )
    assert glows == [0, 1, 2]


def test_a_large_pool_is_painted_where_it_changed(page: Page, tiny_model: LoadedModel) -> None:
    trace = model_trace(tiny_model, num_gpu_blocks=4_096)
    show(page, "blocks", trace, 0)
    found = page.evaluate(
        """async () => {
          const panel = harness.panelOf();
          const { cells } = panel.pool;
          const picture = () => cells.plane.canvas.toDataURL();
          const counts = [];
          for (let at = 1; at <= harness.store.head; at += 7) {
            harness.store.seek(at);
            await harness.settle();
            const [count, kept] = [cells.count, picture()];
            cells.before = null;
            panel.update(true);
            counts.push([count, cells.count, kept === picture()]);
          }
          return counts;
        }"""
    )
    assert all(whole == 4_096 for _, whole, _ in found)
    assert all(same for _, _, same in found)
    assert max(count for count, _, _ in found) < 40  # of those that a step of these requests has
    assert any(count for count, _, _ in found)


def test_only_the_rows_in_sight_are_drawn(page: Page, crowd: str) -> None:
    show(page, "lifecycle", crowd)
    rows, drawn, high, room = page.evaluate(
        """() => {
          const { timeline } = harness.panelOf();
          let drawn = 0;
          const draw = timeline.drawRow;
          timeline.drawRow = function (...given) {
            drawn += 1;
            return draw.apply(this, given);
          };
          harness.panelOf().update(true);
          timeline.drawRow = draw;
          const { scroll, plane, bars } = timeline;
          const room = scroll.clientHeight - bars.plane.height;
          return [timeline.model.rows.length, drawn, plane.height, room];
        }"""
    )
    assert rows >= 40 and drawn < 20
    assert high <= room


def test_what_is_out_of_sight_is_drawn_when_the_cursor_stands(page: Page, crowd: str) -> None:
    """A panel that is scrolled away: nothing of it is drawn while the cursor walks."""
    show(page, "graph", crowd, 0)
    drawn = page.evaluate(
        """async () => {
          const panel = harness.panelOf();
          const { store } = harness;
          const { clock } = store;
          const drawn = [];
          for (const name of ["strip", "history", "pages"]) {
            const part = panel[name];
            const own = name === "pages" ? "update" : "draw";
            const draw = part[own];
            part[own] = function (...given) {
              drawn.push(name);
              return draw.apply(this, given);
            };
          }
          const frames = async () => {
            for (let k = 0; k < 3; k += 1) await harness.settle();
            panel.words.now();
          };
          const look = async (walking, away) => {
            document.body.style.paddingTop = away ? "6000px" : "";
            await frames();
            clock.frame = walking ? -1 : 0; // as if the cursor walked
            drawn.length = 0;
            store.moveCursor(store.cursor + 3);
            await frames();
            clock.frame = 0;
            return [...new Set(drawn)].sort();
          };
          const away = await look(true, true);
          store.changed();
          await frames();
          const stands = [...new Set(drawn)].sort();
          return { away, stands, near: await look(true, false) };
        }"""
    )
    assert drawn["away"] == []
    assert drawn["stands"] == ["history", "pages", "strip"]
    assert "strip" in drawn["near"]


def test_a_jump_draws_the_cards_in_sight_and_soon_after_the_others(page: Page, crowd: str) -> None:
    show(page, "lifecycle", crowd)
    found = page.evaluate(
        """async () => {
          const panel = harness.panelOf();
          const { store } = harness;
          const cards = () => Array.from(panel.cards.children, (card) => ({
            in: card.getBoundingClientRect().top < panel.cards.getBoundingClientRect().bottom,
            says: card.querySelector(".gbp-counts").textContent,
            id: card.querySelector(".gbp-id").textContent,
          }));
          const wanted = () => panel.data.streams.map(({ id }) => id);
          const frames = async (count) => {
            for (let k = 0; k < count; k += 1) await harness.settle();
          };
          const jump = async (index) => {
            panel.unseen.stop();  // not yet, however long the two frames take
            panel.unseen.update = () => {};
            store.seek(index);
            await frames(2);
            const soon = cards();
            delete panel.unseen.update;
            panel.unseen.update();
            while (panel.unseen.timer) await harness.settle();
            const later = cards();
            panel.update(true);
            return { soon, later, whole: cards(), wanted: wanted() };
          };
          await jump(store.head);
          return [await jump(Math.floor(store.head / 2)), await jump(store.head)];
        }"""
    )
    for jump in found:
        ids = [card["id"] for card in jump["whole"]]
        assert ids == jump["wanted"] and len(set(ids)) == len(ids) == 8
        assert [card for card in jump["soon"] if card["in"]] == jump["whole"][
            : len([card for card in jump["soon"] if card["in"]])
        ]
        assert jump["soon"] != jump["whole"]
        assert jump["later"] == jump["whole"]


def test_a_row_is_found_where_it_is_drawn_after_scrolling(page: Page, crowd: str) -> None:
    show(page, "lifecycle", crowd)
    found = page.evaluate(
        """async () => {
          const { timeline } = harness.panelOf();
          timeline.inside = true; // as with the pointer over it: it does not scroll by itself
          const { scroll, plane } = timeline;
          const ids = [];
          for (const top of [0, 96, scroll.scrollHeight]) {
            scroll.scrollTop = top;
            while (timeline.shownTop !== scroll.scrollTop) await harness.settle();
            const box = plane.canvas.getBoundingClientRect();
            const at = { clientX: box.left + 10, clientY: box.bottom - 24 };
            const drawn = [];
            const draw = timeline.drawRow;
            timeline.drawRow = function (c, row, y, ...rest) {
              drawn.push([row.id, y]);
              return draw.call(this, c, row, y, ...rest);
            };
            harness.panelOf().update(true);
            timeline.drawRow = draw;
            const y = box.height - 24;
            const under = drawn.find(([, begin]) => y >= begin && y < begin + 24);
            ids.push([timeline.find(at).row?.id, under?.[0]]);
          }
          return [ids, timeline.model.rows.at(-1).id];
        }"""
    )
    ids, last = found
    assert all(pointed == drawn for pointed, drawn in ids)
    assert ids[-1][0] == last


@pytest.mark.parametrize("panel", ["lifecycle", "blocks", "graph"])
def test_a_picture_makes_the_browser_lay_nothing_out(page: Page, crowd: str, panel: str) -> None:
    show(page, panel, crowd, 600)
    drawn, reads = page.evaluate(
        f"""() => {{
          {COUNT_READS}
          const {{ store, panel }} = harness;
          const now = performance.now;
          const at = now.call(performance);
          performance.now = () => at;
          store.clock.frame = -1; // it walks; words have just been drawn
          store.moveCursor(store.cursor + 1);
          panel.update();
          reads = 0;
          let drawn = 0;
          for (let k = 0; k < 20; k += 1) {{
            store.moveCursor(store.cursor + 15);
            panel.update();
            drawn += 1;
          }}
          store.clock.frame = 0;
          performance.now = now;
          for (const undo of restore) undo();
          return [drawn, reads];
        }}"""
    )
    assert (drawn, reads) == (20, 0)


def test_words_wait_only_while_the_cursor_walks_and_share_no_frame(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          const { Pace } = await import("/views/assets/page/pace.js");
          const now = performance.now;
          let time = 1e6;
          performance.now = () => time;
          const asked = [];
          const store = { clock: { walking: false, stepMs: 33 }, changed: () => asked.push(time) };
          const drawn = { a: 0, b: 0 };
          const a = new Pace(store, () => (drawn.a += 1));
          const b = new Pace(store, () => (drawn.b += 1));
          const told = [];
          const tell = () => told.push([drawn.a, drawn.b, a.waits, b.waits]);
          a.update(), a.update(), b.update();
          tell(); // the cursor stands: all at once
          store.clock.walking = true;
          time += 50;
          a.update(), b.update();
          tell(); // too soon
          time += 60;
          a.update(), b.update();
          tell(); // one of them
          time += 17;
          a.update(), b.update();
          tell(); // in the next frame, the other
          time += 5;
          a.update();
          while (!asked.length) await new Promise((done) => setTimeout(done, 10));
          store.clock.walking = false;
          a.update();
          tell(); // asked again, and drawn
          performance.now = now;
          return told;
        }"""
    )
    assert told == [
        [2, 1, False, False],
        [2, 1, True, True],
        [3, 1, False, True],
        [3, 2, True, False],
        [4, 2, False, False],
    ]
