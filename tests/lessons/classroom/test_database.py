"""The register's database: its migrations, what it promises, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, inspect, text

from lessons.classroom.attempts import Attempts
from lessons.classroom.database import Database, DatabaseError, data_folder, database_url
from lessons.classroom.migrations.upgrade import current, newest, upgrade
from lessons.classroom.models import Base
from lessons.classroom.register import Register
from tests.servers import ROOT
from tests.waiting import PATIENCE_S


def raw(url: str) -> Engine:
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def test_an_empty_one_becomes_what_the_models_say(url: str) -> None:
    database = Database(url)
    assert current(database.engine) == newest() is not None
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    database.close()


def test_an_older_one_is_brought_up_to_date_and_loses_nothing(url: str) -> None:
    engine = raw(url)
    upgrade(engine, "r1")
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO classes VALUES (1, 'ABCDEF', 'Monday', 5.0)"))
        connection.execute(
            text("INSERT INTO learners VALUES (1, 1, 'Ada', 'ada', 'digest', 6.0, 7.0)")
        )
    engine.dispose()
    register = Register(Database(url))
    assert current(register.database.engine) == newest()
    (room,) = register.classes()
    assert (room.code, room.title, room.takes_learners) == ("ABCDEF", "Monday", True)
    assert [learner.name for learner in register.learners(1)] == ["Ada"]
    assert register.rules(1) == {}
    Database(url).close()  # a second start has nothing to do
    register.database.close()


def test_one_of_a_newer_version_is_left_alone(url: str) -> None:
    Database(url).close()
    engine = raw(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'r999'"))
    engine.dispose()
    with pytest.raises(DatabaseError, match="another version of Glassbox"):
        Database(url)


def test_a_migration_that_fails_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(url)
    with database.writing() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(text(f"DROP TABLE {table.name}"))
        session.execute(text("DROP TABLE alembic_version"))
    monkeypatch.setattr("alembic.operations.Operations.create_index", fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        upgrade(database.engine)
    with database.engine.connect() as connection:
        assert inspect(connection).get_table_names() == []
    monkeypatch.undo()
    upgrade(database.engine)
    assert current(database.engine) == newest()
    database.close()


def fail(*_: object, **__: object) -> None:
    raise RuntimeError("on purpose")


def test_sqlite_is_durable_checks_its_keys_and_lets_readers_read(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a' / 'b' / 'class.sqlite3'}")
    with database.engine.connect() as connection:
        for pragma, value in (
            ("journal_mode", "wal"),
            ("synchronous", 2),  # FULL
            ("foreign_keys", 1),
            ("busy_timeout", 15_000),
        ):
            assert connection.execute(text(f"PRAGMA {pragma}")).scalar() == value
    register = Register(database)
    with database.writing():
        assert register.classes() == []  # while somebody writes
    database.close()


def test_where_it_lies(tmp_path: Path) -> None:
    assert data_folder({"GLASSBOX_DATA": str(tmp_path)}) == tmp_path
    assert data_folder({"XDG_DATA_HOME": "/data"}) == Path("/data/glassbox")
    assert data_folder({}).name == "glassbox"
    assert database_url({"GLASSBOX_DATA": "/d"}) == "sqlite:////d/class.sqlite3"
    assert database_url({"GLASSBOX_DATABASE_URL": "postgresql://h/n"}) == "postgresql://h/n"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nonsense", "names no database"),
        ("nosuch://x", "names no database"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("sqlite:////proc/no/such/place.db", "/proc/no"),
        ("postgresql://u:secretword@127.0.0.1:1/x", "127.0.0.1"),
    ],
)
def test_what_cannot_be_opened_is_said_in_one_line(url: str, why: str) -> None:
    with pytest.raises(DatabaseError, match=why) as caught:
        Database(url)
    assert "secretword" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "class.sqlite3"
    file.write_text("my diary " * 1000)
    with pytest.raises(DatabaseError, match="not a database"):
        Database(f"sqlite:///{file}")
    assert file.read_text().startswith("my diary")


WRITER = """
import sys
from lessons.classroom.attempts import Answer, Attempts
from lessons.classroom.database import Database
from lessons.classroom.register import Register
register = Register(Database(sys.argv[1]))
attempts = Attempts(register.database, register.clock)
room = register.begin_class("Killed")
learner = register.join(room.code, "Ada").learner
run = attempts.begin(learner.id, "lab", 1, "d", "e", {})
for n in range(1_000_000):
    attempts.record(learner.id, run.id, [Answer(f"k{n}", "s", "q", n, str(n), False)])
    print(n, flush=True)
    if n % 1500 == 1499:
        run = attempts.begin(learner.id, "lab", 2 + n, "d", "e", {})
"""


def test_what_was_acknowledged_is_there_after_the_server_was_killed(url: str) -> None:
    """SIGKILL in the middle of writing: nobody can tidy up."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, url], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    heard = [int(process.stdout.readline()) for _ in range(40)]
    process.kill()
    heard += [
        int(line) for line in process.stdout.read().splitlines(keepends=True) if line[-1:] == "\n"
    ]
    process.wait(PATIENCE_S)
    database = Database(url)
    with database.reading() as session:
        found = [
            int(n)
            for n in session.execute(text("SELECT given FROM attempts ORDER BY id")).scalars()
        ]
    assert heard == list(range(len(heard)))
    assert found[: len(heard)] == heard
    assert len(found) <= len(heard) + 1  # one may be written whose writer could not say so
    with database.reading() as session:
        if database.is_sqlite:
            assert session.execute(text("PRAGMA integrity_check")).scalar() == "ok"
    register = Register(database)
    (learner,) = register.learners(register.classes()[0].id)
    assert Attempts(database, register.clock).runs(learner.id)
    database.close()
