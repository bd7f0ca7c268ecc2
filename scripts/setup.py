"""Builds .venv for the Makefile: `setup.py run` for the page, `setup.py test` for the tests too.

Starts before anything is installed, with whatever `python3` is: standard library only, and no
syntax newer than Python 3.6, so that a Python that is too old gets a sentence and not a traceback.
Every failure is one line on stderr and exit status 1. What is done already is not done again.
"""

import errno
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from typing import List, Optional

OLDEST = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
REQUIREMENTS = {"run": "requirements.txt", "test": "requirements-test.txt"}
# Measured: 1.9 GB with the CPU build of PyTorch, 2.9 GB with the tests' Triton; pip needs room to
# unpack.
VENV_BYTES = {"run": 3000000000, "test": 4000000000}
# Chromium without windows: a test costs a third less in it than in the whole browser.
HEADLESS_SHELL = "chromium-headless-shell"
BROWSERS = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
]


class SetupError(Exception):
    """One line for the user: what is missing, and how to mend it."""


def main(arguments: List[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in REQUIREMENTS:
        print("usage: setup.py run|test", file=sys.stderr)
        return 2
    goal = arguments[0]
    try:
        if not (os.path.exists(stamp(goal)) and os.path.exists(PYTHON)):
            check_python(sys.version_info[:2])
            make_environment(goal)
            install(goal)
        if goal == "test":
            make_browser()
    except SetupError as error:
        print("glassbox: %s" % error, file=sys.stderr)
        return 1
    except OSError as error:
        hint = "; make room" if error.errno == errno.ENOSPC else ""
        print("glassbox: cannot set up %s: %s%s" % (VENV, error, hint), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("glassbox: interrupted; run make again to go on", file=sys.stderr)
        return 130
    return 0


def stamp(goal: str) -> str:
    """The file whose presence says that these very requirements are installed."""
    digest = hashlib.sha256()
    for name in ("requirements.txt", "constraints.txt", REQUIREMENTS[goal]):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return os.path.join(VENV, ".installed-%s-%s" % (goal, digest.hexdigest()[:16]))


def check_python(version: "tuple[int, ...]") -> None:
    if version < OLDEST:
        raise SetupError(
            "Python %d.%d or newer is needed, %s is Python %d.%d; install a newer one, "
            "or name it: make PYTHON=/path/to/python3.11" % (OLDEST + (sys.executable,) + version)
        )


def make_environment(goal: str) -> None:
    """A virtual environment with a working pip; one that was broken off is made anew."""
    probe = "import sys, pip; sys.exit(sys.version_info < %r)" % (OLDEST,)
    if os.path.exists(PYTHON) and not subprocess.call(
        [PYTHON, "-c", probe], stderr=subprocess.DEVNULL
    ):
        return
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            "%s cannot make virtual environments; install that part of it "
            "(on Debian and Ubuntu: apt-get install python3-venv)" % sys.executable
        )
    check_disk_space(VENV_BYTES[goal])
    print("creating .venv with %s" % sys.executable, flush=True)
    command = [sys.executable, "-m", "venv", "--clear", VENV]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        lines = done.stdout.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise SetupError("cannot create %s: %s" % (VENV, lines[-1]))


def install(goal: str) -> None:
    """Installs the pinned requirements and leaves a stamp; PIP_ARGS goes to pip."""
    print("installing %s (minutes the first time)" % REQUIREMENTS[goal], flush=True)
    command = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["-r", os.path.join(ROOT, REQUIREMENTS[goal])]
    command += shlex.split(os.environ.get("PIP_ARGS", ""))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    errors = []
    unreachable = False
    for raw in process.stdout:
        line = raw.decode(errors="replace").rstrip()
        if line.startswith(("Collecting", "  Downloading", "Installing", "Successfully")):
            print(line[:100], flush=True)
        elif line.startswith("WARNING: Retrying"):
            unreachable = True
        elif "ERROR" in line:
            errors.append(line.replace("ERROR: ", "", 1))
    if process.wait() != 0:
        reason = errors[0] if errors else "pip gave no reason"
        if unreachable:  # pip's errors then tell of the consequences only
            reason = "the package index does not answer"
        if "No space left" in " ".join(errors):
            raise SetupError("no disk space left for the packages in %s; make room" % VENV)
        raise SetupError(
            "cannot install %s: %s; check the network and pip's index settings, and run make again"
            % (REQUIREMENTS[goal], reason[:300])
        )
    for name in os.listdir(VENV):
        if name.startswith(".installed-"):
            os.remove(os.path.join(VENV, name))
    # The test requirements hold the others: no goal needs to install again after that one.
    for met in {"run", goal}:
        open(stamp(met), "w").close()


def check_disk_space(needed: int) -> None:
    free = shutil.disk_usage(ROOT).free
    if free < needed:
        raise SetupError(
            "the packages need about %.1f GB of disk space, %s has %.1f GB; make room"
            % (needed / 1e9, ROOT, free / 1e9)
        )


def find_browser(windowless: bool = False) -> Optional[str]:
    """$CHROMIUM, or an installed Chromium or Chrome, the one without windows first or last."""
    named = os.environ.get("CHROMIUM")
    if named:
        found = shutil.which(named)
        if found is None:
            raise SetupError("CHROMIUM=%s is not a program" % named)
        return found
    names = [HEADLESS_SHELL] + BROWSERS if windowless else BROWSERS + [HEADLESS_SHELL]
    return next(filter(None, map(shutil.which, names)), None)


def make_browser() -> None:
    """An installed browser, else one without windows: Debian's where it can be, or Playwright's."""
    ready = os.path.join(VENV, ".playwright-browser")
    if find_browser() or os.path.exists(ready):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing Debian's chromium-headless-shell for the browser tests", flush=True)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        command = ["apt-get", "install", "-y", "--no-install-recommends", HEADLESS_SHELL]
        subprocess.call(["apt-get", "update"], env=environment, **quiet)
        if subprocess.call(command, env=environment, **quiet) == 0 and find_browser():
            return
    print("installing Playwright's chromium for the browser tests", flush=True)
    command = [PYTHON, "-m", "playwright", "install", "--only-shell", "chromium"]
    if subprocess.call(command) != 0:
        raise SetupError(
            "the browser tests need Chromium or Chrome: install one, or set CHROMIUM to its path"
        )
    open(ready, "w").close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
