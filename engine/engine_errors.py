"""Why an engine does not do what it is asked, in words for whoever asked."""

from __future__ import annotations


class EngineError(RuntimeError):
    """The engine cannot do what was asked now; the message says why and what would help."""


class EngineBusy(EngineError):
    """More requests than the engine holds at once."""


class MidStep(EngineError):
    """What was asked is possible between two steps alone."""
