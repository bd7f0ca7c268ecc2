"""Trace files: what is saved is what is opened, and a broken one is named by its line."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path

import pytest

from engine.conformance import Conformance, load_workload
from engine.events import PLACES, TokensReturned
from engine.records import FACTS_BY_TYPE, Event, Patch, Phase
from engine.trace import Trace, TraceError, fold, fold_sharing, merge_patch
from tests.engine.traces import make_trace
from tests.engine.workloads import workload_path


@pytest.fixture
def trace() -> Trace:
    conformance = Conformance(load_workload(workload_path("06-prefix-hits"))[0])
    list(conformance.steps())
    return conformance.trace


def saved(trace: Trace) -> list[str]:
    file = io.StringIO()
    trace.save(file)
    return file.getvalue().splitlines()


def test_a_saved_trace_opens_as_it_was(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with path.open("w") as file:
        trace.save(file)
    opened = Trace.load(path)
    assert saved(opened) == saved(trace)
    assert opened.state() == trace.state()


def test_every_event_has_a_place() -> None:
    assert set(PLACES) == set(FACTS_BY_TYPE.values())


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (0, "", "line 1, column 1: not JSON"),
        (0, "[1]", "line 1: a JSON object is expected"),
        (0, '{"kind": "event"}', "line 1: a trace begins with its header"),
        (0, '{"kind": "header", "schema_version": 99}', "line 1: schema version 99"),
        (0, '{"kind": "header", "schema_version": 6}', "line 1: trace_id: field required"),
        (3, '{"kind": ', "line 4, column 10: not JSON"),
        (3, '{"kind": "event"}', "line 4: not a record of a trace"),
        (3, "[" * 10_000, "line 4: not JSON .it is nested too deeply"),
        (3, '{"seq": 1' + "0" * 10_000 + "}", "line 4: not JSON .a number in it has too many dig"),
        (3, '{"kind": "patch", "kind": "event"}', "line 4: not JSON .the key 'kind' is there more"),
        (3, '{"t_us": NaN}', "line 4: not JSON .NaN is no number"),
        (3, '{"t_us": 1e999}', "line 4: not JSON .the number '1e999' is too large"),
        (3, '{"a": "\0"}', "line 4, column 8: not JSON"),
    ],
)
def test_a_broken_line_is_named(trace: Trace, line: int, text: str, message: str) -> None:
    lines = saved(trace)
    lines[line] = text
    with pytest.raises(TraceError, match=message):
        Trace.parse(lines)


def test_a_missing_record_is_noticed(trace: Trace) -> None:
    lines = saved(trace)
    del lines[5]
    with pytest.raises(TraceError, match="line 6: sequence number 5, expected 4"):
        Trace.parse(lines)


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        Trace.load(tmp_path / "nothing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match="cannot be read"):
        Trace.load(tmp_path / "binary")
    with pytest.raises(TraceError, match="line 1: the file is empty"):
        Trace.parse([])


def test_merge_patch_is_rfc_7386() -> None:
    state = {"a": "b", "c": {"d": "e", "f": "g"}}
    merge_patch(state, {"a": "z", "c": {"f": None}, "h": {"i": {"j": 1}}})
    assert state == {"a": "z", "c": {"d": "e"}, "h": {"i": {"j": 1}}}


def test_a_fold_leaves_its_base_as_it_is() -> None:
    trace = make_trace()
    base = {
        "blocks": {"1": {"ref_cnt": 0}, "2": {"ref_cnt": 0}},
        "requests": {"r": {"t": {"0": 5}}},
    }
    before = copy.deepcopy(base)
    trace.end_phase({"blocks": {"1": {"ref_cnt": 1}}, "requests": {"r": None}})
    trace.end_phase({"blocks": {"1": {"ref_cnt": 2}}, "requests": {"r": {"t": {"0": 6}}}})
    folded = fold_sharing(base, trace.records)
    assert base == before
    assert folded["blocks"] == {"1": {"ref_cnt": 2}, "2": {"ref_cnt": 0}}
    assert folded["requests"] == {"r": {"t": {"0": 6}}}
    assert folded["blocks"]["2"] is base["blocks"]["2"]
    own = fold(base, trace.records)
    assert own == folded
    own["blocks"]["2"]["ref_cnt"] = 9
    assert base == before
    assert [record.changes for record in trace.records if isinstance(record, Patch)] == [
        {"blocks": {"1": {"ref_cnt": 1}}, "requests": {"r": None}},
        {"blocks": {"1": {"ref_cnt": 2}}, "requests": {"r": {"t": {"0": 6}}}},
    ]


def test_the_oldest_records_fold_into_the_base_state() -> None:
    trace = make_trace()
    trace.max_records = 100
    whole = make_trace()
    for step in range(90):
        for each in (trace, whole):
            each.begin_phase(step, Phase.SAMPLE)
            each.event(TokensReturned(step))
            each.end_phase({"counters": {"generation_tokens": step}})
    assert len(trace.records) <= 100 < len(whole.records)
    assert trace.next_seq == whole.next_seq
    assert trace.state() == whole.state() == fold({}, whole.records)
    header, records = trace.after(-1)
    assert header is not None and records[0].seq == header.base_seq
    assert trace.after(0)[0] is not None  # what it would go on from is gone
    assert trace.after(trace.next_seq - 3)[0] is None
    assert [r.seq for r in trace.after(trace.next_seq - 3)[1]] == [178, 179]


def test_numbers_survive_the_wire(trace: Trace) -> None:
    event = next(r for r in trace.records if isinstance(r, Event) and r.reason is not None)
    line = next(text for text in saved(trace) if json.loads(text).get("seq") == event.seq)
    item = json.loads(line)
    assert item["component"] == PLACES[type(event.facts)].component
    assert item["reason"]["code"] and item["facts"]["request"] == event.facts.request  # type: ignore[union-attr]
