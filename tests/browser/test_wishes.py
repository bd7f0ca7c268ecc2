"""What the workspace has the server do stands until it is heard, whichever run is cut short."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPT = """async (acts) => {
  const { Wishes } = await import("/views/assets/page/wishes.js");
  const wishes = new Wishes();
  const told = [];
  wishes.tell = (open) => told.push(open.map(({ turn, what }) => `${turn} ${what}`).join());
  for (const [act, value] of acts) wishes[act](value);
  return told;
}"""


def test_a_wish_is_told_again_until_it_was_heard(page: Page) -> None:
    acts = [["heard", 7], ["ask", "picked"], ["heard", 7], ["ask", "home"], ["heard", 8]]
    told = ["8 picked", "8 picked", "8 picked,9 home", "9 home"]
    assert page.evaluate(SCRIPT, [*acts, ["heard", 9], ["heard", 9]]) == told


def test_a_document_is_taken_back_once_it_was_heard(page: Page) -> None:
    acts = [["ask", "given"], ["ask", "home"], ["heard", 1], ["heard", 2], ["heard", 2]]
    assert page.evaluate(SCRIPT, acts) == ["1 given", "1 given,2 home", "2 home", ""]


def test_turns_go_on_behind_those_of_the_server(page: Page) -> None:
    acts = [["ask", "home"], ["heard", 50], ["ask", "home"], ["heard", 51]]
    assert page.evaluate(SCRIPT, acts) == ["1 home", "51 home"]
