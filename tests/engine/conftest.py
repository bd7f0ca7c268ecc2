"""Engines with their front end, for whatever test asks for some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig
from engine.engine_thread import EngineThread
from engine.model_loader import LoadedModel


@pytest.fixture
def make(tiny_model: LoadedModel) -> Iterator[Callable[..., AsyncLLM]]:
    """Engines on one thread, as in a server."""
    thread = EngineThread()

    def make_engine(running: bool = False, **config: Any) -> AsyncLLM:
        return AsyncLLM(tiny_model, EngineConfig(**config), thread, running=running)

    yield make_engine
    thread.stop()
