"""Who has which engine, for how long, and what happens before there is a model."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine import memory
from engine.async_llm import EngineError
from engine.background_model import Kernels, ModelNotReady
from engine.config import ConfigError, EngineConfig, SamplingParams
from engine.model_loader import LoadedModel
from engine.model_loader.fetch import ModelError, Progress
from engine.moment import Moment, read_moment
from engine.output_processor import RequestLost
from engine.sessions import IDLE_SECONDS, Sessions, TooManySessions, registry
from engine.sleepers import ASLEEP
from engine.trace import Trace, record_to_json
from tests.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(tiny_model: LoadedModel, clock: Clock) -> Iterator[Sessions]:
    sessions = Sessions(lambda report: tiny_model, clock=clock, max_engines=2)
    sessions.wait_for_model()
    yield sessions
    sessions.close()


def test_a_key_leads_to_one_engine_and_no_other_key_does(sessions: Sessions) -> None:
    key, other = sessions.create(), sessions.create()
    assert key != other and len(key) >= 32
    engine = sessions.get(key)
    assert engine is not None and sessions.get(key) is engine
    assert sessions.get(other) is not engine
    assert sessions.get("gb-invented") is None and not sessions.knows("gb-invented")
    assert engine.status.mode == "paused"
    assert engine.config.num_gpu_blocks == 64 and engine.config.max_model_len == 63 * 16


def test_two_sessions_share_the_weights_and_nothing_else(sessions: Sessions) -> None:
    first, second = (sessions.get(sessions.create()) for _ in range(2))
    assert first is not None and second is not None
    assert first.model is second.model and first.thread is second.thread
    before = len(second.trace.records)
    first.run()
    list(first.submit("hello", SamplingParams(max_tokens=2)))
    assert len(second.trace.records) == before
    assert first.core.runner is not second.core.runner
    assert second.trace.state()["requests"] == {}


def test_the_shared_engine_runs_and_can_be_turned_off(
    sessions: Sessions, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = sessions.shared()
    assert shared is not None and shared.status.mode == "running"
    assert sessions.shared() is shared
    monkeypatch.setenv("GLASSBOX_SHARED_ENGINE", "0")
    assert Sessions(lambda report: tiny_model).shared() is None
    monkeypatch.setenv("GLASSBOX_SHARED_ENGINE", "1")
    assert Sessions(lambda report: tiny_model).shared_enabled


def test_a_shared_engine_that_failed_is_begun_again(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = sessions.shared()
    assert shared is not None
    monkeypatch.setattr(shared.core.runner, "execute_model", lambda: 1 / 0)
    with pytest.raises(RequestLost, match="ZeroDivisionError"):
        list(shared.submit("hello"))
    assert sessions.shared() is shared and shared.failed is None
    assert len(list(shared.submit("hello", SamplingParams(max_tokens=2, ignore_eos=True)))) == 2


def test_an_engine_unseen_for_half_an_hour_is_put_to_rest(sessions: Sessions, clock: Clock) -> None:
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.reset(EngineConfig(num_gpu_blocks=10))
    stream = engine.submit("hello")
    clock.now = IDLE_SECONDS - 1
    sessions.sweep()
    assert sessions.get(key) is engine  # which is a visit
    clock.now += IDLE_SECONDS
    sessions.sweep()
    assert sessions.num_engines() == 0 and sessions.knows(key)
    with pytest.raises(RequestLost, match="rest"):
        list(stream)
    with pytest.raises(EngineError, match="rest"):
        engine.step()
    fresh = sessions.get(key)
    assert fresh is not None and fresh is not engine
    assert fresh.config.num_gpu_blocks == 10
    notice = sessions.notice(key)
    assert notice is not None and "30 minutes" in notice and "goes on from where" in notice
    assert fresh.num_unfinished == 1  # its client is gone, its text comes to the page
    fresh.run()
    assert sessions.notice(key) is None
    fresh.reset()
    assert sessions.notice(key) is None


def test_an_engine_wakes_as_it_fell_asleep(sessions: Sessions, clock: Clock) -> None:
    """In the middle of a step, of which the rest is run first."""
    key = sessions.create()
    engine, twin = sessions.get(key), sessions.get(sessions.create())
    assert engine is not None and twin is not None
    for each in (engine, twin):
        each.submit("the same words", SamplingParams(max_tokens=12, ignore_eos=True))
        for _ in range(3):
            each.step()
    engine.step_phase()
    twin.step()
    clock.now = IDLE_SECONDS
    sessions.touch(next(k for k in sessions._sessions if k != key))
    sessions.sweep()
    woken = sessions.get(key)
    assert woken is not None and woken is not engine and engine.closed
    assert woken.status.step == 4 and woken.status.mode == "paused"
    while twin.status.has_work:
        twin.step()
        woken.step()
    assert woken.trace.state()["requests"] == twin.trace.state()["requests"]
    assert sessions.moments.of(f"asleep {key}") is None  # it is of no use any more


@pytest.mark.parametrize("overlaps", [False, True])
def test_an_engine_wakes_with_its_log(sessions: Sessions, clock: Clock, overlaps: bool) -> None:
    """Its past stays where it was: the same trace, numbers and times that go on, and no lie."""
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.reset(EngineConfig(async_scheduling=overlaps))
    engine.submit("the same words", SamplingParams(max_tokens=9, ignore_eos=True))
    engine.run()
    wait_until(lambda: engine.status.step > 3)
    clock.now = IDLE_SECONDS
    sessions.sweep()
    woken = sessions.get(key)
    assert woken is not None and woken is not engine
    old, new = engine.trace, woken.trace
    assert new.header.trace_id == old.header.trace_id == woken.status.trace_id
    head, records = old.snapshot()
    assert [record_to_json(r) for r in new.records[: len(records)]] == [
        record_to_json(r) for r in records
    ]
    assert head.state == new.header.state
    assert "so does its log" in str(sessions.notice(key))
    while woken.status.has_work:
        woken.step()
        assert woken.check_integrity().messages == ()
    assert [r.seq for r in new.records] == list(range(len(new.records)))
    times = [r.t_us for r in new.records]
    assert times == sorted(times)
    assert new.state() == woken.thread.call(woken.core.state)
    assert Trace.parse(list(new.lines())).state() == new.state()


def test_what_lies_on_the_disk_of_an_engine_that_rests_is_its_owners_and_goes_with_it(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.submit("hello")
    engine.step()
    clock.now = IDLE_SECONDS
    sessions.sweep()
    wait_until(lambda: sessions.moments.of(f"asleep {key}") is not None)
    kept = sessions.moments.of(f"asleep {key}")
    assert kept is not None and kept.log is not None
    files = [kept.path, kept.log]
    assert kept.total_bytes == sum(file.stat().st_size for file in files)
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert len(file.name) >= 20 and key not in str(file)
    monkeypatch.setattr("engine.sessions.MAX_SESSIONS", 1)
    sessions.create()  # there is room for one key alone
    assert not sessions.knows(key)
    wait_until(lambda: not any(file.exists() for file in files))


def test_rest_frees_the_pool(sessions: Sessions, clock: Clock) -> None:
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.submit("hello")
    engine.step()
    pool = weakref.ref(engine.core.runner.kv_cache)  # type: ignore[attr-defined]
    del engine
    clock.now = IDLE_SECONDS
    sessions.sweep()
    wait_until(lambda: pool() is None)
    assert sessions.knows(key)


def test_a_log_that_was_reset_away_is_let_go_though_its_engine_had_rested(
    sessions: Sessions, clock: Clock
) -> None:
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.submit("hello")
    engine.step()
    clock.now = IDLE_SECONDS
    sessions.sweep()
    woken = sessions.get(key)
    assert woken is not None and sessions.notice(key) is not None
    past = weakref.ref(woken.trace)
    woken.reset()
    assert sessions.notice(key) is None
    wait_until(lambda: past() is None)


def test_without_room_for_its_log_an_engine_wakes_all_the_same(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.submit("hello", SamplingParams(max_tokens=9, ignore_eos=True))
    engine.step()
    monkeypatch.setattr(Trace, "save", full)
    clock.now = IDLE_SECONDS
    sessions.sweep()
    woken = sessions.get(key)
    assert woken is not None and woken.status.step == 1 and woken.num_unfinished == 1
    assert woken.trace.header.trace_id != engine.trace.header.trace_id
    assert "the log before that is gone" in str(sessions.notice(key))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("odd")])
def test_what_cannot_be_kept_is_said_and_a_fresh_engine_is_made(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*_: object) -> None:
        raise error

    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.submit("hello")
    engine.step()
    monkeypatch.setattr("engine.kept_moments.write_moment", full)
    clock.now = IDLE_SECONDS
    sessions.sweep()
    fresh = sessions.get(key)
    assert fresh is not None and fresh.is_fresh and engine.closed
    assert "A fresh one has been made" in str(sessions.notice(key))


def test_an_engine_that_had_stopped_wakes_with_its_log_and_goes_on_after_a_reset(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.submit("the same words", SamplingParams(max_tokens=12, ignore_eos=True))
    engine.step()
    monkeypatch.setattr(engine.core.runner, "execute_model", lambda: 1 / 0)
    with pytest.raises(EngineError, match="ZeroDivisionError"):
        engine.step()
    before = list(engine.trace.lines())
    for _ in range(2):  # and rests once more
        clock.now += IDLE_SECONDS
        sessions.sweep()
        woken = sessions.get(key)
        assert woken is not None and woken is not engine and engine.closed
        assert list(woken.trace.lines()) == before
        assert "which had stopped" in str(sessions.notice(key))
        assert woken.failed == engine.failed and "ZeroDivisionError" in str(woken.failed)
        assert (woken.status.step, woken.status.next_phase) == (1, "execute")
        engine = woken
    for act in (engine.step, engine.run, engine.check_integrity, engine.take_moment):
        with pytest.raises(EngineError, match="reset"):
            act()
    assert list(engine.trace.lines()) == before
    engine.reset()
    assert engine.failed is None and engine.check_integrity().messages == ()
    assert sessions.notice(key) is None


def test_an_engine_that_stops_on_its_way_to_rest_keeps_its_log(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.submit("the same words")
    engine.step_phase()
    monkeypatch.setattr(engine.core.runner, "execute_model", lambda: 1 / 0)
    clock.now = IDLE_SECONDS
    sessions.sweep()
    woken = sessions.get(key)
    assert woken is not None and "ZeroDivisionError" in str(woken.failed)
    assert woken.trace.header.trace_id == engine.trace.header.trace_id


def test_while_an_engine_wakes_others_are_made_and_asked(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def read_slowly(path: Path) -> Moment:
        reading.set()
        assert go_on.wait(PATIENCE_S)
        return read_moment(path)

    monkeypatch.setattr("engine.sleepers.read_moment", read_slowly)
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.submit("hello")
    engine.step()
    clock.now = IDLE_SECONDS
    sessions.sweep()
    with ThreadPoolExecutor(2) as pool:
        waking = [pool.submit(sessions.get, key) for _ in range(2)]
        assert reading.wait(PATIENCE_S)
        try:
            assert sessions.at_hand(key) is None
            other = sessions.create()
            made, shared = sessions.get(other), sessions.shared()
            assert made is not None and sessions.at_hand(other) is made
            assert made.step().step == 1
            assert shared is not None and shared.status.mode == "running"
            with pytest.raises(TooManySessions):  # who wakes has a place of the two already
                sessions.get(sessions.create())
            assert not any(each.done() for each in waking)
        finally:
            go_on.set()
        first, second = (each.result() for each in waking)
    assert first is not None and first is second and first.status.step == 1


def test_what_is_left_of_a_forgotten_session_goes_though_it_is_not_written_yet(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.sessions.MAX_SESSIONS", 1)
    writes, go_on = sessions._sleepers._thread, threading.Event()
    key = sessions.create()
    engine = sessions.get(key)
    assert engine is not None
    engine.submit("hello")
    writes.post(lambda: go_on.wait(PATIENCE_S))
    clock.now = IDLE_SECONDS
    sessions.sweep()
    other = sessions.create()
    assert [sessions.knows(each) for each in (key, other)] == [False, True]
    go_on.set()
    writes.call_in_turn(lambda: None)  # what was asked of it before is done
    assert sessions.moments.of(f"{ASLEEP}{key}") is None


def test_a_key_is_known_while_its_session_is_touched(tiny_model: LoadedModel) -> None:
    key, known = "", list[bool]()

    def look() -> float:
        """As another thread may, at any time."""
        known.append(sessions.knows(key))
        return 0.0

    sessions = Sessions(lambda report: tiny_model, clock=look)
    key = sessions.create()
    known.clear()
    sessions.touch(key)
    assert known == [True]


def test_who_is_forgotten_before_their_engine_is_made_gets_none(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.sessions.MAX_SESSIONS", 1)
    key = sessions.create()
    clock.now = 1.0
    session = sessions._sessions[key]
    with ThreadPoolExecutor(1) as pool:
        with session.making:
            asked = pool.submit(sessions.get, key)
            wait_until(lambda: session.last_seen == clock.now)
            sessions.create()
        assert asked.result(PATIENCE_S) is None
    assert sessions.num_engines() == 0 and session.engine is None


def test_a_touch_is_a_visit(sessions: Sessions, clock: Clock) -> None:
    key = sessions.create()
    engine = sessions.get(key)
    clock.now = IDLE_SECONDS - 1
    sessions.touch(key)
    sessions.touch("gb-invented")
    clock.now += 2
    sessions.sweep()
    assert sessions.get(key) is engine and sessions.notice(key) is None


def test_where_all_engines_are_in_use_the_longest_unseen_one_makes_room(
    sessions: Sessions, clock: Clock
) -> None:
    keys = [sessions.create() for _ in range(3)]
    first = sessions.get(keys[0])
    clock.now = 30.0
    second = sessions.get(keys[1])
    with pytest.raises(TooManySessions, match="all 2 engines"):
        sessions.get(keys[2])
    clock.now = 75.0
    assert sessions.get(keys[2]) is not None
    assert first is not None
    wait_until(lambda: first.closed)
    assert sessions.get(keys[1]) is second


def test_who_makes_sessions_by_the_thousand_takes_nobodys(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.sessions.MAX_SESSIONS", 4)
    teachers = ["here"]
    directs = sessions.create(lambda: bool(teachers))
    used, resting = sessions.create(), sessions.create()
    engine = sessions.get(resting)
    assert engine is not None
    engine.submit("hello")
    engine.step()
    clock.now = IDLE_SECONDS
    sessions.touch(used)
    sessions.sweep()
    mine = sessions.get(used)
    for _ in range(100):
        sessions.create()
    assert sessions.existing(used) is mine and sessions.knows(resting)
    woken = sessions.get(resting)
    assert woken is not None and woken.status.step == 1
    third = sessions.create()
    monkeypatch.setattr(sessions, "max_engines", 3)
    sessions.get(third)
    with pytest.raises(TooManySessions, match="GLASSBOX_MAX_SESSIONS"):
        sessions.create()
    assert sessions.existing(used) is mine and sessions.existing(resting) is woken
    assert sessions.directs(directs)
    teachers.clear()
    assert sessions.knows(sessions.create())


def test_a_pool_that_takes_the_memory_is_refused(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_bytes", lambda device: 4 * 100 * 16 * 1024)
    engine = sessions.get(sessions.create())
    assert engine is not None
    engine.reset(EngineConfig(num_gpu_blocks=100))
    with pytest.raises(ConfigError, match="set it to 100 or less") as caught:
        engine.reset(EngineConfig(num_gpu_blocks=101))
    assert caught.value.field == "num_gpu_blocks"
    assert engine.config.num_gpu_blocks == 100


def test_before_the_model_is_there_its_progress_is(tiny_model: LoadedModel) -> None:
    reported, go_on = threading.Event(), threading.Event()

    def load(report: Callable[[Progress], None]) -> LoadedModel:
        report(Progress("convert", 34, 272, "tensors"))
        reported.set()
        go_on.wait(PATIENCE_S)
        return tiny_model

    sessions = Sessions(load)
    assert sessions.model_status().stage == "idle"
    sessions.start()
    sessions.start()
    reported.wait(PATIENCE_S)
    assert sessions.model_status()[:4] == ("convert", 34, 272, "tensors")
    with pytest.raises(ModelNotReady, match="34/272"):
        sessions.get(sessions.create())
    go_on.set()
    assert sessions.wait_for_model(PATIENCE_S) is tiny_model
    assert sessions.model_status().stage == "ready"
    sessions.close()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModelError("no model at ./nowhere"), "no model at ./nowhere"),
        (ZeroDivisionError("inside"), "cannot be loaded"),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why(error: Exception, message: str) -> None:
    def load(report: Callable[[Progress], None]) -> LoadedModel:
        raise error

    sessions = Sessions(load)
    with pytest.raises(ModelNotReady, match=message):
        sessions.wait_for_model(PATIENCE_S)
    assert sessions.model_status().stage == "failed"
    assert "inside" not in sessions.model_status().message
    sessions.close()


def test_there_is_one_registry() -> None:
    assert registry() is registry()
    assert registry().get("gb-invented") is None
    assert registry().model_status().stage == "idle"


def test_numba_is_there_whole_before_two_threads_want_it() -> None:
    """Two that import it at once get halves of it: seen where the second thread would begin."""
    code = (
        "import sys\n"
        "from engine import background_model\n"
        "def start(self):\n"
        "    numba = sys.modules.get('numba')\n"
        "    whole = numba is not None and not numba.__spec__._initializing\n"
        "    print(whole and hasattr(numba, 'njit'))\n"
        "    sys.exit()\n"
        "background_model.Kernels.start = start\n"
        "background_model.load_default(lambda progress: None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_kernels_are_compiled_beside_the_load_and_told(caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def prepare(report: Callable[[Progress], None]) -> None:
        report(Progress("compile", 1, 2, "kernels"))
        begun.set()
        go_on.wait(PATIENCE_S)
        raise ZeroDivisionError("no compiler")

    told: list[str] = []

    def tell(progress: Progress) -> None:
        told.append(str(progress))
        go_on.set()

    kernels = Kernels(prepare)
    kernels.start()
    begun.wait(PATIENCE_S)  # here the model is loaded
    kernels.wait(tell)  # what fails holds up nobody
    assert told[0] == "compiling for attention (once on a machine) 1/2 kernels"
    assert "no compiler" in caplog.text
