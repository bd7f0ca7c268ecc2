"""What Alembic runs: the revisions, on the connection that `upgrade` brings along."""

from __future__ import annotations

from alembic import context

from lessons.classroom.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
    transaction_per_migration=False,
)
context.run_migrations()
