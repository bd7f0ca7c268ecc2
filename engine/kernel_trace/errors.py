"""Why a kernel cannot be traced: said to whoever asked, with what would help."""

from __future__ import annotations

from typing import Literal

Cause = Literal["nothing_run", "not_found", "pages_changed", "not_possible", "busy", "no_kernel"]


class KernelTraceError(RuntimeError):
    """What was asked for cannot be traced; `field` names the part of the question."""

    def __init__(self, message: str, cause: Cause, field: str | None = None):
        super().__init__(message)
        self.cause = cause
        self.field = field
