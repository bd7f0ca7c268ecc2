"""Weights and tokenizer: a model's name in, a model on its device out.

A name is the default model, `tiny-random`, a local folder in the Hub's format, a GGUF file, or a
Hub id. `python -m engine.model_loader [NAME]` makes a model ready and says so in one line.
No box of the map. vLLM 0.26.0: `vllm/model_executor/model_loader/`.
"""

from engine.model_loader.fetch import (
    DEFAULT_MODEL,
    ModelError,
    Progress,
    default_model_ready,
    fetch_default_model,
)
from engine.model_loader.loader import LoadedModel, load_model
from engine.model_loader.tiny import TINY_MODEL

__all__ = [
    "DEFAULT_MODEL",
    "TINY_MODEL",
    "LoadedModel",
    "ModelError",
    "Progress",
    "default_model_ready",
    "fetch_default_model",
    "load_model",
]
