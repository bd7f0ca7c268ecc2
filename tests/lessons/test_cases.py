"""Cases of the symptom clinic and bug hunts: what they need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.async_llm import AsyncLLM
from engine.engine_thread import EngineThread
from engine.model_loader import load_model
from lessons.format import address_of
from lessons.loader import FOLDER, LessonError, load, same_place
from lessons.play import Asked, Player

LEAK = FOLDER / "clinic" / "abort-leak.md"


@pytest.fixture(scope="module")
def llm() -> Iterator[AsyncLLM]:
    thread = EngineThread()
    yield AsyncLLM(load_model("tiny-random"), thread=thread)
    thread.stop()


def change(llm: AsyncLLM) -> tuple[Player, Asked]:
    """The case, at its knobs."""
    player = Player(load(LEAK), 1)
    player.go_to(2)
    player.bring(llm)
    return player, Asked(player.step, player.step.questions[0])


def test_a_client_hangs_up_before_its_step(llm: AsyncLLM) -> None:
    player, _ = change(llm)
    moment = player.moment()
    assert moment is not None
    sampled, aborted = moment.last("token_sampled", "r0"), moment.last("request_aborted", "r0")
    assert sampled.step == 1 and sampled.seq < aborted.seq
    assert moment.last("allocation_failed", "r1").step == 2


def test_a_knob_can_take_the_fault_out(llm: AsyncLLM) -> None:
    player, asked = change(llm)
    assert player.is_broken
    knobs = {"engine": "mended", "pool": 11, "seats": 4}
    for engine in ("as reported", "mended"):
        player.try_out(llm, asked, {**knobs, "engine": engine})
        verdict = player.verdict(asked)
        assert verdict is not None
        assert verdict.right == (engine == "mended") == (not player.is_broken)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('threads: ["#46283", "#50425"]\n', "", "name in `threads` where it was reported"),
        ('"#46283"', '"46283"', "'46283' is no thread; write '#48803'"),
        ("shown_by: fault\n", "", "say in `shown_by` what shows it"),
        ("shown_by: fault", "shown_by: engine", "goes with a run that has a fault"),
        ("          fault: never-frees\n", "", "name the `fault`"),
        ("kind: box", "kind: bocks", "there is no kind `bocks`"),
        (
            "      until: {phase: schedule, step: 2}",
            "      wait: {phase: output}",
            "nobody hangs up",
        ),
        (
            "      hang_up: {r0: 2}\n      until: {phase: schedule, step: 2}",
            "      compare_kv: r0",
            "say with `until` where it does",
        ),
    ],
)
def test_what_a_case_lacks_is_said(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = LEAK.read_text()
    assert old in text
    path = tmp_path / LEAK.name
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(LessonError) as caught:
        load(path)
    assert says in str(caught.value)


def test_a_thread_without_a_repository_is_vllms() -> None:
    assert address_of("#48803") == "https://github.com/vllm-project/vllm/issues/48803"
    assert address_of("owner/name#1") == "https://github.com/owner/name/issues/1"


def test_what_is_said_at_the_end_is_of_no_broken_engine(llm: AsyncLLM) -> None:
    player, _ = change(llm)
    player.go_to(3)
    assert player.at_end and not player.is_broken


def test_a_request_is_compared_with_fp32_where_the_run_ends(llm: AsyncLLM) -> None:
    player = Player(load(FOLDER / "clinic" / "fp8-kv.md"), 1)
    player.go_to(1)
    player.bring(llm)
    moment = player.moment()
    assert moment is not None
    assert moment.last("kv_cache_compared").seq > moment.last("request_completed", "r0").seq


def test_an_id_is_a_single_lessons() -> None:
    case = load(LEAK)
    assert same_place([case]) == []
    lab = case.model_copy(update={"kind": "lab"})
    (said,) = same_place([case, lab])
    assert said == "clinic/abort-leak.md and labs/abort-leak.md have one id; rename one of them"


def test_who_turned_a_knob_is_not_told_afterwards_that_the_engine_was_reset(llm: AsyncLLM) -> None:
    player, asked = change(llm)
    player.try_out(llm, asked, {"engine": "mended", "pool": 11, "seats": 4})
    player.go_to(3)  # which says nothing of the log
    assert not player.away(llm)
    player.go_to(1)
    assert player.away(llm)
