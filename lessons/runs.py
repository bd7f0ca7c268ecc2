"""What a step does with the engine, and where it stops."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from engine.config import EngineConfig, SamplingParams
from engine.records import FACTS_BY_TYPE, STEP_PHASES
from lessons.expressions import Expression
from lessons.faults import FAULTS
from lessons.parts import Expr, Id, Part, Settings, unknown


class Until(Part):
    """Where the engine stops: at the end of a phase, or of the phase with an event in it."""

    phase: str | None = None
    event: str | None = None
    request: str | None = None
    step: Expr | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Until:
        phases = [str(phase) for phase in STEP_PHASES]
        if (self.phase is None) == (self.event is None):
            raise ValueError("name one thing to run to: a phase or an event")
        if self.phase is not None and self.phase not in phases:
            raise ValueError(f"there is no phase `{self.phase}`; there are {', '.join(phases)}")
        if self.event is not None and self.event not in FACTS_BY_TYPE:
            raise unknown(self.event, list(FACTS_BY_TYPE), "event")
        return self


class Piece(Part):
    """A text, cut or repeated to so many tokens where `tokens` says so."""

    prompt: str = Field(min_length=1)
    tokens: Expr | None = None


class RequestSpec(Piece):
    """A request to send: `before` are pieces that its prompt begins with."""

    before: list[Piece] = Field(default_factory=list)
    sampling: Settings = Field(default_factory=dict)
    priority: Expr = Expression.parse(0)
    at: Expr | None = None  # the step that it arrives in; else before the first
    http: bool = False  # handed in as a body of POST /v1/completions, read as the server reads it

    @field_validator("sampling")
    @classmethod
    def _known_sampling(cls, values: dict[str, Any]) -> dict[str, Any]:
        return _only(values, list(SamplingParams.model_fields), "sampling parameter")


class Run(Part):
    """What a step does with the engine: begin anew or restore, send, run to a place; in this order.

    What is saved is the engine between two steps, as a file of *Save*, *Live engine* has it. It is
    taken of the lesson's own run: it belongs to the model that the lesson is played with.
    """

    reset: bool = False
    restore: Id | None = None  # the engine goes on from what an earlier step saved under this name
    save: Id | None = None  # at the end: the step under way is finished, and the engine kept
    config: Settings = Field(default_factory=dict)
    send: list[RequestSpec] = Field(default_factory=list)
    compare_kv: str | None = None  # at the end, this request's keys and values with those in fp32
    hang_up: dict[str, Expr] = Field(default_factory=dict)  # requests, and before which step
    until: Until | None = None
    wait: Until | None = None  # the learner brings the engine there, in any way
    fault: str | None = None  # the engine is broken on purpose: a name of `lessons/faults.py`
    fault_when: Expr | None = None  # it is so only where this holds, as a knob may say

    @field_validator("fault")
    @classmethod
    def _known_fault(cls, name: str | None) -> str | None:
        if name is not None and name not in FAULTS:
            raise unknown(name, list(FAULTS), "fault")
        return name

    @field_validator("config")
    @classmethod
    def _known_config(cls, values: dict[str, Any]) -> dict[str, Any]:
        return _only(values, list(EngineConfig.model_fields), "engine setting")

    @property
    def begins_anew(self) -> bool:
        """Whether the engine's requests and log end with it."""
        return self.reset or self.restore is not None

    @model_validator(mode="after")
    def _consistent(self) -> Run:
        if self.reset and self.restore is not None:
            raise ValueError("an engine is reset, or goes on from what was saved: take one away")
        if self.save is not None and self.wait is not None:
            raise ValueError(
                "where the learner brings the engine, it may be further: take `save` away, or "
                "write `until` instead of `wait`"
            )
        if self.config and self.restore is not None:
            raise ValueError("a restored engine has the settings it was saved with; take them away")
        if self.config and not self.reset:
            raise ValueError("settings need an engine that begins anew; add reset: true")
        if self.fault is not None and not self.reset:
            raise ValueError("a fault needs an engine that begins anew; add reset: true")
        if self.wait is not None and any(spec.at is not None for spec in self.send):
            raise ValueError(
                "where the learner brings the engine, all is sent before: take `at` away"
            )
        if self.fault_when is not None and self.fault is None:
            raise ValueError("`fault_when` says when a fault is there; name the `fault`")
        if self.wait is not None and self.hang_up:
            raise ValueError("where the learner brings the engine, nobody hangs up: take one away")
        if self.compare_kv is not None and self.until is None:
            raise ValueError(
                "`compare_kv` is done where the run ends; say with `until` where it does"
            )
        if self.until is not None and self.wait is not None:
            raise ValueError("the learner brings the engine there, or the step: take one away")
        return self


def _only(values: dict[str, Any], known: list[str], what: str) -> dict[str, Any]:
    for key in values:
        if key not in known:
            raise unknown(key, known, what)
    return values
