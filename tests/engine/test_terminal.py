"""Nothing that a stranger wrote commands the terminal that a log is read in."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from engine.api.guard import guard_logs
from engine.terminal import EscapeCommands, escape_all_of, escaped

HOSTILE = "\x1b[2J\x1b]0;title\x07 \x9b31m \r\nglassbox: all is well \u202e\u2066 \x00\x7f \ud800"
COMMANDS = "\x1b\x07\x9b\r\u202e\u2066\x00\x7f\ud800"


def test_what_commands_a_terminal_is_written_out() -> None:
    shown = escaped(HOSTILE)
    assert shown.isprintable() and r"\x1b[2J" in shown and r"\u202e" in shown
    assert escaped("zwölf Blöcke, 12 块, 🧊") == "zwölf Blöcke, 12 块, 🧊"
    assert escaped("a\tb\nc\x1b", "\n\t") == "a\tb\nc\\x1b"


def record(message: object, *args: object) -> logging.LogRecord:
    return logging.LogRecord("glassbox", logging.ERROR, "here", 1, str(message), args, None)


def test_messages_arguments_and_tracebacks_are_cleaned() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        logged = record("a model %s and %d: %s", HOSTILE, 7, error)
        logged.exc_info = sys.exc_info()
    assert EscapeCommands().filter(logged)
    text = logging.Formatter().format(logged)
    assert not set(text) & set(COMMANDS)
    assert "and 7:" in text and "ValueError" in text
    first = text.splitlines()[0]
    assert "all is well" in first  # a line end in an argument begins no line
    named = record("%(name)s")
    named.args = {"name": HOSTILE}
    EscapeCommands().filter(named)
    assert not set(named.getMessage()) & set(COMMANDS)


def test_the_server_s_logs_are_guarded(caplog: pytest.LogCaptureFixture) -> None:
    guard_logs()
    guard_logs()  # once is enough
    log = logging.getLogger("glassbox")
    assert sum(isinstance(each, EscapeCommands) for each in log.filters) == 1
    with caplog.at_level(logging.WARNING, "glassbox"):
        log.warning("no file %s", HOSTILE)
    assert not set(caplog.text) & set(COMMANDS)


def test_all_loggers_of_a_package_are_guarded(caplog: pytest.LogCaptureFixture) -> None:
    """Those that are made later, and no other's."""
    before = logging.getLogRecordFactory()
    try:
        escape_all_of("streamlit")
        logging.getLogger("streamlit.made.later").error("no file %s", HOSTILE)
        assert r"\x1b[2J" in caplog.text and not set(caplog.text) & set(COMMANDS)
        caplog.clear()
        logging.getLogger("streamlitlike").error("no file %s", "\x1b[2J")
        assert set(caplog.text) & set(COMMANDS)
    finally:
        logging.setLogRecordFactory(before)


@pytest.mark.parametrize("module", ["engine.export", "views.architecture"])
def test_a_command_says_what_is_wrong_with_a_file_of_a_hostile_name(
    module: str, tmp_path: Path
) -> None:
    file = tmp_path / "\x1b[2J\u202e.json"
    file.write_text('{"\\u001b[31m": 1, "\\u001b[31m": 2}')
    more = ["--to", "csv"] if module == "engine.export" else []
    command = [sys.executable, "-m", module, str(file), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and r"\x1b[31m" in said
    assert not set(said) & set(COMMANDS)
