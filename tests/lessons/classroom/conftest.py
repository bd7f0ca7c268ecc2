"""Databases for a register: SQLite, and PostgreSQL where it is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from lessons.classroom.attempts import Attempts
from lessons.classroom.database import Database
from lessons.classroom.register import Register
from tests.waiting import PATIENCE_S


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def postgres_program(name: str) -> str | None:
    """A program of PostgreSQL's server, which most systems keep out of the PATH."""
    newest = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(newest[-1]) if newest else None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL of the tests' own: the address of a database, `{name}` in its place."""
    initdb, pg_ctl = postgres_program("initdb"), postgres_program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL is not installed (initdb, pg_ctl)")
    if not find_spec("psycopg"):
        pytest.skip("the package psycopg is not installed")
    # Not in pytest's folder: another user may not look into that.
    with tempfile.TemporaryDirectory(prefix="glassbox-postgres-") as folder:
        yield from serving(Path(folder), initdb, pg_ctl)


def serving(folder: Path, initdb: str, pg_ctl: str) -> Iterator[str]:
    before: list[str] = []
    if os.getuid() == 0:  # it refuses to run as root
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        before = ["runuser", "-u", "postgres", "--"]
    data = str(folder / "data")

    def call(*command: str) -> None:
        done = subprocess.run(
            [*before, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr.decode()

    call(initdb, "-D", data, "-U", "glassbox", "-A", "trust", "--no-sync", "-E", "UTF8")
    options = f"-k {folder} -c listen_addresses=''"  # a socket of its own, and no port
    log = str(folder / "log")
    call(pg_ctl, "-D", data, "-o", options, "-l", log, "-w", "-t", "120", "start")
    try:
        yield f"postgresql://glassbox@/{{name}}?host={folder}"
    finally:
        call(pg_ctl, "-D", data, "-m", "immediate", "stop")


def empty_database(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The address of a database with nothing in it."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'class.sqlite3'}"
    import psycopg

    server: str = request.getfixturevalue("postgres")
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(server.format(name="postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.format(name=name)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request.param, request, tmp_path)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.close()


@pytest.fixture
def clock() -> Ticks:
    return Ticks()


@pytest.fixture
def register(database: Database, clock: Ticks) -> Register:
    return Register(database, clock)


@pytest.fixture
def attempts(register: Register) -> Attempts:
    return Attempts(register.database, register.clock)
