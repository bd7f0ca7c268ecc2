"""Writes a tiny model as a GGUF file, and as the package that the default model travels in."""

from __future__ import annotations

import zipfile
from pathlib import Path

import gguf
import numpy as np
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from engine.model_loader import fetch
from engine.model_loader.gguf import _LAYER_NAMES, _OUTER_NAMES

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_GGUF_NAMES = {hf: name for name, hf in _OUTER_NAMES.items()}
_GGUF_PARTS = {hf: name for name, hf in _LAYER_NAMES.items()}


def write_gguf(
    path: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> None:
    """As llama.cpp's converter does, the interleaved rows of q and k included."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    _add_tokenizer(writer, tokenizer)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        part = name.split(".")[-2]
        array = _interleave(weight, heads[part]) if part in heads else weight.numpy()
        if array.ndim == 2:
            data = gguf.quants.quantize(array, quantization)
            writer.add_tensor(_gguf_name(name), data, raw_dtype=quantization)
        else:
            writer.add_tensor(_gguf_name(name), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(path: Path, gguf_file: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(gguf_file, fetch._GGUF_IN_WHEEL)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = set(tokenizer.all_special_ids)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if index in special else 1 for index in range(len(tokens))])
    writer.add_token_scores([0.0] * len(tokens))  # from which a reader derives that none merge
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_unk_token_id(tokenizer.unk_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _gguf_name(name: str) -> str:
    if name in _GGUF_NAMES:
        return _GGUF_NAMES[name]
    _, _, layer, *part, _ = name.split(".")
    return f"blk.{layer}.{_GGUF_PARTS['.'.join(part)]}.weight"


def _interleave(weight: Tensor, heads: int) -> np.ndarray:
    """LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py."""
    array = weight.numpy()
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))
