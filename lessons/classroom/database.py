"""Where a register lies: SQLite in the data folder, or what GLASSBOX_DATABASE_URL names.

SQLite runs in WAL, so that who reads waits for nobody who writes, and with synchronous=FULL: a
commit returns once it is on the disk. NORMAL would survive a killed server as well, but not a
machine that loses its power, and an attempt that was acknowledged is promised to be there after.
The price is a sync of the disk for each attempt, which nobody notices who answers by hand.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session

from lessons.classroom.migrations.upgrade import MigrationError, upgrade

URL_SETTING = "GLASSBOX_DATABASE_URL"
DATA_SETTING = "GLASSBOX_DATA"
FILE = "class.sqlite3"
BUSY_SECONDS = 15.0  # for another process that writes


class DatabaseError(RuntimeError):
    """The register cannot be opened; the message says why and what helps."""


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """GLASSBOX_DATA, else `glassbox` in the user's folder of data, which nobody clears by habit."""
    if explicit := environ.get(DATA_SETTING, "").strip():
        return Path(explicit).expanduser()
    at_first = "~/Library/Application Support" if sys.platform == "darwin" else "~/.local/share"
    return Path(environ.get("XDG_DATA_HOME") or at_first).expanduser() / "glassbox"


def database_url(environ: Mapping[str, str] = os.environ) -> str:
    """The address of the register's database."""
    named = environ.get(URL_SETTING, "").strip()
    return (
        named or URL.create("sqlite", database=str(data_folder(environ) / FILE)).render_as_string()
    )


class Database:
    """A database of the newest form, and the two ways to it."""

    def __init__(self, url: str):
        """Open it and bring it up to date; DatabaseError where that cannot be."""
        self.url = _parsed(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        # Its own busy handler polls, and whoever is unlucky comes last: here they queue.
        self._writers: AbstractContextManager[Any] = (
            threading.Lock() if self.is_sqlite else nullcontext()
        )
        try:
            self.engine = self._connect()
            upgrade(self.engine)
        except (SQLAlchemyError, MigrationError, OSError) as error:
            said = str(getattr(error, "orig", None) or error).strip().splitlines()
            raise DatabaseError(f"{self.where}: {said[0] if said else 'no reason given'}") from None

    @property
    def where(self) -> str:
        """The database by name, without what opens it."""
        return self.url.render_as_string(hide_password=True)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A look at one moment of it."""
        with Session(self.engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction: all of it, on the disk when this ends, or nothing."""
        with self._writers, Session(self.engine) as session:
            session.connection(execution_options={"gb_begin": "BEGIN IMMEDIATE"})
            yield session
            session.commit()

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _connect(self) -> Engine:
        if not self.is_sqlite:
            return create_engine(self.url, pool_pre_ping=True)
        if self.url.database:
            folder = Path(self.url.database).expanduser().parent
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        engine = create_engine(self.url, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
        return engine


def _parsed(text: str) -> URL:
    try:
        url = make_url(text)
        if url.drivername in ("postgres", "postgresql"):
            url = url.set(drivername="postgresql+psycopg")
        if url.get_backend_name() not in ("sqlite", "postgresql"):
            raise ArgumentError("not one of ours")
        url.get_dialect().import_dbapi()
    except (ArgumentError, NoSuchModuleError):
        raise DatabaseError(
            f"{URL_SETTING} names no database that can be used: give sqlite:///PATH or "
            "postgresql://USER:PASSWORD@HOST/NAME"
        ) from None
    except ImportError as error:
        raise DatabaseError(
            f"{URL_SETTING}: the package {error.name} is missing; install psycopg[binary], or "
            "leave the setting out and a file is used"
        ) from None
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise DatabaseError(
            f"{URL_SETTING}: a register needs a file: sqlite:////PATH/class.sqlite3"
        )
    return url


def _prepare(connection: Any, record: Any) -> None:
    """A new connection of SQLite's; transactions are begun by `_begin`, not by the driver."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Any) -> None:
    # Who means to write says so at once: one who has read before cannot wait for another writer.
    connection.exec_driver_sql(connection.get_execution_options().get("gb_begin", "BEGIN"))
