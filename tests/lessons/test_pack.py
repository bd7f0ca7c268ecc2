"""A pack of exercises: the same for the same names, proved again, and read with distrust."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.async_llm import AsyncLLM
from engine.engine_thread import EngineThread
from engine.model_loader import load_model
from lessons import pack
from lessons.__main__ import main
from lessons.loader import lesson_files, load, load_each
from tests.lessons.small import SMALL, write

NAMES = ["Ada", "", " ada ", "Grace Hopper"]


@pytest.fixture(scope="module")
def llm() -> Iterator[AsyncLLM]:
    thread = EngineThread()
    yield AsyncLLM(load_model("tiny-random"), thread=thread)
    thread.stop()


@pytest.fixture(scope="module")
def made(llm: AsyncLLM) -> pack.Pack:
    return pack.make([path for path in lesson_files() if path.stem == "lose-a-hit"], NAMES, llm)


def test_a_pack_is_the_same_each_time_and_each_learner_has_numbers_of_their_own(
    made: pack.Pack, llm: AsyncLLM
) -> None:
    again = pack.make([path for path in lesson_files() if path.stem == "lose-a-hit"], NAMES, llm)
    assert again.to_json() == made.to_json()
    assert [learner.name for learner in made.learners] == ["Ada", "ada (2)", "Grace Hopper"]
    seeds = [learner.seeds["lose-a-hit"] for learner in made.learners]
    assert len(set(seeds)) == 3
    assert seeds[0] == pack.seed_for("Ａｄａ", "lose-a-hit")  # however wide it is written
    assert len(made.answers) == 3


def test_a_pack_is_proved_and_what_does_not_come_out_is_named(
    made: pack.Pack, llm: AsyncLLM, tmp_path: Path
) -> None:
    read = pack.read(made.to_json().encode())
    assert read == made
    assert pack.problems(read, tmp_path, llm) == []
    assert [lesson.id for lesson in load_each(lesson_files(tmp_path))[0]] == ["lose-a-hit"]
    text = read.lessons[0].text
    read.lessons[0].text = text.replace("answer: hit_tokens('r1')", "answer: hit_tokens('r1') + 1")
    read.learners[0].seeds["lose-a-hit"] += 1
    found = pack.problems(read, tmp_path, llm)
    assert len(found) == 4, found
    assert found[0].startswith("Ada, lose-a-hit: the seed is ")
    assert all(one.endswith("the engine answers otherwise here") for one in found[1:])
    read.lessons[0].text = text.replace("kind: lab", "kind: lap")
    assert "kind" in pack.problems(read, tmp_path, llm)[0]


def test_an_answer_is_that_of_its_own_step_however_far_the_engine_went_on(
    llm: AsyncLLM, tmp_path: Path
) -> None:
    text = SMALL.replace("answer: blocks('r0')", "answer: known_tokens('r0')")
    text = text.replace("---\n## first", "  - id: third\n    title: Third\n---\n## first")
    text += "\n## third\nIt ends."
    on = text.replace(
        "title: Third", "title: Third\n    run: {until: {event: request_finished, request: r0}}"
    )
    stays, goes_on = (load(write(tmp_path, each)) for each in (text, on))
    assert pack.answers_of(goes_on, 1, llm) == pack.answers_of(stays, 1, llm)
    at_the_end = load(write(tmp_path, on.replace("known_tokens('r0')", "known_tokens('r0') + 3")))
    assert pack.answers_of(at_the_end, 1, llm) != pack.answers_of(stays, 1, llm)


def change(made: pack.Pack, **more: Any) -> bytes:
    return json.dumps({**json.loads(made.to_json()), **more}).encode()


def test_what_is_no_pack_is_refused_by_name_and_writes_nothing_elsewhere(made: pack.Pack) -> None:
    for content, says in [
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "kind"),
        (change(made, version=2), "version: 2"),
        (change(made, lessons=[]), "lessons"),
        (change(made, learners=[{"name": "x", "seeds": {"a": "1"}}]), "learners.0.seeds.a"),
        (change(made, lessons=[{"file": "../../x.md", "text": ""}]), "lessons.0.file"),
        (change(made, lessons=[{"file": "labs/../x.md", "text": ""}]), "lessons.0.file"),
        (change(made, lessons=[{"file": "labs/x.md\n", "text": ""}]), "lessons.0.file"),
        (b" " * (pack.MOST_BYTES + 1), "larger than 8 MB"),
    ]:
        with pytest.raises(pack.PackError, match=says):
            pack.read(content)
    for names in ([], [" "], ["\u202e"]):
        with pytest.raises(pack.PackError, match="name"):
            pack.make([], names, None)  # type: ignore[arg-type]


def test_a_pack_commands_no_terminal(
    made: pack.Pack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pack.json"
    file.write_bytes(change(made, learners=[{"name": "x", "seeds": {"\x1b[2J": "1"}}]))
    for command in (["check-pack", str(file)], ["unpack", str(file), str(tmp_path)]):
        assert main(command) == 2
        told = capsys.readouterr().err
        assert "\x1b" not in told and r"seeds.\x1b[2J" in told


def test_the_command_packs_proves_and_unpacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names, file, folder = tmp_path / "names.txt", tmp_path / "pack.json", tmp_path / "lessons"
    names.write_text("Ada\n", "utf-8")
    tiny = ["--model", "tiny-random"]
    assert main(["pack", "lose-a-hit", "--names", str(names), "--to", str(file), *tiny]) == 0
    assert main(["check-pack", str(file), *tiny]) == 0
    assert main(["unpack", str(file), str(folder)]) == 0
    monkeypatch.setenv("GLASSBOX_LESSONS", str(folder))
    assert [path.stem for path in lesson_files()] == ["lose-a-hit"]
    file.write_text(file.read_text("utf-8").replace('"tiny-random"', '"another"'), "utf-8")
    assert main(["check-pack", str(file), *tiny]) == 2
    assert main(["check-pack", str(tmp_path / "none"), *tiny]) == 2
    told = capsys.readouterr()
    assert "lessons: 1, learners: 1, variants played with tiny-random: 1" in told.out
    assert "name that model with --model" in told.err
