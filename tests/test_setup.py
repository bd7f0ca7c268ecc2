"""The Makefile and scripts/setup.py: what is done is not done again, and failures are one line."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import setup

ROOT = Path(__file__).parents[1]
PYTHON_LOG = """#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in
    "-m pip install"*) printf "$PIP_SAYS"; exit "${PIP_STATUS:-0}";;
esac
"""


class Clone:
    """A clone with a stand-in for the environment's Python, which only writes down its calls."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.log = folder / "python.log"
        self.log.touch()
        for name in ("Makefile", "requirements.txt", "requirements-test.txt", "constraints.txt"):
            shutil.copy(ROOT / name, folder)
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/setup.py", folder / "scripts")
        python = folder / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON_LOG)
        python.chmod(0o755)

    def calls(self) -> list[str]:
        """What the stand-in was asked since the last time."""
        lines = self.log.read_text().splitlines()
        self.log.write_text("")
        return [line for line in lines if not line.startswith("-c")]

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        # Nothing of a `make test` that these tests themselves run under.
        ours = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "PIP_ARGS")}
        return subprocess.run(
            ["make", *arguments],
            cwd=self.root,
            env={**ours, "LOG": str(self.log), "PIP_SAYS": "", **environment},
            capture_output=True,
            text=True,
        )


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def assert_one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that is not make's own; a status that is not 0."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1 and lines[0].startswith("glassbox: "), done.stderr
    return lines[0]


def test_setup_installs_once(clone: Clone) -> None:
    assert clone.make("setup").returncode == 0
    install, model = clone.calls()
    assert install.startswith("-m pip install")
    assert f"-r {clone.root}/requirements.txt" in install
    assert model == "-m engine.model_loader"

    assert clone.make("setup").returncode == 0
    assert clone.calls() == ["-m engine.model_loader"]


def test_changed_requirements_are_installed(clone: Clone) -> None:
    clone.make("setup")
    clone.calls()
    with open(clone.root / "constraints.txt", "a") as file:
        file.write("six==1.16.0\n")
    clone.make("setup")
    assert clone.calls()[0].startswith("-m pip install")


def test_test_requirements_hold_the_others(clone: Clone) -> None:
    clone.make("test-environment", CHROMIUM="/bin/sh")
    assert [call for call in clone.calls() if "requirements-test.txt" in call]
    clone.make("setup")
    assert clone.calls() == ["-m engine.model_loader"]


def test_run_starts_the_page(clone: Clone) -> None:
    assert clone.make("run", "PORT=9000").returncode == 0
    assert clone.calls()[-1] == "app.py"
    assert clone.make().returncode == 0  # the default goal
    assert clone.calls()[-1] == "app.py"


def test_pip_arguments_are_passed_on(clone: Clone) -> None:
    clone.make("setup", "PIP_ARGS=--no-cache-dir --retries 1")
    assert clone.calls()[0].endswith("--no-cache-dir --retries 1")


def test_failed_install_is_one_line_and_not_forgotten(clone: Clone) -> None:
    said = "WARNING: a remark\\nERROR: No matching distribution found for torch\\n"
    line = assert_one_line(clone.make("setup", PIP_SAYS=said, PIP_STATUS="1"))
    assert "No matching distribution found for torch; check the network" in line
    clone.calls()
    assert clone.make("setup").returncode == 0
    assert clone.calls()[0].startswith("-m pip install")


def test_no_network_is_one_line(clone: Clone) -> None:
    said = "WARNING: Retrying (Retry(total=4\\nERROR: Could not find a version\\n"
    line = assert_one_line(clone.make("setup", PIP_SAYS=said, PIP_STATUS="1"))
    assert "the package index does not answer; check the network" in line


def test_full_disk_is_one_line(clone: Clone) -> None:
    said = "ERROR: Could not install packages: [Errno 28] No space left on device\\n"
    line = assert_one_line(clone.make("setup", PIP_SAYS=said, PIP_STATUS="1"))
    assert "no disk space left" in line


def test_python_too_old_is_one_line(clone: Clone, tmp_path: Path) -> None:
    code = "import sys; sys.path.insert(0, 'scripts'); import setup; sys.version_info = (3, 10, 4)"
    old = tmp_path / "python-old"
    old.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c \"{code}; sys.exit(setup.main(['run']))\"\n"
    )
    old.chmod(0o755)
    line = assert_one_line(clone.make("setup", f"PYTHON={old}"))
    assert "Python 3.11 or newer is needed" in line and "is Python 3.10" in line


def test_old_pythons_can_read_the_script() -> None:
    """No syntax newer than 3.6; every import there as well."""
    tree = ast.parse((ROOT / "scripts/setup.py").read_text(), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    imported = {alias.name for node in imports for alias in node.names}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def test_no_python_is_one_line(clone: Clone, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("make", "sh"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    line = assert_one_line(clone.make("setup", PATH=str(tools)))
    assert "python3 is missing" in line


def test_no_venv_module_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(setup, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(setup, "PYTHON", str(tmp_path / ".venv/bin/python"))
    monkeypatch.setattr(setup.importlib.util, "find_spec", lambda name: None)
    assert setup.main(["run"]) == 1
    error = capsys.readouterr().err
    assert "python3-venv" in error and len(error.splitlines()) == 1


def test_too_little_disk_space_is_said_with_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(setup, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(setup, "PYTHON", str(tmp_path / ".venv/bin/python"))
    usage = shutil.disk_usage(tmp_path)._replace(free=500_000_000)
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda path: usage)
    assert setup.main(["run"]) == 1
    assert re.search(r"3\.0 GB of disk space, .* has 0\.5 GB", capsys.readouterr().err)


# The browser


def test_installed_browser_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(setup, "BROWSERS", setup.BROWSERS[:4])  # none of this machine's own
    assert setup.find_browser() is None
    for name in ("chromium-headless-shell", "google-chrome", "chromium"):
        browser = tmp_path / name
        browser.touch(mode=0o755)
        assert setup.find_browser() == str(browser)
        assert setup.find_browser(windowless=True) == str(tmp_path / "chromium-headless-shell")
    (tmp_path / "chromium-headless-shell").unlink()
    assert setup.find_browser(windowless=True) == str(browser)
    monkeypatch.setenv("CHROMIUM", "/bin/sh")
    assert setup.find_browser() == "/bin/sh"
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    with pytest.raises(setup.SetupError, match="CHROMIUM"):
        setup.find_browser()


def browser_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: bool, apt: bool, apt_status: int = 0
) -> list[str]:
    """What make_browser installs on a machine without a browser."""
    calls: list[str] = []

    def call(command: list[str], **options: object) -> int:
        calls.append(" ".join(command[-4:]))
        if command[:2] == ["apt-get", "install"] and apt_status == 0:
            monkeypatch.setattr(setup, "find_browser", lambda: "/usr/bin/chromium")
        return apt_status if command[0] == "apt-get" else 0

    monkeypatch.setattr(setup, "VENV", str(tmp_path))
    monkeypatch.setattr(setup, "find_browser", lambda: None)
    monkeypatch.setattr(setup.os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(setup.shutil, "which", lambda name: name if apt else None)
    monkeypatch.setattr(setup.subprocess, "call", call)
    setup.make_browser()
    setup.make_browser()  # does nothing any more
    return calls


def test_browser_from_debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = browser_calls(monkeypatch, tmp_path, root=True, apt=True)
    assert calls == ["apt-get update", "install -y --no-install-recommends chromium-headless-shell"]


@pytest.mark.parametrize(("root", "apt"), [(True, False), (False, True)])
def test_browser_from_playwright(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: bool, apt: bool
) -> None:
    calls = browser_calls(monkeypatch, tmp_path, root=root, apt=apt)
    assert calls == ["playwright install --only-shell chromium"]


def test_browser_from_playwright_where_debian_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = browser_calls(monkeypatch, tmp_path, root=True, apt=True, apt_status=100)
    assert calls[-1] == "playwright install --only-shell chromium"


# The files


def pins(name: str) -> dict[str, str]:
    lines = (line.strip() for line in (ROOT / name).read_text().splitlines())
    needed = (line.partition(";")[0] for line in lines)  # on this platform or that
    wanted = [line for line in needed if line and not line.startswith(("#", "-"))]
    assert all(re.fullmatch(r"[\w.-]+(\[\w+\])?==[\w.]+", line) for line in wanted)
    return dict(re.sub(r"\[\w+\]", "", line).lower().split("==") for line in wanted)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-test.txt"])
def test_requirements_are_pinned_and_agree_with_the_constraints(name: str) -> None:
    assert pins(name).items() <= pins("constraints.txt").items()


def test_streamlit_knows_every_option() -> None:
    from streamlit import config as streamlit_config

    known = streamlit_config._config_options_template
    options = tomllib.loads((ROOT / ".streamlit/config.toml").read_text())

    def names(table: dict[str, object], prefix: str = "") -> list[str]:
        return [
            name
            for key, value in table.items()
            for name in (names(value, f"{key}.") if isinstance(value, dict) else [prefix + key])
        ]

    flat = [f"{section}.{name}" for section, table in options.items() for name in names(table)]
    assert len(flat) > 15
    assert [name for name in flat if name not in known] == []
    for face in options["theme"]["fontFaces"]:
        assert (ROOT / "views" / face["url"].lstrip("/")).read_bytes().startswith(b"wOF2")


def test_browser_is_driven(browser: object) -> None:
    """The fixture that the browser tests stand on."""
    page = browser.new_page()  # type: ignore[attr-defined]
    page.set_content("<h1>Glassbox</h1>")
    assert page.inner_text("h1") == "Glassbox"
    page.close()
