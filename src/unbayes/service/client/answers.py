"""What a client gets from the service, a frozen dataclass a kind of thing."""

import dataclasses
import datetime
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from unbayes.ledger.errors import LedgerError
from unbayes.ledger.states import RequestState

if TYPE_CHECKING:
    from unbayes.ledger.records import Records

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class NewRequest:
    """What one person asks for, among many.

    Attributes
    ----------
    subject
        Who: any identifier of the person. The service keeps a keyed digest of it.
    records
        The person's records; None where the service finds them by the subject.
    reference
        What the request is called elsewhere. Kept as it is: put nobody's name there.
    due
        The last day for an answer; None for the one that the model's rule sets.
    idempotency_key
        Submitting again under the same key changes nothing; the client makes one where there is none.
    missing
        Whether records that are not in the model hold the request back ("refuse") or are left out ("skip").
    """

    subject: str
    records: "Records | None" = None
    reference: str | None = None
    due: datetime.date | None = None
    idempotency_key: str | None = None
    missing: str = "refuse"


@dataclasses.dataclass(frozen=True)
class Request:
    """One person's request; nothing in it tells who asked.

    Attributes
    ----------
    number
        By which the ledger calls it.
    client
        The name of the token that submitted it.
    age, days_left
        Days since receipt, and until it is due: negative once it is overdue, None where nothing is left.
    hold
        Why it is not applied though it is approved; None where nothing holds it back.
    records, erased, already, unknown
        Records that it names; of these, how many it took out, how many an earlier request had, and how many
        the model was not trained on. None until it is applied.
    version, verdict
        The version of the model that is the first without its records.
    """

    number: int
    model: str
    client: str
    state: RequestState
    received: str
    age: int
    first_due: str
    due: str
    days_left: int | None
    overdue: bool
    extended: bool
    reference: str | None
    missing: str
    hold: str | None
    records: int
    erased: int | None
    already: int | None
    unknown: int | None
    ended: str | None
    version: int | None
    verdict: str | None


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a model, as `unbayes.ledger.Version` has it."""

    number: int
    kind: str
    base: int
    created: str
    digest: str
    is_current: bool
    is_kept: bool
    erased: int
    verdict: str | None
    findings: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model, and the version that production should load.

    Attributes
    ----------
    inputs, target, ids
        What the columns of its tables are called.
    wanted
        Since when somebody waits for what is approved to be applied.
    progress
        What is being done just now: what, done, total.
    has_source
        Whether requests may be submitted by the subject alone.
    waiting
        How many requests wait, by state.
    """

    name: str
    registered: str
    inputs: tuple[str, ...]
    target: str
    ids: str
    settings: dict[str, Any]
    current: Version
    wanted: str | None
    progress: dict[str, Any] | None
    has_source: bool
    waiting: dict[str, int]


@dataclasses.dataclass(frozen=True)
class CurrentModel:
    """The file of a current version: what `unbayes.load` reads.

    Attributes
    ----------
    version
        Its number.
    digest
        That of the version, by which the next call asks whether there is a newer one. For a version that
        somebody was taken out of, it is the SHA-256 of the file.
    data
        The file; empty where the caller has it already.
    """

    version: int
    digest: str
    data: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class SuppressedRecord:
    """A record to leave out, by its keyed digest, and the request that names it."""

    digest: str
    request: int


@dataclasses.dataclass(frozen=True)
class Suppression:
    """Whom the next training of a model has to leave out; `note` belongs into the notes of its file."""

    ids: str
    note: dict[str, Any]
    records: tuple[SuppressedRecord, ...]


@dataclasses.dataclass(frozen=True)
class Event:
    """An entry of the log."""

    sequence: int
    time: str
    kind: str
    model: str | None
    request: int | None
    version: int | None
    commitment: str | None


@dataclasses.dataclass(frozen=True)
class LogState:
    """How many entries the log has, and the root of the tree over them."""

    size: int
    root: str


@dataclasses.dataclass(frozen=True)
class SignedCheckpoint:
    """How the log stood, signed; `unbayes.ledger.checkpoint.read_checkpoint` checks its text."""

    size: int
    time: str | None
    text: str


@dataclasses.dataclass(frozen=True)
class Inclusion:
    """That the log of a size holds an entry; `unbayes.ledger.merkle.require_inclusion` checks it."""

    index: int
    size: int
    leaf: str
    root: str
    proof: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Consistency:
    """That a log begins a longer one; `unbayes.ledger.merkle.require_consistency` checks it."""

    first: int
    second: int
    first_root: str
    second_root: str
    proof: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Statistics:
    """How many requests there were, and how long answers took, as `Ledger.statistics` has it."""

    received: int
    applied: int
    denied: int
    withdrawn: int
    waiting: int
    overdue: int
    answered_in_time: int
    mean_days: float | None
    median_days: float | None
    by_model: dict[str, "Statistics"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Token:
    """A token, without what its bearer shows."""

    id: int
    name: str
    scopes: tuple[str, ...]
    created: str
    expires: str | None
    revoked: str | None


@dataclasses.dataclass(frozen=True)
class NewToken(Token):
    """A new token, and what its bearer shows, which is not shown again."""

    token: str = dataclasses.field(repr=False, default="")


@dataclasses.dataclass(frozen=True)
class Hook:
    """Where events are told to, as `Hooks.all` of a ledger has it."""

    id: int
    url: str
    kinds: tuple[str, ...]
    created: str
    waiting: int
    given_up: int
    error: str | None


@dataclasses.dataclass(frozen=True)
class NewHook(Hook):
    """A new one, and the secret by which what is sent is signed, which is not shown again."""

    secret: str = dataclasses.field(repr=False, default="")


def read(kind: type[T], document: Any) -> T:
    """A document as one of these; what a later service says besides is left out."""
    if not isinstance(document, Mapping):
        raise LedgerError(f"the service did not answer with a {kind.__name__}; is this its address?")
    hints, values = typing.get_type_hints(kind, {"Records": object} | globals()), {}
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        if field.name in document:
            values[field.name] = _value(hints[field.name], document[field.name])
    try:
        return kind(**values)
    except TypeError:
        raise LedgerError(f"the answer of the service lacks parts of a {kind.__name__}") from None


def read_all(kind: type[T], document: Any, name: str) -> list[T]:
    """The list of that name in a document."""
    found = document.get(name) if isinstance(document, Mapping) else None
    if not isinstance(found, list):
        raise LedgerError(f"the answer of the service lacks a list of {name}; is this its address?")
    return [read(kind, each) for each in found]


def _value(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if value is None:
        return None
    if origin in (typing.Union, types.UnionType):
        return _value(next(each for each in arguments if each is not type(None)), value)
    if origin is tuple:
        return tuple(_value(arguments[0], each) for each in value)
    if origin is dict:
        return {name: _value(arguments[1], each) for name, each in value.items()}
    if dataclasses.is_dataclass(hint):
        return read(hint, value)  # pyright: ignore[reportArgumentType]
    return RequestState(value) if hint is RequestState else value
