"""The tables. Times are UTC as text, digests hexadecimal digits, blobs sealed unless it says otherwise.

No column holds a row, an identifier or a name of a person in the clear.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

# The newest migration.
REVISION = "0002"
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMING)

setting = Table(
    "setting",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

# A key on a sheet outside the database: the place there is the number here.
secret = Table(
    "secret",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("purpose", String(32), nullable=False),
    sqlite_autoincrement=True,
)

# Secrets that are to be destroyed: written with what makes them superfluous, removed once that is done.
shred = Table("shred", metadata, Column("secret_id", ForeignKey("secret.id"), primary_key=True))

model = Table(
    "model",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("registered", String(27), nullable=False),
    # JSON: inputs, target and ids, as columns of a table are called.
    Column("columns", Text, nullable=False),
    # JSON: what `ModelSettings` has; what a row of an earlier version lacks is as by default.
    Column("settings", Text, nullable=False),
    # Number of the version that production should load.
    Column("head", Integer, nullable=False),
    # Counts the holders of the lease: what an earlier one wants to write is refused.
    Column("epoch", Integer, nullable=False, default=0),
    Column("lease_holder", String(100)),
    Column("lease_until", String(27)),
    # When somebody asked for what waits to be applied as soon as possible.
    Column("wanted", String(27)),
    # JSON, while somebody is at work: what, done, total.
    Column("progress", Text),
)

version = Table(
    "version",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("model_id", ForeignKey("model.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    # The base that it is solved from; its own number for a base.
    Column("base", Integer, nullable=False),
    Column("created", String(27), nullable=False),
    # SHA-256 of the model file.
    Column("digest", String(64), nullable=False),
    Column("secret_id", ForeignKey("secret.id"), nullable=False),
    # The model file; NULL once a later version has taken its place.
    Column("blob", LargeBinary),
    # The sum of the statistics of all that was taken out of a base.
    Column("erased_sum", LargeBinary),
    # Records taken out since the base.
    Column("erased", Integer, nullable=False),
    Column("verdict", String(16)),
    # JSON: method, error, doubts, caveats, information.
    Column("findings", Text, nullable=False),
    UniqueConstraint("model_id", "number"),
)

request = Table(
    "request",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("model_id", ForeignKey("model.id"), nullable=False),
    # Two submissions of one client with one idempotency key are one.
    Column("client", String(100), nullable=False),
    Column("idempotency_key", String(200)),
    # Keyed digest of what was submitted: the same key with something else is refused.
    Column("content", String(64), nullable=False),
    Column("subject", String(64), nullable=False),
    Column("reference", String(200)),
    Column("received", String(27), nullable=False),
    # The last day for an answer, as it was set at first and as it is now.
    Column("first_due", String(10), nullable=False),
    Column("due", String(10), nullable=False),
    Column("state", String(16), nullable=False),
    # Whether records that are not in the model are refused or skipped.
    Column("missing", String(8), nullable=False),
    # Why it is not applied though it is approved.
    Column("hold", Text),
    Column("asked", Integer, nullable=False),
    Column("erased", Integer),
    Column("already", Integer),
    Column("unknown", Integer),
    Column("ended", String(27)),
    Column("secret_id", ForeignKey("secret.id"), nullable=False),
    UniqueConstraint("client", "idempotency_key"),
    Index("ix_request_state_due", "state", "due"),
    Index("ix_request_model_id_state_due", "model_id", "state", "due"),
    Index("ix_request_state_id", "state", "id"),
    Index("ix_request_model_id_state_id", "model_id", "state", "id"),
    Index("ix_request_subject", "subject"),
    Index("ix_request_client_id", "client", "id"),
    sqlite_autoincrement=True,
)

# The rows of a request, until they are applied.
payload = Table(
    "payload",
    metadata,
    Column("request_id", ForeignKey("request.id"), primary_key=True),
    Column("blob", LargeBinary, nullable=False),
)

# Keyed digests of the identifiers of a request's records.
record = Table(
    "record",
    metadata,
    Column("request_id", ForeignKey("request.id"), primary_key=True),
    Column("digest", String(64), primary_key=True),
)

# Which request has taken a record out of a base: nobody is taken out twice.
claim = Table(
    "claim",
    metadata,
    Column("base_id", ForeignKey("version.id"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("request_id", ForeignKey("request.id"), nullable=False),
    Index("ix_claim_request_id", "request_id"),
)

# By which version a request has taken effect.
application = Table(
    "application",
    metadata,
    Column("request_id", ForeignKey("request.id"), primary_key=True),
    Column("base_id", ForeignKey("version.id"), primary_key=True),
    Column("version_id", ForeignKey("version.id"), nullable=False),
    Column("sequence", Integer, nullable=False),
)

report = Table(
    "report",
    metadata,
    Column("request_id", ForeignKey("request.id"), primary_key=True),
    Column("issued", String(27), nullable=False),
    # In the clear: it is made to be handed out.
    Column("body", LargeBinary, nullable=False),
)

event = Table(
    "event",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    # In the clear, as the log hashes it: no personal data.
    Column("body", LargeBinary, nullable=False),
    Column("request_id", Integer),
    Index("ix_event_request_id", "request_id"),
)

# What a commitment in the log stands for; deleting it is forgetting.
opening = Table(
    "opening",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("salt", String(64), nullable=False),
    Column("details", Text, nullable=False),
)

# One row, which every writer locks: events stand in one line.
log_head = Table(
    "log_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("size", BigInteger, nullable=False),
    Column("frontier", Text, nullable=False),
    Column("time", String(27), nullable=False),
)

checkpoint = Table(
    "checkpoint",
    metadata,
    Column("size", BigInteger, primary_key=True, autoincrement=False),
    Column("time", String(27), nullable=False),
    Column("text", Text, nullable=False),
)

# Who may use the service, and for what.
token = Table(
    "token",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(90), nullable=False),
    # Keyed digest of what the bearer shows.
    Column("digest", String(64), nullable=False, unique=True),
    # Words between spaces.
    Column("scopes", String(100), nullable=False),
    Column("created", String(27), nullable=False),
    Column("expires", String(27)),
    Column("revoked", String(27)),
    sqlite_autoincrement=True,
)

# Where events are told to.
hook = Table(
    "hook",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("url", String(2000), nullable=False),
    # Words between spaces; empty for all.
    Column("kinds", Text, nullable=False),
    Column("created", String(27), nullable=False),
    Column("secret_id", ForeignKey("secret.id"), nullable=False),
    # By which what is sent is signed.
    Column("blob", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)

_WAITING = text("next_try IS NOT NULL")

# The outbox: an event that a hook is told of, written together with the event.
delivery = Table(
    "delivery",
    metadata,
    Column("hook_id", ForeignKey("hook.id"), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("attempts", Integer, nullable=False),
    # NULL where nothing more is tried: it was delivered, or given up.
    Column("next_try", String(27)),
    Column("delivered", String(27)),
    Column("error", String(200)),
    Index("ix_delivery_waiting", "hook_id", "sequence", sqlite_where=_WAITING, postgresql_where=_WAITING),
)
