"""Logs for other programs: what stands there is what the log says, and it is well formed."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.conformance import Conformance, load_workload
from engine.events import (
    BatchScheduled,
    BlockEvicted,
    RequestPreempted,
    TextEmitted,
    TokenAppended,
)
from engine.export.formats import Format, written
from engine.export.perfetto import protos
from engine.export.summary import Summary
from engine.export.tables import REQUEST_COLUMNS, STEP_COLUMNS
from engine.records import (
    Event,
    Patch,
    Phase,
)
from engine.trace import Trace, TraceError, fold
from tests.engine.traces import make_trace
from tests.engine.workloads import workload_path

WORKLOADS = ("09-preempt-recompute", "06-prefix-hits", "13-aborts", "04-mixed-budget")


@cache
def log_of(name: str) -> Trace:
    conformance = Conformance(load_workload(workload_path(name))[0], True)
    for _ in conformance.steps():
        pass
    return conformance.trace


def packets_of(log: Trace) -> list[Any]:
    parsed = protos().Trace()
    parsed.ParseFromString(b"".join(written(log, Format.PERFETTO)))
    return list(parsed.packet)


def facts_of(log: Trace, kind: type[Any]) -> list[Any]:
    return [r.facts for r in log.records if isinstance(r, Event) and isinstance(r.facts, kind)]


class Slices:
    """A trace's tracks by name, and the slices on each: (name, begin, end, depth)."""

    def __init__(self, packets: list[Any]):
        self.names: dict[int, str] = {}
        self.parents: dict[int, int] = {}
        self.slices: dict[str, list[tuple[str, int, int, int]]] = {}
        self.instants: Counter[tuple[str, str]] = Counter()
        self.values: dict[str, list[tuple[int, int]]] = {}
        open_slices: dict[int, list[tuple[str, int]]] = {}
        event_type = protos().TrackEvent
        before = -1
        for packet in packets:
            if packet.HasField("track_descriptor"):
                uuid = packet.track_descriptor.uuid
                assert uuid not in self.names
                self.names[uuid] = packet.track_descriptor.name
                self.parents[uuid] = packet.track_descriptor.parent_uuid
                continue
            event = packet.track_event
            assert packet.timestamp >= before, "packets are in the order of time"
            before = packet.timestamp
            track, stack = (
                self.names[event.track_uuid],
                open_slices.setdefault(event.track_uuid, []),
            )
            if event.type == event_type.TYPE_SLICE_BEGIN:
                stack.append((event.name, packet.timestamp))
            elif event.type == event_type.TYPE_SLICE_END:
                name, begin = stack.pop()
                found = (name, begin, packet.timestamp, len(stack))
                self.slices.setdefault(track, []).append(found)
            elif event.type == event_type.TYPE_INSTANT:
                self.instants[track, event.name] += 1
            else:
                self.values.setdefault(track, []).append((packet.timestamp, event.counter_value))
        assert not any(open_slices.values()), "every slice ends"


@pytest.mark.parametrize("name", WORKLOADS)
def test_perfetto_has_each_step_phase_and_request(name: str) -> None:
    log = log_of(name)
    found = Slices(packets_of(log))
    steps = {r.step for r in log.records if r.phase is not Phase.COMMAND}
    assert [each[0] for each in found.slices["steps"]] == [f"step {step}" for step in sorted(steps)]
    patches = [r for r in log.records if isinstance(r, Patch) and r.phase is not Phase.COMMAND]
    assert [each[0] for each in found.slices["phases"]] == [str(patch.phase) for patch in patches]
    for (_, begin, end, _), patch in zip(found.slices["phases"], patches, strict=True):
        assert end == patch.t_us * 1_000
        assert end - begin <= round((patch.duration_us or 0) * 1_000)
    requests = fold(log.header.state, log.records)["requests"]
    group = next(uuid for uuid, text in found.names.items() if text == "requests")
    tracks = {found.names[uuid] for uuid, parent in found.parents.items() if parent == group}
    assert tracks == set(requests)
    for key in requests:
        outer = [each for each in found.slices[key] if each[3] == 0]
        inner = [each for each in found.slices[key] if each[3] == 1]
        assert [each[0] for each in outer] == [key]
        assert all(outer[0][1] <= each[1] <= each[2] <= outer[0][2] for each in inner)
        preempted = sum(f.request == key for f in facts_of(log, RequestPreempted))
        assert [each[0] for each in inner].count("preempted") == preempted
        assert found.instants[key, "preempted"] == preempted


def test_perfetto_counts_what_the_state_counts() -> None:
    log = log_of("09-preempt-recompute")
    values = Slices(packets_of(log)).values
    state = fold(log.header.state, [])
    expected: dict[str, list[int]] = {"running requests": [], "waiting requests": []}
    blocks: list[int] = []
    for end, record in enumerate(log.records, 1):
        if isinstance(record, Patch):
            state = fold(log.header.state, log.records[:end])
            seen = (state["queues"]["running"]["length"], state["queues"]["waiting"]["length"])
            held = sum(block["ref_cnt"] > 0 for block in state["blocks"].values()) - 1
            last = (expected["running requests"], expected["waiting requests"], blocks)
            if not blocks or (*seen, held) != tuple(each[-1] for each in last):
                for values_so_far, value in zip(last, (*seen, held), strict=True):
                    values_so_far.append(value)
    assert [value for _, value in values["running requests"]] == expected["running requests"]
    assert [value for _, value in values["waiting requests"]] == expected["waiting requests"]
    assert [value for _, value in values["KV blocks held"]] == blocks
    batches = facts_of(log, BatchScheduled)
    given = [batch.prefill_tokens + batch.decode_tokens for batch in batches]
    assert [value for _, value in values["tokens scheduled"]] == given


def test_overlapping_steps_have_two_tracks_and_threads_one_each() -> None:
    log = make_trace()
    log.header.config["async_scheduling"] = True
    overlapping = (
        (0, Phase.SCHEDULE, 10, 20),
        (1, Phase.SCHEDULE, 30, 40),
        (0, Phase.EXECUTE, 25, 60),
        (0, Phase.OUTPUT, 61, 70),
        (1, Phase.EXECUTE, 62, 90),
    )
    for seq, (step, phase, begin, end) in enumerate(overlapping):
        log.records.append(Patch(seq, step, phase, {}, end - begin, end))
    slices = Slices(packets_of(log)).slices
    assert slices["steps, even"] == [("step 0", 10_000, 70_000, 0)]
    assert slices["steps, odd"] == [("step 1", 30_000, 90_000, 0)]
    assert [each[0] for each in slices["phases, engine"]] == ["schedule", "schedule", "output"]
    assert [each[0] for each in slices["phases, executor"]] == ["execute", "execute"]


def test_trace_processor_reads_it(tmp_path: Path) -> None:
    shell = os.environ.get("TRACE_PROCESSOR") or shutil.which("trace_processor_shell")
    if shell is None:
        pytest.skip("no trace_processor_shell is installed (or named by TRACE_PROCESSOR)")
    log = log_of("09-preempt-recompute")
    file, query = tmp_path / "log.perfetto-trace", tmp_path / "query.sql"
    file.write_bytes(b"".join(written(log, Format.PERFETTO)))
    query.write_text(
        "select (select count(*) from slice where name like 'step %'), "
        "(select count(*) from slice where name = 'preempted' and dur >= 0), "
        "(select sum(value) from stats where severity = 'error');"
    )
    done = subprocess.run([shell, "-q", query, file], capture_output=True, text=True, check=True)
    steps = len({r.step for r in log.records if r.phase is not Phase.COMMAND})
    preempted = 2 * len(facts_of(log, RequestPreempted))  # a slice and an instant of each
    assert f"{steps},{preempted},0" in done.stdout.replace(".000000", "")


# --- tables ---------------------------------------------------------------------------------------


def tables_of(log: Trace) -> dict[str, list[dict[str, str]]]:
    archive = zipfile.ZipFile(io.BytesIO(b"".join(written(log, Format.CSV))))
    assert archive.testzip() is None
    return {
        name: list(csv.DictReader(io.StringIO(archive.read(name).decode("utf-8-sig"))))
        for name in ("steps.csv", "requests.csv")
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_tables_have_a_row_for_each_step_and_request(name: str) -> None:
    log = log_of(name)
    tables = tables_of(log)
    steps, requests = tables["steps.csv"], tables["requests.csv"]
    assert [int(row["step"]) for row in steps] == sorted({r.step for r in log.records})
    state = fold(log.header.state, log.records)
    assert [row["request"] for row in requests] == list(state["requests"])
    for row in requests:
        record = state["requests"][row["request"]]
        assert int(row["output_tokens"]) == len(record.get("output_token_ids", {}))
        assert row["finish_reason"] == (record.get("finish_reason") or "")
        assert int(row["preemptions"]) == record.get("num_preemptions", 0)
    assert sum(int(row["new_tokens"]) for row in steps) == len(facts_of(log, TokenAppended))
    assert sum(int(row["evicted_blocks"]) for row in steps) == len(facts_of(log, BlockEvicted))
    batches = facts_of(log, BatchScheduled)
    given = [(str(b.prefill_tokens), str(b.decode_tokens)) for b in batches]
    assert [(r["prefill_tokens"], r["decode_tokens"]) for r in steps if r["requests"]] == given
    assert int(steps[-1]["used_blocks"]) == 0


def test_no_text_of_a_table_is_a_formula() -> None:
    log = make_trace()
    for seq, text in enumerate(("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", 'a"b,\nc')):
        key = f"{text}{seq}"
        log.records.append(
            Event(2 * seq, 0, Phase.OUTPUT, TextEmitted(key, text, 1, 0), None, None, 5)
        )
        changes = {"requests": {key: {"prompt": text}}}
        log.records.append(Patch(2 * seq + 1, 0, Phase.OUTPUT, changes, 1.0, 6))
    for row in tables_of(log)["requests.csv"]:
        for column in ("request", "prompt", "output"):
            assert row[column].lstrip("'")[:1] in row[column]
            assert not row[column].startswith(("=", "+", "-", "@", "\t", "\r")), row[column]
    assert tables_of(log)["requests.csv"][0]["prompt"] == "'=cmd|' /C calc'!A0"


def test_the_readme_in_the_file_tells_every_column() -> None:
    archive = zipfile.ZipFile(io.BytesIO(b"".join(written(log_of("01-single"), Format.CSV))))
    text = archive.read("README.txt").decode()
    for name, _, meaning in (*STEP_COLUMNS, *REQUEST_COLUMNS):
        assert name in text and meaning in text


# --- files ----------------------------------------------------------------------------------------


def test_what_no_engine_writes_is_refused_with_its_place() -> None:
    lines = list(log_of("09-preempt-recompute").lines())
    record = json.loads(next(line for line in lines if '"request_scheduled"' in line))
    patch = json.loads(next(line for line in lines[1:] if '"patch"' in line))
    spoilt: list[dict[str, Any]] = [
        {**record, "t_us": "now"},
        {**record, "t_us": -5},
        {**record, "step": 1 << 80},
        {**record, "facts": {**record["facts"], "request": ["r0"]}},
        {**patch, "changes": {"queues": {"running": 7}}},
        {**patch, "changes": {"queues": {"running": {"length": "many"}}}},
    ]
    for item in spoilt:
        log = Trace.parse([lines[0], json.dumps({**item, "seq": 0})])
        with pytest.raises(TraceError, match="record 0"):
            Summary(log.header, log.records)
    with pytest.raises(TraceError, match="line 2"):
        Trace.parse([lines[0], "9" * 5_000])
    with pytest.raises(TraceError, match="line 2.*NaN"):
        Trace.parse([lines[0], json.dumps({**patch, "seq": 0, "duration_us": float("nan")})])


def test_a_saved_file_is_exported_by_command(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(log_of("01-single").lines()) + "\n")
    command = [sys.executable, "-m", "engine.export"]
    for to, suffix in (("perfetto", ".perfetto-trace"), ("csv", ".csv.zip")):
        subprocess.run([*command, file, "--to", to], check=True, capture_output=True)
        assert file.with_suffix(suffix).read_bytes() == b"".join(
            written(Trace.load(file), Format(to))
        )
    file.write_text("{}\n")
    done = subprocess.run([*command, file, "--to", "csv"], capture_output=True, text=True)
    assert done.returncode == 1 and "line 1" in done.stderr and "Traceback" not in done.stderr


# --- what is open where a log ends ----------------------------------------------------------------


def cut_in_a_phase(name: str, share: float) -> Trace:
    """A log that ends in the middle of a phase: an event is its last record."""
    lines = list(log_of(name).lines())
    end = int(len(lines) * share)
    while '"patch"' in lines[end - 1] or '"command"' in lines[end - 1]:
        end -= 1
    return Trace.parse(lines[:end])


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_is_under_way_at_the_end_is_closed_and_marked(name: str) -> None:
    for share in (0.3, 0.5, 0.8):
        log = cut_in_a_phase(name, share)
        packets = packets_of(log)
        found = Slices(packets)  # every slice ends
        last = log.records[-1]
        assert found.slices["phases"][-1][0] == str(last.phase)
        facts = [
            {
                note.name: note.bool_value or note.int_value
                for note in p.track_event.debug_annotations
            }
            for p in packets
            if p.track_event.name == str(last.phase)
        ]
        assert facts[-1] == {"step": last.step, "complete": False}
        assert sum("complete" in each for each in facts) == 1
        unfinished = [
            key
            for key, request in fold(log.header.state, log.records)["requests"].items()
            if request["status"] != "finished"
        ]
        said = Counter(
            packet.track_event.name
            for packet in packets
            for note in packet.track_event.debug_annotations
            if note.string_value == "unfinished where the log ends"
        )
        assert set(unfinished) <= set(said) and set(said.values()) <= {1}


@pytest.mark.parametrize("name", WORKLOADS)
def test_perfetto_is_as_the_format_wants_it(name: str) -> None:
    packets = packets_of(log_of(name))
    sequences = {packet.trusted_packet_sequence_id for packet in packets}
    assert sequences == {1}
    cleared = protos().TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    assert [p.sequence_flags for p in packets] == [cleared] + [0] * (len(packets) - 1)
    tracks = [p.track_descriptor for p in packets if p.HasField("track_descriptor")]
    uuids = [track.uuid for track in tracks]
    assert len(set(uuids)) == len(uuids) and 0 not in uuids  # 0 is the process's own
    roots = [track.uuid for track in tracks if not track.HasField("parent_uuid")]
    assert len(roots) == 1
    known: set[int] = set()
    counters = {track.uuid for track in tracks if track.HasField("counter")}
    ended: dict[int, int] = {}
    depth: Counter[int] = Counter()
    for packet in packets:
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.parent_uuid in known | {0}  # a parent comes first
            known.add(packet.track_descriptor.uuid)
            continue
        event, types = packet.track_event, protos().TrackEvent
        assert packet.HasField("timestamp") and event.track_uuid in known
        is_counter = event.type == types.TYPE_COUNTER
        assert is_counter == (event.track_uuid in counters) == event.HasField("counter_value")
        assert not event.name_iid and not event.flow_ids and not packet.HasField("interned_data")
        if event.type == types.TYPE_SLICE_BEGIN:
            if not depth[event.track_uuid]:  # beside the one before it, not over it
                assert packet.timestamp >= ended.get(event.track_uuid, 0)
            depth[event.track_uuid] += 1
        elif event.type == types.TYPE_SLICE_END:
            depth[event.track_uuid] -= 1
            ended[event.track_uuid] = packet.timestamp
            assert depth[event.track_uuid] >= 0
    assert not +depth


def test_a_long_log_is_written_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.export import perfetto

    monkeypatch.setattr(perfetto, "PACKETS_A_PIECE", 50)
    made: list[int] = []
    encode = perfetto.moment_packet
    monkeypatch.setattr(perfetto, "moment_packet", lambda m: (made.append(1), encode(m))[1])
    pieces = written(log_of("09-preempt-recompute"), Format.PERFETTO)
    sizes = []
    for piece in pieces:
        parsed = protos().Trace()
        parsed.ParseFromString(piece)
        sizes.append(len(parsed.packet))
        assert len(made) <= sum(sizes), "nothing is encoded before it is written"
    assert len(sizes) > 4 and set(sizes[:-1]) == {50}


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "engine.export", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    told = run("--help").stdout
    assert "ui.perfetto.dev" in told and "--output" in told and "spreadsheet" in told
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"".join(written(log_of("01-single"), Format.PERFETTO)))
    done = run(file, "--to", "csv")
    assert done.returncode == 1 and "it is a trace for Perfetto" in done.stderr
    assert done.stderr.count(str(file)) == 1
    assert "No such file" in run(tmp_path / "none.jsonl", "--to", "csv").stderr
    file.write_text("\n".join(log_of("01-single").lines()))
    done = run(file, "--to", "csv", "--output", tmp_path / "none" / "x.zip")
    assert done.returncode == 1 and "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl"]
