"""The folder of saved logs that a server offers: nothing outside of it is read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.api import trace_folder
from engine.api.protocol import ApiError
from engine.api.trace_folder import MAX_FILE, find, listing
from engine.records import Patch, Phase
from engine.trace import SCHEMA_VERSION
from tests.api.live_server import Server
from tests.engine.traces import make_trace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "traces"
    (inside / "class").mkdir(parents=True)
    for file in ("a.jsonl", "class/b.jsonl", ".hidden.jsonl", "c.txt"):
        (inside / file).write_text("{}\n")
    (tmp_path / "outside.jsonl").write_text("secret\n")
    (inside / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (inside / "circle.jsonl").symlink_to(inside / "circle.jsonl")
    (inside / "folder.jsonl").mkdir()
    return inside


def test_files_of_the_folder_are_found(folder: Path) -> None:
    assert find(folder, "a.jsonl") == folder / "a.jsonl"
    assert find(folder, "class/b.jsonl") == folder / "class" / "b.jsonl"


@pytest.mark.parametrize(
    "path",
    [
        "../outside.jsonl",
        "class/../../outside.jsonl",
        "/etc/passwd",
        "/etc/x.jsonl",
        "link.jsonl",
        "circle.jsonl",
        "folder.jsonl",
        ".hidden.jsonl",
        "c.txt",
        "none.jsonl",
        "",
        "~/a.jsonl",
        "class\\b.jsonl",
        "C:a.jsonl",
        "a.jsonl\0.jsonl",
        f"{'x/' * 400}a.jsonl",
    ],
)
def test_nothing_else_is(folder: Path, path: str) -> None:
    with pytest.raises(ApiError) as error:
        find(folder, path)
    assert error.value.status == 404 and "secret" not in str(error.value)
    assert str(folder) not in str(error.value)


def test_a_server_offers_them_by_their_path(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client(server.session()[0]) as client:
        assert "TRACES=" in client.get("/api/traces?path=a.jsonl").json()["error"]["message"]
        monkeypatch.setenv("TRACES", str(folder))
        assert client.get("/api/traces", params={"path": "class/b.jsonl"}).text == "{}\n"
        assert client.get("/api/traces", params={"path": "../outside.jsonl"}).status_code == 404
        assert [each["path"] for each in client.get("/api/traces").json()["traces"]]
    with server.client("gb-invented") as client:
        assert client.get("/api/traces?path=a.jsonl").status_code == 401


# --- the list -------------------------------------------------------------------------------------

HOSTILE = "<img src=x onerror=alert(1)>\n\u202e.jsonl"


def test_a_list_tells_a_trace_by_its_ends(tmp_path: Path) -> None:
    log = make_trace()
    log.header.model["name"] = 'tiny "state":'
    for seq in range(3):
        log.records.append(Patch(seq, seq, Phase.OUTPUT, {}, 1.0, seq))
    lines = list(log.lines())
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one.jsonl").write_text("\n".join(lines) + "\n")
    (found,), left_out = listing(tmp_path)
    assert (found.path, found.problem, left_out) == ("deep/one.jsonl", "", 0)
    assert found.model == 'tiny "state":' and found.trace_id == log.header.trace_id
    assert found.num_records == len(log.records) and found.step == log.records[-1].step
    # A state that is longer than what is read of a file changes nothing.
    header = json.loads(lines[0])
    header["state"]["padding"] = "x" * 200_000
    padded = [json.dumps(header, separators=(",", ":")), *lines[1:]]
    (tmp_path / "deep" / "one.jsonl").write_text("\n".join(padded))
    assert listing(tmp_path).traces[0].num_records == len(log.records)


def test_numbers_without_end_in_one_file_leave_the_list_to_all_others(tmp_path: Path) -> None:
    endless = "9" * 4_300  # as many digits as Python reads; one more it does not write
    header = f'{{"kind":"header","schema_version":{SCHEMA_VERSION},"base_seq":-{endless}}}'
    (tmp_path / "odd.jsonl").write_text(f'{header}\n{{"step":1,"seq":{endless}}}\n')
    (tmp_path / "good.jsonl").write_text("\n".join(make_trace().lines()))
    told = json.dumps([each._asdict() for each in listing(tmp_path).traces])
    found = {each["path"]: each["num_records"] for each in json.loads(told)}
    assert set(found) == {"odd.jsonl", "good.jsonl"} and found["odd.jsonl"] is None


def test_files_that_are_odd_are_listed_with_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / HOSTILE).write_text("\n".join(make_trace().lines()))
    (folder / "empty.jsonl").touch()
    (folder / "huge.jsonl").touch()
    os.truncate(folder / "huge.jsonl", MAX_FILE + 1)  # a hole: it takes no room
    (folder / "binary.jsonl").write_bytes(bytes(range(256)) * 2_000)
    (folder / "old.jsonl").write_text('{"kind":"header","schema_version":1,"state":{}}\n')
    (folder / ("n" * 240 + ".jsonl")).write_text("[]")
    deep = folder / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    (deep / "long.jsonl").write_text("{}")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.jsonl")).write_text("{}")
    os.mkfifo(folder / "pipe.jsonl")
    locked = folder / "locked.jsonl"
    locked.write_text("{}")
    opens = Path.open

    def refuse(self: Path, *args: object, **kwargs: object) -> object:
        if self == locked:
            raise PermissionError(13, "no")
        return opens(self, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    why = {found.path: found.problem for found in listing(folder).traces}
    assert why.pop(HOSTILE) == "" and why.pop("empty.jsonl") == "empty"
    assert "200 MB" in why.pop("huge.jsonl") and "version 1" in why.pop("old.jsonl")
    assert "may not read" in why.pop("locked.jsonl")
    assert "shorter or plainer" in why.pop(f"{'d' * 200}/{'e' * 200}/long.jsonl")
    assert "shorter or plainer" in why.pop("??.jsonl")
    assert set(why) == {"a.jsonl", "class/b.jsonl", "binary.jsonl", f"{'n' * 240}.jsonl"}
    assert all(problem.startswith("no trace") for problem in why.values())


def test_a_large_folder_is_listed_by_its_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_folder, "MOST_LISTED", 20)
    read: list[Path] = []
    ends = trace_folder.header_of
    monkeypatch.setattr(
        trace_folder, "header_of", lambda file: (read.append(file.name), ends(file))[1]
    )
    for number in range(50):
        (tmp_path / f"{number}.jsonl").write_text("{}\n")
        os.utime(tmp_path / f"{number}.jsonl", (number, number))
    traces, left_out = listing(tmp_path)
    assert [each.path for each in traces] == [f"{number}.jsonl" for number in range(49, 29, -1)]
    assert left_out == 30 and len(read) == 20


def test_a_file_is_read_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    ends = trace_folder.header_of
    monkeypatch.setattr(
        trace_folder, "header_of", lambda file: (read.append(Path(file.name).name), ends(file))[1]
    )
    lines = list(make_trace().lines())
    good, other = tmp_path / "good.jsonl", tmp_path / "other.jsonl"
    for file in (good, other):
        file.write_text("\n".join(lines))
    first = listing(tmp_path)
    assert sorted(read) == ["good.jsonl", "other.jsonl"]
    assert listing(tmp_path) == first and len(read) == 2
    # Other content of the same length; the clock of a disk may be too coarse to tell by itself.
    good.write_text("\n".join(lines).replace('"header"', '"Header"'))
    os.utime(good, (1, 1))
    assert {each.path: each.problem for each in listing(tmp_path).traces} == {
        "good.jsonl": "no trace: it does not begin with a trace's header",
        "other.jsonl": "",
    }
    assert read[2:] == ["good.jsonl"]


def test_the_list_is_for_whoever_has_a_key(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client(server.session()[0]) as client:
        monkeypatch.delenv("TRACES", raising=False)
        assert client.get("/api/traces").json() == {"offered": False, "traces": [], "left_out": 0}
        monkeypatch.setenv("TRACES", str(folder / "none"))
        gone = client.get("/api/traces")
        assert gone.status_code == 404 and str(folder) not in gone.text
        (folder / HOSTILE).write_text("\n".join(make_trace().lines()))
        monkeypatch.setenv("TRACES", str(folder))
        found = {each["path"] for each in client.get("/api/traces").json()["traces"]}
        assert found == {"a.jsonl", "class/b.jsonl", HOSTILE}
        assert client.get("/api/traces", params={"path": HOSTILE}).status_code == 200
    with server.client("gb-invented") as client:
        assert client.get("/api/traces").status_code == 401
