"""What a file is, told by how it begins."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import zipfile
from pathlib import Path

import pytest

from engine import file_kinds
from engine.comparison import workload as workloads
from engine.comparison.workload import WorkloadError, of_prompts
from engine.config import SamplingParams
from engine.export.formats import Format, written
from engine.file_kinds import TRACE, explained, kind_of
from engine.input_processor import Encoded
from tests.engine.test_export import log_of
from views.architecture import DEFAULT_DOCUMENT, load_document

HAR = {"log": {"version": "1.2", "creator": {"name": "x"}, "entries": []}}


def samples() -> dict[str, bytes]:
    log = log_of("01-single")
    lines = "\n".join(log.lines()).encode()
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("a.txt", "x")
    head = b'{"__metadata__":{"format":"%s"}}'
    moment, weights = head % b"glassbox-moment", head % b"pt"
    params = SamplingParams()
    workload = of_prompts("w", "m", [Encoded("", [1, 2], params, 0, "")])
    return {
        "empty": b" \n",
        "trace": lines,
        "moment": struct.pack("<Q", len(moment)) + moment,
        "safetensors": struct.pack("<Q", len(weights)) + weights + bytes(100),
        "gguf": b"GGUF\x03\0\0\0",
        "perfetto": b"".join(written(log, Format.PERFETTO)),
        "csv-zip": b"".join(written(log, Format.CSV)),
        "zip": plain.getvalue(),
        "gzip": gzip.compress(lines),
        "image": b"\x89PNG\r\n\x1a\n" + bytes(50),
        "pdf": b"%PDF-1.7\n",
        "html": b"<!DOCTYPE html><p>",
        "document": DEFAULT_DOCUMENT.read_bytes(),
        "workload": workload.to_json().encode(),
        "chrome-trace": b'{"traceEvents": []}',
        "har": json.dumps(HAR).encode(),
        "json": b'{"a": [1]}',
        "text": b"hello\n",
        "binary": bytes(range(1, 256)) * 3,
    }


@pytest.mark.parametrize("name", samples())
def test_each_kind_is_told_by_its_beginning(name: str) -> None:
    assert kind_of(samples()[name]).name == name


def test_anything_is_of_some_kind() -> None:
    chance = random.Random(5)
    for data in samples().values():
        for _ in range(40):
            cut = data[: chance.randrange(len(data) + 1)]
            spoilt = bytearray(cut[:400])
            for _ in range(3):
                if spoilt:
                    spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
            assert kind_of(cut).what and kind_of(bytes(spoilt)).what


def test_a_damaged_trace_keeps_its_own_reason() -> None:
    data = samples()
    assert explained("line 3: not JSON", data["trace"], TRACE) == "line 3: not JSON"
    assert explained("line 1: not JSON", data["gzip"], TRACE).startswith("it is a file compressed")


@pytest.mark.parametrize("name", ["perfetto", "csv-zip", "document", "moment", "gzip", "har"])
def test_a_comparison_and_a_document_say_what_they_were_given(name: str) -> None:
    data, what = samples()[name], kind_of(samples()[name]).what
    with pytest.raises(WorkloadError, match="neither a workload nor a trace") as error:
        workloads.read(data, name)
    assert what in str(error.value)
    if name in ("gzip", "moment"):
        said = load_document(data).diagnostics[0]
        assert what in said.message or said.code == "json/syntax"


def test_a_trace_is_no_document_and_the_map_says_so(tmp_path: Path) -> None:
    found = load_document(samples()["trace"]).diagnostics
    assert [item.code for item in found] == ["json/syntax"]
    assert "a saved trace" in found[0].message and "Open shows it" in found[0].fix
    assert file_kinds.HEAD_BYTES >= 65_536
