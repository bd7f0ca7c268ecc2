"""A moment of a live engine as a file: what is in it, how it is written, and how it is read.

No box of its own, and no counterpart in vLLM. The file is a safetensors file: the tensor `state`
holds the JSON of a `SavedState`, the others hold K and V of the blocks that are held or cached. It
is read as a file from anywhere: of known fields only, each of its type and within its limits, and
nothing in it is ever run. What the fields say of each other is checked when an engine is made of
them (`engine/moment_state.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine import strict_json
from engine.config import MAX_BLOCKS, MAX_CACHE_SALT, MAX_DRAFTS, ConfigError, describe
from engine.limits import limit, named
from engine.strict_json import StrictJsonError

if TYPE_CHECKING:
    from torch import Tensor

    from engine.model_loader import LoadedModel

FORMAT = "glassbox-moment"
VERSION = 1
SUFFIX = ".moment.safetensors"
STATE = "state"  # the tensor that is JSON
MAX_STATE_BYTES = 64 << 20
# The state is padded to a multiple of so many bytes: for each length of a tensor, safetensors 0.8
# (by `numpy.ctypeslib.as_array`) leaves a ctypes type in the process for good.
STATE_STEP_BYTES = 64 << 10
MAX_MOMENT_MB = 256  # of a file; GLASSBOX_MAX_MOMENT_MB sets another limit
MAX_TENSORS = 10_000
MAX_REQUESTS = 2_000  # 1,000 finished ones stay in an engine's state, and 512 may be unfinished

Count = Annotated[int, Field(ge=0, le=2**53)]
Block = Annotated[int, Field(ge=1, lt=MAX_BLOCKS)]
Token = Annotated[int, Field(ge=0, lt=2**31)]
RequestId = Annotated[str, Field(pattern=r"^(\d{1,2}_)?r\d{1,9}$")]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # SHA-256
Rated = tuple[int, float, int, list[tuple[int, float]]] | None  # a TokenLogprobs


class MomentError(ConfigError):
    """A file that no engine can go on from; the message says where, why, and how to mend it."""

    def __init__(self, message: str):
        super().__init__(message, field="moment")


class Strict(BaseModel):
    """Known fields, each of its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SavedText(Strict):
    """Where a request's detokenizer stands (`engine/detokenizer.py`)."""

    window: list[Token]
    context_len: Count
    out: Count
    num_tokens: Count
    held: str


class SavedRequest(Strict):
    """One request. What follows from its tokens, or from others, is not in it."""

    id: RequestId
    parent: RequestId | None
    index: Annotated[int, Field(ge=0, lt=100)]
    source: Annotated[str, Field(max_length=40)]
    priority: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    arrival_time: Annotated[float, Field(allow_inf_nan=False)]
    cache_salt: Annotated[str, Field(max_length=MAX_CACHE_SALT)]
    sampling: dict[str, Any]  # SamplingParams, all but the seed
    seed: int | None
    status: Literal["submitted", "waiting", "running", "preempted", "finished"]
    finish_reason: Literal["stop", "length", "abort"] | None
    stop_reason: int | str | None
    prompt: str
    prompt_token_ids: Annotated[list[Token], Field(min_length=1)]
    output_token_ids: list[Token]
    prompt_pieces: list[str]
    output_pieces: list[str]
    num_computed_tokens: Count
    num_preemptions: Count
    hit_tokens: Count
    num_cached_blocks: Count  # leading ones of its table that are hashed
    is_prefill_chunk: bool
    spec_token_ids: Annotated[list[Token], Field(max_length=MAX_DRAFTS)]
    block_table: list[Block]
    prompt_logprobs: list[Rated] | None  # so far, in the runner; None: not wanted, or told
    text: SavedText | None  # of unfinished ones


class SavedContent(Strict):
    """The blocks that hold the same tokens behind the same ones, the one cached first in front."""

    hash: Hash
    blocks: Annotated[list[Block], Field(min_length=1)]


class SavedArena(Strict):
    """A way to reserve that `engine/contiguous.py` follows: who has a piece, who waits for one."""

    starts: dict[RequestId, Count]
    line: list[RequestId]


class SavedState(Strict):
    """An engine between two steps. Queues and lists of ids are in their order."""

    model: dict[Literal["name", "digest"], str]
    versions: dict[str, str]  # of the packages that matter
    trace_id: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]  # of the log that it stood in
    saved_at: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # seconds since the epoch
    config: dict[str, Any]  # EngineConfig, resolved
    step: Count  # the next one
    next_id: Annotated[int, Field(ge=0, lt=10**9)]  # of a request
    requests: Annotated[list[SavedRequest], Field(max_length=MAX_REQUESTS)]
    finished: list[RequestId]
    arriving: list[RequestId]
    waiting: list[RequestId]
    running: list[RequestId]
    finished_req_ids: list[RequestId]  # not yet told to the runner
    preempted_req_ids: list[RequestId]
    counters: dict[str, Count]
    free: list[Block]  # the queue
    cached: list[SavedContent]
    uncomputed: list[Block]
    contiguous: dict[str, SavedArena]


class Moment(NamedTuple):
    """What a file holds."""

    state: SavedState
    tensors: dict[str, Tensor]

    @property
    def num_bytes(self) -> int:
        """Of K and V."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def file_name(self) -> str:
        """What the file is called where nobody says otherwise."""
        return f"glassbox-{self.state.trace_id}-step-{self.state.step}{SUFFIX}"


def max_moment_bytes() -> int:
    """The largest file that is written or read."""
    return limit("MAX_MOMENT_MB", MAX_MOMENT_MB) << 20


def check_size(num_bytes: int, what: str, mend: str) -> None:
    """Raise `MomentError` where a moment would be larger than one may be."""
    most = max_moment_bytes()
    if num_bytes > most:
        raise MomentError(
            f"{what} {-(-num_bytes // 10**6):,} MB, and a moment has {most // 10**6:,} MB at "
            f"most; {mend} {named('MAX_MOMENT_MB')}"
        )


def identity_of(model: LoadedModel) -> dict[Literal["name", "digest"], str]:
    """What tells one model from another: its name, and a digest of its shape and of some weights.

    These are its norms, and rows of its embedding: what nobody packs or rounds. Training moves them
    with all others.
    """
    shape = (
        type(model.model).__name__,
        model.num_layers,
        model.num_attention_heads,
        model.num_kv_heads,
        model.head_dim,
        model.hidden_size,
        model.vocab_size,
    )
    digest = hashlib.sha256(repr(shape).encode())
    for name, module in model.model.named_modules():
        if "Norm" in type(module).__name__:
            for parameter in module.parameters(recurse=False):
                digest.update(name.encode() + as_bytes(parameter.detach().float().cpu()))
    embedding: Any = model.model.get_input_embeddings()
    rows = embedding.weight.detach()[:: max(1, model.vocab_size // 64)]
    digest.update(as_bytes(rows.float().cpu()))
    return {"name": model.name, "digest": digest.hexdigest()}


def check_identity(saved: Mapping[Any, str], model: LoadedModel) -> None:
    """Raise `MomentError` where the moment is another model's."""
    here = identity_of(model)
    if saved.get("digest") == here["digest"]:
        return
    if saved.get("name") != here["name"]:
        raise MomentError(
            f"model: this is a moment of {saved.get('name')!r:.100}, and this server runs "
            f"{here['name']!r:.100}; start a server with that model to restore it"
        )
    raise MomentError(
        f"model: {here['name']!r:.100} has other weights or another shape here than where this "
        "moment was saved; restore it where the same version of the model runs"
    )


# -- the file -------------------------------------------------------------------------------------


def write_moment(moment: Moment, path: Path) -> None:
    """Write the file; OSError where the disk does not take it, and nothing is left behind then."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    state = moment.state.model_dump_json().encode()
    if len(state) > MAX_STATE_BYTES:
        raise MomentError(
            f"the requests' tokens and texts take {len(state) / 1e6:.0f} MB, and a moment has room "
            f"for {MAX_STATE_BYTES / 1e6:.0f}; reset the engine before so many requests have ended"
        )
    padded = state.ljust(-(-len(state) // STATE_STEP_BYTES) * STATE_STEP_BYTES)  # with spaces
    tensors = {**moment.tensors, STATE: torch.frombuffer(bytearray(padded), dtype=torch.uint8)}
    about = {"format": FORMAT, "version": str(VERSION), "digest": digest_of(tensors)}
    try:
        save_file(tensors, path, metadata=about)
    except (SafetensorError, OSError) as error:
        path.unlink(missing_ok=True)
        raise OSError(str(error)) from error


def read_moment(path: Path) -> Moment:
    """Read a file from anywhere; `MomentError` where it is no moment."""
    from safetensors import SafetensorError, safe_open

    try:
        check_size(path.stat().st_size, "the file has", "save the engine with fewer cached blocks")
        with safe_open(path, framework="pt") as file:
            check_about(file.metadata() or {})
            names = list(file.keys())
            if len(names) > MAX_TENSORS:
                raise MomentError(f"the file has {len(names):,} tensors; {MAX_TENSORS:,} at most")
            if STATE not in names:
                raise MomentError(f"the file has no tensor {STATE!r}; save the moment again")
            tensors = {name: file.get_tensor(name) for name in names}
            digest = (file.metadata() or {}).get("digest")
    except (SafetensorError, OSError) as error:
        raise MomentError(
            f"this is no moment of an engine, or not all of it ({str(error)[:200]}); choose a file "
            f"that *Save*, *Live engine* wrote (*{SUFFIX})"
        ) from None
    if digest != digest_of(tensors):
        raise MomentError(
            "the file is damaged: its content is not what its digest says; take another copy of "
            "it, or save the moment again"
        )
    return Moment(state_from(tensors.pop(STATE)), tensors)


def check_about(about: Mapping[str, str]) -> None:
    """Whether the file says that it is a moment of this version."""
    if about.get("format") != FORMAT:
        raise MomentError(
            f"this is a safetensors file, and no moment of an engine; choose a file that "
            f"*Save*, *Live engine* wrote (*{SUFFIX})"
        )
    if about.get("version") != str(VERSION):
        raise MomentError(
            f"version: the moment has version {about.get('version')!r:.20}, and this program reads "
            f"{VERSION}; restore it with the program that saved it"
        )


def state_from(tensor: Tensor) -> SavedState:
    """The JSON part."""
    if str(tensor.dtype) != "torch.uint8" or tensor.dim() != 1:
        raise MomentError(f"{STATE}: must be a list of bytes, has {tensor.dtype}")
    if tensor.numel() > MAX_STATE_BYTES:
        raise MomentError(f"{STATE}: has {tensor.numel():,} bytes; {MAX_STATE_BYTES:,} at most")
    text = tensor.numpy().tobytes()
    try:
        strict_json.loads(text)  # pydantic takes keys that are there twice
        return SavedState.model_validate_json(text)
    except (StrictJsonError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise MomentError(f"{STATE}: not JSON ({error!s:.120}); save the moment again") from None
    except ValidationError as error:
        raise MomentError(f"{STATE}: {describe(error)}; save the moment again") from None


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Of all that the file holds, so that damage is found before it is restored."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(as_bytes(tensor))
    return digest.hexdigest()


def as_bytes(tensor: Tensor) -> bytes:
    """The tensor's memory, of any dtype."""
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
