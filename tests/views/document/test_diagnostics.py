"""Every diagnostic code: the input that triggers it, and where it points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.views.document.samples import OURS, sample, text_of, with_value, without
from views.architecture import LoadResult, load_document
from views.document import checks, reading
from views.document.diagnostics import CODES, Diagnostic, json_path

SOURCE = {"path": "vllm/a.py", "line": 3, "end_line": 9}


def found(text: str | bytes | dict[str, Any]) -> list[Diagnostic]:
    source = text_of(text) if isinstance(text, dict) else text
    return load_document(source).diagnostics


def pairs(text: str | bytes | dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(item.code, item.severity, item.path) for item in found(text)]


def component(**fields: Any) -> dict[str, Any]:
    document = sample()
    document["components"][2] |= fields
    return document


def lone() -> dict[str, Any]:
    """A view whose first box has no connection to the others."""
    return with_value("meta", "views", 0, "focus", ["gpu-runner", "client-req", "async-engine"])


def no_answer() -> dict[str, Any]:
    document = sample()
    del document["connections"][-1]
    return document


def stranger() -> dict[str, Any]:
    text = text_of(sample()).replace("shared-gqa", "gqa")
    return dict(json.loads(text))


def static() -> dict[str, Any]:
    document = text_of(sample())
    for i, item in enumerate(sample()["components"]):
        document = document.replace(f'"{item["id"]}"', f'"box{i}"')
    return dict(json.loads(document))


CASES: list[tuple[str, str | bytes | dict[str, Any], str, str]] = [
    ("file/not-utf8", b"\xff\xfe{}", "error", "$"),
    ("file/too-large", " " * (reading.MAX_BYTES + 1), "error", "$"),
    ("file/too-large", b" " * (reading.MAX_BYTES + 1), "error", "$"),
    ("json/syntax", "", "error", "$"),
    ("json/syntax", '{"a": 1,\n "b" 2}', "error", "$"),
    ("json/syntax", "9" * 5000, "error", "$"),
    ("json/non-finite", '{"a": [1,\n NaN]}', "error", "$"),
    ("json/non-finite", '{"a": -Infinity}', "error", "$"),
    ("json/non-finite", '{"a": [1e999]}', "error", "$.a[0]"),
    ("json/too-deep", "[" * 100 + "]" * 100, "error", "$"),
    ("json/too-deep", '{"a":' * 50_000, "error", "$"),
    ("json/duplicate-key", '{"a": [{"b": 1, "b": 2}]}', "error", "$.a[0]"),
    ("json/bad-text", r'{"a": "\ud800"}', "error", "$.a"),
    ("json/bad-text", r'{"\udc00": 1}', "error", "$"),
    ("field/missing", without("meta", "title"), "error", "$.meta.title"),
    ("field/missing", without("components", 1, "type"), "error", "$.components[1].type"),
    ("field/missing", component(size=[1]), "error", "$.components[2].size[1]"),
    ("field/unknown", component(colour="red"), "error", "$.components[2].colour"),
    ("field/unknown", with_value("extra", {}), "error", "$.extra"),
    ("field/unknown", with_value("meta", "extra", [1]), "warning", "$.meta.extra"),
    (
        "field/unknown",
        with_value("meta", "views", 0, "colour", 1),
        "warning",
        "$.meta.views[0].colour",
    ),
    ("field/value", "[]", "error", "$"),
    ("field/value", with_value("schema_version", 2), "error", "$.schema_version"),
    ("field/value", with_value("schema_version", True), "error", "$.schema_version"),
    ("field/value", with_value("components", 0, "type", "x"), "error", "$.components[0].type"),
    ("field/value", with_value("components", 0, "id", "1 a"), "error", "$.components[0].id"),
    ("field/value", component(tag=None), "error", "$.components[2].tag"),
    ("field/value", component(pos=[True, 2]), "error", "$.components[2].pos[0]"),
    ("field/value", component(pos=[1, 2, 3]), "error", "$.components[2].pos"),
    (
        "field/value",
        with_value("meta", "repository", {"url": "u", "revision": "abc"}),
        "error",
        "$.meta.repository.revision",
    ),
    ("field/value", with_value("connections", 0, "width", 0.1), "error", "$.connections[0].width"),
    (
        "field/value",
        component(sources=[SOURCE | {"end_line": 1}]),
        "error",
        "$.components[2].sources[0].end_line",
    ),
    (
        "field/value",
        component(sources=[{"path": "../secret"}]),
        "error",
        "$.components[2].sources[0].path",
    ),
    ("list/empty", with_value("meta", "views", 0, "focus", []), "error", "$.meta.views[0].focus"),
    ("list/empty", with_value("boundaries", 0, "wraps", []), "error", "$.boundaries[0].wraps"),
    ("list/empty", component(sources=[]), "error", "$.components[2].sources"),
    ("list/too-long", component(sources=[SOURCE] * 4), "error", "$.components[2].sources"),
    (
        "id/duplicate",
        with_value("meta", "views", 0, "focus", ["scheduler", "async-engine", "scheduler"]),
        "error",
        "$.meta.views[0].focus[2]",
    ),
    ("id/unknown", with_value("connections", 3, "to", "nobody"), "error", "$.connections[3].to"),
    ("id/unknown", with_value("connections", 3, "from", "x"), "error", "$.connections[3].from"),
    (
        "id/unknown",
        with_value("boundaries", 0, "wraps", 1, "x"),
        "error",
        "$.boundaries[0].wraps[1]",
    ),
    (
        "id/unknown",
        with_value("meta", "views", 0, "focus", 0, "x"),
        "error",
        "$.meta.views[0].focus[0]",
    ),
    ("size/not-positive", component(size=[0, 60]), "error", "$.components[2].size"),
    ("size/not-positive", component(size=[60, -1]), "error", "$.components[2].size"),
    ("size/absurd", component(size=[1e7, 60]), "error", "$.components[2].size"),
    ("size/absurd", component(size=[0.01, 60]), "error", "$.components[2].size"),
    ("size/absurd", component(pos=[1e300, 0]), "error", "$.components[2].pos"),
    ("size/absurd", component(pos=[int("9" * 400), 0]), "error", "$.components[2].pos"),
    ("size/absurd", with_value("boundaries", 0, "pad", 1e9), "error", "$.boundaries[0].pad"),
    (
        "size/absurd",
        with_value("connections", 0, "via", [[0, 0], [0, 1e9]]),
        "error",
        "$.connections[0].via[1]",
    ),
    ("layout/overlap", component(pos=[250, 10]), "error", "$.components[2].pos"),
    ("lint/isolated-in-view", lone(), "warning", "$.meta.views[0].focus[0]"),
    ("lint/no-return-path", no_answer(), "warning", "$.components[0]"),
    ("lint/unbound", static(), "warning", "$.components"),
    (
        "lint/source-unverified",
        component(sources=[SOURCE]),
        "warning",
        "$.components[2].sources[0]",
    ),
]


def test_nothing_is_said_against_the_sample() -> None:
    assert found(sample()) == []


@pytest.mark.parametrize(("code", "text", "severity", "path"), CASES)
def test_each_fault_is_told_exactly(
    code: str, text: str | bytes | dict[str, Any], severity: str, path: str
) -> None:
    assert pairs(text) == [(code, severity, path)]


def test_every_code_is_tested() -> None:
    elsewhere = {"file/unreadable", "file/refused", "sources/unreadable"}
    assert {case[0] for case in CASES} | elsewhere == set(CODES)


def test_syntax_errors_name_line_and_column() -> None:
    assert "line 2, column 6" in found('{"a": 1,\n "b" 2}')[0].message
    assert "line 2, column 2" in found('{"a": [1,\n NaN]}')[0].message


def test_words_in_texts_are_no_numbers() -> None:
    assert found(with_value("meta", "title", 'NaN, [[[ "Infinity" \\')) == []


def test_the_same_id_twice_points_at_the_second() -> None:
    document = sample()
    document["components"][2]["id"] = "async-engine"
    assert ("id/duplicate", "error", "$.components[2].id") in pairs(document)
    document = sample()
    document["connections"][1]["id"] = document["connections"][4]["id"] = "same"
    assert pairs(document) == [("id/duplicate", "error", "$.connections[4].id")]
    document = sample()
    document["meta"]["views"] *= 2
    assert pairs(document) == [("id/duplicate", "error", "$.meta.views[1].id")]


def test_a_stranger_on_a_live_map_and_the_missing_box_are_told() -> None:
    result = [(item.code, item.path, item.subject) for item in found(stranger())]
    assert result == [
        ("lint/unbound", "$.components[8]", "gqa"),
        ("lint/unbound", "$.components", "shared-gqa"),
    ]


def test_cells_need_a_grid_and_each_other() -> None:
    document = without("components", 2, "pos")
    document["components"][2] |= {"row": 0}
    assert pairs(document) == [
        ("field/missing", "error", "$.components[2].col"),
        ("field/missing", "error", "$.layout"),
    ]
    document["layout"] = {"mode": "grid", "cols": 2, "origin": [0, 500]}
    document["components"][2]["col"] = 2
    assert pairs(document) == [("field/value", "error", "$.components[2].col")]
    document["components"][2]["col"] = 1
    assert pairs(document) == []


def test_boxes_that_only_touch_do_not_overlap() -> None:
    assert found(component(pos=[320, 0])) == []


def test_overlaps_do_not_fill_the_screen() -> None:
    document = sample()
    document["components"] = [
        {"id": f"b{i}", "type": "cloud", "label": "b", "pos": [0, 0]} for i in range(60)
    ]
    document["meta"]["views"] = document["boundaries"] = document["connections"] = []
    assert len(found(document)) == checks.MAX_OVERLAPS


def test_subject_and_fix_are_given() -> None:
    item = found(with_value("connections", 3, "to", "nobody"))[0]
    assert item.subject == "nobody"
    assert item.fix
    item = found(component(colour="red"))[0]
    assert item.subject == "scheduler"


def test_unknown_fields_of_meta_do_not_keep_the_document() -> None:
    document = with_value("meta", "extra", {"deep": True})
    result = load_document(text_of(document))
    assert result.document is not None
    assert result.document.meta.title == "Sample"


def test_a_flood_of_warnings_does_not_hide_the_error() -> None:
    document = with_value("cards", [{}])
    document["meta"] |= {f"extra{i}": 1 for i in range(2 * reading.MAX_FOUND)}
    result = found(document)
    assert len(result) == reading.MAX_FOUND
    assert result[0].path == "$.cards[0].dot"


def test_missing_files_and_directories_are_unreadable(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json", Path("a\0b")):
        items = load_document(path).diagnostics
        assert [(item.code, item.path) for item in items] == [("file/unreadable", "$")]


def test_broken_sources_beside_a_document_are_a_warning(tmp_path: Path) -> None:
    document = tmp_path / "map.json"
    document.write_text(text_of(sample()), "utf-8")
    (tmp_path / "map.sources.json").write_text('{"tag": 1}', "utf-8")
    result = load_document(document)
    assert result.document is not None
    assert [item.code for item in result.diagnostics] == ["sources/unreadable"]


def test_a_pinned_range_that_is_verified_is_not_told(tmp_path: Path) -> None:
    document = tmp_path / "map.json"
    document.write_text(text_of(component(sources=[SOURCE])), "utf-8")
    verified = {"path": "vllm/a.py", "symbol": "A", "first": 3, "last": 9}
    sources = {"components": {"scheduler": [verified]}}
    (tmp_path / "map.sources.json").write_text(json.dumps(sources), "utf-8")
    assert load_document(document).diagnostics == []


def test_only_unverified_sources_are_said_against_our_document() -> None:
    assert {item.code for item in load_document(OURS).diagnostics} == {"lint/source-unverified"}


def test_a_result_without_a_document_has_no_page() -> None:
    with pytest.raises(ValueError, match="json/syntax"):
        load_document("{").to_page()
    assert not LoadResult(None, []).bindings.live


def test_paths_are_readable_for_any_key() -> None:
    assert json_path(("a", 3, "b-c", "d e")) == "$.a[3].b-c['d e']"


def test_what_a_document_says_cannot_steer_the_terminal() -> None:
    item = found(component(**{"\x1b[2J": 1}))[0]
    assert "\x1b" not in str(item)
