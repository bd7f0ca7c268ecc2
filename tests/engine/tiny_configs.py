"""Tiny random models of many architectures, and plain Transformers as what they must equal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.model_loader import LoadedModel
from engine.model_loader.loader import _describe
from engine.model_loader.tiny import byte_tokenizer

VOCAB = 259
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,  # far more than usual: attention must matter for the logits
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GEMMA = {"head_dim": 16, "sliding_window": 12, "query_pre_attn_scalar": 16}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-mha": {"model_type": "llama", "num_key_value_heads": 4},
    "llama-mqa": {"model_type": "llama", "num_key_value_heads": 1},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
    "mistral": {"sliding_window": 12},
    "gemma": {"head_dim": 16},
    "gemma2": _GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0},
    "gemma3_text": _GEMMA,
    "phi3": {},
    "olmo2": {},
    "smollm3": {"no_rope_layer_interval": 2},  # every other layer without positions
    "granite": {"attention_multiplier": 0.5, "logits_scaling": 2.0},
    "gpt_oss": {
        "head_dim": 16,
        "sliding_window": 12,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "gpt_neox": {"num_key_value_heads": None},
    "gpt2": {
        "hidden_size": None,
        "num_key_value_heads": None,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 512,
    },
    "opt": {"num_key_value_heads": None, "ffn_dim": 64, "word_embed_proj_dim": 32},
}


@cache
def tiny(name: str) -> LoadedModel:
    """A model of this architecture, one for all tests: they leave it as it is."""
    values = _COMMON | {"model_type": name} | CONFIGS[name]
    if name == "gpt2":  # it has names of its own
        for key in ("num_hidden_layers", "num_attention_heads", "max_position_embeddings"):
            del values[key]
    values = {key: value for key, value in values.items() if value is not None}
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        # Eager attention is the reference: the only one that knows of soft caps and of sinks.
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        for parameter in model.parameters():
            if parameter.dim() == 1:  # biases, sinks and norms begin as constants: disturb them
                parameter.data.add_(torch.randn_like(parameter) * 0.1)
    return _describe(name, model.float(), byte_tokenizer())


def plain_logits(model: LoadedModel, token_ids: Sequence[int]) -> torch.Tensor:
    """Logits of every position, from the model as Transformers runs it."""
    with torch.inference_mode():
        output: Any = model.model(input_ids=torch.tensor([list(token_ids)]), use_cache=False)
    logits: torch.Tensor = output.logits[0]
    return logits


def plain_greedy(model: LoadedModel, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """The naive loop: the whole forward anew for every token."""
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(int(plain_logits(model, tokens)[-1].argmax()))
    return tokens[len(prompt) :]
