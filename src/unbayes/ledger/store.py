"""All SQL on models, versions and requests. Methods are the sentences of the ledger's language."""

import datetime
import heapq
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unbayes.ledger import log, outbox, schema
from unbayes.ledger.clock import to_text
from unbayes.ledger.entities import Model, Request, Version
from unbayes.ledger.errors import Conflict, NotFound
from unbayes.ledger.log import Happening
from unbayes.ledger.states import WAITING, RequestState, require_following

# The setting that a database has when its ledger was moved to another one.
MOVED = "moved"
# Values in one list of a query.
LISTED = 500

_VERSION = [
    *(column for column in schema.version.c if column.name not in ("blob", "erased_sum")),
    schema.version.c.blob.is_not(None).label("is_kept"),
]
_REQUEST = [
    *(
        schema.request.c[name]
        for name in (
            *("id", "client", "subject", "reference", "received", "first_due", "due", "state", "missing"),
            *("hold", "asked", "erased", "already", "unknown", "ended", "secret_id"),
        )
    ),
    schema.model.c.name.label("model"),
    schema.version.c.number.label("version"),
    schema.version.c.verdict.label("verdict"),
]
_REQUESTS = (
    schema.request.join(schema.model, schema.model.c.id == schema.request.c.model_id)
    .outerjoin(schema.application, schema.application.c.request_id == schema.request.c.id)
    .outerjoin(schema.version, schema.version.c.id == schema.application.c.version_id)
)
# What each submission asks, made once: building a statement takes longer than running it.
_HAS_MOVED = sa.select(schema.setting.c.name).where(schema.setting.c.name == MOVED)
_MODEL = sa.select(schema.model).where(schema.model.c.name == sa.bindparam("of"))
_KNOWN_KEY = sa.select(schema.request.c.id, schema.request.c.content).where(
    schema.request.c.client == sa.bindparam("of"), schema.request.c.idempotency_key == sa.bindparam("key")
)
_NEW_SECRET = schema.secret.insert().returning(schema.secret.c.id)
_NEW_REQUEST = schema.request.insert().returning(schema.request.c.id, sort_by_parameter_order=True)
_NEW_PAYLOAD, _NEW_RECORD = schema.payload.insert(), schema.record.insert()


class Store:
    """One transaction on the tables."""

    def __init__(self, connection: Connection, now: datetime.datetime | None = None):
        self.connection, self._now = connection, now

    @property
    def now(self) -> str:
        """The time of this transaction, which writes."""
        assert self._now is not None, "a transaction that reads has no time"
        return to_text(self._now)

    def run(self, statement: Any, *arguments: Any) -> Any:
        """Execute a statement."""
        return self.connection.execute(statement, *arguments)

    # Events

    def note(self, *happenings: Happening) -> list[int]:
        """Write events at the end of the log, and into the outbox."""
        places = log.append(self.connection, self.now, happenings)
        return outbox.post(self.connection, self.now, happenings, places)

    # Settings

    def setting(self, name: str) -> str:
        """A setting of the ledger."""
        return self.run(sa.select(schema.setting.c.value).where(schema.setting.c.name == name)).scalar_one()

    def has_settings(self) -> bool:
        """Whether there is a ledger in the database."""
        return self.run(sa.select(schema.setting.c.name).limit(1)).first() is not None

    def has_moved(self) -> bool:
        """Whether the ledger is in another database now."""
        return self.run(_HAS_MOVED).first() is not None

    def add_settings(self, **values: str) -> None:
        """Write new settings."""
        self.run(schema.setting.insert(), [{"name": name, "value": value} for name, value in values.items()])

    # Secrets

    def new_secrets(self, purpose: str, number: int) -> list[int]:
        """Places on the sheets of keys."""
        return list(self.connection.scalars(_NEW_SECRET, [{"purpose": purpose}] * number))

    def shred_later(self, secrets: Iterable[int]) -> None:
        """List secrets whose keys are to be destroyed as soon as this transaction has taken effect."""
        if rows := [{"secret_id": secret} for secret in secrets]:
            self.run(schema.shred.insert(), rows)

    def to_shred(self) -> list[int]:
        """Secrets whose keys are to be destroyed."""
        return list(self.connection.scalars(sa.select(schema.shred.c.secret_id)))

    def shredded(self, secrets: Sequence[int]) -> None:
        """Note that these keys are destroyed."""
        for some in _parts(secrets):
            self.run(schema.shred.delete().where(schema.shred.c.secret_id.in_(some)))

    # Models

    def model(self, name: str) -> Model:
        """A model by its name."""
        row = self.run(_MODEL, {"of": name}).one_or_none()
        if row is None:
            known = ", ".join(each.name for each in self.models()) or "none"
            raise NotFound(f"there is no model {name!r}; registered are: {known}")
        return Model.of(row)

    def models(self) -> list[Model]:
        """All models, by name."""
        return [Model.of(row) for row in self.run(sa.select(schema.model).order_by(schema.model.c.name))]

    def add_model(self, name: str, columns: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
        """A model without versions."""
        if self.run(sa.select(schema.model.c.id).where(schema.model.c.name == name)).scalar() is not None:
            raise Conflict(f"there is a model {name!r} already; rebase replaces what it is based on")
        texts = {"columns": json.dumps(columns), "settings": json.dumps(settings)}
        row = {"name": name, "registered": self.now, "head": 1, "epoch": 0, **texts}
        return self.run(schema.model.insert().returning(schema.model.c.id), row).scalar_one()

    def take_lease(
        self, model: Model, holder: str, until: str, latest: str, progress: str | None = None
    ) -> int | None:
        """Become the one who works on a model; the new epoch, or None while somebody else does.

        A lease that ends later than any could, because a clock was put back, counts as ended.
        """
        held = schema.model.c.lease_until
        free = sa.or_(held.is_(None), held <= self.now, held > latest)
        mine = schema.model.update().where(schema.model.c.id == model.id, free)
        epoch = schema.model.c.epoch + 1
        change = mine.values(lease_holder=holder, lease_until=until, progress=progress, epoch=epoch)
        return self.run(change.returning(schema.model.c.epoch)).scalar()

    def drop_lease(self, model: Model, epoch: int) -> None:
        """Let go of a lease, unless somebody else has it now."""
        mine = schema.model.update().where(schema.model.c.id == model.id, schema.model.c.epoch == epoch)
        self.run(mine.values(lease_holder=None, lease_until=None, progress=None))

    def move_head(self, model: Model, epoch: int, to: int) -> None:
        """Compare and swap: only if nobody moved the head or took the lease in the meantime."""
        table = schema.model
        same = table.update().where(
            table.c.id == model.id, table.c.head == model.head, table.c.epoch == epoch
        )
        if self.run(same.values(head=to)).rowcount != 1:
            raise Conflict(f"somebody else has changed {model.name} in the meantime; nothing was written")

    def want(self, model: Model) -> None:
        """Note that somebody waits for what waits to be applied."""
        self.run(schema.model.update().where(schema.model.c.id == model.id).values(wanted=self.now))

    def wish_granted(self, model: Model) -> None:
        """Nobody waits any more, unless somebody has asked since the model was read."""
        table = schema.model
        same = table.update().where(table.c.id == model.id, table.c.wanted == model.wanted)
        self.run(same.values(wanted=None))

    # Versions

    def version(self, model: Model, number: int) -> Version:
        """A version by its number."""
        table = schema.version
        asked = sa.select(*_VERSION).where(table.c.model_id == model.id, table.c.number == number)
        row = self.run(asked).one_or_none()
        if row is None:
            raise NotFound(f"there is no version {number} of {model.name}")
        return Version.of(row)

    def versions(self, model: Model) -> list[Version]:
        """All versions, the first first."""
        table = schema.version
        asked = sa.select(*_VERSION).where(table.c.model_id == model.id).order_by(table.c.number)
        return [Version.of(row) for row in self.run(asked)]

    def last_number(self, model: Model) -> int:
        """The highest number of a version so far."""
        table = schema.version
        asked = sa.select(sa.func.max(table.c.number)).where(table.c.model_id == model.id)
        return self.run(asked).scalar_one()

    def add_version(self, model_id: int, number: int, **fields: Any) -> int:
        """A new version; its row's number."""
        findings = json.dumps(fields.pop("findings", {}))
        row = {"model_id": model_id, "number": number, "created": self.now, "findings": findings, **fields}
        return self.run(schema.version.insert().returning(schema.version.c.id), row).scalar_one()

    def sealed(self, version: Version) -> tuple[bytes | None, bytes | None]:
        """The sealed file of a version, and the sealed sum of what was taken out of a base."""
        table = schema.version
        return tuple(
            self.run(sa.select(table.c.blob, table.c.erased_sum).where(table.c.id == version.id)).one()
        )

    def set_sum(self, base: Version, sealed: bytes) -> None:
        """Replace the sum of what was taken out of a base."""
        self.run(schema.version.update().where(schema.version.c.id == base.id).values(erased_sum=sealed))

    def drop_files(self, versions: Sequence[Version]) -> None:
        """Delete files and sums of versions, and list their secrets."""
        kept = [version for version in versions if version.is_kept]
        ids = [version.id for version in kept]
        gone = schema.version.update().where(schema.version.c.id.in_(ids))
        self.run(gone.values(blob=None, erased_sum=None))
        self.shred_later(version.secret_id for version in kept)

    # Requests

    def request(self, number: int) -> Request:
        """A request by its number."""
        asked = sa.select(*_REQUEST).select_from(_REQUESTS).where(schema.request.c.id == number)
        row = self.run(asked).first()
        if row is None:
            raise NotFound(f"there is no request {number}")
        return Request.of(row)

    def requests(
        self,
        *,
        model: str | None = None,
        states: Sequence[RequestState] | None = None,
        overdue_on: datetime.date | None = None,
        subject: str | None = None,
        client: str | None = None,
        after: int | None = None,
        limit: int | None = None,
        by_due: bool = False,
    ) -> list[Request]:
        """Requests, the newest first, or the most urgent first."""
        table, conditions = schema.request, []
        if overdue_on is not None:
            conditions.append(table.c.due < overdue_on.isoformat())
            states = WAITING if states is None else [each for each in states if each in WAITING]
        if model is not None:
            conditions.append(table.c.model_id == self.model(model).id)
        if subject is not None:
            conditions.append(table.c.subject == subject)
        if client is not None:
            conditions.append(table.c.client == client)
        if after is not None:
            conditions.append(table.c.id < after)
        order = (table.c.due, table.c.id) if by_due else (table.c.id.desc(),)
        asked = sa.select(*_REQUEST).select_from(_REQUESTS).where(*conditions).order_by(*order).limit(limit)
        if states is None:
            return [Request.of(row) for row in self.run(asked)]
        # An index has the requests of one state in order, so that a page of a long list is found at once.
        each = [map(Request.of, self.run(asked.where(table.c.state == state))) for state in states]
        merged = heapq.merge(*each, key=lambda r: (r.due, r.id) if by_due else -r.id)
        return list(itertools.islice(merged, limit))

    def number_by_state(self, model: Model | None = None) -> dict[RequestState, int]:
        """How many requests there are in each state."""
        table = schema.request
        asked = sa.select(table.c.state, sa.func.count()).group_by(table.c.state)
        if model is not None:
            asked = asked.where(table.c.model_id == model.id)
        return {RequestState(state): number for state, number in self.run(asked)}

    def known_key(self, client: str, key: str) -> tuple[int, str] | None:
        """Number and content of the request that a client has submitted under an idempotency key."""
        row = self.run(_KNOWN_KEY, {"of": client, "key": key}).one_or_none()
        return None if row is None else (row.id, row.content)

    def add_requests(self, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """New requests; their numbers, in the order given."""
        return list(self.connection.scalars(_NEW_REQUEST, list(rows)))

    def add_contents(self, payloads: Sequence[Mapping], digests: Sequence[Mapping]) -> None:
        """The sealed rows and the records' digests of requests."""
        self.run(_NEW_PAYLOAD, list(payloads))
        self.run(_NEW_RECORD, list(digests))

    def change(self, request: Request, state: RequestState, **fields: Any) -> None:
        """Put a request into its next state; refuses where somebody else has moved it."""
        require_following(request.id, request.state, state)
        self.change_many([request.id], request.state, state, **fields)

    def change_many(
        self, numbers: Sequence[int], before: RequestState, after: RequestState, **fields: Any
    ) -> None:
        """Put requests of one state into another, all or none."""
        table = schema.request
        for some in _parts(numbers):
            same = table.update().where(table.c.id.in_(some), table.c.state == before)
            if self.run(same.values(state=after, **fields)).rowcount != len(some):
                raise Conflict(f"a request is no longer {before}; nothing was written")

    def update(self, request: Request, **fields: Any) -> None:
        """Change columns of a request that are no state."""
        self.run(schema.request.update().where(schema.request.c.id == request.id).values(**fields))

    def count_records(self, rows: Sequence[Mapping[str, int]]) -> None:
        """Write how many records each request took out: rows of number, erased, already, unknown."""
        change = schema.request.update().where(schema.request.c.id == sa.bindparam("number"))
        columns = {name: sa.bindparam(f"new_{name}") for name in ("erased", "already", "unknown")}
        named = [{"number": row["number"], **{f"new_{name}": row[name] for name in columns}} for row in rows]
        self.run(change.values(**columns), named)

    def payloads(self, requests: Sequence[Request]) -> Iterator[tuple[int, bytes]]:
        """The sealed rows of requests, by their numbers."""
        for some in _parts([request.id for request in requests]):
            for row in self.run(sa.select(schema.payload).where(schema.payload.c.request_id.in_(some))):
                yield row.request_id, row.blob

    def drop_payloads(self, requests: Sequence[Request]) -> None:
        """Delete the rows of requests, and list their secrets."""
        for some in _parts([request.id for request in requests]):
            self.run(schema.payload.delete().where(schema.payload.c.request_id.in_(some)))
        self.shred_later(request.secret_id for request in requests)

    def digests(self, requests: Sequence[Request]) -> dict[int, list[str]]:
        """The records of requests, by their numbers."""
        table, found = schema.record, {request.id: [] for request in requests}
        for some in _parts(found):
            asked = sa.select(table.c.request_id, table.c.digest).where(table.c.request_id.in_(some))
            for number, digest in self.run(asked.order_by(table.c.digest)):
                found[number].append(digest)
        return found

    # What was taken out

    def claimed(self, base: Version, digests: Sequence[str]) -> set[str]:
        """Those of the records that were taken out of a base already."""
        table, found = schema.claim, set()
        for some in _parts(digests):
            asked = sa.select(table.c.digest).where(table.c.base_id == base.id, table.c.digest.in_(some))
            found.update(self.connection.scalars(asked))
        return found

    def add_claims(self, base: Version, pairs: Sequence[tuple[int, str]]) -> None:
        """Note who took which record out of a base, given as (request, digest)."""
        if pairs:
            rows = [{"base_id": base.id, "request_id": number, "digest": each} for number, each in pairs]
            self.run(schema.claim.insert(), rows)

    def move_claims(self, old: Version, new: Version) -> None:
        """What was taken out of a base is out of the one that replaces it, too."""
        table = schema.claim
        self.run(table.update().where(table.c.base_id == old.id).values(base_id=new.id))

    def add_applications(self, base: Version, version_id: int, sequences: Mapping[int, int]) -> None:
        """Note by which version requests took effect, and where the log says so."""
        rows = [
            {"request_id": number, "base_id": base.id, "version_id": version_id, "sequence": sequence}
            for number, sequence in sequences.items()
        ]
        self.run(schema.application.insert(), rows)

    def application(self, number: int) -> Any:
        """By which version a request took effect last: base_id, version_id, sequence; None if by none."""
        table = schema.application
        asked = sa.select(table).where(table.c.request_id == number).order_by(table.c.version_id.desc())
        return self.run(asked).first()

    def to_leave_out(self, model: Model, states: Sequence[RequestState]) -> Iterator[tuple[int, str]]:
        """Pairs of request and digest of everyone whom a training has to leave out."""
        table = schema.record.join(schema.request, schema.request.c.id == schema.record.c.request_id)
        asked = sa.select(schema.record).select_from(table)
        mine = asked.where(schema.request.c.model_id == model.id, schema.request.c.state.in_(states))
        for row in self.run(mine.order_by(schema.record.c.digest, schema.record.c.request_id)):
            yield row.request_id, row.digest

    # Reports

    def report(self, number: int) -> bytes | None:
        """The signed report on a request."""
        body = self.run(sa.select(schema.report.c.body).where(schema.report.c.request_id == number)).scalar()
        return None if body is None else bytes(body)

    def add_reports(self, reports: Mapping[int, bytes]) -> None:
        """Keep signed reports."""
        rows = [{"request_id": n, "issued": self.now, "body": body} for n, body in reports.items()]
        self.run(schema.report.insert(), rows)


def _parts(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists that a query can name."""
    values = list(values)
    for start in range(0, len(values), LISTED):
        yield values[start : start + LISTED]
