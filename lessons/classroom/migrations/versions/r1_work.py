"""Classes, learners, their runs, attempts and what those were worth."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r1"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "classes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("code", sa.String(12), nullable=False),
        sa.Column("title", sa.String(60), nullable=False),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_classes"),
        sa.UniqueConstraint("code", name="uq_classes_code"),
    )
    op.create_table(
        "learners",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("class_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(60), nullable=False),
        sa.Column("sort_name", sa.String(240), nullable=False),
        sa.Column("secret_digest", sa.String(64), nullable=False),
        sa.Column("joined_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["class_id"], ["classes.id"], name="fk_learners_class_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_learners"),
        sa.UniqueConstraint("class_id", "sort_name", name="uq_learners_class_id"),
        sa.UniqueConstraint("secret_digest", name="uq_learners_secret_digest"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("learner_id", sa.Integer(), nullable=False),
        sa.Column("lesson", sa.String(60), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("engine", sa.String(64), nullable=False),
        sa.Column("began_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["learner_id"], ["learners.id"], name="fk_runs_learner_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("learner_id", "lesson", "seed", name="uq_runs_learner_id"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(100), nullable=False),
        sa.Column("step", sa.String(60), nullable=False),
        sa.Column("question", sa.String(60), nullable=False),
        sa.Column("given", sa.Text(), nullable=False),
        sa.Column("shown", sa.Text(), nullable=False),
        sa.Column("hints", sa.Integer(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("is_right", sa.Boolean(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("most", sa.Integer(), nullable=False),
        sa.Column("wrong", sa.Integer(), nullable=True),
        sa.Column("given_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name="fk_attempts_run_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.UniqueConstraint("run_id", "key", name="uq_attempts_run_id"),
    )
    op.create_index(
        "uq_attempts_final",
        "attempts",
        ["run_id", "step", "question"],
        unique=True,
        sqlite_where=sa.text("final"),
        postgresql_where=sa.text("final"),
    )
