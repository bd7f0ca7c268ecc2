"""`python -m engine.model_loader [NAME]`: make a model ready, for `make setup`."""

from __future__ import annotations

import os
import sys

from engine.model_loader.fetch import DEFAULT_MODEL, ModelError, Progress, fetch_default_model
from engine.model_loader.loader import load_model


class _Terminal:
    """Progress for `make setup`: one line that is rewritten, or a line a stage where piped."""

    def __init__(self) -> None:
        self._rewrites = sys.stderr.isatty()
        self._stage = ""

    def __call__(self, progress: Progress) -> None:
        if progress.stage == "ready":
            self.close()
        elif self._rewrites:
            print(f"\r\033[K{progress}", end="", file=sys.stderr, flush=True)
        elif progress.stage != self._stage:
            print(f"{progress}", file=sys.stderr, flush=True)
        self._stage = progress.stage

    def close(self) -> None:
        if self._rewrites and self._stage:
            print(end="\r\033[K", file=sys.stderr, flush=True)
        self._stage = ""


def main(arguments: list[str]) -> int:
    """Makes a model ready; 0, or 1 and one clear line where that fails."""
    name = (arguments[0] if arguments else "") or os.environ.get("MODEL") or DEFAULT_MODEL
    terminal = _Terminal()
    try:
        if name.lower() == DEFAULT_MODEL.lower():  # needs no loading, so nothing heavy is imported
            folder = fetch_default_model(terminal)
            terminal.close()
            print(f"model ready: {DEFAULT_MODEL} in {folder}")
        else:
            print(f"model ready: {load_model(name, terminal).name}")
    except ModelError as error:
        terminal.close()
        print(f"glassbox: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        terminal.close()
        print("glassbox: interrupted; start again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
