"""Text of strangers on its way to a terminal: what would command it is written out instead.

A prompt, a name or a file may hold escape sequences that clear the screen, line ends that pose as
lines of the log, and marks that turn the direction of writing. No counterpart in vLLM.
"""

from __future__ import annotations

import logging
import re
from typing import Any

# Control characters (C0, DEL, C1), line separators, marks of direction, halves of characters.
_COMMANDS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
LAYOUT = "\n\t"  # what a traceback is laid out with


def escaped(text: str, keep: str = "") -> str:
    """The text with all that commands a terminal as Python would write it, but for `keep`."""
    return _COMMANDS.sub(
        lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text
    )


class EscapeCommands(logging.Filter):
    """Takes what commands a terminal out of what is logged: messages, arguments, tracebacks."""

    TRACEBACK = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, written out."""
        record.msg = self._plain(record.msg, LAYOUT)
        if isinstance(record.args, tuple):
            record.args = tuple(self._plain(item) for item in record.args)
        elif record.args:
            record.args = {name: self._plain(item) for name, item in record.args.items()}
        if record.exc_info and not record.exc_text:  # formatters take the text that is there
            record.exc_text = self.TRACEBACK.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = escaped(record.exc_text, LAYOUT)
        return True

    def _plain(self, item: Any, keep: str = "") -> Any:
        """What has nothing of that in it stays what it is: formats want numbers."""
        text = str(item)
        shown = escaped(text, keep)
        return item if shown == text else shown


def escape_all_of(package: str) -> None:
    """Take that out of whatever the package's loggers log: of those that come later, too.

    For one that gives each of its loggers a handler of its own.
    """
    make, clean = logging.getLogRecordFactory(), EscapeCommands()

    def made(name: str, *arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(name, *arguments, **named)
        if name.partition(".")[0] == package:
            clean.filter(record)
        return record

    logging.setLogRecordFactory(made)
