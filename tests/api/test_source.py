"""/api/source: where events are made, and the files of the engine that make them; nothing else."""

from __future__ import annotations

import keyword
import re

import pytest

from engine.api.source import spans_of
from engine.source_sites import sites, source_version, sources
from tests.api.live_server import Server


def test_the_places_and_their_files_need_no_key(server: Server) -> None:
    with server.client() as client:
        answer = client.get("/api/source").json()
        assert answer["version"] == source_version()
        assert len(answer["sites"]) == len(sites())
        assert answer["files"] == sorted({site.path for site in sites()})
        for path in answer["files"]:
            file = client.get("/api/source/file", params={"path": path}).json()
            assert "\n".join(file["lines"]) == sources()[path].text.rstrip("\n")
            assert len(file["spans"]) == len(file["lines"])


@pytest.mark.parametrize(
    "path",
    [
        "engine/../app.py",
        "/etc/passwd",
        "app.py",
        "engine/events.py",
        "engine/scheduler.py\0",
        "",
        "../" * 9 + "etc/passwd",
    ],
)
def test_what_is_no_file_of_the_list_is_not_looked_for(server: Server, path: str) -> None:
    with server.client() as client:
        answer = client.get("/api/source/file", params={"path": path})
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "path"


def test_without_a_path_the_field_is_named(server: Server) -> None:
    with server.client() as client:
        answer = client.get("/api/source/file")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "path"


def test_spans_are_in_order_and_of_what_they_say() -> None:
    for source in sources().values():
        lines = source.text.splitlines()
        for line, spans in zip(lines, spans_of(source.text), strict=True):
            assert all(0 <= s.first < s.last <= len(line) for s in spans)
            assert all(a.last <= b.first for a, b in zip(spans, spans[1:], strict=False))
            for span in spans:
                text = line[span.first : span.last]
                assert keyword.iskeyword(text) == (span.kind == "keyword")
                assert text.startswith("#") or span.kind != "comment"


def test_each_kind_of_text_is_told_from_the_others() -> None:
    text = 'def go(x: int):  # why\n    """One\n    two."""\n    return f"{x}" + 1.5 or None\n'
    kinds = [
        [(line[s.first : s.last], s.kind) for s in spans]
        for line, spans in zip(text.splitlines(), spans_of(text), strict=True)
    ]
    assert kinds[0] == [("def", "keyword"), ("go", "defined"), ("# why", "comment")]
    assert kinds[1] == [('"""One', "string")]
    assert kinds[2] == [('    two."""', "string")]
    assert [kind for _, kind in kinds[3] if kind != "string"] == [
        "keyword", "number", "keyword", "keyword",
    ]  # fmt: skip
    assert re.search("string", str(kinds[3]))
