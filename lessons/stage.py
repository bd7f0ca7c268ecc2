"""The stage: bring an engine to where a step of a lesson wants it, and read its log there.

An engine stops at the end of a phase, so a moment is always the end of one. Where the log has it
already, because somebody stepped the engine by hand, nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from engine.api.protocol import CompletionRequest
from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.input_processor import TOKENIZING, Submission
from engine.moment import Moment as SavedEngine
from engine.records import TYPE_OF_FACTS, Event, Patch, Record
from lessons.expressions import Expression, Scope
from lessons.faults import FAULTS
from lessons.probes import Moment
from lessons.runs import Piece, RequestSpec, Run, Until

MAX_PHASES = 10_000

Saved = dict[str, SavedEngine]  # by the name that a run gave it


class StageError(RuntimeError):
    """The engine did not come to where the lesson wants it; the message says why."""


def perform(llm: AsyncLLM, run: Run, scope: Scope, after: int, saved: Saved) -> Moment:
    """Do what a step asks for; `after` is the last record that earlier steps have seen.

    `saved` has what was saved so far, and gets what this step saves. Raises ConfigError (so
    MomentError), RequestRefusedError or EngineError of the engine, and StageError.
    """
    begun = begin(llm, run, scope, saved)
    for step, what in sorted(_later(run, scope), key=lambda each: each[0]):
        _step_to(llm, step)
        if isinstance(what, RequestSpec):
            _send(llm, [what], scope)
        else:
            llm.abort(what)
    until = run.until or run.wait
    reached = begun
    if until is not None:
        reached = reach(llm, until, scope, -1 if run.begins_anew else after)
    if run.compare_kv is not None:
        llm.compare_kv(run.compare_kv)
        reached = _now(llm)
    if run.save is not None:
        llm.finish_steps()
        saved[run.save] = llm.take_moment()
        reached = _now(llm)
    return reached


def _now(llm: AsyncLLM) -> Moment:
    return Moment.of(llm.trace, llm.trace.next_seq - 1)


def _later(run: Run, scope: Scope) -> Iterator[tuple[int, RequestSpec | str]]:
    """What clients do while the engine runs, each with the step before which: send, hang up."""
    yield from ((spec.at.whole(scope), spec) for spec in run.send if spec.at is not None)
    yield from ((step.whole(scope), request) for request, step in run.hang_up.items())


def reach(llm: AsyncLLM, until: Until, scope: Scope, after: int) -> Moment:
    """Run the engine to where the moment is in the log; raises StageError, EngineError."""
    return Moment.of(llm.trace, _reach(llm, until, scope, after))


def begin(llm: AsyncLLM, run: Run, scope: Scope, saved: Saved) -> Moment:
    """Do all of it but let arrive what comes later, and run; raises what `perform` raises."""
    if run.reset:
        llm.reset(config_of(run, scope))
    if run.restore is not None:
        llm.restore(saved[run.restore])
    if run.fault is not None and (run.fault_when is None or run.fault_when.value(scope)):
        break_it(llm, run.fault)
    _send(llm, [spec for spec in run.send if spec.at is None], scope)
    return _now(llm)


def break_it(llm: AsyncLLM, fault: str) -> None:
    """Put a named fault into an engine that just began; the header of its log says so."""

    def put_in() -> None:
        FAULTS[fault].put_into(llm.core)
        llm.trace.header.fault = fault

    llm.thread.call(put_in)


def reached(llm: AsyncLLM, until: Until, scope: Scope, after: int) -> Moment | None:
    """The moment, where the log has it behind record `after` by now."""
    step = None if until.step is None else until.step.whole(scope)
    found = _first(llm.trace.after(after)[1], until, step)
    return None if found is None else Moment.of(llm.trace, found)


def config_of(run: Run, scope: Scope) -> EngineConfig:
    """The settings of an engine that begins anew: the defaults, changed by the step's."""
    return EngineConfig.parse(_values(run.config, scope))


def _values(settings: dict[str, Any], scope: Scope) -> dict[str, Any]:
    return {name: _value(setting, scope) for name, setting in settings.items()}


def _value(setting: Any, scope: Scope) -> Any:
    if isinstance(setting, dict):
        return _values(setting, scope)
    if isinstance(setting, list):
        return [_value(each, scope) for each in setting]
    return setting.value(scope) if isinstance(setting, Expression) else setting


def _send(llm: AsyncLLM, specs: list[RequestSpec], scope: Scope) -> None:
    for http, group in groupby(specs, lambda spec: spec.http):
        submissions = [_submission(llm, spec, scope) for spec in group]
        llm.submit_many(submissions, "http" if http else "page")


def _step_to(llm: AsyncLLM, step: int) -> None:
    """Run the engine until a step is next."""
    for _ in range(step - llm.status.step):
        if not llm.status.has_work:
            raise StageError(f"the engine has no more work, and step {step} was not reached")
        llm.step()


def _submission(llm: AsyncLLM, spec: RequestSpec, scope: Scope) -> Submission:
    settings, prompt = _values(spec.sampling, scope), _prompt(llm, spec, scope)
    if spec.http:
        body = CompletionRequest.model_validate({"prompt": prompt, **settings})
        body.check()
        return Submission(prompt, body.sampling_params())
    return Submission(prompt, SamplingParams.parse(settings), spec.priority.whole(scope))


def _prompt(llm: AsyncLLM, spec: RequestSpec, scope: Scope) -> str | list[int]:
    if spec.tokens is None and not spec.before:
        return spec.prompt
    return [token for piece in (*spec.before, spec) for token in _cut(llm, piece, scope)]


def _cut(llm: AsyncLLM, piece: Piece, scope: Scope) -> list[int]:
    """A piece's tokens, as many as are wanted of it."""
    token_ids = TOKENIZING.submit(_tokens, llm, piece.prompt).result()
    if piece.tokens is None:
        return token_ids
    wanted = piece.tokens.whole(scope)
    return (token_ids * -(-wanted // len(token_ids)))[:wanted]


def _tokens(llm: AsyncLLM, text: str) -> list[int]:
    """The tokens of a text that need not fit the engine, as only a part of it is sent."""
    tokenizer: Any = llm.model.tokenizer
    return list(tokenizer(text)["input_ids"])


def _reach(llm: AsyncLLM, until: Until, scope: Scope, after: int) -> int:
    """Step until the moment is in the log; the sequence number of the phase's end."""
    step = None if until.step is None else until.step.whole(scope)
    seen = after
    for _ in range(MAX_PHASES):
        _, records = llm.trace.after(seen)
        found = _first(records, until, step)
        if found is not None:
            return found
        # An event and its phase's end may come apart: look at an unfinished phase again.
        ends = [record.seq for record in records if isinstance(record, Patch)]
        seen = max([seen, *ends])
        if not llm.status.has_work:
            raise StageError(f"the engine has no more work, and {_named(until)} did not come")
        llm.step_phase()
    raise StageError(f"{_named(until)} did not come within {MAX_PHASES} phases")


def _first(records: list[Record], until: Until, step: int | None) -> int | None:
    matched = False
    for record in records:
        matched = matched or _matches(record, until, step)
        if matched and isinstance(record, Patch):
            return record.seq
    return None


def _matches(record: Record, until: Until, step: int | None) -> bool:
    if step is not None and record.step != step:
        return False
    if isinstance(record, Patch):
        return record.phase == until.phase
    return _is_event(record, until)


def _is_event(record: Event, until: Until) -> bool:
    if TYPE_OF_FACTS[type(record.facts)] != until.event:
        return False
    return until.request in (None, getattr(record.facts, "request", None))


def _named(until: Until) -> str:
    what = f"the phase {until.phase}" if until.phase else f"the event {until.event}"
    return f"{what} of {until.request}" if until.request else what
