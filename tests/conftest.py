"""What tests share: models small and real, and a browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

# Workers and their servers fill the cores: second threads would only wait for one another.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import engine  # noqa: F401  (sets OMP_WAIT_POLICY before any test imports torch)
from engine.model_loader import LoadedModel, load_model
from tests.chromium import chromium
from tests.patience import patient

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# A test says what holds, not within which time: the machine may be busy.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

os.environ.pop("MODEL", None)  # the tests name the models they need
os.environ["HF_HUB_OFFLINE"] = "1"  # and ask no Hub


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile numba's kernels once and for all, before servers and workers each do it."""
    if not hasattr(session.config, "workerinput") and find_spec("numba"):
        import torch

        from engine.paged_attention.numba_backend import compile_for

        compile_for(torch.float32)


@pytest.fixture(scope="session", autouse=True)
def usual_attention() -> None:
    """Engines of this process attend with torch, as on a machine that has no numba.

    Tests of the numba backend ask for it, and a server of its own takes it.
    """
    from engine.paged_attention import choice

    choice.PREFERRED["cpu"] = ("torch",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Playwright leaves an event loop running in this thread for as long as its browser lives, and
    # asyncio.run() refuses to start a second one: files with such tests come after all others. (In
    # each worker too, as xdist hands out whole files and leaves them in this order.)
    with_browser = {item.path for item in items if "browser" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path in with_browser)
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items:
        import torch

        if not torch.cuda.is_available():
            for item in gpu_items:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def tiny_model() -> LoadedModel:
    """A random Llama of 4 layers, new for each test: tests may change it."""
    return load_model("tiny-random")


@pytest.fixture(scope="session")
def default_model() -> LoadedModel:
    """SmolLM2-135M-Instruct, one for the session: tests must leave it as it is."""
    return load_model()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium(windowless=True) as browser:
        yield patient(browser)
