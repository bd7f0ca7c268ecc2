"""Who compares what now: one comparison a session, each on a thread of its own that only waits.

Both sides may run several times, each on fresh engines, in the order A B B A A B: so what changes
on the machine meanwhile falls on both alike.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from engine.async_llm import EngineError, MakeRunner
from engine.comparison.result import Result, RunResult
from engine.comparison.run import Cancelled, Progress, Run, RunError, check_requests
from engine.comparison.workload import Workload
from engine.config import ConfigError, EngineConfig
from engine.doing import Doing, Hear
from engine.engine_thread import EngineThread, EngineThreadStopped
from engine.limits import limit, named
from engine.memory import check_pool

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel

MAX_AT_ONCE = limit("MAX_COMPARISONS", 4)  # that run on this server
MAX_KEPT = 32  # sessions whose last one is remembered
MAX_REPETITIONS = 9  # of each side

T = TypeVar("T")
Stage = Literal["running", "done", "failed", "cancelled"]

log = logging.getLogger("glassbox")


class ComparisonBusy(EngineError):
    """No comparison can begin now."""


class Setting(NamedTuple):
    """The one setting that differs, with its two values."""

    knob: str
    a: Any
    b: Any

    def configs(self, base: EngineConfig) -> tuple[EngineConfig, EngineConfig]:
        """Both engines' settings; ConfigError says which value cannot be, and why."""
        if self.knob not in EngineConfig.model_fields:
            raise ConfigError(f"knob: there is no setting {self.knob!r:.60}", field="knob")
        if self.knob == "async_scheduling":
            raise ConfigError(
                "knob: async_scheduling cannot be compared here. What it gains is that two steps "
                "run at once, and the runs of a comparison go one step a turn, so that nobody "
                "waits longer for them; its times would be those of an engine whose steps do not "
                "overlap. Measure it with `make bench ARGS=async_scheduling`; to see what it "
                "decides otherwise, send the same requests to an engine with it and to one "
                "without, save both logs, and open them in two tabs",
                field="knob",
            )
        plain = {**base.model_dump(), "async_scheduling": False}

        def config(value: Any) -> EngineConfig:
            parse = partial(EngineConfig.parse, {**plain, self.knob: value})
            return saying(f"{self.knob} {value}", parse)

        return config(self.a), config(self.b)


def saying(whose: str, act: Callable[[], T]) -> T:
    """What `act` gives; its ConfigError names the value that it is about."""
    try:
        return act()
    except ConfigError as error:
        raise ConfigError(f"with {whose:.80}: {error}", field=error.field) from None


def order(repetitions: int) -> tuple[int, ...]:
    """Which side runs when: A B, then B A, and so on, so that neither is always the first."""
    return tuple(
        side for number in range(repetitions) for side in ((0, 1) if number % 2 == 0 else (1, 0))
    )


class Comparison:
    """The runs of two sides, one after the other."""

    def __init__(
        self,
        workload: Workload,
        setting: Setting,
        configs: tuple[EngineConfig, EngineConfig],
        make_run: Callable[[EngineConfig, Hear], Run],
        labels: tuple[str, str] | None = None,
        repetitions: int = 1,
    ):
        if not 1 <= repetitions <= MAX_REPETITIONS:
            raise ConfigError(
                f"repetitions: must be from 1 to {MAX_REPETITIONS}, not {repetitions}",
                field="repetitions",
            )
        self.workload = workload
        self.setting = setting
        self.configs = configs
        self.labels = labels or (f"{setting.knob} {setting.a}", f"{setting.knob} {setting.b}")
        self.stage: Stage = "running"
        self.order = order(repetitions)
        self.run = 1  # of `order`
        self.again = False  # it goes once more, since the first go captured graphs
        self.progress = self._fresh = Progress(0, 0, len(workload.requests), 0.0)
        self._steps: dict[int, int] = {}  # that a side takes, once it has run
        self.doing: Doing | None = None  # what takes longer than a step, at the moment
        self.problem = ""  # why it failed
        self.result: Result | None = None
        self._make_run = make_run
        self._cancelled = threading.Event()
        self._over = threading.Event()

    def start(self) -> None:
        """Begin, in the background."""
        threading.Thread(target=self._work, name="comparison", daemon=True).start()

    def cancel(self) -> None:
        """Have it end with the step that it is in."""
        self._cancelled.set()

    def wait(self, timeout: float | None = None) -> Stage:
        """What it came to, once it is over."""
        self._over.wait(timeout)
        return self.stage

    def _work(self) -> None:
        try:
            sides: tuple[list[RunResult], list[RunResult]] = ([], [])
            for number, side in enumerate(self.order, 1):
                sides[side].append(self._run(number, self.configs[side]))
            self.result, self.stage = Result.of(*sides), "done"
        except Cancelled:
            self.stage = "cancelled"
        except EngineThreadStopped as error:
            self.problem, self.stage = str(error), "failed"
        except (ConfigError, RunError) as error:
            whose = self.labels[self.side][:80]
            self.problem, self.stage = f"Run {self.run}, with {whose}: {error}", "failed"
        except Exception:
            log.exception("a comparison failed")
            self.problem = "Something went wrong inside the server; its log says what"
            self.stage = "failed"
        finally:
            self._over.set()

    @property
    def side(self) -> int:
        """Whose run it is: 0 is A, 1 is B."""
        return self.order[self.run - 1]

    @property
    def steps(self) -> int | None:
        """How many the run at hand will take; None until one of its side has shown it."""
        return self._steps.get(self.side)

    @property
    def share(self) -> float:
        """How much of all runs is done, each taken for as long as any other."""
        steps, progress = self.steps, self.progress
        of_run = progress.share if steps is None else progress.step / steps
        return (self.run - 1 + min(1.0, of_run)) / len(self.order)

    def _run(self, number: int, config: EngineConfig) -> RunResult:
        """A run whose times have no capture of a graph in them: it goes again where they would."""
        self.run, self.again = number, False
        while True:
            self.progress = self._fresh  # that of the run before is over
            run = self._make_run(config, self._hear)
            try:
                run.execute(self._tell, self._cancelled.is_set)
                self._steps[self.side] = run.progress.step
                if self.again or not run.captured_graphs:
                    return RunResult.of(run, rehearsed=self.again)
            finally:
                run.close()
            self.again = True

    def _tell(self, progress: Progress) -> None:
        self.progress = progress

    def _hear(self, doing: Doing | None) -> None:
        self.doing = doing

    def describe(self) -> dict[str, Any]:
        """How it stands."""
        return {
            "stage": self.stage,
            "run": self.run,
            "runs": len(self.order),
            "again": self.again,
            "doing": None if self.doing is None else str(self.doing),
            **self.progress._asdict(),
            "steps": self.steps,
            "share": self.share,
            "knob": self.setting.knob,
            "values": [self.setting.a, self.setting.b],
            "workload": {
                "name": self.workload.name,
                "requests": len(self.workload.requests),
                "tokens": self.workload.num_tokens,
            },
            "problem": self.problem or None,
            "result": self.result and self.result.as_json(),
        }


class Comparisons:
    """The latest comparison of each session."""

    def __init__(
        self,
        get_model: Callable[[], LoadedModel],
        thread: EngineThread,
        pool_share: int = 1,
        make_runner: MakeRunner | None = None,
    ):
        self._get_model = get_model
        self._thread = thread
        self._pool_share = pool_share
        self._make_runner = make_runner
        self._lock = threading.Lock()
        self._latest: dict[str, Comparison] = {}  # longest ago first

    def start(
        self,
        key: str,
        workload: Workload,
        base: EngineConfig,
        setting: Setting,
        document: str = "",
        labels: tuple[str, str] | None = None,
        repetitions: int = 1,
    ) -> Comparison:
        """Begin a comparison in the place of the session's last one; `labels` name its sides.

        All that can be wrong is looked at before the first run. Raises ModelNotReady, ConfigError,
        WorkloadError, ComparisonBusy.
        """
        model = self._get_model()
        configs = setting.configs(base)
        workload.check_model(model.name, model.vocab_size)
        for config, value in zip(configs, (setting.a, setting.b), strict=True):
            saying(f"{setting.knob} {value}", partial(self._check, model, config, workload))

        def make_run(config: EngineConfig, hear: Hear) -> Run:
            return Run(
                model,
                config,
                workload,
                self._thread,
                pool_share=self._pool_share,
                document=document,
                make_runner=self._make_runner,
                hear=hear,
            )

        comparison = Comparison(workload, setting, configs, make_run, labels, repetitions)
        with self._lock:
            self._make_room(key)
            self._latest[key] = comparison
        comparison.start()
        return comparison

    def _check(self, model: LoadedModel, config: EngineConfig, workload: Workload) -> None:
        """Raise ConfigError where no engine can be so, or serve the workload.

        What depends on the memory that is measured shows when the run begins.
        """
        from engine.kv_cache import KVCacheSpec
        from engine.model_loader.dtypes import kv_cache_dtype

        if config.num_gpu_blocks:
            resolved = config.resolve(model.max_model_len)
            spec = KVCacheSpec.of(model, config.block_size, kv_cache_dtype(model, config))
            check_pool(spec, config.num_gpu_blocks, model.model.device, self._pool_share)
            check_requests(workload, model, resolved)

    def _make_room(self, key: str) -> None:
        before = self._latest.get(key)
        if before is not None and before.stage == "running":
            raise ComparisonBusy(
                "a comparison of this session is running; wait for it, or cancel it first"
            )
        running = sum(each.stage == "running" for each in self._latest.values())
        if running >= MAX_AT_ONCE:
            raise ComparisonBusy(
                f"{running} comparisons are running on this server, which is as many as may; try "
                f"again in a moment {named('MAX_COMPARISONS')}"
            )
        self._latest.pop(key, None)
        over = [old for old, each in self._latest.items() if each.stage != "running"]
        for old in over[: max(0, len(self._latest) + 1 - MAX_KEPT)]:
            del self._latest[old]

    def get(self, key: str) -> Comparison | None:
        """The session's latest comparison."""
        return self._latest.get(key)

    def forget(self, key: str) -> None:
        """End the session's comparison, and let go of what it found."""
        with self._lock:
            comparison = self._latest.pop(key, None)
        if comparison is not None:
            comparison.cancel()

    def close(self) -> None:
        """End all of them."""
        for comparison in tuple(self._latest.values()):
            comparison.cancel()
