"""What tests share: models small and real, and a browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import engine  # noqa: F401  (sets OMP_WAIT_POLICY before any test imports torch)
from engine.model_loader import LoadedModel, load_model
from scripts.setup import find_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ.pop("MODEL", None)  # the tests name the models they need
os.environ["HF_HUB_OFFLINE"] = "1"  # and ask no Hub

BROWSER_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Playwright leaves an event loop running in this thread for as long as its browser lives, and
    # asyncio.run() refuses to start a second one: tests with a browser come after all others.
    items.sort(key=lambda item: "browser" in getattr(item, "fixturenames", ()))
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
def chromium_path() -> str | None:
    """An installed Chromium or Chrome, or None where Playwright's own is to be used."""
    return find_browser()


@pytest.fixture(scope="session")
def browser(chromium_path: str | None) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox refuses to run as root, as which containers and CI machines run.
    as_root = sys.platform == "linux" and os.geteuid() == 0
    flags = [*BROWSER_FLAGS, *(["--no-sandbox"] if as_root else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=flags)
        yield browser
        browser.close()
