"""The log of an engine that was put to rest, as the beginning of the next one's.

No box of its own, and no counterpart in vLLM. An engine that goes on from where another stood may
continue its log: the same trace, its numbers and its clock.
"""

from __future__ import annotations

from engine.core import EngineCore
from engine.records import Phase
from engine.trace import Changes, State, Trace


def continue_log(core: EngineCore, past: Trace) -> None:
    """Have the log of an engine that has logged nothing be the rest of `past`.

    A patch says in what the engine stands otherwise than the other one did: what is captured, and
    whether it runs.
    """
    trace, state = core.trace, core.trace.header.state
    changes = patch_between(past.state(), state)
    document = trace.header.document
    trace.go_on_from(past)
    trace.name_document(document)
    if changes:
        trace.begin_phase(core.step_index, Phase.COMMAND)
        trace.end_phase(changes)


def patch_between(before: State, after: State) -> Changes:
    """The JSON Merge Patch (RFC 7386) that makes `after` out of `before`, whatever their depth."""
    changes: Changes = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := patch_between(old, value):
                changes[key] = inner
        elif key not in before or old != value:
            changes[key] = value
    return changes
