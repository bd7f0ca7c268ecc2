"""The graph: a request's path, what is before and after a box, layers, bindings."""

from __future__ import annotations

import re

from tests.views.document.samples import OURS, ROOT, SEED, sample, text_of, with_value
from views.architecture import SHIPPED, load_document
from views.document import bindings as table
from views.document import graph as graphs
from views.document.bindings import (
    COMPONENT_CODE,
    CONNECTION_ENDS,
    ENGINE_COMPONENTS,
    ENGINE_CONNECTIONS,
    Bindings,
    bind,
)
from views.document.model import Document

PATH = [
    "client-req",
    "async-engine",
    "scheduler",
    "block-manager",
    "gpu-runner",
    "cuda-graph",
    "paged-attn",
    "physical-vram",
    "shared-gqa",
]


def ours() -> Document:
    document = load_document(OURS).document
    assert document is not None
    return document


def small(edges: list[tuple[str, str]], external: str = "a") -> graphs.Graph:
    names = dict.fromkeys(name for edge in edges for name in edge)
    document = sample()
    document["components"] = [
        {"id": n, "type": "external" if n == external else "backend", "label": n} for n in names
    ]
    document["connections"] = [{"from": a, "to": b} for a, b in edges]
    document["meta"]["views"] = document["boundaries"] = []
    loaded = load_document(text_of(document)).document
    assert loaded is not None
    return graphs.build(loaded)


def test_a_request_goes_through_our_map_in_this_order() -> None:
    page = load_document(OURS).to_page()
    assert sorted(page["request_path"]) == sorted(PATH)
    assert page["request_path"][:6] == PATH[:6]
    assert page["request_path"].index("paged-attn") < page["request_path"].index("physical-vram")


def test_the_path_of_the_seed_starts_the_same() -> None:
    path = load_document(SEED).to_page()["request_path"]
    assert path[:3] == PATH[:3]
    assert path.index("scheduler") < path.index("gpu-runner") < path.index("physical-vram")


def test_answers_are_no_way_downstream() -> None:
    page = load_document(OURS).to_page()
    boxes = {c["id"]: c for c in page["components"]}
    assert boxes["client-req"]["upstream"] == []
    assert set(boxes["client-req"]["downstream"]) == set(PATH[1:])
    assert boxes["gpu-runner"]["upstream"] == PATH[:2] + ["scheduler", "block-manager"]
    assert boxes["physical-vram"]["downstream"] == []
    document = load_document(OURS).document
    assert document is not None
    onward = graphs.forward(graphs.build(document))
    returns = {e.id for e in document.connections if not onward.has_edge(e.source, e.target)}
    assert returns == {"block-to-sched", "runner-to-sched", "sched-to-engine", "engine-to-client"}


def test_a_box_that_no_request_reaches_is_not_on_its_path() -> None:
    graph = small([("a", "b"), ("c", "b"), ("b", "d")])
    assert graphs.request_path(graph) == ["a", "b", "d"]
    assert graphs.layers(graph) == [["a", "c"], ["b"], ["d"]]


def test_an_answer_over_another_box_is_a_return_path() -> None:
    assert graphs.clients_without_return(small([("a", "b"), ("b", "c"), ("c", "a")])) == []
    assert graphs.clients_without_return(small([("a", "b"), ("c", "a")])) == ["a"]
    # An external box that only receives is no client.
    assert graphs.clients_without_return(small([("b", "a")])) == []


def test_a_view_of_one_box_is_not_isolated() -> None:
    graph = small([("a", "b"), ("b", "c")])
    assert graphs.isolated(graph, ["a"]) == []
    assert graphs.isolated(graph, ["a", "c"]) == ["a", "c"]
    assert graphs.isolated(graph, ["a", "b", "c"]) == []


def test_a_long_chain_needs_no_recursion() -> None:
    edges = [(f"n{i}", f"n{i + 1}") for i in range(990)]
    graph = small([("a", "n0"), *edges, ("n990", "a")])
    assert len(graphs.request_path(graph)) == 992


def test_our_document_is_bound_whole() -> None:
    bound = bind(ours())
    assert tuple(bound.components) == tuple(bound.components.values())
    assert set(bound.components) == set(ENGINE_COMPONENTS)
    assert set(bound.connections) == set(ENGINE_CONNECTIONS)
    assert set(COMPONENT_CODE) == set(PATH)
    assert {end for ends in CONNECTION_ENDS.values() for end in ends} == set(PATH)


def test_the_code_behind_every_live_box_is_there() -> None:
    for codes in COMPONENT_CODE.values():
        for path, symbol in codes:
            text = (ROOT / path).read_text("utf-8")
            assert re.search(rf"^(class|def) {symbol}\b", text, re.MULTILINE), (path, symbol)


def test_the_seed_is_bound_as_far_as_it_goes() -> None:
    document = load_document(SEED).document
    assert document is not None
    assert set(bind(document).components) == set(ENGINE_COMPONENTS)
    assert len(bind(document).connections) == 8


def test_the_same_word_on_another_arrow_is_not_live() -> None:
    document = with_value("connections", 0, "id", "sched-to-runner")
    loaded = load_document(text_of(document)).document
    assert loaded is not None
    assert bind(loaded).connections == {}


def test_a_title_can_have_its_own_table(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    renamed = text_of(sample()).replace('"scheduler"', '"planner"')
    monkeypatch.setitem(table.BINDINGS, "Sample", Bindings({"planner": "scheduler"}))
    page = load_document(renamed).to_page()
    planner = next(c for c in page["components"] if c["id"] == "planner")
    assert planner["live"] == "scheduler"
    assert planner["code"][0] == {"path": "engine/scheduler.py", "symbol": "Scheduler"}


def test_a_connection_of_the_engine_may_pass_boxes_on_its_way() -> None:
    for title, bindings in table.BINDINGS.items():
        result = next(r for r in map(load_document, SHIPPED) if r.title == title)
        page = result.to_page()
        engine_names = {c["id"]: c["live"] for c in page["components"]}
        hops: dict[str, list[tuple[str, str]]] = {}
        for edge in page["connections"]:
            if edge["id"] in bindings.connections:
                hops.setdefault(edge["live"] or "", []).append((edge["from"], edge["to"]))
        assert set(hops) == set(bindings.connections.values())
        for name, ways in hops.items():
            onward = dict(ways)
            source, target = table.CONNECTION_ENDS[name]
            (at,) = set(onward) - set(onward.values())
            assert engine_names[at] == source
            for _ in ways:
                at = onward[at]
            assert engine_names[at] == target


def test_what_is_shipped_has_no_errors_and_sources_for_all_but_the_client() -> None:
    for path in SHIPPED:
        result = load_document(path)
        assert result.ok
        for component in result.to_page()["components"]:
            assert component["verified_sources"] or component["id"] == "client-req"
