"""Moments over HTTP: saved, restored, come back to, and refused."""

from __future__ import annotations

import httpx
import pytest
from starlette.requests import ClientDisconnect

from engine.api import guard
from engine.api.errors import to_api_error
from engine.config import EngineConfig, SamplingParams
from engine.events import MomentRestored
from engine.own_folder import LOCK
from engine.records import Event
from engine.sessions import Sessions
from tests.api.live_server import Server
from tests.engine.conftest import make  # noqa: F401
from tests.engine.test_moment import moment  # noqa: F401

LONG = SamplingParams(max_tokens=20, ignore_eos=True)


def post(client: httpx.Client, name: str, content: bytes | None = None) -> httpx.Response:
    return client.post(f"/api/engine/{name}", content=content)


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"]["message"])


def test_a_moment_is_saved_restored_elsewhere_and_come_back_to(server: Server) -> None:
    key, engine = server.session()
    engine.submit("once upon a time", LONG)
    for _ in range(4):
        engine.step()
    with server.client(key) as client:
        assert client.get("/api/session").json()["moment"] is None
        answer = client.get("/api/engine/moment")
        assert answer.status_code == 200
        name = f"glassbox-{engine.trace.header.trace_id}-step-4.moment.safetensors"
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert int(answer.headers["content-length"]) == len(answer.content)
        kept = client.get("/api/session").json()["moment"]
        assert kept == {"file_name": name, "step": 4, "num_bytes": len(answer.content)}
        text = engine.trace.state()["requests"]["r0"]["output_pieces"]
        engine.reset(EngineConfig(num_gpu_blocks=16))
        back = post(client, "restore_kept")
        assert back.json()["step"] == 4 and back.json()["moment"] == kept
        assert engine.trace.state()["requests"]["r0"]["output_pieces"] == text
        assert engine.config.num_gpu_blocks == 64

    other_key, other = server.session()
    with server.client(other_key) as client:
        there = post(client, "restore", answer.content).json()
        assert there["ok"] and there["mode"] == "paused" and there["has_work"]
        restored = [r.facts for r in other.trace.records if isinstance(r, Event)][1]
        assert isinstance(restored, MomentRestored) and restored.num_requests == 1
        other.step()
        engine.step()
        assert other.trace.state()["requests"] == engine.trace.state()["requests"]
        assert post(client, "restore_kept").json()["step"] == 4  # what was restored is kept too


def test_between_two_steps_alone_and_a_step_can_be_finished(server: Server) -> None:
    key, engine = server.session()
    engine.submit("hello", LONG)
    engine.step_phase()
    with server.client(key) as client:
        answer = client.get("/api/engine/moment")
        assert "finish the step first" in refused(answer, 409)
        assert answer.json()["error"]["code"] == "mid_step"
        assert post(client, "finish").json()["next_phase"] == "arrive"
        assert client.get("/api/engine/moment").status_code == 200


def test_nothing_is_kept_yet(server: Server) -> None:
    key, _ = server.session()
    with server.client(key) as client:
        assert "save one" in refused(post(client, "restore_kept"), 409)


def test_what_is_no_moment_changes_nothing(server: Server) -> None:
    key, engine = server.session()
    engine.submit("hello", LONG)
    trace = engine.trace
    with server.client(key) as client:
        assert "empty" in refused(post(client, "restore"), 400)
        assert "no moment" in refused(post(client, "restore", b"{}" * 99), 400)
        assert client.get("/api/session").json()["moment"] is None
    assert engine.trace is trace and engine.num_unfinished == 1
    folder = server.sessions.moments._folder
    assert folder is not None


def test_who_leaves_in_the_middle_of_a_file_is_no_fault_of_the_server_s(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert to_api_error(ClientDisconnect()).status == 400
    assert not caplog.records


def test_the_files_limit_is_its_own(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = server.session()
    with server.client(key) as client:
        large = bytes(guard.ANY_BODY.num_bytes + 1)
        assert "no moment" in refused(post(client, "restore", large), 400)
        small = guard.BodySize(1 << 20, "MAX_MOMENT_MB")
        monkeypatch.setitem(guard.BODIES, "/api/engine/restore", small)
        assert "1 MB" in refused(post(client, "restore", large), 413)
        assert "1 MB" in refused(client.post("/api/engine/restore", content=iter([large])), 413)


def test_the_shared_engine_is_nobodys(server: Server) -> None:
    with server.client() as client:
        for answer in (client.get("/api/engine/moment"), post(client, "restore", b"x")):
            assert "belongs to nobody" in refused(answer, 403)
    with server.client("gb-invented") as client:
        assert post(client, "restore", b"x").status_code == 401


def test_a_full_disk_is_said_and_the_engine_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    key, engine = server.session()
    engine.submit("hello", LONG)
    engine.step()
    with server.client(key) as client:
        monkeypatch.setattr("safetensors.torch.save_file", full)
        answer = client.get("/api/engine/moment")
        assert "No space left on device" in refused(answer, 507) and "TMPDIR" in answer.text
        monkeypatch.undo()
        engine.step()
        assert client.get("/api/engine/moment").status_code == 200


def test_kept_moments_have_a_limit(
    moment: object,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions = Sessions(lambda report: None)  # type: ignore[arg-type,return-value]
    kept = sessions.moments
    first = kept.write("a", moment)  # type: ignore[arg-type]
    monkeypatch.setattr("engine.kept_moments.most_kept_bytes", lambda: 2 * first.num_bytes)
    second = kept.write("b", moment)  # type: ignore[arg-type]
    assert kept.of("a") is not None and first.path.exists()
    kept.write("c", moment)  # type: ignore[arg-type]
    assert kept.of("a") is None and not first.path.exists()
    assert kept.of("b") and kept.of("c")
    folder = first.path.parent
    again = kept.write("c", moment)  # type: ignore[arg-type]
    assert kept.of("b") and set(folder.iterdir()) - {folder / LOCK} == {second.path, again.path}
    sessions.close()
    assert not folder.exists()
