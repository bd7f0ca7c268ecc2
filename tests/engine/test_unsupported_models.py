"""Architectures that pages cannot serve are refused by name, with the reason, before any weight."""

from __future__ import annotations

import pytest
from transformers import AutoConfig

from engine.model_loader import ModelError
from engine.model_loader.loader import _check_architecture
from tests.engine.tiny_configs import CONFIGS

ENCODER, STATE = "is an encoder-decoder model", "keep a running state"


@pytest.mark.parametrize(
    ("model_type", "architecture", "reason"),
    [
        ("t5", "T5ForConditionalGeneration", ENCODER),
        ("bart", "BartForConditionalGeneration", ENCODER),
        ("whisper", "WhisperForConditionalGeneration", ENCODER),
        ("mamba", "MambaForCausalLM", STATE),
        ("mamba2", "Mamba2ForCausalLM", STATE),
        ("jamba", "JambaForCausalLM", STATE),
        ("bamba", "BambaForCausalLM", STATE),
        ("falcon_h1", "FalconH1ForCausalLM", STATE),
        ("nemotron_h", "NemotronHForCausalLM", STATE),
        ("rwkv", "RwkvForCausalLM", STATE),
        ("qwen3_next", "Qwen3NextForCausalLM", STATE),
        ("lfm2", "Lfm2ForCausalLM", STATE),
        ("minimax", "MiniMaxForCausalLM", "linear_attention"),
        ("deepseek_v3", "DeepseekV3ForCausalLM", "MLA"),
        ("bloom", "BloomForCausalLM", "cannot be replaced by a paged one"),
        ("bert", "BertForMaskedLM", "is not a causal language model"),
    ],
)
def test_it_is_refused_by_name(model_type: str, architecture: str, reason: str) -> None:
    config = AutoConfig.for_model(model_type)
    config.architectures = [architecture]
    with pytest.raises(ModelError, match=f"{architecture} .*{reason}.*Llama, Qwen, Mistral"):
        _check_architecture(config)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_runs_is_not_refused(name: str) -> None:
    _check_architecture(AutoConfig.for_model(CONFIGS[name].get("model_type", name)))
