"""What a jump or another view shows is there in the first frame, all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.seek import WORDS
from tests.browser.stage import Recorded, context, page, recorded, show, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["context", "page", "recorded"]  # fixtures

VIEWS = ("request-lifecycle", "block-allocation", "cuda-acceleration")

# What is said, and what is drawn, in the first frame and when the page has come to rest.
FIRST_AND_LAST = f"""
  const {{ store, root, frame }} = stage;
  const one = () => new Promise((done) => requestAnimationFrame(done));
  const seen = () => [
    ...Array.from(root.querySelectorAll("{WORDS}"), (node) => node.textContent),
    ...Array.from(root.querySelectorAll(".gbp-canvas"), (node) => node.toDataURL()),
  ];
  const rest = async () => {{
    for (let k = 0; k < 20; k += 1) await frame();
  }};
  const look = async (act) => {{
    await rest();
    act();
    await one();
    const first = seen();
    await rest();
    return [first, seen()];
  }};
"""


@pytest.fixture
def opened(page: Page, recorded: Recorded) -> Page:
    show(page, recorded.text)
    for view in VIEWS:
        page.evaluate("view => stage.store.setView(view)", view)
        wait_until(page, "stage.root.querySelector('.gbp-sentence')?.textContent")
    return page


def looked(page: Page, body: str, argument: Any = None) -> Any:
    return page.evaluate(f"async (argument) => {{ {FIRST_AND_LAST} {body} }}", argument)


@pytest.mark.parametrize("view", VIEWS)
def test_a_jump_is_drawn_in_one_frame(opened: Page, view: str) -> None:
    jumps = looked(
        opened,
        """
        store.setView(argument);
        const found = [];
        for (const share of [0.3, 0.9, 0.6])
          found.push(await look(() => store.seek(Math.floor(store.head * share))));
        return found;
        """,
        view,
    )
    pictures = []
    for first, last in jumps:
        assert first == last
        pictures.append(first)
    assert pictures[0] != pictures[1] != pictures[2]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_come_back_to_is_drawn_as_one_that_was_never_left(opened: Page, view: str) -> None:
    (first, last), stayed = looked(
        opened,
        """
        const [view, other] = argument;
        const [from, to] = [0.4, 0.8].map((share) => Math.floor(store.head * share));
        store.setView(view);
        store.seek(from);
        await rest();
        // It is left while something is pointed at, and the moment is another one meanwhile.
        for (const canvas of root.querySelectorAll(".gb-panel-area canvas")) {
          const { left, top, width, height } = canvas.getBoundingClientRect();
          const at = { clientX: left + width / 2, clientY: top + height / 2, bubbles: true };
          canvas.dispatchEvent(new MouseEvent("mousemove", at));
        }
        store.setView(other);
        await rest();
        store.seek(to);
        const back = await look(() => store.setView(view));
        const tips = [...root.querySelectorAll(".gbp-tip")].filter((tip) => !tip.hidden);
        if (tips.length) throw new Error(`still beside the pointer: ${tips[0].textContent}`);
        await look(() => store.seek(from));
        return [back, (await look(() => store.seek(to)))[1]];
        """,
        [view, VIEWS[(VIEWS.index(view) + 1) % 3]],
    )
    assert first == last == stayed


def test_a_panel_that_could_not_draw_is_made_anew(opened: Page) -> None:
    found = looked(
        opened,
        """
        const [view, other] = argument;
        store.setView(view);
        await rest();
        const sentence = root.querySelector(".gbp-sentence");
        sentence.replaceChildren = () => { throw new Error("not to be drawn"); };
        const error = console.error;
        console.error = () => {};
        store.seek(0);
        await rest();
        console.error = error;
        store.setView(other);
        await rest();
        store.setView(view);
        await rest();
        const anew = root.querySelector(".gbp-sentence");
        return [anew !== sentence, anew.textContent !== ""];
        """,
        VIEWS[:2],
    )
    assert found == [True, True]
