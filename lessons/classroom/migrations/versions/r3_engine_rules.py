"""What the shared engine takes, which a teacher sets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r3"
down_revision = "r2"


def upgrade() -> None:
    """Add it; without a row the engine takes everything."""
    op.create_table(
        "engine_rules",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("open_to", sa.String(20), nullable=False),
        sa.Column("most_requests", sa.Integer(), nullable=False),
        sa.Column("most_tokens", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_engine_rules"),
    )
