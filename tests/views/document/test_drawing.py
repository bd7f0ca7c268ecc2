"""What the page receives: everything placed, no label on a box, sources told apart."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.views.document.samples import FOREIGN, OTHERS, OURS, SEED, sample, text_of, with_value
from views.architecture import load_document, load_page
from views.document.drawing import PageDocument
from views.document.geometry import Box, BoxIndex, LineIndex, centred, segments
from views.document.sources import VerifiedSources, load_sources, sources_path

DOCUMENTS = [OURS, SEED, *FOREIGN, *sorted(OTHERS.glob("*.json"))]


def page_of(document: dict[str, Any]) -> PageDocument:
    return load_document(text_of(document)).to_page()


def boxes_of(page: PageDocument) -> dict[str, Box]:
    return {c["id"]: Box(c["x"], c["y"], c["w"], c["h"]) for c in page["components"]}


def labels_of(page: PageDocument) -> dict[str, Box]:
    areas: dict[str, Box] = {}
    for edge in page["connections"]:
        if edge["label_at"] is not None and edge["label_size"] is not None:
            (x, y), (w, h) = edge["label_at"], edge["label_size"]
            areas[edge["id"]] = centred((x, y), w, h)
    return areas


def lines_of(page: PageDocument) -> dict[str, list[tuple[float, float]]]:
    return {e["id"]: [(x, y) for x, y in e["points"]] for e in page["connections"]}


def crossed_boxes(page: PageDocument) -> list[tuple[str, str]]:
    return [
        (edge, name)
        for edge, line in lines_of(page).items()
        for name, box in boxes_of(page).items()
        if any(box.crossed_by(a, b) for a, b in segments(line))
    ]


def assert_clear(page: PageDocument) -> None:
    boxes = boxes_of(page)
    for name, area in labels_of(page).items():
        assert not [box for box in boxes if boxes[box].overlaps(area)], name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_are_drawn_clear(path: Path) -> None:
    page = load_page(path)
    json.dumps(page, allow_nan=False)
    assert_clear(page)
    assert crossed_boxes(page) == []
    for (first, a), (second, b) in combinations(labels_of(page).items(), 2):
        assert not a.overlaps(b), (first, second)
    for edge in page["connections"]:
        assert (edge["label_at"] is None) == (edge["label"] == "")


def test_labels_of_our_map_hide_no_line_but_their_own() -> None:
    page = load_page(OURS)
    for name, area in labels_of(page).items():
        for other, line in lines_of(page).items():
            if other != name:
                assert not any(area.crossed_by(a, b) for a, b in segments(line)), (name, other)


def test_no_two_lines_of_our_map_run_on_each_other() -> None:
    page = load_page(OURS)
    for (_, one), (_, two) in combinations(lines_of(page).items(), 2):
        for (a, b), (c, d) in ((p, q) for p in segments(one) for q in segments(two)):
            level = a[1] == b[1] == c[1] == d[1]
            upright = a[0] == b[0] == c[0] == d[0]
            axis = 0 if level else 1
            if level or upright:
                p, q = sorted((a[axis], b[axis])), sorted((c[axis], d[axis]))
                assert min(p[1], q[1]) <= max(p[0], q[0])


def test_our_map_is_level_upright_and_of_a_readable_width() -> None:
    page = load_page(OURS)
    assert 1150 <= page["view_box"][2] <= 1330
    for line in lines_of(page).values():
        assert all(a[0] == b[0] or a[1] == b[1] for a, b in segments(line))


def test_lines_end_on_their_boxes_and_everything_is_in_the_picture() -> None:
    for path in DOCUMENTS:
        page = load_page(path)
        boxes, view = boxes_of(page), Box(*page["view_box"])
        for edge in page["connections"]:
            ends = (edge["from"], edge["points"][0]), (edge["to"], edge["points"][-1])
            for name, (x, y) in ends:
                assert boxes[name].grown(0.2).overlaps(Box(x, y, 0, 0))
                assert not boxes[name].grown(-0.2).overlaps(Box(x, y, 0, 0))
        frames = [Box(b["x"], b["y"], b["w"], b["h"]) for b in page["boundaries"]]
        for area in (*boxes.values(), *frames, *labels_of(page).values()):
            assert view.x <= area.x and view.y <= area.y
            assert area.right <= view.right and area.bottom <= view.bottom


@pytest.mark.parametrize("wish", [{"labelDy": 100}, {"labelAt": [60, 230]}, {"labelDx": 400}])
def test_a_label_on_a_box_is_moved_off_it(wish: dict[str, Any]) -> None:
    document = sample()
    sides = {"fromSide": "bottom", "toSide": "top"}
    document["connections"][0] |= {**sides, "label": "dispatch", **wish}
    document["components"][1]["pos"] = [0, 200]
    page = page_of(document)
    assert_clear(page)
    (x, y), line = page["connections"][0]["label_at"] or [0, 0], page["connections"][0]["points"]
    if "labelDy" in wish:  # the nearest free place is at its line
        assert abs(x - line[0][0]) < 60 and 60 < y < 200


def test_a_wish_that_hides_nothing_is_kept() -> None:
    page = page_of(with_value("connections", 0, "labelAt", [300, 300]))
    assert page["connections"][0]["label_at"] == [300, 297]


def test_offsets_count_from_where_the_format_counts() -> None:
    page = load_page(SEED)
    edge = next(e for e in page["connections"] if e["id"] == "runner-to-kernel")
    assert edge["label_at"] == [765, 330 - 10 - 3 + 50]


def test_via_is_kept_and_ports_stand_level_with_it() -> None:
    document = sample()
    document["connections"][0] |= {"fromSide": "bottom", "toSide": "bottom"}
    document["connections"][0]["via"] = [[30, 100], [280, 100]]
    line = page_of(document)["connections"][0]["points"]
    assert line == [[30, 60], [30, 100], [280, 100], [280, 60]]


@pytest.mark.parametrize(
    ("route", "corners"),
    [
        ("straight", []),
        ("orthogonal-h", [[160, 30], [160, 330]]),
        ("orthogonal-v", [[120, 180], [200, 180]]),
    ],
)
def test_a_route_is_kept(route: str, corners: list[list[float]]) -> None:
    document = sample()
    document["components"][1]["pos"] = [200, 300]
    del document["connections"][1:]
    document["connections"][0] |= {"route": route, "fromSide": "right", "toSide": "left"}
    assert page_of(document)["connections"][0]["points"] == [[120, 30], *corners, [200, 330]]


def test_both_directions_between_two_boxes_have_lines_of_their_own() -> None:
    document = sample()
    document["connections"] = [
        {"from": "client-req", "to": "async-engine"},
        {"from": "async-engine", "to": "client-req"},
    ]
    there, back = (edge["points"] for edge in page_of(document)["connections"])
    assert there[0][1] == there[1][1] != back[0][1] == back[1][1]


def test_no_label_stands_between_the_two_lanes_of_a_pair() -> None:
    document = sample()
    document["connections"] = [
        {"from": "client-req", "to": "async-engine", "label": "go"},
        {"from": "async-engine", "to": "client-req", "label": "come"},
    ]
    go, come = page_of(document)["connections"]
    assert go["label_at"] is not None and come["label_at"] is not None
    assert go["label_at"][1] < go["points"][0][1] < come["points"][0][1] < come["label_at"][1]


def test_frames_around_the_same_boxes_show_both_titles() -> None:
    document = sample()
    document["boundaries"] = [
        {"kind": "region", "label": "Outer", "wraps": ["scheduler"], "pad": 20},
        {"kind": "security-group", "label": "Inner", "wraps": ["scheduler"], "pad": 10},
    ]
    outer, inner = page_of(document)["boundaries"]
    assert outer["y"] <= inner["y"] - 20
    assert outer["x"] < inner["x"]


def test_a_frame_holds_its_boxes_and_the_frame_within() -> None:
    document = sample()
    wraps = ["scheduler", "block-manager"]
    document["boundaries"].append({"kind": "security-group", "label": "Inner", "wraps": wraps})
    document["boundaries"].append(
        {"kind": "region", "label": "Tight", "wraps": ["gpu-runner"], "pad": 0}
    )
    page = page_of(document)
    outer, inner, tight = (Box(b["x"], b["y"], b["w"], b["h"]) for b in page["boundaries"])
    assert outer.x < inner.x and inner.right < outer.right
    assert outer.y < inner.y and inner.bottom < outer.bottom
    boxes = boxes_of(page)
    assert inner.x < boxes["scheduler"].x and boxes["block-manager"].right < inner.right
    assert (tight.x, tight.w) == (boxes["gpu-runner"].x, boxes["gpu-runner"].w)


def test_without_positions_networkx_lays_out_in_bands_from_left_to_right() -> None:
    document = json.loads(OURS.read_text("utf-8"))
    for component in document["components"]:
        del component["pos"]
    for edge in document["connections"]:
        for name in ("via", "labelAt", "fromSide", "toSide"):
            edge.pop(name, None)
    page = page_of(document)
    boxes = boxes_of(page)
    assert boxes["client-req"].right < boxes["async-engine"].x
    assert boxes["scheduler"].right < boxes["block-manager"].x
    assert boxes["scheduler"].bottom < boxes["gpu-runner"].y  # the next band
    assert 1 < page["view_box"][2] / page["view_box"][3] < 3  # as a screen is, more or less
    assert not [pair for pair in combinations(boxes.values(), 2) if pair[0].overlaps(pair[1])]
    assert_clear(page)
    assert crossed_boxes(page) == []
    for boundary, frame in zip(document["boundaries"], page["boundaries"], strict=True):
        area = Box(frame["x"], frame["y"], frame["w"], frame["h"])
        assert {name for name in boxes if boxes[name].overlaps(area)} == set(boundary["wraps"])
    # Both ways around the block manager keep apart.
    there, back = (lines_of(page)[name] for name in ("sched-to-runner", "runner-to-sched"))
    levels = [{a[1] for a, b in segments(line) if a[1] == b[1]} for line in (there, back)]
    assert min(abs(y - z) for y in levels[0] for z in levels[1]) >= 7
    assert page == page_of(document)


def test_what_the_document_places_stays_and_the_rest_comes_below() -> None:
    document = sample()
    for component in document["components"][5:]:
        del component["pos"]
    boxes = boxes_of(page_of(document))
    assert boxes["gpu-runner"] == Box(800, 0, 120, 60)
    assert all(boxes[name].y > 60 for name in ("cuda-graph", "shared-gqa"))


def test_sources_are_told_apart() -> None:
    page = load_page(OURS)
    boxes = {c["id"]: c for c in page["components"]}
    first = boxes["async-engine"]["verified_sources"][0]
    assert first == {
        "path": "vllm/v1/engine/async_llm.py",
        "symbol": "AsyncLLM",
        "first": 70,
        "last": 1095,
        "url": "https://github.com/vllm-project/vllm/blob/v0.26.0/"
        "vllm/v1/engine/async_llm.py#L70-L1095",
    }
    pinned = boxes["async-engine"]["pinned_sources"]
    assert pinned[0]["status"] == "pinned by the document, not verified"
    revision = "2a61f060d342afb680f5a8937ed614b774bf9305"
    assert pinned[0]["url"] == (
        f"https://github.com/vllm-project/vllm/blob/{revision}/vllm/v1/engine/async_llm.py#L50-L120"
    )
    assert page["release"] == "0.26.0"
    assert boxes["paged-attn"]["verified_sources"][-1]["symbol"] == "cpu_attn.py"
    without = [name for name, box in boxes.items() if not box["verified_sources"]]
    assert without == ["client-req"]
    assert all(box["code"] for box in boxes.values())


def test_an_address_that_is_no_web_page_is_no_link() -> None:
    document = sample()
    document["components"][1]["sources"] = [{"path": "a b.py", "line": 2}]
    for url, expected in (
        ("javascript:alert(1)", None),
        ("git@github.com:a/b", None),
        ("https://github.com/a/b.git", f"https://github.com/a/b/blob/{'0' * 40}/a%20b.py#L2"),
    ):
        document["meta"]["repository"] = {"url": url, "revision": "0" * 40}
        assert page_of(document)["components"][1]["pinned_sources"][0]["url"] == expected


def test_verified_sources_belong_to_components_of_our_document() -> None:
    sources, notes = load_sources(OURS)
    assert notes == []
    assert sources_path(OURS).name == "architecture.sources.json"
    assert set(sources.components) < {c["id"] for c in load_page(OURS)["components"]}
    assert load_sources(SEED) == (VerifiedSources(), [])


def test_our_document_keeps_the_seed_and_mends_its_claims() -> None:
    ours, seed = (json.loads(path.read_text("utf-8")) for path in (OURS, SEED))
    assert [c["id"] for c in ours["components"]] == [c["id"] for c in seed["components"]]
    assert ours["boundaries"] == seed["boundaries"]
    assert [v["id"] for v in ours["meta"]["views"]] == [v["id"] for v in seed["meta"]["views"]]
    assert {e["id"] for e in seed["connections"]} < {e["id"] for e in ours["connections"]}
    for old, new in zip(seed["meta"]["views"], ours["meta"]["views"], strict=True):
        assert set(old["focus"]) <= set(new["focus"])
    text = OURS.read_text("utf-8")
    wrong = '8x|HBM|GDDR|Zero Overhead|CUDA Kernel"|Eliminates|near zero|discrete|gqa reduce'
    assert re.findall(wrong, text) == []
    assert "one process" in ours["meta"]["subtitle"]


NUMBER = st.floats(-2000, 2000) | st.integers(-500, 500)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_label_ever_lies_on_a_box(data: Any) -> None:
    document = json.loads(SEED.read_text("utf-8"))
    for edge in document["connections"]:
        edge["label"] = data.draw(st.text(min_size=1, max_size=30))
        for name in data.draw(st.sets(st.sampled_from(["labelDx", "labelDy"]))):
            edge[name] = data.draw(NUMBER)
        if data.draw(st.booleans()):
            edge["labelAt"] = [data.draw(NUMBER), data.draw(NUMBER)]
        edge["route"] = data.draw(st.sampled_from(["auto", "straight", "orthogonal-h"]))
    assert_clear(page_of(document))


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_graph_without_positions_is_laid_out_without_overlaps(data: Any) -> None:
    names = [f"n{i}" for i in range(data.draw(st.integers(1, 14)))]
    pick = st.sampled_from(names)
    document = sample()
    document["components"] = [
        {"id": name, "type": data.draw(st.sampled_from(["external", "cloud"])), "label": name}
        for name in names
    ]
    edges = data.draw(st.lists(st.tuples(pick, pick), max_size=25))
    document["connections"] = [{"from": a, "to": b, "label": f"{a}{b}"} for a, b in edges]
    document["meta"]["views"], document["boundaries"] = [], []
    page = page_of(document)
    boxes = list(boxes_of(page).values())
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert_clear(page)


@pytest.mark.parametrize("shape", ["chain", "star", "loose", "cycle"])
def test_many_boxes_fill_a_picture_of_a_screens_shape(shape: str) -> None:
    names = [f"n{i}" for i in range(120)]
    document = sample()
    document["components"] = [{"id": name, "type": "cloud", "label": name} for name in names]
    edges = {
        "chain": list(pairwise(names)),
        "star": [(names[0], name) for name in names[1:]],
        "loose": [(names[0], names[0])],
        "cycle": [*pairwise(names), (names[-1], names[0])],
    }[shape]
    document["connections"] = [{"from": a, "to": b} for a, b in edges]
    document["meta"]["views"], document["boundaries"] = [], []
    page = page_of(document)
    boxes = list(boxes_of(page).values())
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert 0.8 < page["view_box"][2] / page["view_box"][3] < 3.2
    assert [view["label"] for view in page["views"]] == ["All"]
    assert page["views"][0]["focus"] == names


def test_a_box_without_a_size_is_as_wide_as_its_words_up_to_a_limit() -> None:
    document = sample()
    for component, label in zip(
        document["components"], ["A", "Words " * 4, "W" * 300], strict=False
    ):
        del component["pos"], component["size"]
        component["label"] = label
    short, fair, long = list(boxes_of(page_of(document)).values())[:3]
    assert short.w == 140 < fair.w < long.w == 240


def test_what_is_said_against_a_part_stands_at_that_part() -> None:
    document = sample()
    document["components"][3]["id"] = "another"
    text = text_of(document).replace('"block-manager"', '"another"')
    page = load_document(text).to_page()
    notes = {c["id"]: [note["code"] for note in c["notes"]] for c in page["components"]}
    assert notes["another"] == ["lint/unbound"]
    assert notes["scheduler"] == []


AREA = st.builds(Box, NUMBER, NUMBER, st.floats(0, 900), st.floats(0, 900))


@settings(deadline=None, max_examples=60)
@given(areas=st.lists(AREA, max_size=30), box=AREA)
def test_the_index_finds_what_asking_everything_finds(areas: list[Box], box: Box) -> None:
    assert BoxIndex(areas).near(box) == [i for i, a in enumerate(areas) if a.overlaps(box)]
    lines = [[(a.x, a.y), (a.right, a.bottom)] for a in areas]
    everything = {i for i, (a, b) in enumerate(lines) if box.crossed_by(a, b)}
    assert LineIndex(lines).crossing(box) == everything
