"""Which kind of name it is, and what Transformers makes of it; what cannot run here is refused.

No box of the map. vLLM 0.26.0: `vllm/model_executor/model_loader/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.model_loader.fetch import (
    DEFAULT_MODEL,
    ModelError,
    Progress,
    fetch_default_model,
)
from engine.model_loader.tiny import TINY_MODEL

if TYPE_CHECKING:
    # Torch and Transformers take seconds to import, and `make setup` has nothing to do with them
    # once the model is there: this module imports them where they are needed.
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_CAUSAL = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration)$")
# What the paged KV cache can hold: Mamba and linear attention keep a state of their own kind.
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
# Sizes of such a state, by which a configuration tells that there is one: Mamba and its hybrids,
# RWKV, gated linear attention, short convolutions.
_STATE_SIZES = (
    "state_size",
    "mamba_d_state",
    "ssm_state_size",
    "attention_hidden_size",
    "linear_num_value_heads",
    "conv_L_cache",
)


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run, with the sizes that the engine needs of it."""

    name: str  # what the user named, "SmolLM2-135M-Instruct" for the default
    model: PreTrainedModel  # eval mode, on its device, no gradients; loaded in fp32
    tokenizer: PreTrainedTokenizerBase
    eos_token_ids: tuple[int, ...]  # any of them ends a request; empty where the model has none
    max_model_len: int  # tokens, prompt and output together
    num_layers: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    longest_token: int  # characters; no token stands for more text
    weight_bytes: int  # measured; a tied embedding counts once, and once more where it is packed
    read_bytes: int  # of them, what a forward reads as a whole
    quantization: str | None = None  # of its linear layers; None: they are in the model's dtype


def load_model(
    name: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    attn_implementation: str = "sdpa",
) -> LoadedModel:
    """Loads a model in fp32; without a name, $MODEL, else the default one (fetched on first use).

    `progress` is called in the caller's thread and should return quickly; its last stage is
    "ready". Raises ModelError, whose text is meant for the user.
    """
    from engine.layers import optimize

    report = progress or _ignore
    name = name or os.environ.get("MODEL") or DEFAULT_MODEL
    if name.lower() == DEFAULT_MODEL.lower():
        name = DEFAULT_MODEL
        folder = fetch_default_model(report)
        report(Progress("load", 0, 0, ""))
        model, tokenizer = _from_transformers(
            str(folder), attn_implementation, hint=f"; delete {folder} to fetch it again"
        )
    elif name == TINY_MODEL:
        model, tokenizer = _tiny(attn_implementation)
    else:
        model, tokenizer = _load_named(name, report, attn_implementation)
    model.requires_grad_(False)
    optimize(model)
    loaded = _describe(name, model, tokenizer)
    report(Progress("ready", 1, 1, ""))
    return loaded


def _ignore(progress: Progress) -> None:
    pass


def _load_named(
    name: str, report: Callable[[Progress], None], attn_implementation: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{path} has no config.json: name a folder in the Hub's format")
        report(Progress("load", 0, 0, ""))
        return _from_transformers(str(path), attn_implementation)
    if path.is_file():
        return _from_gguf(path, report, attn_implementation)
    if name.startswith((".", "/", "~")) or path.suffix.lower() == ".gguf":
        raise ModelError(f"there is no model at {path}: name a model folder or a GGUF file")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise ModelError(
            f"{name!r} is neither a folder, nor a GGUF file, nor a Hub id such as Qwen/Qwen3-0.6B"
        )
    report(Progress("load", 0, 0, ""))
    return _from_transformers(name, attn_implementation)


def _tiny(attn_implementation: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from engine.model_loader.tiny import byte_tokenizer, tiny_llama

    model: Any = tiny_llama(attn_implementation=attn_implementation)
    return model.to(_device()), byte_tokenizer()


def _from_transformers(
    source: str, attn_implementation: str, hint: str = "", **gguf: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A folder, a Hub id, or (gguf_file=) a GGUF file in a folder."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    auto_model: Any = AutoModelForCausalLM  # its annotations deny that it takes a name
    logging.disable_progress_bar()  # a bar for the half second of loading; downloads keep theirs
    with _plain_errors(source, hint):
        config = AutoConfig.from_pretrained(source, **gguf)
        _check_architecture(config)
        model = auto_model.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            attn_implementation=attn_implementation,
            **gguf,
        )
        tokenizer: Any = AutoTokenizer.from_pretrained(source, **gguf)
    return model.to(_device()), tokenizer


def _from_gguf(
    path: Path, report: Callable[[Progress], None], attn_implementation: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    import torch
    from transformers import LlamaForCausalLM

    from engine.model_loader.gguf import is_plain_llama, read_llama_gguf

    with _plain_errors(str(path)):
        if not is_plain_llama(path):
            return _from_transformers(str(path.parent), attn_implementation, gguf_file=path.name)
        checkpoint = read_llama_gguf(
            path, lambda done, total: report(Progress("convert", done, total, "tensors"))
        )
        llama: Any = LlamaForCausalLM  # its annotations deny that the path may be None
        model = llama.from_pretrained(
            None,
            config=checkpoint.config,
            state_dict=checkpoint.state_dict,
            dtype=torch.float32,
            attn_implementation=attn_implementation,
        )
    return model.to(_device()), checkpoint.tokenizer


def _check_architecture(config: PretrainedConfig) -> None:
    """Raises ModelError for what the engine cannot run: it pages one KV cache per decoder layer."""
    from transformers import AutoModelForCausalLM

    names = getattr(config, "architectures", None) or []
    known = AutoModelForCausalLM._model_mapping
    model_class: Any = known.get(type(config), None)
    text = config.get_text_config(decoder=True)
    if config.is_encoder_decoder:
        reason = "is an encoder-decoder model"
    elif model_class is None or (names and not any(_CAUSAL.search(name) for name in names)):
        reason = "is not a causal language model"
    elif any(getattr(text, name, None) for name in _STATE_SIZES):
        reason = (
            "has layers that keep a running state (state-space, linear attention, convolution), "
            "which no paged KV cache holds"
        )
    elif not model_class._supports_attention_backend:
        reason = "computes its attention in a way that cannot be replaced by a paged one"
    elif other := set(getattr(text, "layer_types", None) or ()) - _ATTENTION_LAYERS:
        reason = f"has layers without a paged KV cache ({', '.join(sorted(other))})"
    elif getattr(text, "kv_lora_rank", None):
        reason = "keeps its keys and values in compressed form (MLA)"
    elif not getattr(text, "num_attention_heads", None):
        reason = "has no attention heads"
    else:
        return
    raise ModelError(
        f"the architecture {names[0] if names else config.model_type} {reason}; "
        "Glassbox runs decoder-only models, for example Llama, Qwen, Mistral, Gemma or Phi"
    )


@contextmanager
def _plain_errors(source: str, hint: str = "") -> Iterator[None]:
    """Turns what Transformers raises into one line; the traceback stays chained for developers."""
    try:
        yield
    except MemoryError as error:
        raise ModelError(f"there is not enough memory for {source} in fp32") from error
    except ModelError:
        raise
    except (
        Exception
    ) as error:  # a user's files fail in many ways; tokenizers raises Exception itself
        raise ModelError(f"cannot load {source}: {_reason(source, error)}{hint}") from error


def _reason(source: str, error: Exception) -> str:
    text = str(error)
    if "trust_remote_code" in text:
        return "it comes with code of its own, which Glassbox does not run"
    if "does not recognize this architecture" in text:
        return f"this version of Transformers does not know the architecture {_model_type(text)}"
    if isinstance(error, OSError) and not Path(source).exists():
        return (
            "it is not on this machine, and the Hub did not give it (no network, no such model, "
            "or not open to you); set MODEL to a local model folder or GGUF file"
        )
    first_line = next((line for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first_line[:300]}"


def _model_type(text: str) -> str:
    match = re.search(r"model type `([^`]+)`", text)
    return match[1] if match else "it names"


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _describe(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> LoadedModel:
    model.eval().requires_grad_(False)
    config: Any = model.config.get_text_config(decoder=True)
    heads = config.num_attention_heads
    # Some configurations (GPT-2, GPT-NeoX) name neither their KV heads nor the size of a head.
    return LoadedModel(
        name=name,
        model=model,
        tokenizer=tokenizer,
        eos_token_ids=_eos_token_ids(model, tokenizer),
        max_model_len=_max_model_len(config, tokenizer),
        num_layers=config.num_hidden_layers,
        num_attention_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        longest_token=max(map(len, tokenizer.get_vocab())),
        **WeightBytes.of(model)._asdict(),
    )


def _eos_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """From the generation settings, else the configuration, else the tokenizer."""
    generation: Any = model.generation_config
    text_config: Any = model.config.get_text_config(decoder=True)
    for owner in (generation, model.config, text_config, tokenizer):
        ids = getattr(owner, "eos_token_id", None)
        if isinstance(ids, int):
            return (ids,)
        if ids:
            return tuple(ids)
    return ()


def _max_model_len(config: Any, tokenizer: PreTrainedTokenizerBase) -> int:
    for length in (
        getattr(config, "max_position_embeddings", None),
        getattr(config, "n_positions", None),
        tokenizer.model_max_length,
    ):
        if length and 0 < length < 1 << 30:  # a tokenizer without a limit says 1e30
            return int(length)
    return 2048


class WeightBytes(NamedTuple):
    """What a model's weights take, and what of them a forward reads from end to end."""

    weight_bytes: int
    read_bytes: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> WeightBytes:
        """Measured. Parameters that share their memory (a tied embedding) count once."""
        from torch import nn

        from engine.layers import PackedLinear, QuantizedLinear

        plain = {weight.data_ptr(): weight.nbytes for weight in model.parameters()}
        total = sum(plain.values())
        looked_up: dict[int, int] = {}  # of an embedding a forward takes only rows
        for module in model.modules():
            if isinstance(module, PackedLinear):
                total += module.packed_bytes
            elif isinstance(module, QuantizedLinear):
                total += module.num_bytes
            elif isinstance(module, nn.Embedding):
                looked_up[module.weight.data_ptr()] = module.weight.nbytes
        head: Any = model.get_output_embeddings()
        if not isinstance(head, PackedLinear):
            looked_up.pop(head.weight.data_ptr(), None)  # tied: it reads the whole of it
        return cls(total, total - sum(looked_up.values()))
