"""A try of a change: the page that its reset has the browser ask for waits until it is over."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from engine.async_llm import AsyncLLM
from lessons.loader import lesson_files, load
from lessons.play import Asked, Player
from views.page import lesson_change


def test_nothing_is_drawn_before_a_try_has_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = load(next(path for path in lesson_files() if path.stem == "count-the-blocks"))
    step = lab.steps[lab.step("fill") or 0]
    bringing, held = threading.Lock(), []

    def try_out(*_: Any) -> None:
        held.append(bringing.locked())

    monkeypatch.setattr(Player, "try_out", try_out)
    asked = Asked(step, step.questions[0])
    lesson_change._run(Player(lab, 1), cast(AsyncLLM, None), asked, bringing)
    assert held == [True] and not bringing.locked()
