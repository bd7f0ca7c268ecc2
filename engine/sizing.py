"""How a device's memory becomes a KV cache: the arithmetic, and a published model on a real card.

Box `physical-vram`. vLLM 0.26.0: `Worker.determine_available_memory` in
`vllm/v1/worker/gpu_worker.py` (budget minus weights, activations and graphs) and
`vllm/v1/core/kv_cache_utils.py` (bytes to blocks, tokens and concurrency). Of the model that runs
here `engine/memory_budget.py` measures the parts. Of a `Deployment`, which runs nowhere, everything
is derived, and each figure says how: `python -m engine.sizing --help`.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.config import ConfigError, describe

GIB = 1 << 30
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8_per_token_head": 1}
SCALE_BYTES = 4  # fp32: of each token and KV head, where the dtype has them


def kv_bytes_per_token(
    num_layers: int, num_kv_heads: int, head_dim: int, dtype_bytes: int, scale_bytes: int = 0
) -> int:
    """K and V of one token over all layers; `scale_bytes` go to each token and KV head."""
    return 2 * num_layers * num_kv_heads * (head_dim * dtype_bytes + scale_bytes)


class CacheSize(NamedTuple):
    """A pool of blocks, and what its longest requests make of it."""

    num_blocks: int
    block_size: int
    max_model_len: int

    @property
    def largest_request(self) -> int:
        """Tokens of the longest request that fits alone: block 0 is given to nobody."""
        return (self.num_blocks - 1) * self.block_size

    @property
    def max_concurrency(self) -> float:
        """Requests of the greatest length at once. vLLM counts block 0 although nobody gets it."""
        return self.num_blocks / math.ceil(self.max_model_len / self.block_size)

    @property
    def num_tokens(self) -> int:
        """Tokens in all, as vLLM counts them: of requests of the greatest length."""
        return int(self.max_concurrency * self.max_model_len)

    def texts(self) -> tuple[str, str]:
        """The two lines of vLLM's console."""
        return (
            f"GPU KV cache size: {self.num_tokens:,} tokens",
            f"Maximum concurrency for {self.max_model_len:,} tokens per request: "
            f"{self.max_concurrency:.2f}x",
        )


# --- published models and cards ----------------------------------------------------------------


class Shape(NamedTuple):
    """What a model's published configuration says of its size."""

    config: str  # the Hub id whose config.json has these numbers
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def num_split(self) -> int:
        """Parameters of which each of several GPUs holds a part: all but the norms."""
        heads = (self.num_attention_heads + 2 * self.num_kv_heads) * self.head_dim
        attention = self.hidden_size * (heads + self.num_attention_heads * self.head_dim)
        mlp = 3 * self.hidden_size * self.intermediate_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return embeddings + self.num_layers * (attention + heads * self.qkv_bias + mlp)

    @property
    def num_norms(self) -> int:
        """Parameters of the norms, which every GPU holds."""
        in_a_layer = 2 * self.hidden_size + 2 * self.head_dim * self.qk_norm
        return self.num_layers * in_a_layer + self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All of them; a tied embedding counts once."""
        return self.num_split + self.num_norms


SHAPES = {
    "SmolLM2-135M": Shape(
        "HuggingFaceTB/SmolLM2-135M-Instruct", 30, 576, 1536, 9, 3, 64, 49_152, 8_192, True
    ),
    "Qwen3-0.6B": Shape(
        "Qwen/Qwen3-0.6B", 28, 1024, 3072, 16, 8, 128, 151_936, 40_960, True, qk_norm=True
    ),
    "Mistral-7B": Shape(
        "mistralai/Mistral-7B-Instruct-v0.3", 32, 4096, 14_336, 32, 8, 128, 32_768, 32_768
    ),
    "Qwen2.5-7B": Shape(
        "Qwen/Qwen2.5-7B-Instruct", 28, 3584, 18_944, 28, 4, 128, 152_064, 32_768, qkv_bias=True
    ),
    "Llama-3-8B": Shape(
        "meta-llama/Meta-Llama-3-8B-Instruct", 32, 4096, 14_336, 32, 8, 128, 128_256, 8_192
    ),
    "Llama-3-70B": Shape(
        "meta-llama/Meta-Llama-3-70B-Instruct", 80, 8192, 28_672, 64, 8, 128, 128_256, 8_192
    ),
}


class Card(NamedTuple):
    """A GPU: the size its vendor states, and what programs are left to see of it.

    The limits of a step are what vLLM's server takes on it where nobody names others
    (`EngineArgs.get_batch_defaults` in `vllm/engine/arg_utils.py`).
    """

    stated: str
    visible_gib: float  # as PyTorch reports it, about: the driver keeps some
    max_num_batched_tokens: int
    max_num_seqs: int

    @property
    def num_bytes(self) -> int:
        """What is visible."""
        return int(self.visible_gib * GIB)


CARDS = {
    "RTX 4090": Card("24 GB", 23.64, 2048, 256),
    "A100": Card("80 GB", 79.15, 2048, 256),
    "H100": Card("80 GB", 79.1, 8192, 1024),
    "H200": Card("141 GB", 139.8, 8192, 1024),
}

# What no formula gives. Assumed, and said to be so wherever it is shown.
BYTES_A_LOGIT = 40  # its fp32 copies, sorted values and indices, sums: 1.26 GiB in a log of
# vLLM's (pull request 10511) for Llama-3-8B, 256 rows of logits, with one GPU and with two
GRAPH_BYTES = GIB // 2
OUTSIDE_BYTES = GIB // 4


# --- a deployment that runs nowhere ---------------------------------------------------------------


class Deployment(BaseModel):
    """A published model on a card, under the options of `vllm serve`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Literal[
        "SmolLM2-135M", "Qwen3-0.6B", "Mistral-7B", "Qwen2.5-7B", "Llama-3-8B", "Llama-3-70B"
    ] = "Qwen2.5-7B"
    card: Literal["RTX 4090", "A100", "H100", "H200"] = "RTX 4090"
    gpu_memory_utilization: float = Field(
        default=0.92, gt=0.0, le=1.0, description="share of the card's memory that vLLM may take"
    )
    max_model_len: int | None = Field(
        default=None, ge=1, description="most tokens of a request; None: what model and cache allow"
    )
    dtype: Literal["bfloat16", "float16", "float32"] = Field(
        default="bfloat16", description="of weights and activations"
    )
    kv_cache_dtype: Literal["auto", "fp8", "int8_per_token_head", "bfloat16", "float16"] = Field(
        default="auto", description="of keys and values; auto: as the weights"
    )
    tensor_parallel_size: Literal[1, 2, 4, 8] = Field(
        default=1, description="GPUs that share the model; each is divided alike"
    )
    block_size: int = Field(default=16, ge=1, le=256, description="tokens of a block")
    max_num_batched_tokens: int | None = Field(
        default=None, ge=1, le=1_000_000, description="tokens of a step; None: vLLM's for the card"
    )
    max_num_seqs: int | None = Field(
        default=None, ge=1, le=100_000, description="requests of a step; None: vLLM's for the card"
    )
    enforce_eager: bool = Field(default=False, description="no graphs")

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Deployment:
        """Validate `values`; raise `ConfigError` with one line for each field that is wrong."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(describe(error)) from None


class Part(NamedTuple):
    """A part of the budget."""

    name: str
    num_bytes: int
    how: str  # the formula, with its numbers


class Sizing(NamedTuple):
    """What becomes of a card's memory. Where nothing is left for the cache it has no blocks."""

    deployment: Deployment
    budget: Part
    taken: tuple[Part, ...]  # weights, activations, graphs, outside
    available: Part  # for the cache; below 0 where the budget does not hold the rest
    bytes_per_token: Part
    cache: CacheSize
    longest: int  # that a request may be: the model's positions, or what the cache holds
    problem: str  # why vLLM would not start so, "" where it would


def size(deployment: Deployment) -> Sizing:
    """Divide a card's memory as vLLM does at start, with estimates in place of measurements."""
    shape, card = SHAPES[deployment.model], CARDS[deployment.card]
    utilization = deployment.gpu_memory_utilization
    budget = Part(
        "budget",
        math.ceil(card.num_bytes * utilization),
        f"gpu_memory_utilization {utilization:g} × {card.visible_gib:g} GiB, which is about what "
        f"programs see of {card.stated}",
    )
    taken = (
        weights(deployment, shape),
        activations(deployment, shape, card),
        graphs(deployment),
        Part("outside", OUTSIDE_BYTES, "outside of torch, CUDA's own: 0.25 GiB are assumed"),
    )
    per_token = per_token_part(deployment, shape)
    available = budget.num_bytes - sum(part.num_bytes for part in taken)
    num_blocks = max(0, available // (per_token.num_bytes * deployment.block_size))
    holds = max(0, num_blocks - 1) * deployment.block_size
    longest = min(shape.max_position_embeddings, holds)
    cache = CacheSize(
        num_blocks, deployment.block_size, deployment.max_model_len or max(1, longest)
    )
    return Sizing(
        deployment,
        budget,
        taken,
        Part("KV cache", available, f"budget - {' - '.join(part.name for part in taken)}"),
        per_token,
        cache,
        longest,
        problem_of(deployment, shape, available, longest, holds),
    )


def weights(deployment: Deployment, shape: Shape) -> Part:
    """All parameters in their dtype; several GPUs share all but the norms."""
    gpus, dtype_bytes = deployment.tensor_parallel_size, DTYPE_BYTES[deployment.dtype]
    parameters = math.ceil(shape.num_split / gpus) + shape.num_norms
    split = f"({shape.num_split:,} / {gpus} + {shape.num_norms:,})"
    return Part(
        "weights",
        parameters * dtype_bytes,
        f"{split if gpus > 1 else f'{shape.num_parameters:,}'} parameters × {dtype_bytes} bytes",
    )


def activations(deployment: Deployment, shape: Shape, card: Card) -> Part:
    """The larger of two peaks: in a layer's MLP, or where all rows of logits are sampled from."""
    tokens = deployment.max_num_batched_tokens or card.max_num_batched_tokens
    rows = min(deployment.max_num_seqs or card.max_num_seqs, tokens)
    gpus, dtype_bytes = deployment.tensor_parallel_size, DTYPE_BYTES[deployment.dtype]
    a_token = 2 * shape.hidden_size + 3 * shape.intermediate_size // gpus
    forward = tokens * a_token * dtype_bytes
    sampling = rows * shape.vocab_size * BYTES_A_LOGIT
    mlp = f"3 × {shape.intermediate_size:,}" + (f" / {gpus}" if gpus > 1 else "")
    return Part(
        "activations",
        max(forward, sampling),
        "estimate, which vLLM would measure: the larger of "
        f"{tokens:,} tokens × (2 × {shape.hidden_size:,} + {mlp}) × {dtype_bytes} bytes and "
        f"{rows:,} rows of logits × {shape.vocab_size:,} × {BYTES_A_LOGIT} bytes (assumed)",
    )


def graphs(deployment: Deployment) -> Part:
    """No formula gives it: vLLM captures two sizes of each kind and estimates the others."""
    if deployment.enforce_eager:
        return Part("graphs", 0, "enforce_eager: none are captured")
    return Part("graphs", GRAPH_BYTES, "CUDA graphs: 0.5 GiB are assumed, which vLLM would measure")


def per_token_part(deployment: Deployment, shape: Shape) -> Part:
    """Bytes that a token takes of one GPU's cache."""
    gpus = deployment.tensor_parallel_size
    heads = max(1, shape.num_kv_heads // gpus)  # what cannot be split is kept by each
    dtype = deployment.kv_cache_dtype
    dtype_bytes = DTYPE_BYTES[deployment.dtype if dtype == "auto" else dtype]
    scale_bytes = SCALE_BYTES if dtype.endswith("_per_token_head") else 0
    head = f"{shape.head_dim} × {dtype_bytes}"
    return Part(
        "KV bytes a token",
        kv_bytes_per_token(shape.num_layers, heads, shape.head_dim, dtype_bytes, scale_bytes),
        f"2 (K and V) × {shape.num_layers} layers × {heads} KV heads × "
        + (f"({head} + {scale_bytes} of a scale) bytes" if scale_bytes else f"{head} bytes"),
    )


def problem_of(
    deployment: Deployment, shape: Shape, available: int, longest: int, holds: int
) -> str:
    """Why vLLM would refuse to start, and what would help."""
    gpus, wanted = deployment.tensor_parallel_size, deployment.max_model_len
    if shape.num_attention_heads % gpus:
        return (
            f"{shape.num_attention_heads} query heads cannot be shared by {gpus} GPUs: "
            "set tensor_parallel_size to a number that divides them."
        )
    if available <= 0:
        return (
            "No memory is left for the KV cache: weights, activations and graphs take "
            f"{gib(-available)} GiB more than the budget has. Raise gpu_memory_utilization, take a "
            "larger card, or share the model among more GPUs."
        )
    if longest < 1:
        return "The memory that is left holds no block beside the null block."
    if wanted is not None and wanted > shape.max_position_embeddings:
        return (
            f"max_model_len {wanted:,} is more than the {shape.max_position_embeddings:,} "
            f"positions that the model knows; set it to {longest:,} or less."
        )
    if wanted is not None and wanted > holds:
        return (
            f"max_model_len {wanted:,} does not fit the KV cache, which holds {holds:,} tokens; "
            f"set it to {longest:,} or less, raise gpu_memory_utilization, or keep keys and values "
            "in fp8."
        )
    return ""


def length_text(sizing: Sizing) -> str:
    """What the cache means for max_model_len."""
    shape = SHAPES[sizing.deployment.model]
    if sizing.deployment.max_model_len is not None:
        return f"max_model_len may be {sizing.longest:,} at most."
    if sizing.longest < shape.max_position_embeddings:
        return (
            f"The model knows {shape.max_position_embeddings:,} positions. vLLM asks for room for "
            "all of them where max_model_len is not set, and would not start: the largest "
            f"max_model_len that fits is {sizing.longest:,}, which `auto` finds."
        )
    return f"max_model_len is {sizing.longest:,}, all the positions that the model knows."


def figures(sizing: Sizing) -> dict[str, int | float]:
    """All that was found, by name; for lessons."""
    cache, shape = sizing.cache, SHAPES[sizing.deployment.model]
    return {
        "num_layers": shape.num_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_kv_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "num_parameters": shape.num_parameters,
        "max_position_embeddings": shape.max_position_embeddings,
        "budget_bytes": sizing.budget.num_bytes,
        **{f"{part.name}_bytes": part.num_bytes for part in sizing.taken},
        "kv_cache_bytes": sizing.available.num_bytes,
        "kv_bytes_per_token": sizing.bytes_per_token.num_bytes,
        "num_blocks": cache.num_blocks,
        "num_tokens": cache.num_tokens,
        "max_concurrency": cache.max_concurrency,
        "max_model_len": cache.max_model_len,
        "longest": sizing.longest,
        "starts": int(not sizing.problem),
    }


def gib(num_bytes: int) -> str:
    """Bytes as vLLM's logs have them."""
    return f"{num_bytes / GIB:,.2f}"


# --- on the command line -----------------------------------------------------------------------


def report(sizing: Sizing) -> str:
    """The division as lines of text, each with its formula."""
    deployment, cache = sizing.deployment, sizing.cache
    shape, card = SHAPES[deployment.model], CARDS[deployment.card]
    parts = (sizing.budget, *sizing.taken, sizing.available)
    lines = [
        f"{deployment.model} on {deployment.card}, {card.stated}. All figures are derived, from "
        f"the config of {shape.config}.",
        *(f"{part.name:<12}{gib(part.num_bytes):>8} GiB  {part.how}" for part in parts),
        f"{sizing.bytes_per_token.name}: {sizing.bytes_per_token.num_bytes:,}, "
        f"{sizing.bytes_per_token.how}",
    ]
    if sizing.problem:
        return "\n".join([*lines, sizing.problem])
    blocks = f"{cache.num_blocks:,} blocks of {cache.block_size} tokens"
    return "\n".join([*lines, blocks, *cache.texts(), length_text(sizing)])


def main(arguments: list[str] | None = None) -> int:
    """Print the division; 1 where vLLM would not start so, 2 where an option is wrong."""
    parser = argparse.ArgumentParser(prog="python -m engine.sizing", description=__doc__)
    parser.add_argument("--model", default=Deployment().model, help=", ".join(SHAPES))
    parser.add_argument("--card", default=Deployment().card, help=", ".join(CARDS))
    for name, field in Deployment.model_fields.items():
        option = "--" + name.replace("_", "-")
        if name == "enforce_eager":
            parser.add_argument(option, action="store_true", help=field.description)
        elif name not in ("model", "card"):
            parser.add_argument(option, help=field.description)
    given = {k: v for k, v in vars(parser.parse_args(arguments)).items() if v is not None}
    if "tensor_parallel_size" in given:  # a literal takes no text for a number
        given["tensor_parallel_size"] = whole(given["tensor_parallel_size"])
    try:
        sizing = size(Deployment.parse(given))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(report(sizing))
    return 1 if sizing.problem else 0


def whole(text: str) -> int | str:
    """A number, or what was written in its place."""
    return int(text) if text.isdecimal() else text


if __name__ == "__main__":
    sys.exit(main())
