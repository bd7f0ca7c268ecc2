"""Which lessons are open and when they are due, who takes learners, and who logged in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r2"
down_revision = "r1"


def upgrade() -> None:
    """Add them; what is there stays open, and takes learners."""
    op.add_column(
        "classes",
        sa.Column("takes_learners", sa.Boolean(), nullable=False, server_default=sa.text("true")),
    )
    op.add_column("learners", sa.Column("identity", sa.String(300), nullable=True))
    op.create_index("uq_learners_identity", "learners", ["class_id", "identity"], unique=True)
    op.create_table(
        "lesson_rules",
        sa.Column("class_id", sa.Integer(), nullable=False),
        sa.Column("lesson", sa.String(60), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["class_id"], ["classes.id"], name="fk_lesson_rules_class_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("class_id", "lesson", name="pk_lesson_rules"),
    )
