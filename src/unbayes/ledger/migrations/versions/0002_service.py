"""What the service needs: tokens, webhooks, and models that somebody wants applied or is at work on."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make three tables, and two columns of models."""
    op.create_table(
        "token",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=90), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.String(length=100), nullable=False),
        sa.Column("created", sa.String(length=27), nullable=False),
        sa.Column("expires", sa.String(length=27), nullable=True),
        sa.Column("revoked", sa.String(length=27), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
        sa.UniqueConstraint("digest", name=op.f("uq_token_digest")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "hook",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("url", sa.String(length=2000), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("created", sa.String(length=27), nullable=False),
        sa.Column("secret_id", sa.Integer(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["secret_id"], ["secret.id"], name=op.f("fk_hook_secret_id_secret")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hook")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "delivery",
        sa.Column("hook_id", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_try", sa.String(length=27), nullable=True),
        sa.Column("delivered", sa.String(length=27), nullable=True),
        sa.Column("error", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(["hook_id"], ["hook.id"], name=op.f("fk_delivery_hook_id_hook")),
        sa.PrimaryKeyConstraint("hook_id", "sequence", name=op.f("pk_delivery")),
    )
    waiting = sa.text("next_try IS NOT NULL")
    op.create_index(
        "ix_delivery_waiting",
        "delivery",
        ["hook_id", "sequence"],
        unique=False,
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    op.add_column("model", sa.Column("wanted", sa.String(length=27), nullable=True))
    op.add_column("model", sa.Column("progress", sa.Text(), nullable=True))
    op.create_index("ix_request_client_id", "request", ["client", "id"], unique=False)
