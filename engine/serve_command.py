"""The engine's settings as a `vllm serve` command, and such a command as settings.

No box of the map. vLLM 0.26.0: `vllm/engine/arg_utils.py` (the options and their defaults) and
`vllm/utils/argparse_utils.py` (how a command is read).
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from engine import strict_json
from engine.config import ConfigError, EngineConfig, SpeculativeConfig
from engine.model_loader.fetch import DEFAULT_MODEL
from engine.model_loader.tiny import TINY_MODEL
from engine.vllm_options import NAMES, ONE_VALUE, SHORT, SWITCHES


class Option(NamedTuple):
    """How vLLM calls a setting."""

    setting: str
    name: str
    # Whether vLLM's default is `EngineConfig`'s for every model and device: it need not be said.
    same_default: bool = False


OPTIONS = (
    Option("block_size", "block-size"),
    Option("num_gpu_blocks", "num-gpu-blocks-override"),
    Option("max_model_len", "max-model-len"),
    Option("max_num_batched_tokens", "max-num-batched-tokens"),
    Option("max_num_seqs", "max-num-seqs"),
    Option("enable_prefix_caching", "enable-prefix-caching"),
    Option("enable_chunked_prefill", "enable-chunked-prefill"),
    Option("async_scheduling", "async-scheduling"),
    Option("dtype", "dtype"),
    Option("cudagraph_mode", "compilation-config.cudagraph_mode"),
    Option("gpu_memory_utilization", "gpu-memory-utilization", same_default=True),
    Option("kv_cache_memory_bytes", "kv-cache-memory-bytes", same_default=True),
    Option("long_prefill_token_threshold", "long-prefill-token-threshold", same_default=True),
    Option("scheduling_policy", "scheduling-policy", same_default=True),
    Option("watermark", "watermark", same_default=True),
    Option("scheduler_reserve_full_isl", "scheduler-reserve-full-isl", same_default=True),
    Option("kv_cache_dtype", "kv-cache-dtype", same_default=True),
    Option("enforce_eager", "enforce-eager", same_default=True),
    Option("cudagraph_capture_sizes", "cudagraph-capture-sizes", same_default=True),
    Option("max_cudagraph_capture_size", "max-cudagraph-capture-size", same_default=True),
    Option("compilation_backend", "compilation-config.backend", same_default=True),
    Option("speculative_config", "speculative-config", same_default=True),
    Option("attention_backend", "attention-backend", same_default=True),
    Option("seed", "seed", same_default=True),
)

# Settings that no option of vLLM changes. `cautions` says where it decides otherwise.
WITHOUT_OPTION = ("cache_uncomputed_blocks", "quantization")

# What this engine does and vLLM would not by itself.
_ALWAYS = (
    # A request that names no temperature gets vLLM's default, not one that comes with the model.
    "--generation-config vllm",
)

# What `auto` is here: every model is loaded so.
_LOADED_DTYPE = "float32"
_SAME_DTYPE = {"half": "float16", "float": "float32"}
# Its name for a backend of ours; None: it has none like it, and chooses by itself.
_BACKENDS = {"triton": "TRITON_ATTN", "torch": None, "numba": None, "triton-interpret": None}
_HUB_IDS = {DEFAULT_MODEL: "HuggingFaceTB/SmolLM2-135M-Instruct"}

_NO_EFFECT = "has no effect here"
_ADDRESS = f"{_NO_EFFECT}: HOST= and PORT= say where this server listens"
_ONE_PROCESS = f"{_NO_EFFECT}: one process on one device runs the whole model"
_WHY = {
    "api-key": f"{_NO_EFFECT}: each tab has a key of its own, which Connect shows",
    "quantization": f"{_NO_EFFECT}: none of these formats is there, and the engine's own setting, "
    "quantization, has others; it stays as it is",
    "config": "the file is not read; paste what it says as options",
    "host": _ADDRESS,
    "port": _ADDRESS,
    "tensor-parallel-size": _ONE_PROCESS,
    "pipeline-parallel-size": _ONE_PROCESS,
    "data-parallel-size": _ONE_PROCESS,
}

_AUTO = f"means {_LOADED_DTYPE} here; vLLM's takes a dtype of 16 bits, by the model's files"

# The settings that size the pool by memory.
_BUDGETS = ("gpu_memory_utilization", "kv_cache_memory_bytes")
_SIZED = "counts where num_gpu_blocks is 0; the form keeps the number of blocks that it has"

_BY_NAME = {option.name: option for option in OPTIONS}
# vLLM takes 1k for 1,000 and 1K for 1,024 in these, and in none of our others.
_WITH_SUFFIX = ("max_model_len", "max_num_batched_tokens", "kv_cache_memory_bytes")
_HUMAN = re.compile(r"(\d{1,18})(\.\d{1,18})?([kKmMgGtT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_TABLE = "compilation-config"  # an option that is a table of fields
_API_SERVER = "vllm.entrypoints.openai.api_server"  # run by `python -m`, as of old
_IMAGE = "vllm-openai"  # of Docker; what follows its name are arguments
# What a shell splits a line into. It sees a comment only where a word would begin.
_PIECE = re.compile(
    r"""
    (?P<nothing> \#[^\n]* | \\[ \t]*\r?\n )
    | (?P<operator> \d*[<>] | [|&;] )
    | (?P<word> (?: (?!\\[ \t]*\r?\n)
        (?: '[^']*' | "(?:\\.|[^"\\])*" | \\. | [^ \t\r\n|&;<>] ) )+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class Remark(NamedTuple):
    """Part of a command, as it was written, and what a reader should know of it."""

    written: str
    text: str


class ReadCommand(NamedTuple):
    """What a command asks for."""

    config: EngineConfig
    remarks: tuple[Remark, ...]  # what was not taken over, or means something else here, and why
    kept: tuple[str, ...]  # options it does not name, for which vLLM has no fixed default


class Given(NamedTuple):
    """An option with its values. `name` is vLLM's whole name, without `--` or `--no-`."""

    written: str
    name: str
    values: tuple[str, ...]
    negated: bool = False
    field: str = ""  # `.cudagraph_mode` of an option that is a table of fields


# -- settings to command ------------------------------------------------------------------------


def serve_command(config: EngineConfig, model: str) -> str:
    """The command under which vLLM decides as an engine with `config` does.

    `config` is a resolved one: vLLM refuses a `max_model_len` that its pool cannot hold.
    Options that vLLM fills in by model or device are always named.
    """
    lines = [f"vllm serve {shlex.quote(_HUB_IDS.get(model, model))}"]
    for option in OPTIONS:
        value = getattr(config, option.setting)
        default = EngineConfig.model_fields[option.setting].default
        if option.setting == "dtype" and value == "auto":
            value = _LOADED_DTYPE
        if option.setting == "attention_backend":
            value = _BACKENDS.get(value, value)
        by_memory = option.setting == "num_gpu_blocks" and not value
        if value is not None and not by_memory and not (option.same_default and value == default):
            lines.append(_written(option.name, value))
    lines.extend(_ALWAYS)
    return " \\\n  ".join(lines)


def _written(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, SpeculativeConfig):
        return f"--{name} {shlex.quote(value.model_dump_json(exclude_none=True))}"
    if isinstance(value, tuple):
        return f"--{name} {' '.join(map(str, value))}"
    return f"--{name} {value}"


def cautions(config: EngineConfig, model: str) -> tuple[str, ...]:
    """What to know before the command of these settings is run, a sentence each."""
    found = []
    if model == TINY_MODEL:
        found.append(f"vLLM knows no {TINY_MODEL}: put a model of yours in its place.")
    if model in _HUB_IDS:
        found.append(
            "The weights here were rounded to 4 bits on their way; those of "
            f"{_HUB_IDS[model]} were not, and write other texts."
        )
    if config.block_size % 16:
        found.append(
            f"block_size {config.block_size} is no multiple of 16: most of vLLM's attention "
            "backends refuse it."
        )
    if config.attention_backend != "auto" and _BACKENDS[config.attention_backend] is None:
        found.append(
            f"vLLM has no attention backend like {config.attention_backend}: it takes the one that "
            "its device prefers. None of its decisions depends on that."
        )
    if config.quantization:
        found.append(
            f"vLLM 0.26.0 has nothing like quantization {config.quantization}: of its own schemes "
            "for weights alone, int8_per_channel_weight_only leaves linear layers as they are. "
            "Without it, vLLM writes the texts of the weights that were loaded."
        )
    if config.scheduling_policy == "priority" and not config.cache_uncomputed_blocks:
        found.append(
            "vLLM 0.26.0 always decides as with cache_uncomputed_blocks, which no option of it "
            "changes: where a victim had got tokens in the same step, it caches blocks that "
            "nobody computed, and this engine does not."
        )
    return tuple(found)


# -- command to settings ------------------------------------------------------------------------


def read_command(text: str, now: EngineConfig, model: str) -> ReadCommand:
    """The settings that a command asks for; ConfigError where it is no such command.

    An option that it does not name has vLLM's default, or where that depends on model and device,
    what it has `now`. What cannot be taken over is left out, with a remark.
    """
    remarks: list[Remark] = []
    values = now.model_dump()
    values |= {o.setting: EngineConfig().model_dump()[o.setting] for o in OPTIONS if o.same_default}
    named: set[str] = set()
    for given in _with_fields(_options(_arguments(text, remarks), remarks), remarks):
        option = _BY_NAME.get(given.name + given.field) or _BY_NAME.get(given.name)
        if given.name == "model":
            remarks.extend(_other_model(given, model))
        elif option is None:
            remarks.extend(_not_here(given))
        else:
            remarks.extend(_differences(given, option.setting in named))
            try:
                values |= _setting(option, given)
                named.add(option.setting)
            except ConfigError as error:
                remarks.append(Remark(given.written, str(error)))
    kept = tuple(o.setting for o in OPTIONS if not o.same_default and o.setting not in named)
    if "num_gpu_blocks" in kept and now.num_gpu_blocks:
        named_budgets = (o.name for o in OPTIONS if o.setting in named.intersection(_BUDGETS))
        remarks.extend(Remark(f"--{name}", _SIZED) for name in named_budgets)
    return ReadCommand(EngineConfig.parse(values), tuple(remarks), kept)


def _arguments(text: str, remarks: list[Remark]) -> list[str]:
    """The words that `vllm serve` would get from a shell."""
    pieces = [piece for piece in _PIECE.finditer(text) if piece.lastgroup != "nothing"]
    try:
        words = [word for piece in pieces for word in shlex.split(piece[0])]
    except ValueError as error:  # a quote without its other half, or a backslash at the end
        raise ConfigError(f"command: it cannot be read as a shell would: {error}") from None
    start = _start(words)
    for word in words[:start]:
        if _ASSIGNMENT.match(word):
            remarks.append(Remark(word, f"is an environment variable, and {_NO_EFFECT}"))
    for end, piece in enumerate(pieces[start:], start):
        if piece.lastgroup == "operator":
            rest = " ".join(text[piece.start() :].split())
            remarks.append(Remark(rest, "is the shell's business, and left out"))
            return words[start:end]
    return words[start:]


def _start(words: list[str]) -> int:
    """Where the arguments of `vllm serve` begin, or of one of its other names."""
    for i, word in enumerate(words):
        program = word.rsplit("/", 1)[-1]
        if program == "vllm" and words[i + 1 : i + 2] == ["serve"]:
            return i + 2
        if word == _API_SERVER or program.startswith(_IMAGE):
            return i + 1
    if words and words[0].startswith("-"):
        return 0
    raise ConfigError("command: it has no `vllm serve`; paste a whole command, or options alone")


def _options(words: list[str], remarks: list[Remark]) -> Iterator[Given]:
    """Each option with its values, and the model as an option; what is neither is remarked."""
    rest = list(words)
    model_seen = False
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if model_seen:
                remarks.append(Remark(word, "belongs to no option, and is left out"))
            else:
                yield Given(word, "model", (word,))
            model_seen = True
            continue
        given = _option(word, rest)
        if given.name in NAMES:
            yield given
        else:
            remarks.append(Remark(given.written, _unknown(given.name)))


def _with_fields(options: Iterable[Given], remarks: list[Remark]) -> Iterator[Given]:
    """The options, with each field of `--compilation-config '{...}'` as one of its own."""
    for given in options:
        if given.name != _TABLE or not given.values or not given.values[0].startswith(("{", "[")):
            yield given
            continue
        try:
            table = _json(_TABLE, given.values[0])
        except ConfigError as error:
            remarks.append(Remark(given.written, str(error)))
            continue
        fields = {given.field[1:]: table} if given.field else table
        if not isinstance(fields, dict):
            remarks.append(Remark(given.written, f"{_TABLE}: it is no JSON object"))
            continue
        yield from (_field(*each) for each in fields.items() if each[1] is not None)


def _field(name: str, value: Any) -> Given:
    """A field of the table; some of them are options beside it."""
    values = value if isinstance(value, list) else [value]
    texts = tuple(each if isinstance(each, str) else json.dumps(each) for each in values)
    written = f'"{name}"'
    if (beside := name.replace("_", "-")) in _BY_NAME:
        return Given(written, beside, texts)
    return Given(written, _TABLE, texts, field=f".{name}")


def _option(word: str, rest: list[str]) -> Given:
    """The option that `word` begins, with the values that it takes from `rest`."""
    written, equals, value = word.partition("=")
    head, dot, tail = written.partition(".")
    name, negated = _whole_name(head)
    if equals:
        return Given(word, name, (value,), negated, dot + tail)
    if name in SWITCHES:
        return Given(word, name, (), negated, dot + tail)
    most = 1 if name in ONE_VALUE else len(rest)
    values: list[str] = []
    while rest and len(values) < most and not _begins_option(rest[0]):
        values.append(rest.pop(0))
    return Given(" ".join([word, *values]), name, tuple(values), negated, dot + tail)


def _whole_name(written: str) -> tuple[str, bool]:
    """vLLM's name for an option that is short, abbreviated or has underscores."""
    if written in SHORT:
        return SHORT[written], False
    if re.match(r"-O\w*$", written):
        return "optimization-level", False
    if not written.startswith("--"):
        return written, False
    name = written[2:].replace("_", "-")
    twins = {f"no-{switch}": switch for switch in SWITCHES}
    if name in NAMES:
        return name, False
    if name in twins:
        return twins[name], True
    longer = [n for n in (*NAMES, *twins) if n.startswith(name)]
    if len(longer) == 1:  # argparse takes the beginning of a name where no other begins so
        return twins.get(longer[0], longer[0]), longer[0] in twins
    return name, False


def _begins_option(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-(\d+|\d*\.\d+)", word)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, [*_BY_NAME, *NAMES], n=1, cutoff=0.8)
    text = "is not known here, nor is it an option of vLLM 0.26.0"
    return f"{text}; did you mean --{close[0]}?" if close else text


def _other_model(given: Given, model: str) -> Iterator[Remark]:
    wanted = given.values[0] if given.values else ""
    if wanted.lower() not in (model.lower(), _HUB_IDS.get(model, model).lower()):
        yield Remark(
            given.written,
            f"is another model than the one that runs here, {model}; a server has one model: "
            f"start it with MODEL={shlex.quote(wanted)} to run this one",
        )


def _not_here(given: Given) -> Iterator[Remark]:
    """Nothing where the option asks for what is always so here."""
    plain = f"--{'no-' * given.negated}{given.name}{given.field}"
    if " ".join((plain, *given.values)) not in _ALWAYS:
        yield Remark(given.written, _WHY.get(given.name, _NO_EFFECT))


def _differences(given: Given, named: bool) -> Iterator[Remark]:
    """What to know of an option that is taken over."""
    if named:
        yield Remark(given.written, "is named twice; the last one counts")
    if given.name == "dtype" and given.values == ("auto",):
        yield Remark(given.written, _AUTO)


def _setting(option: Option, given: Given) -> dict[str, Any]:
    """The value that an option gives to its setting; ConfigError, worded as the form words it."""
    if given.field and option.setting == "speculative_config":
        raise ConfigError("speculative_config: write it whole, as one JSON object")
    if given.field and not option.name.endswith(given.field):
        raise ConfigError(f"{option.setting}: the option has no fields, and so no {given.field}")
    if option.name in SWITCHES:
        if given.values:
            raise ConfigError(
                f"{option.setting}: the option takes no value; write --{option.name} or "
                f"--no-{option.name}"
            )
        return {option.setting: not given.negated}
    if not given.values:
        raise ConfigError(f"{option.setting}: the option needs a value, and has none")
    value: Any = _value(option.setting, given.values[0])
    if option.setting == "cudagraph_capture_sizes":
        value = tuple(_value(option.setting, text) for text in given.values)
    EngineConfig.parse({option.setting: value})
    return {option.setting: value}


def _value(setting: str, text: str) -> Any:
    """vLLM's way of writing it as ours."""
    if setting == "max_model_len" and text.lower() in ("auto", "-1"):
        return None
    if setting in _WITH_SUFFIX and (found := _HUMAN.fullmatch(text)):
        whole, fraction, suffix = found.groups()
        if suffix in _DECIMAL:
            return int(float(whole + (fraction or "")) * _DECIMAL[suffix])
        if not fraction:
            return int(whole) * _BINARY[suffix]
    if setting == "speculative_config":
        return _json(setting, text)
    if setting == "dtype":
        return _SAME_DTYPE.get(text, text)
    if setting == "attention_backend":
        ours = {theirs: name for name, theirs in _BACKENDS.items() if theirs}
        return ours.get(text.upper(), text)
    number = float if EngineConfig.model_fields[setting].annotation is float else int
    with suppress(ValueError):  # a number that is wrong is then named as one
        return number(text)
    return text


def _json(setting: str, text: str) -> Any:
    try:
        return strict_json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{setting}: it is no JSON: {error}") from None
