"""What the tables hold, a frozen dataclass a row."""

import dataclasses
import datetime
import json
from typing import Any, Self

from unbayes.ledger.errors import LedgerError
from unbayes.ledger.policy import Policy, read_policy
from unbayes.ledger.records import TableColumns
from unbayes.ledger.rules import Rule, read_rule
from unbayes.ledger.states import WAITING, RequestState

ACCEPTED = {"trusted": ("trusted",), "doubtful": ("trusted", "doubtful")}


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """What an operator chooses for a model.

    Attributes
    ----------
    tolerance
        Nats per parameter from retraining that are good enough.
    accept
        The worst verdict that a version may have: "trusted", or "doubtful".
    when
        When the worker applies what waits, as `read_policy` reads it.
    rule
        By which deadlines are set, as `read_rule` reads it.
    rebase_days
        Days from the making of a base after which it should be replaced by one that was trained anew.
    seed
        Of whatever is random in unlearning.
    four_eyes
        Whether a request is decided on by somebody else than who submitted it.
    """

    tolerance: float = 0.01
    accept: str = "doubtful"
    when: str = "due-in 7d"
    rule: str = "gdpr"
    rebase_days: int = 365
    seed: int = 0
    four_eyes: bool = False

    def __post_init__(self):
        if self.accept not in ACCEPTED:
            raise LedgerError(f"accept must be trusted or doubtful, got {self.accept!r}")
        if not self.tolerance > 0:
            raise LedgerError(f"tolerance must be positive, got {self.tolerance!r}")
        if self.rebase_days < 1:
            raise LedgerError(f"rebase_days must be at least 1, got {self.rebase_days!r}")
        read_policy(self.when)
        read_rule(self.rule)

    @property
    def policy(self) -> Policy:
        """When the worker applies what waits."""
        return read_policy(self.when)

    @property
    def deadline_rule(self) -> Rule:
        """By which deadlines are set."""
        return read_rule(self.rule)

    def accepts(self, verdict: str) -> bool:
        """Whether a version with this verdict may go into production."""
        return verdict in ACCEPTED[self.accept]


@dataclasses.dataclass(frozen=True)
class Model:
    """A registered model.

    Attributes
    ----------
    wanted
        When somebody asked for what waits to be applied as soon as possible; None where nobody waits for it.
    progress
        What is being done now, and how far it is: what, done, total; None where nobody is at work.
    """

    id: int
    name: str
    registered: str
    columns: TableColumns
    settings: ModelSettings
    head: int
    epoch: int
    lease_holder: str | None
    lease_until: str | None
    wanted: str | None
    progress: dict[str, Any] | None

    @classmethod
    def of(cls, row: Any) -> Self:
        """From a row of the table."""
        fields = dict(row._mapping)
        columns, progress = json.loads(fields.pop("columns")), fields.pop("progress")
        settings = ModelSettings(**json.loads(fields.pop("settings")))
        table = TableColumns(**columns)
        work = None if progress is None else json.loads(progress)
        return cls(columns=table, settings=settings, progress=work, **fields)


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a model: what was trained (`base`), or that without some records (`derived`).

    Attributes
    ----------
    number
        From 1, for each model.
    base
        Number of the version that it is solved from; its own for a base.
    digest
        SHA-256 of the model file.
    is_kept
        Whether the file can still be read, or is destroyed.
    erased
        Records taken out since the base.
    verdict, findings
        What unlearning said of it; None and empty for a base.
    """

    id: int
    model_id: int
    number: int
    kind: str
    base: int
    created: str
    digest: str
    secret_id: int
    is_kept: bool
    erased: int
    verdict: str | None
    findings: dict[str, Any]

    @classmethod
    def of(cls, row: Any) -> Self:
        """From a row of the table."""
        fields = dict(row._mapping)
        return cls(findings=json.loads(fields.pop("findings")), **fields)


@dataclasses.dataclass(frozen=True)
class Request:
    """One person's request.

    Attributes
    ----------
    id
        Its number.
    model
        Name of the model.
    subject
        Keyed digest of the person.
    first_due, due
        Last day on which it is answered in time, at first and after an extension.
    hold
        Why it is not applied though it is approved; None where nothing holds it back.
    asked, erased, already, unknown
        Records that it names; of these, how many it took out, how many an earlier request had, and how many
        the model was not trained on. None until it is applied.
    ended
        When it was applied, denied or withdrawn.
    verdict
        Of the version that it was applied by.
    """

    id: int
    model: str
    client: str
    subject: str
    reference: str | None
    received: str
    first_due: str
    due: str
    state: RequestState
    missing: str
    hold: str | None
    asked: int
    erased: int | None
    already: int | None
    unknown: int | None
    ended: str | None
    secret_id: int
    version: int | None
    verdict: str | None

    @classmethod
    def of(cls, row: Any) -> Self:
        """From a row of the query that `store` makes."""
        fields = dict(row._mapping)
        return cls(state=RequestState(fields.pop("state")), **fields)

    @property
    def due_date(self) -> datetime.date:
        """`due` as a date."""
        return datetime.date.fromisoformat(self.due)

    @property
    def is_extended(self) -> bool:
        """Whether the due date was put off."""
        return self.due != self.first_due

    @property
    def received_date(self) -> datetime.date:
        """The day of receipt, UTC."""
        return datetime.date.fromisoformat(self.received[:10])

    def days_left(self, today: datetime.date) -> int | None:
        """Days until it is due, negative once it is overdue; None where nothing is left to do."""
        return (self.due_date - today).days if self.state in WAITING else None
