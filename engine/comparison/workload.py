"""What an engine was given: its requests with their parameters, each with the step it came in.

Requests come by step numbers and not by the clock, so that a workload is the same however fast the
engine is that runs it. It is read from a log, made of prompts, or comes as a file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from engine import strict_json
from engine.config import MAX_CACHE_SALT, SamplingParams, describe
from engine.events import PrefixCacheReset, RequestAborted, RequestArrived, RequestSubmitted
from engine.file_kinds import JSON_FILE, TEXT, TRACE, WORKLOAD, kind_of
from engine.input_processor import Encoded, check_text
from engine.parallel_sampling import sequences
from engine.reasons import ClientAborted
from engine.records import STEP_PHASES, Event, Patch, Phase
from engine.strict_json import StrictJsonError
from engine.trace import Changes, Trace, lines_of

MAX_REQUESTS = 128
MAX_TOKENS = 65_536  # of all prompts, and asked for by all requests
MAX_STEPS = 4_000  # of a run; a request must come within them
MAX_ID = 64  # characters
KIND = "glassbox-workload"

Step = Annotated[StrictInt, Field(ge=0, lt=MAX_STEPS)]
Name = Annotated[StrictStr, Field(min_length=1, max_length=MAX_ID)]
Token = Annotated[StrictInt, Field(ge=0, lt=2**31)]


class WorkloadError(ValueError):
    """What cannot be compared on; the message says what it lacks and what would do."""


def sampling_params(values: Any) -> SamplingParams:
    """Sampling parameters of one sequence; ValueError where they are none."""
    if isinstance(values, SamplingParams):
        return values
    if not isinstance(values, dict):
        raise ValueError("must be an object of sampling parameters")
    params = SamplingParams.parse(values)
    if params.n != 1:
        raise ValueError(f"n: {params.n}; each sequence is a request of its own here, so leave it")
    for stop in params.stop:
        check_text(stop, "stop")
    return params


def part_of_a_step(phase: Phase) -> Phase:
    """The phase; ValueError where no step has it, so that nothing could come before it."""
    if phase not in STEP_PHASES:
        raise ValueError(f"must be one of {', '.join(STEP_PHASES)}")
    return phase


class WorkloadRequest(BaseModel):
    """One sequence: when it comes, and what it asks for. Its id is part of its seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Name
    arrival_step: Step = 0
    prompt_token_ids: tuple[Token, ...] = Field(min_length=1, max_length=MAX_TOKENS)
    sampling: Annotated[SamplingParams, BeforeValidator(sampling_params)] = SamplingParams()
    priority: Annotated[StrictInt, Field(ge=-(2**31), lt=2**31)] = 0
    cache_salt: Annotated[StrictStr, Field(max_length=MAX_CACHE_SALT)] = ""
    parent: Annotated[StrictStr, Field(max_length=MAX_ID)] = ""


class WorkloadCommand(BaseModel):
    """What else was done to the engine, before a phase of a step."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: Step
    before: Annotated[Phase, AfterValidator(part_of_a_step)]
    op: Literal["abort", "reset_prefix_cache"]
    request: Annotated[StrictStr, Field(max_length=MAX_ID)] = ""  # that is taken back


class Workload(BaseModel):
    """Requests in the order in which they were handed in, and commands in theirs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["glassbox-workload"] = "glassbox-workload"
    version: Literal[1] = 1
    name: Annotated[StrictStr, Field(max_length=200)] = ""
    model: Annotated[StrictStr, Field(max_length=200)] = ""  # whose tokens they are
    requests: tuple[WorkloadRequest, ...] = Field(min_length=1, max_length=MAX_REQUESTS)
    commands: tuple[WorkloadCommand, ...] = Field(default=(), max_length=4 * MAX_REQUESTS)

    @model_validator(mode="after")
    def _fits(self) -> Workload:
        ids = [request.id for request in self.requests]
        if len(set(ids)) != len(ids):
            raise ValueError("requests: two of them have the same id; give each its own")
        if self.num_tokens > MAX_TOKENS:
            raise ValueError(
                f"requests: prompts and max_tokens make {self.num_tokens} tokens, and a comparison "
                f"takes {MAX_TOKENS}; leave some requests out, or lower max_tokens"
            )
        return self

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts, and those that are asked for."""
        return sum(
            len(request.prompt_token_ids) + request.sampling.max_tokens for request in self.requests
        )

    @classmethod
    def parse(cls, values: Any) -> Workload:
        """The workload in a file's JSON; `WorkloadError` names the places that are wrong."""
        if not isinstance(values, dict) or values.get("kind") != KIND:
            raise WorkloadError(
                f'workload: no workload of this program, which begins with {{"kind": "{KIND}"}}; '
                "save one here, or open a saved trace"
            )
        return checked(values)

    def check_model(self, name: str, vocab_size: int) -> None:
        """`WorkloadError` where a prompt has tokens that the model does not know."""
        for request in self.requests:
            unknown = [token for token in request.prompt_token_ids if token >= vocab_size]
            if unknown:
                whose = (
                    f" (it was recorded with {self.model})" if self.model not in ("", name) else ""
                )
                raise WorkloadError(
                    f"workload: {request.id} has token {unknown[0]}, and {name} knows those below "
                    f"{vocab_size}{whose}; record it with this model"
                )

    def to_json(self) -> str:
        """The file's text."""
        return self.model_dump_json(exclude_defaults=False, exclude_none=True, indent=1)


def checked(values: dict[str, Any]) -> Workload:
    """The workload that these values describe; `WorkloadError` with one clause for each fault."""
    try:
        return Workload.model_validate(values)
    except ValidationError as error:
        raise WorkloadError(f"workload: {describe(error)}") from None


def of_prompts(name: str, model: str, encoded: Sequence[Encoded]) -> Workload:
    """The workload of requests that all come at once, with the ids that an engine gives them."""
    requests = [
        {
            "id": request_id,
            "prompt_token_ids": tuple(one.token_ids),
            "sampling": params,
            "priority": one.priority,
            "cache_salt": one.cache_salt,
            "parent": f"r{number}" if one.params.n > 1 else "",
        }
        for number, one in enumerate(encoded)
        for request_id, params in sequences(f"r{number}", one.params)
    ]
    return checked({"name": name, "model": model, "requests": requests})


def of_trace(trace: Trace, name: str = "") -> Workload:
    """What the engine of a log was given; `WorkloadError` where the log does not say it all.

    A request comes in the step whose arrive phase took it in; one that still waits for that, in
    the next one.
    """
    if trace.header.base_seq:
        raise WorkloadError(
            f"the log does not go back to its beginning any more: its first "
            f"{trace.header.base_seq:,} records are kept only as what they came to, so it is not "
            "known which request came in which step; reset the engine and send the requests again, "
            "or take a preset or a saved workload"
        )
    if trace.header.state.get("requests"):
        raise WorkloadError(
            "the engine goes on from a saved one, so its log does not go back to the beginning and "
            "has not all that it was given; compare where it was saved, take that engine's log or "
            "workload as a file, or reset this one and send the requests again"
        )
    try:
        given = Given(trace)
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # somebody else's file
        raise WorkloadError(f"the trace does not hold together ({error!r:.120})") from None
    if not given.requests:
        raise WorkloadError(
            "the log has no request, so there is nothing to run; send some first, or take a preset"
        )
    return checked(
        {
            "name": name or trace.header.trace_id,
            "model": str(trace.header.model.get("name", "")),
            "requests": list(given.requests.values()),
            "commands": given.commands,
        }
    )


class Given:
    """Reads a log for what came from outside."""

    def __init__(self, trace: Trace):
        self.requests: dict[str, dict[str, Any]] = {}
        self.commands: list[dict[str, Any]] = []
        self._next_phase = str(trace.header.state.get("engine", {}).get("next_phase", "arrive"))
        for record in tuple(trace.records):
            if isinstance(record, Patch):
                self._patch(record.changes)
            else:
                self._event(record)

    def _event(self, event: Event) -> None:
        match event.facts:
            case RequestSubmitted(request=key):
                self.requests[key] = {"id": key, "arrival_step": self._coming_step(event)}
            case RequestArrived(request=key):
                self.requests[key]["arrival_step"] = event.step
            case RequestAborted(request=key) if isinstance(event.reason, ClientAborted):
                self._command(event, "abort", key)
            case PrefixCacheReset():
                self._command(event, "reset_prefix_cache")

    def _coming_step(self, event: Event) -> int:
        """The step that takes in what is submitted now."""
        return event.step + (self._next_phase != STEP_PHASES[0])

    def _command(self, event: Event, op: str, request: str = "") -> None:
        self.commands.append(
            {"step": event.step, "before": Phase(self._next_phase), "op": op, "request": request}
        )

    def _patch(self, changes: Changes) -> None:
        self._next_phase = changes.get("engine", {}).get("next_phase", self._next_phase)
        for key, record in changes.get("requests", {}).items():
            if record is not None and "prompt_token_ids" in record:
                self.requests[key] |= {
                    "prompt_token_ids": tuple(record["prompt_token_ids"]),
                    "sampling": record["sampling"],
                    "priority": record["priority"],
                    "cache_salt": record.get("cache_salt", ""),
                    "parent": record.get("parent", ""),
                }


def read(data: bytes, file_name: str) -> Workload:
    """The workload in a file: one that was saved, or what the engine of a saved trace was given.

    `WorkloadError` says what is wrong with it; nothing is taken on trust.
    """
    from engine.trace import TraceError

    kind = kind_of(data)
    if kind not in (WORKLOAD, TRACE, TEXT, JSON_FILE):
        raise WorkloadError(f"it is {kind.what}, and neither a workload nor a trace. {kind.where}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WorkloadError(f"the byte at {error.start} is no UTF-8, so this is no text") from None
    try:
        whole = strict_json.loads(text)
    except json.JSONDecodeError:  # of a trace each line is JSON by itself
        whole = None
    except StrictJsonError as error:
        raise WorkloadError(f"neither a workload nor a trace: {error}") from None
    if isinstance(whole, dict) and whole.get("kind") != "header":
        return Workload.parse(whole)
    try:
        return of_trace(Trace.parse(lines_of(text)), file_name)
    except TraceError as error:
        raise WorkloadError(f"neither a workload nor a trace: {error}") from None
