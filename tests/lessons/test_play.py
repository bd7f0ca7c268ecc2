"""Playing, grading and proving a lesson on a real engine with the tiny model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.async_llm import AsyncLLM
from engine.engine_thread import EngineThread
from engine.model_loader import load_model
from lessons.__main__ import main
from lessons.check import check_lesson
from lessons.expressions import Expression
from lessons.grading import grade, model_answer
from lessons.loader import lesson_files, load, load_each
from lessons.map_names import DOCUMENT, read_map
from lessons.play import Asked, Player
from lessons.probes import ProbeError
from lessons.questions import NumberQuestion
from lessons.stage import StageError
from lessons.variants import draw
from tests.lessons.small import SMALL, small, write

NAMES = read_map(DOCUMENT)
LESSONS, _ = load_each(lesson_files())
TOUR = next(lesson for lesson in LESSONS if lesson.id == "one-request")
LAB = next(lesson for lesson in LESSONS if lesson.id == "count-the-blocks")


@pytest.fixture(scope="module")
def llm() -> Iterator[AsyncLLM]:
    thread = EngineThread()
    yield AsyncLLM(load_model("tiny-random"), thread=thread)
    thread.stop()


def at(player: Player, llm: AsyncLLM, step: str) -> Player:
    """The player, brought to a step."""
    player.index = player.lesson.step(step) or 0
    player.bring(llm)
    return player


# -- variants -----------------------------------------------------------------------------------


def test_a_seed_always_draws_the_same_numbers_and_another_one_others() -> None:
    for lesson in LESSONS:
        drawn = [draw(lesson, seed) for seed in range(40)]
        assert drawn == [draw(lesson, seed) for seed in range(40)]
        neighbours = 10 if lesson.kind in ("tour", "lab") else 4  # a case is done by oneself
        assert len({tuple(values.items()) for values in drawn}) >= neighbours, lesson.id


# -- playing ------------------------------------------------------------------------------------


def test_a_step_brings_the_engine_where_it_wants_it(tmp_path: Path, llm: AsyncLLM) -> None:
    player = at(Player(small(tmp_path), 1), llm, "second")
    moment = player.moment()
    assert moment is not None
    assert llm.status.next_phase == "prepare"
    assert llm.config.block_size == 4
    assert moment.request("r0")["num_prompt_tokens"] == player.values["prompt"]
    shown = player.shown()
    assert shown[:4] == ("block-allocation", "block-manager", "r0", None)
    assert (shown.trace_id, shown.seq) == (llm.trace.header.trace_id, llm.trace.next_seq - 1)


def test_a_setting_may_be_a_table_with_expressions_in_it(tmp_path: Path, llm: AsyncLLM) -> None:
    table = "speculative_config: {method: ngram, num_speculative_tokens: =size - 1}"
    lesson = small(tmp_path, "num_gpu_blocks: 16", f"num_gpu_blocks: 16, {table}")
    at(Player(lesson, 1), llm, "second")
    assert llm.config.num_speculative_tokens == 3


def test_a_prompt_may_have_pieces_and_come_later_or_by_the_api(
    tmp_path: Path, llm: AsyncLLM
) -> None:
    more = """max_tokens: 3, ignore_eos: true}
        - prompt: of clocks
          tokens: 2
          before:
            - {prompt: Once upon a time, tokens: =size}
            - {prompt: There was a shop, tokens: 0}
          sampling: {max_tokens: 3, ignore_eos: true}
          priority: =size - 1
          at: 1
        - prompt: Once upon a time
          sampling: {max_tokens: 2, logprobs: 1}
          http: true"""
    text = SMALL.replace("max_tokens: 3, ignore_eos: true}", more)
    text = text.replace("{phase: schedule}", "{event: request_scheduled, request: r2}")
    lesson = load(write(tmp_path, text))
    player = at(Player(lesson, 1), llm, "second")
    scope = player.scope()
    read = {
        text: Expression.parse(text).value(scope)
        for text in (
            "first_step('request_arrived', 'r2')",
            "prompt_tokens('r2')",
            "fact('request_submitted', 'source', 'r1')",
            "fact('request_submitted', 'source', 'r2')",
        )
    }
    assert list(read.values()) == [1, 6, "http", "page"]


def test_what_comes_later_needs_an_engine_that_runs_until_then(
    tmp_path: Path, llm: AsyncLLM
) -> None:
    lesson = small(
        tmp_path, "          tokens: =prompt", "          tokens: =prompt\n          at: 2"
    )
    with pytest.raises(StageError, match="step 2 was not reached"):
        at(Player(lesson, 1), llm, "second")


def test_a_setting_may_be_a_list(tmp_path: Path, llm: AsyncLLM) -> None:
    sizes = "cudagraph_capture_sizes: [1, =size]"
    lesson = small(tmp_path, "num_gpu_blocks: 16", f"num_gpu_blocks: 16, {sizes}")
    at(Player(lesson, 1), llm, "second")
    assert llm.config.cudagraph_capture_sizes == (1, 4)


def test_the_rows_between_two_tokens_are_those_of_the_largest_step(
    tmp_path: Path, llm: AsyncLLM
) -> None:
    later = """max_tokens: 3, ignore_eos: true}
        - {prompt: Once upon a time, tokens: 20, at: 1, sampling: {max_tokens: 1}}"""
    text = SMALL.replace("max_tokens: 3, ignore_eos: true}", later)
    text = text.replace("{phase: schedule}", "{event: request_finished, request: r0}")
    player = at(Player(load(write(tmp_path, text)), 1), llm, "second")
    # Step 0 has r0's prompt, step 1 one token of it and the other's prompt, whose start is a hit.
    rows = 1 + 20 - int(str(Expression.parse("hit_tokens('r1')").value(player.scope())))
    assert Expression.parse("most_rows('r0')").value(player.scope()) == rows
    in_all = "prompt_tokens('r0') + most_rows('r0') + 1"  # steps 0, 1 and 2
    assert Expression.parse(f"rows() == {in_all}").value(player.scope())
    with pytest.raises(ProbeError, match="no second token"):
        Expression.parse("most_rows('r1')").value(player.scope())


def test_what_somebody_has_stepped_by_hand_is_not_run_again(llm: AsyncLLM) -> None:
    player = at(Player(TOUR, 3), llm, "front-end")
    llm.step()
    llm.step()
    head = llm.trace.next_seq
    at(player, llm, "kernels")
    assert llm.trace.next_seq == head
    moment = player.moment()
    assert moment is not None
    assert (moment.records[-1].step, moment.records[-1].phase) == (0, "execute")


def test_a_moment_stays_when_the_engine_begins_anew(llm: AsyncLLM) -> None:
    player = at(Player(TOUR, 3), llm, "blocks")
    before = player.moment()
    llm.reset()
    assert player.away(llm)
    assert player.missing(llm) == []  # it can still be read
    assert player.moment() is before
    at(player, llm, "runner")  # which needs all since the last beginning again
    assert not player.away(llm)
    after = player.moment(player.lesson.step("blocks"))
    assert after is not None and before is not None
    assert after.trace_id != before.trace_id
    assert after.state["requests"] == before.state["requests"]


def test_an_engine_that_has_nothing_left_to_do_says_so(tmp_path: Path, llm: AsyncLLM) -> None:
    lesson = small(tmp_path, "{phase: schedule}", "{event: request_preempted}")
    with pytest.raises(StageError, match="no more work, and the event request_preempted"):
        at(Player(lesson, 1), llm, "second")


def test_a_locked_prediction_stays_and_is_judged_when_the_engine_has_run(llm: AsyncLLM) -> None:
    player = at(Player(LAB, 1), llm, "predict")
    first, second = (Asked(player.step, question) for question in player.step.questions)
    player.answer(first, int(player.values["full"]))
    assert not player.lock()
    player.answer(second, 1)
    assert player.lock()
    player.answer(second, 2)
    assert player.answers[second.key] == 1
    assert player.verdict(first) is None
    at(player, llm, "prompt-computed")
    assert [asked.key for asked in player.predictions()] == [first.key]
    verdict = player.verdict(first)
    assert verdict is not None and verdict.wrong == 0
    assert player.verdict(second) is None
    assert player.score() == (0, 8)


# -- grading ------------------------------------------------------------------------------------


def test_each_answer_gets_its_own_message(tmp_path: Path, llm: AsyncLLM) -> None:
    player = at(Player(small(tmp_path), 1), llm, "second")
    question = player.step.questions[0]
    assert isinstance(question, NumberQuestion)
    scope, prompt = player.scope(), int(player.values["prompt"])
    right = model_answer(question, scope)
    assert right == -(-prompt // 4)
    assert grade(question, right, scope) == (True, question.right, None, 1)
    assert grade(question, prompt // 4, scope) == (False, question.wrong[0].says, 0, 0)
    assert grade(question, prompt, scope) == (False, question.wrong[1].says, 1, 0)
    assert grade(question, 77, scope) == (False, question.otherwise, None, 0)


def test_the_same_answer_again_is_no_attempt(tmp_path: Path, llm: AsyncLLM) -> None:
    told: list[int] = []
    player = Player(small(tmp_path), 1)
    player.on_judged = lambda _, judged: told.append(judged.attempt)
    player = at(player, llm, "second")
    asked = Asked(player.step, player.step.questions[0])
    for given in (1, 1, 2, 2, 1):  # two of them were clicked twice
        player.answer(asked, given)
    assert told == [1, 2, 3] and player.attempts[asked.key] == 3


def test_several_answers_may_be_right(tmp_path: Path, llm: AsyncLLM) -> None:
    lesson = small(tmp_path, "answer: blocks('r0')", "answer: 5\n        accept: 4 < given < 7")
    player = at(Player(lesson, 1), llm, "second")
    graded = [grade(player.step.questions[0], n, player.scope()).right for n in range(4, 8)]
    assert graded == [False, True, True, False]


# -- proving ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("otherwise", "accept: given == given\n        otherwise", "it is always true"),
        ("otherwise", "accept: given != prompt\n        otherwise", "it is always true"),
        ("answer: blocks('r0')", "answer: prompt // size", "passes: it cannot be told"),
        ("answer: blocks('r0')", "answer: 99", "is not read from the log"),
        ("value: prompt\n", "value: prompt // size\n", "gets the message of another one"),
        ("otherwise", "accept: given == 99\n        otherwise", "the model answer"),
        ("box: block-manager", "box: block-boss", "there is no box 'block-boss'"),
        ("[[block-manager]]", "[[block-boss]]", "there is no box 'block-boss'"),
        ("view: block-allocation", "view: blocks", "there is no view 'blocks'"),
        ("view: block", "document: x.json, view: block", "no document 'x.json'"),
        ("request: r0}", "request: r0, claim: 99}", "there is no claim 99; there are 1 to 25"),
        ("request: r0}", "request: r7}", "no request 'r7'"),
        ("{{blocks('r0')}} blocks", "{{blocks('r9')}} blocks", "no request 'r9'"),
        ("{{blocks('r0')}} blocks", "some blocks", "no text reads a number"),
        ("says: The last block is missing.", 'says: "{{size / 0}}"', "has no value here"),
        ("num_gpu_blocks: 16", "num_gpu_blocks: 1", "num_gpu_blocks"),
        ("phase: schedule", "event: request_preempted", "no more work"),
    ],
)
def test_the_check_finds_what_is_wrong(
    tmp_path: Path, llm: AsyncLLM, old: str, new: str, says: str
) -> None:
    report = check_lesson(small(tmp_path, old, new), llm, NAMES, (1, 2))
    assert any(says in problem for problem in report.problems), report.problems


def test_the_check_lets_a_good_lesson_pass(tmp_path: Path, llm: AsyncLLM) -> None:
    report = check_lesson(small(tmp_path), llm, NAMES, (1, 2))
    assert (report.problems, report.questions, report.refused) == ([], 1, 4)


def test_the_command_checks_all_lessons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--model", "tiny-random", "--seeds", "3", "4711"]) == 0
    said = capsys.readouterr().out
    assert "ok     tour one-request" in said
    assert "ok     lab count-the-blocks" in said


def test_the_command_fails_where_a_lesson_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = write(tmp_path, SMALL.replace("minutes", "minuts"), "broken")
    false = write(tmp_path, SMALL.replace("answer: blocks('r0')", "answer: 99"))
    assert main(["check", "--model", "tiny-random", str(broken), str(false)]) == 1
    said = capsys.readouterr().out
    assert f"{broken}:6: there is no field `minuts`" in said
    assert "FAILED tour small" in said
    assert main(["check", "--document", str(broken), str(false)]) == 2


def test_the_example_of_how_to_write_one_holds(tmp_path: Path, llm: AsyncLLM) -> None:
    readme = (DOCUMENT.parent / "lessons" / "README.md").read_text()
    example = readme.split("```markdown\n")[1].split("```\n")[0]
    lesson = load(write(tmp_path, example, "first-block"))
    assert check_lesson(lesson, llm, NAMES, (1, 2)).problems == []


def test_a_choice_of_which_every_option_is_right_is_found(tmp_path: Path, llm: AsyncLLM) -> None:
    lab = next(path for path in lesson_files() if path.stem == LAB.id)
    text = lab.read_text()
    assert "right: false" in text
    lesson = load(write(tmp_path, text.replace("right: false", "right: true"), lab.stem))
    problems = check_lesson(lesson, llm, NAMES, (1,)).problems
    assert any("without-kv" in problem and "passes" in problem for problem in problems)


def test_lessons_know_nothing_of_the_page() -> None:
    program = "import lessons.__main__, sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"views", "streamlit"} & set(done.stdout.split())
