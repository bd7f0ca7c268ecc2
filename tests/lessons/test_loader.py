"""What is wrong in a file is said with its file, its line and how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lessons.loader import LessonError, lesson_files, load, load_each, same_place
from lessons.rules import KINDS
from lessons.variants import draw
from tests.lessons.small import SMALL, small, write


def test_a_lesson_is_read_with_its_texts(tmp_path: Path) -> None:
    lesson = small(tmp_path)
    assert [step.id for step in lesson.steps] == ["first", "second"]
    assert lesson.steps[1].text.text == "[[block-manager]] gave {{blocks('r0')}} blocks."


def test_the_projects_own_lessons_are_read() -> None:
    lessons, errors = load_each(lesson_files())
    assert errors == []
    kinds = {lesson.id: lesson.kind for lesson in lessons}
    assert (kinds["one-request"], kinds["count-the-blocks"]) == ("tour", "lab")
    assert same_place(lessons) == []


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        ("minutes: 1", "minuts: 1", "minuts: 1", "did you mean `minutes`?"),
        ("minutes: 1\n", "", "---", "`minutes` is missing; add it"),
        ("kind: tour", "kind: tuor", "kind: tuor", "'tour', 'lab', 'clinic' or 'hunt'"),
        ("block_size: =", "blocksize: =", "blocksize", "no engine setting `blocksize`; did you"),
        ("{max_tokens: 3", "{max_token: 3", "max_token:", "did you mean `max_tokens`?"),
        ("phase: schedule", "phase: shedule", "shedule", "there is no phase `shedule`; there are"),
        ("{phase: schedule}", "{event: block_hit}", "block_hit", "did you mean `blocks_hit`?"),
        ("answer: blocks(", "answer: block_count(", "block_count", "no probe `block_count`"),
        ("answer: blocks('r0')", "answer: blocks()", "blocks()", "call it as blocks(request)"),
        ("value: prompt //", "value: length //", "length //", "no value `length` here"),
        ("{{blocks('r0')}}", "{{bloks('r0')}}", "bloks", "there is no probe `bloks`"),
        ("of {{prompt}} tokens", "of {{promt}} tokens", "{{promt}}", "no value `promt` here"),
        ("{{size}} tokens.", "{{size} tokens.", "{{size} tokens.", "braces are not closed"),
        ("kind: number", "kind: numbr", "- id: blocks", "there is no kind `numbr`"),
        ("from: 9, to: 11", "from: 12, to: 11", "from: 12", "swap them"),
        ("reset: true", "reset: false", "run:", "add reset: true"),
        ("minutes: 1", "minutes: 1\noff: 1", "off: 1", "there is no field `off`"),
        ("title: Second", "title: Sec: ond", "Sec: ond", "needs quotes"),
        ("title: Second", "title: Second\n    title: Two", "title: Two", "stands here twice"),
        ("id: second", "id: first", "id: first", "`first` has no text"),
        ("## first", "## frist", "id: first", "step `first` has no text"),
        ("## second", "## third\n\n## second", "## third", "`third` belongs to no step"),
        ("## first", "Hello\n## first", "Hello", "text before the first section"),
        ("title: First", "title: First\n    text: x", "text: x", "stands in the body"),
        ("    title: First", "    title: First\n    run: {}", "run: {}", "first step cannot"),
        ("id: small", "id: large", "id: large", "the id must be the file's name: small"),
        (
            "otherwise: Not {{given}}.",
            "otherwise: Not.\n        hints: [a, b]",
            "hints",
            "3 levels",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, old: str, new: str, at: str, says: str
) -> None:
    text = SMALL.replace(old, new, 1)
    lines = text.split("\n")
    # The last line with it: what stands twice is wrong in its second place.
    line = max(n for n, content in enumerate(lines, 1) if at in content) if at != "---" else 1
    with pytest.raises(LessonError) as caught:
        small(tmp_path, old, new)
    problems = caught.value.problems
    matching = [problem for problem in problems if says in problem.message]
    assert matching, str(caught.value)
    assert line in {problem.line for problem in matching}, str(caught.value)
    assert str(matching[0]).startswith(f"{tmp_path / 'small.md'}:")


def test_on_and_off_are_words_and_true_and_false_are_not(tmp_path: Path) -> None:
    words = "size: {choose: [on, off, yes, No]}"
    lesson = small(tmp_path, "size: {choose: [4]}", f"{words}\n  on: {{choose: [1]}}")
    assert draw(lesson, 1).keys() == {"size", "on", "prompt"}
    assert {str(draw(lesson, seed)["size"]) for seed in range(40)} == {"on", "off", "yes", "No"}
    run = small(tmp_path, "num_gpu_blocks: 16", "enable_prefix_caching: false").steps[1].run
    assert run is not None and run.config["enable_prefix_caching"] is False


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / KINDS["tour"]).mkdir()
    write(tmp_path / "tours", SMALL.replace("minutes", "minuts"))
    write(tmp_path / "tours", SMALL.replace("title: Small", "titel: Small"), "other")
    lessons, errors = load_each(lesson_files(tmp_path))
    assert lessons == []
    assert [len(error.problems) for error in errors] == [1, 1]
    assert {error.problems[0].file.name for error in errors} == {"small.md", "other.md"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# no front matter",
        "---\nid: x\n",
        "---\n- 1\n---\n",
        "---\nid: x\n---\n",  # no section at all
        "---\nid: &a [*a]\n---\n",
        f"---\nid: {'[' * 9_000}\n---\n",
    ],
)
def test_a_file_that_is_no_lesson_says_so(tmp_path: Path, text: str) -> None:
    with pytest.raises(LessonError, match=r"small\.md:\d+: "):
        load(write(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("compare_in: prompt-computed", "compare_in: predict"), "needs compare_in"),
        (("compare_in: answer-done\n", "\n"), "needs compare_in"),
        (("kind: compare", "kind: read"), "the id of a later compare step"),
        (("kind: explain", "kind: recall"), "in this order"),
        (("        hints:\n          - Begin", "        hintz:\n          - Begin"), "`hints`"),
    ],
)
def test_a_lab_predicts_compares_and_explains(
    tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    text = next(path for path in lesson_files() if path.stem == "count-the-blocks").read_text()
    assert change[0] in text
    with pytest.raises(LessonError) as caught:
        load(write(tmp_path, text.replace(*change), "count-the-blocks"))
    assert says in str(caught.value)
