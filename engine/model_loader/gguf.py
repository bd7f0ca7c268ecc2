"""Reads a Llama-type GGUF file into a Transformers configuration, state dict and tokenizer.

`from_pretrained(gguf_file=...)` does the same for every architecture, but takes five times as long
(it parses the file twice and rebuilds its name map for every tensor), reports no progress, and
splits the digits of SmolLM's tokenizer wrongly. No box of the map. vLLM 0.26.0:
`vllm/model_executor/model_loader/gguf_loader.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # torch and transformers take seconds to import: only when a file is read
    from gguf import GGUFReader
    from torch import Tensor
    from transformers import LlamaConfig, PreTrainedTokenizerBase

_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class LlamaCheckpoint(NamedTuple):
    """A GGUF file in Transformers' terms; the weights are fp32 and own their memory."""

    config: LlamaConfig
    state_dict: dict[str, Tensor]
    tokenizer: PreTrainedTokenizerBase


def is_plain_llama(path: Path) -> bool:
    """Whether `read_llama_gguf` covers the file: dense Llama, without scaled rotary frequencies."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    return (
        _field(reader, "general.architecture", "") == "llama"
        and not any("rope.scaling" in name or "expert_count" in name for name in reader.fields)
        and all(hf_name(tensor.name) is not None for tensor in reader.tensors)
    )


def read_llama_gguf(path: Path, progress: Callable[[int, int], None]) -> LlamaCheckpoint:
    """Dequantises a file for which `is_plain_llama` holds; reports `progress(done, total)` tensors.

    Raises ValueError or KeyError where the file is damaged.
    """
    import torch
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(path)
    config = _config(reader)
    total = len(reader.tensors)
    state_dict: dict[str, Tensor] = {}
    for done, tensor in enumerate(reader.tensors):
        progress(done, total)
        name = hf_name(tensor.name)
        if name is None:
            raise ValueError(f"unexpected tensor {tensor.name}")
        weight = torch.tensor(dequantize(tensor.data, tensor.tensor_type), dtype=torch.float32)
        if ".attn_q." in tensor.name:
            weight = _undo_rope_permutation(weight, config.num_attention_heads)
        elif ".attn_k." in tensor.name:
            weight = _undo_rope_permutation(weight, config.num_key_value_heads or 1)
        state_dict[name] = weight
    progress(total, total)
    return LlamaCheckpoint(config, state_dict, gguf_tokenizer(path))


def hf_name(gguf_name: str) -> str | None:
    """The Transformers name of a Llama tensor, None for one that Llama does not have."""
    if gguf_name in _OUTER_NAMES:
        return _OUTER_NAMES[gguf_name]
    match gguf_name.split("."):
        case ["blk", layer, part, "weight"] if part in _LAYER_NAMES:
            return f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"
    return None


def gguf_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer that a GGUF file's metadata describes, special tokens and chat template set."""
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    reader = GGUFReader(path)
    if _field(reader, "tokenizer.ggml.pre", "") == "smollm":
        # SmolLM's merges were learned with every digit on its own. Transformers does not know this
        # pre-tokenizer; without it the blanks before a number would be cut differently.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    tokenizer.model_max_length = int(_field(reader, "llama.context_length", 2048))
    result: PreTrainedTokenizerBase = tokenizer
    return result


def _config(reader: GGUFReader) -> LlamaConfig:
    from transformers import LlamaConfig

    heads = int(_field(reader, "llama.attention.head_count"))
    hidden_size = int(_field(reader, "llama.embedding_length"))
    names = {tensor.name for tensor in reader.tensors}
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=len(_field(reader, "tokenizer.ggml.tokens")),
        hidden_size=hidden_size,
        intermediate_size=int(_field(reader, "llama.feed_forward_length")),
        num_hidden_layers=int(_field(reader, "llama.block_count")),
        num_attention_heads=heads,
        num_key_value_heads=int(_field(reader, "llama.attention.head_count_kv", heads)),
        head_dim=int(_field(reader, "llama.rope.dimension_count", hidden_size // heads)),
        max_position_embeddings=int(_field(reader, "llama.context_length", 2048)),
        # The file holds the fp32 neighbour of a short decimal (1e-05, say): give that back.
        rms_norm_eps=float(f"{_field(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": float(_field(reader, "llama.rope.freq_base", 10_000.0)),
        },
        tie_word_embeddings="output.weight" not in names,
        bos_token_id=_field(reader, "tokenizer.ggml.bos_token_id", None),
        eos_token_id=_field(reader, "tokenizer.ggml.eos_token_id", None),
        pad_token_id=_field(reader, "tokenizer.ggml.padding_token_id", None),
        dtype="float32",
    )


_MISSING = object()


def _field(reader: GGUFReader, name: str, default: Any = _MISSING) -> Any:
    field = reader.get_field(name)
    if field is not None:
        return field.contents()
    if default is _MISSING:
        raise KeyError(f"the file has no field {name}")
    return default


def _undo_rope_permutation(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp rotates neighbouring rows of a head, Transformers row i with row i + dim / 2.

    Its converter therefore interleaved the halves of each head of q_proj and k_proj
    [heads * dim, hidden]; this puts them back.
    """
    half = weight.shape[0] // heads // 2
    return weight.view(heads, half, 2, -1).transpose(1, 2).reshape(weight.shape).contiguous()
