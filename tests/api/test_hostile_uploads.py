"""Files and bodies that mean harm, wherever the server takes one: a message, and all goes on."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.api.live_server import Server

DEEP = b"[" * 200_000
BOMB = gzip.compress(bytes(20_000_000))  # 20 kB
HOSTILE = {
    "a null": b"\0",
    "nulls": bytes(100_000),
    "control characters": bytes(range(32)) * 100,
    "an escape in JSON": b'{"\x1b[2J": 1}',
    "a long text": b'"' + b"x" * 3_000_000 + b'"',
    "a long key": b'{"' + b"k" * 1_000_000 + b'": 1}',
    "an escape as a key": rb'{"\u001b[2J\u0000\u202e": 1}',
    "an escape as a setting": rb'{"config": {"\u001b[2J\u0000\u202e": 1}}',
    "a long setting": b'{"config": {"' + b"k" * 1_000_000 + b'": 1}}',
    "a key twice": b'{"prompt": "a", "prompt": "b", "kind": "header", "kind": "header"}',
    "deep": DEEP,
    "deep objects": b'{"a":' * 200_000,
    "many digits": b'{"prompt": [' + b"9" * 10_000 + b"]}",
    "no number": b'{"prompt": "a", "temperature": NaN, "kind": "header"}',
    "too large a number": b'{"prompt": "a", "temperature": 1e999, "kind": "header"}',
    "no UTF-8": b'{"prompt": "\xc3\x28"}',
    "UTF-16": '{"prompt": "a"}'.encode("utf-16"),
    "half a character": rb'{"prompt": "\ud800", "messages": [{"role": "user"}]}',
    "a huge array": b"[" + b"0," * 1_000_000 + b"0]",
    "a bomb": BOMB,
    "half a bomb": BOMB[: len(BOMB) // 2],
    "a gzip with no content": b"\x1f\x8b",
    "a safetensors header without end": b"\xff\xff\xff\xff\xff\xff\xff\x7f{}",
    "a zip": b"PK\x03\x04" + bytes(100),
}
TAKERS = (
    "/v1/completions",
    "/v1/chat/completions",
    "/api/export?format=csv",
    "/api/export?format=perfetto",
    "/api/engine/restore",
    "/api/engine/reset",
    "/api/engine/abort",
    "/api/engine/run",
    "/api/compare",
)


@pytest.mark.parametrize("address", TAKERS)
def test_what_is_hostile_is_refused_in_words(server: Server, address: str) -> None:
    key, engine = server.session()
    before = engine.trace.header.trace_id, engine.num_unfinished
    with server.client(key) as client:
        for name, body in HOSTILE.items():
            answer = client.post(
                address, content=body, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code in (400, 413), (name, answer.status_code, answer.text[:300])
            message = answer.json()["error"]["message"]
            assert message and len(message) < 1_000, (name, message[:2_000])
            assert message.isprintable() and "Traceback" not in message, (name, message)
        assert (engine.trace.header.trace_id, engine.num_unfinished) == before
        good = client.post("/api/engine/step", json={})
        assert good.status_code == 200


def test_of_anything_the_kind_is_told(server: Server) -> None:
    with server.client(server.session()[0]) as client:
        told = {
            name: client.post("/api/file_kind", content=body).json()["name"]
            for name, body in HOSTILE.items()
        }
    assert told["a bomb"] == told["half a bomb"] == told["a gzip with no content"] == "gzip"
    assert told["nulls"] == "binary" and told["a zip"] == "zip"


def test_a_body_that_says_that_it_is_compressed_is_not_unpacked(server: Server) -> None:
    with server.client(server.session()[0]) as client:
        body = gzip.compress(json.dumps({"prompt": "a"}).encode())
        answer = client.post(
            "/v1/completions",
            content=body,
            headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
        )
        assert answer.status_code == 400 and "no UTF-8" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"prompt": "a", "prompt": "b"}', "the key 'prompt' is there more than once"),
        (b'{"prompt": "a", "temperature": NaN}', "NaN is no number"),
        (b'{"prompt": "a", "temperature": 1e999}', "'1e999' is too large"),
        (b'{"prompt": "a", "logit_bias": {"1": 1, "1": 2}}', "the key '1' is there more than once"),
    ],
)
def test_json_is_read_by_the_letter(server: Server, body: bytes, why: str) -> None:
    with server.client() as client:
        answer = client.post(
            "/v1/completions", content=body, headers={"Content-Type": "application/json"}
        )
    assert answer.status_code == 400
    assert why in answer.json()["error"]["message"]
