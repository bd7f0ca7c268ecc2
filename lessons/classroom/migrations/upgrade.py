"""Bring a database to the newest revision, from none or from an older one."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text

FOLDER = Path(__file__).parent
_LOCK = 7_214_530_117  # among PostgreSQL's advisory locks, any number that is ours


class MigrationError(RuntimeError):
    """The database is not one that can be brought up to date."""


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Do what is missing up to a revision, all in one transaction.

    Two servers that start at once wait for one another. Raises MigrationError where the database is
    of a newer version than this one.
    """
    asked = engine.connect().execution_options(gb_begin="BEGIN IMMEDIATE")
    with asked as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        _upgrade(connection, revision)


def current(engine: Engine) -> str | None:
    """The revision that a database has."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest() -> str | None:
    """The revision that this version of the project has."""
    return ScriptDirectory(str(FOLDER)).get_current_head()


def _upgrade(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise MigrationError(
            f"it was written by another version of Glassbox ({error}); start that one, or name "
            "another database"
        ) from None
