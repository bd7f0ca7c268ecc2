"""The format: what is legal loads unchanged, down to the last field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.views.document.samples import FOREIGN, OTHERS, OURS, SEED, sample, text_of, with_value
from views.architecture import load_document
from views.document.diagnostics import has_errors, json_path
from views.document.model import Document


def dumped(document: Document) -> Any:
    return document.model_dump(mode="json", by_alias=True, exclude_unset=True)


@pytest.mark.parametrize("path", [SEED, OURS], ids=lambda path: path.name)
def test_our_documents_load_unchanged(path: Path) -> None:
    result = load_document(path)
    assert result.document is not None
    assert not has_errors(result.diagnostics)
    assert dumped(result.document) == json.loads(path.read_text("utf-8"))


def assert_loads_unchanged_and_is_static(path: Path) -> None:
    result = load_document(path)
    assert result.document is not None, path
    assert not has_errors(result.diagnostics)
    assert dumped(result.document) == json.loads(path.read_text("utf-8"))
    page = result.to_page()
    assert not page["live"] and page["release"] == ""
    assert all(c["live"] is None and c["code"] == [] for c in page["components"])
    assert all(edge["live"] is None for edge in page["connections"])


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.name)
def test_maps_of_other_systems_load_unchanged_and_are_static(path: Path) -> None:
    assert_loads_unchanged_and_is_static(path)


@pytest.mark.skipif(not OTHERS.is_dir(), reason="the documents of others are not here")
def test_documents_of_others_load_unchanged_and_are_static() -> None:
    paths = sorted(OTHERS.glob("*.json"))
    assert paths
    for path in paths:
        assert_loads_unchanged_and_is_static(path)


@pytest.mark.skipif(not OTHERS.is_dir(), reason="the documents of others are not here")
def test_our_maps_of_other_systems_use_all_that_those_of_others_use() -> None:
    theirs = [json.loads(path.read_text("utf-8")) for path in OTHERS.glob("*.json")]
    ours = [json.loads(path.read_text("utf-8")) for path in FOREIGN]
    assert features(theirs) <= features(ours)


def features(documents: list[Any]) -> set[str]:
    """Return the fields that the documents use, and the values of those that are a choice."""
    choices = {"type", "kind", "variant", "route", "fromSide", "toSide", "dot", "mode"}
    choices |= {"visual_preset", "animation", "quality_profile", "engineering_profile"}
    found: set[str] = set()

    def walk(place: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                found.add(f"{place}.{name}={inner}" if name in choices else f"{place}.{name}")
                walk(f"{place}.{name}", inner)
        elif isinstance(value, list):
            for inner in value:
                walk(place, inner)

    for document in documents:
        walk("$", document)
        found |= {"no id" for edge in document["connections"] if "id" not in edge}
    return found


def test_every_field_of_the_format_is_known() -> None:
    document = sample()
    document["meta"] |= {
        "subtitle": "s",
        "output": "o.html",
        "animation": "trace",
        "visual_preset": "editorial",
        "quality_profile": "standard",
        "engineering_profile": "deployment-ownership",
        "locale": "zh-CN",
        "legend": {"mode": "all", "entries": {"cloud": {"label": "C", "visible": False}}},
        "viewBox": [2000, 400],
        "repository": {
            "url": "https://github.com/a/b",
            "revision": "0" * 40,
            "provider": "github",
            "link_mode": "web",
        },
    }
    document["layout"] = {
        "mode": "grid",
        "origin": [0, 0],
        "cols": 9,
        "gapX": 10,
        "gapY": 10,
        "cellW": 60,
        "cellH": 40,
    }
    source = {"path": "a/b.py", "line": 1, "end_line": 2, "label": "b"}
    document["components"][0] |= {"sublabel": "s", "tag": "t", "sources": [source] * 3}
    document["connections"][0] |= {
        "id": "first",
        "variant": "security",
        "fromSide": "bottom",
        "toSide": "bottom",
        "route": "orthogonal-v",
        "via": [[60, 100], [260, 100]],
        "labelAt": [160, 120],
        "labelDx": 1,
        "labelDy": -1.5,
        "labelSegment": 1,
        "width": 2,
    }
    document["boundaries"][0]["pad"] = 12
    document["meta"]["views"][0]["note"] = "n"
    result = load_document(text_of(document))
    assert result.document is not None, result.diagnostics
    assert dumped(result.document) == document


@pytest.mark.parametrize(
    "brand",
    ["openai", "https://example.org/x.svg", {"url": "https://e.org/x", "sha256": "a" * 64}],
)
def test_a_brand_is_a_word_an_address_or_an_object(brand: Any) -> None:
    assert load_document(text_of(with_value("components", 0, "brand", brand))).ok


@pytest.mark.parametrize("brand", ["", "two\nlines", {"url": "https://e.org/x"}, 7, ["a"]])
def test_another_brand_is_told_once_at_its_place(brand: Any) -> None:
    found = load_document(text_of(with_value("components", 0, "brand", brand))).diagnostics
    assert found
    assert all(item.path.startswith("$.components[0].brand") for item in found)
    assert len({(item.code, item.path) for item in found}) == len(found)


def test_rows_and_columns_count_in_the_grid() -> None:
    document = sample()
    document["layout"] = {"mode": "grid", "origin": [10, 20], "cellW": 100, "gapX": 5, "gapY": 7}
    for i, component in enumerate(document["components"]):
        del component["pos"], component["size"]
        component |= {"row": i // 3, "col": i % 3}
    page = load_document(text_of(document)).to_page()
    last = page["components"][-1]
    assert (last["x"], last["y"], last["w"], last["h"]) == (220, 154, 100, 60)


def test_connections_without_an_id_get_stable_ones() -> None:
    document = sample()
    document["connections"] += [{"from": "scheduler", "to": "async-engine"}] * 2
    taken = {"id": "scheduler-async-engine-2", "from": "gpu-runner", "to": "scheduler"}
    document["connections"].append(taken)
    loaded = load_document(text_of(document)).document
    assert loaded is not None
    ids = loaded.connection_ids()
    assert ids[0] == "client-req-async-engine"
    assert ids[-3:] == [
        "scheduler-async-engine",
        "scheduler-async-engine-3",
        "scheduler-async-engine-2",
    ]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "location",
    [
        ("diagram_type",),
        ("meta", "animation"),
        ("meta", "visual_preset"),
        ("meta", "quality_profile"),
        ("meta", "engineering_profile"),
        ("meta", "locale"),
        ("meta", "legend"),
        ("layout",),
        ("components", 0, "type"),
        ("boundaries", 0, "kind"),
        ("connections", 0, "variant"),
        ("connections", 0, "fromSide"),
        ("connections", 0, "toSide"),
        ("connections", 0, "route"),
        ("cards", 0, "dot"),
    ],
)
def test_a_word_that_the_format_does_not_know_is_an_error(location: tuple[Any, ...]) -> None:
    value: Any = {"mode": "other"} if location[-1] in ("legend", "layout") else "other"
    found = load_document(text_of(with_value(*location, value))).diagnostics
    where = json_path((*location, "mode") if isinstance(value, dict) else location)
    assert [(item.code, item.path) for item in found] == [("field/value", where)]
