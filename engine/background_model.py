"""The process's model, loaded beside the server: how far it is, and the model once it is there.

No box of the map. vLLM 0.26.0 loads its model before it serves
(`vllm/model_executor/model_loader/`); here the page is there first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from engine.async_llm import EngineError
from engine.garbage import keep_what_is_here
from engine.model_loader.fetch import ModelError, Progress

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel

LoadModel = Callable[[Callable[[Progress], None]], "LoadedModel"]

log = logging.getLogger("glassbox")


class ModelStatus(NamedTuple):
    """How far the model is. `stage` is `idle`, a stage of `Progress`, `ready` or `failed`."""

    stage: str
    done: int
    total: int
    unit: str
    message: str  # what a person should read


class ModelNotReady(EngineError):
    """No engine can be made yet, or ever; the message says how far the model is."""

    def __init__(self, status: ModelStatus):
        super().__init__(status.message)
        self.status = status


class BackgroundModel:
    """A model that a thread of its own loads."""

    def __init__(self, load: LoadModel | None = None):
        self.status = ModelStatus("idle", 0, 0, "", "the model is not loaded yet")
        self._load = load or load_default
        self._model: LoadedModel | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def start(self) -> bool:
        """Begin to load; whether this call did."""
        with self._lock:
            if self._thread is not None:
                return False
            self._thread = threading.Thread(target=self._run, name="model-loader", daemon=True)
            self._thread.start()
            return True

    def wait(self, timeout: float | None = None) -> LoadedModel:
        """The model, once it is loaded; raises ModelNotReady if it cannot be, or not in time."""
        self._over.wait(timeout)
        return self.get()

    def get(self) -> LoadedModel:
        """The model; raises ModelNotReady where it is not loaded."""
        if self._model is None:
            raise ModelNotReady(self.status)
        return self._model

    def _run(self) -> None:
        try:
            model = self._load(self._report)
        except ModelError as error:
            log.error("the model cannot be loaded: %s", error)
            self.status = ModelStatus("failed", 0, 0, "", str(error))
        except Exception as error:
            log.exception("the model cannot be loaded")
            what = (
                f"the model cannot be loaded ({type(error).__name__}); the server's log says more"
            )
            self.status = ModelStatus("failed", 0, 0, "", what)
        else:
            keep_what_is_here()
            self._model = model
            self.status = ModelStatus("ready", 1, 1, "", f"{model.name} is loaded")
        finally:
            self._over.set()

    def _report(self, progress: Progress) -> None:
        if progress.stage != "ready":  # ready is when engines can be made of it
            self.status = ModelStatus(*progress, f"the model is not ready yet: {progress}")


def load_default(report: Callable[[Progress], None]) -> LoadedModel:
    """The model that $MODEL names; the import of torch takes seconds and happens only here."""
    report(Progress("load", 0, 0, ""))
    from engine.layers.numba_threads import has_threads
    from engine.model_loader import load_model
    from engine.paged_attention import prepare_default

    has_threads()  # imports numba whole: two threads that do at once get halves of it
    kernels = Kernels(prepare_default)
    kernels.start()
    model = load_model(progress=report)
    kernels.wait(report)
    return model


class Kernels(threading.Thread):
    """Compiles what attention needs, beside the model's load."""

    def __init__(self, prepare: Callable[[Callable[[Progress], None]], None]):
        super().__init__(name="kernels", daemon=True)
        self._prepare = prepare
        self._progress = Progress("compile", 0, 0, "")

    def run(self) -> None:
        """On its own thread. Where it fails, an engine finds out by itself, and says so."""
        try:
            self._prepare(self._note)
        except Exception:
            log.exception("attention's kernels cannot be compiled")

    def wait(self, report: Callable[[Progress], None]) -> None:
        """Until it is over; tell how far it is."""
        while self.is_alive():
            report(self._progress)
            self.join(0.2)

    def _note(self, progress: Progress) -> None:
        self._progress = progress
