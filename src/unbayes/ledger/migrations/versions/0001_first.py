"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "checkpoint",
        sa.Column("size", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.String(length=27), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("size", name=op.f("pk_checkpoint")),
    )
    op.create_table(
        "event",
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("request_id", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_event")),
    )
    op.create_index("ix_event_request_id", "event", ["request_id"], unique=False)
    op.create_table(
        "log_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("frontier", sa.Text(), nullable=False),
        sa.Column("time", sa.String(length=27), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_head")),
    )
    op.create_table(
        "model",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("registered", sa.String(length=27), nullable=False),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("head", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lease_holder", sa.String(length=100), nullable=True),
        sa.Column("lease_until", sa.String(length=27), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model")),
        sa.UniqueConstraint("name", name=op.f("uq_model_name")),
    )
    op.create_table(
        "opening",
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("salt", sa.String(length=64), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_opening")),
    )
    op.create_table(
        "secret",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secret")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "setting",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_setting")),
    )
    op.create_table(
        "request",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("client", sa.String(length=100), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("content", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("reference", sa.String(length=200), nullable=True),
        sa.Column("received", sa.String(length=27), nullable=False),
        sa.Column("first_due", sa.String(length=10), nullable=False),
        sa.Column("due", sa.String(length=10), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("missing", sa.String(length=8), nullable=False),
        sa.Column("hold", sa.Text(), nullable=True),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.Column("erased", sa.Integer(), nullable=True),
        sa.Column("already", sa.Integer(), nullable=True),
        sa.Column("unknown", sa.Integer(), nullable=True),
        sa.Column("ended", sa.String(length=27), nullable=True),
        sa.Column("secret_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_request_model_id_model")),
        sa.ForeignKeyConstraint(["secret_id"], ["secret.id"], name=op.f("fk_request_secret_id_secret")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_request")),
        sa.UniqueConstraint("client", "idempotency_key", name=op.f("uq_request_client_idempotency_key")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_request_model_id_state_due", "request", ["model_id", "state", "due"], unique=False)
    op.create_index("ix_request_state_id", "request", ["state", "id"], unique=False)
    op.create_index("ix_request_model_id_state_id", "request", ["model_id", "state", "id"], unique=False)
    op.create_index("ix_request_state_due", "request", ["state", "due"], unique=False)
    op.create_index("ix_request_subject", "request", ["subject"], unique=False)
    op.create_table(
        "shred",
        sa.Column("secret_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["secret_id"], ["secret.id"], name=op.f("fk_shred_secret_id_secret")),
        sa.PrimaryKeyConstraint("secret_id", name=op.f("pk_shred")),
    )
    op.create_table(
        "version",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("base", sa.Integer(), nullable=False),
        sa.Column("created", sa.String(length=27), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("secret_id", sa.Integer(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=True),
        sa.Column("erased_sum", sa.LargeBinary(), nullable=True),
        sa.Column("erased", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("findings", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_version_model_id_model")),
        sa.ForeignKeyConstraint(["secret_id"], ["secret.id"], name=op.f("fk_version_secret_id_secret")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_version")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_version_model_id_number")),
    )
    op.create_table(
        "application",
        sa.Column("request_id", sa.Integer(), nullable=False),
        sa.Column("base_id", sa.Integer(), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["base_id"], ["version.id"], name=op.f("fk_application_base_id_version")),
        sa.ForeignKeyConstraint(
            ["request_id"], ["request.id"], name=op.f("fk_application_request_id_request")
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["version.id"], name=op.f("fk_application_version_id_version")
        ),
        sa.PrimaryKeyConstraint("request_id", "base_id", name=op.f("pk_application")),
    )
    op.create_table(
        "claim",
        sa.Column("base_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["base_id"], ["version.id"], name=op.f("fk_claim_base_id_version")),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=op.f("fk_claim_request_id_request")),
        sa.PrimaryKeyConstraint("base_id", "digest", name=op.f("pk_claim")),
    )
    op.create_index("ix_claim_request_id", "claim", ["request_id"], unique=False)
    op.create_table(
        "payload",
        sa.Column("request_id", sa.Integer(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=op.f("fk_payload_request_id_request")),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_payload")),
    )
    op.create_table(
        "record",
        sa.Column("request_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=op.f("fk_record_request_id_request")),
        sa.PrimaryKeyConstraint("request_id", "digest", name=op.f("pk_record")),
    )
    op.create_table(
        "report",
        sa.Column("request_id", sa.Integer(), nullable=False),
        sa.Column("issued", sa.String(length=27), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["request.id"], name=op.f("fk_report_request_id_request")),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_report")),
    )
