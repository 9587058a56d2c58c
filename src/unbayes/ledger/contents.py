"""What a report says: counts, versions, error, dates, what remains; persons only as salted commitments."""

import dataclasses
import datetime
import re
from collections.abc import Mapping
from typing import Self

from unbayes.ledger.errors import LedgerError
from unbayes.ledger.events import Opening, is_time, require_sha256
from unbayes.ledger.json_form import require_finite

# Those of `unbayes.trust.Verdict`, whose import takes seconds.
VERDICTS = ("trusted", "doubtful", "retrain")
# What no report claims, whatever the model and the method.
NOT_CLAIMED = (
    "This report attests to what was done. It is no proof that nothing of the records is left in the model.",
    "Predictions that were made with earlier versions, and copies of these that were handed out, are not "
    "called back.",
    "Choices made with the records in sight, such as the kind of model, its features and its "
    "hyperparameters, are not undone.",
    "The predicted error is an estimate. Nobody retrained the model to measure it.",
    "Other models, databases and backups of the operator are not covered, unless they are named here.",
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclasses.dataclass(frozen=True)
class AskedFor:
    """The request, without the person.

    Attributes
    ----------
    number
        Its number in the ledger.
    subject
        Salted commitment to the person that the records are about.
    records
        Salted commitments to the identifiers of the records, one each.
    """

    number: int
    subject: str
    records: tuple[str, ...]

    def __post_init__(self):
        require_sha256("the commitment to the subject", self.subject)
        for record in self.records:
            require_sha256("the commitment to a record", record)


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """A version of a model, and the SHA-256 of its file."""

    version: int
    sha256: str

    def __post_init__(self):
        require_sha256("the digest of a version", self.sha256)


@dataclasses.dataclass(frozen=True)
class RecordCounts:
    """How many records were asked for, and what became of them.

    Attributes
    ----------
    asked
        Records that the request names: the sum of the others.
    erased
        Taken out of the model by this request.
    already_erased
        Taken out by an earlier request.
    not_in_model
        The model was not trained on them.
    """

    asked: int
    erased: int
    already_erased: int
    not_in_model: int

    def __post_init__(self):
        parts = (self.erased, self.already_erased, self.not_in_model)
        if min(parts) < 0 or self.asked != sum(parts):
            raise LedgerError(f"{self.asked} records were asked for, which is not the sum of {parts}")


@dataclasses.dataclass(frozen=True)
class ErrorEstimate:
    """How far the new version probably is from retraining without the records, in nats of KL over θ.

    Attributes
    ----------
    value, low, high
        The prediction and its range.
    doing_nothing
        What the old version would be off by.
    parameters
        Number of parameters of the model.
    tolerance_per_parameter
        Nats per parameter that the operator calls good enough.
    """

    value: float
    low: float
    high: float
    doing_nothing: float
    parameters: int
    tolerance_per_parameter: float

    def __post_init__(self):
        numbers = (self.value, self.low, self.high, self.doing_nothing, self.tolerance_per_parameter)
        require_finite("a number of the predicted error", *numbers)

    @property
    def tolerance(self) -> float:
        """Nats that the operator calls good enough for the whole model."""
        return self.parameters * self.tolerance_per_parameter


@dataclasses.dataclass(frozen=True)
class Dates:
    """When; days as in 2026-11-18, or UTC as in 2026-11-18T09:30:00Z.

    Attributes
    ----------
    received, due, applied
        When the request came, when it had to be answered at first, and when the records were out.
    on_time
        Whether that was by the deadline, with its extension if there was one.
    extended_until
        The later deadline, if there was one.
    extension_reason_given
        Whether the requester was told a reason for it. The reason itself is not written here.
    """

    received: str
    due: str
    applied: str
    on_time: bool
    extended_until: str | None = None
    extension_reason_given: bool = False

    def __post_init__(self):
        for name in ("received", "due", "applied", "extended_until"):
            value = getattr(self, name)
            if value is not None or name != "extended_until":
                _moment(name, value)
        if self.on_time != _is_by(self.applied, self.deadline):
            raise LedgerError(
                f"on_time is {self.on_time}, but it was due by {self.deadline} and applied on {self.applied}"
            )

    @classmethod
    def of(
        cls,
        received: str,
        due: str,
        applied: str,
        extended_until: str | None = None,
        extension_reason_given: bool = False,
    ) -> Self:
        """Dates, of which it is computed whether that was on time."""
        on_time = _is_by(applied, due if extended_until is None else extended_until)
        return cls(received, due, applied, on_time, extended_until, extension_reason_given)

    @property
    def deadline(self) -> str:
        """When the request had to be answered in the end."""
        return self.due if self.extended_until is None else self.extended_until


@dataclasses.dataclass(frozen=True)
class Residue:
    """Something that still knows the records, and until when, in plain words."""

    what: str
    until: str


@dataclasses.dataclass(frozen=True)
class Contents:
    """All that a report says.

    Attributes
    ----------
    request, model, base, from_version, into
        What was asked for; the name of the model, the version that all erasures start from, the version that
        was in use before, and the new one.
    records
        What became of the records.
    method, settings
        How they were taken out.
    predicted_error, no_error_because
        How good that is, or a sentence on why that cannot be told; one of the two.
    verdict, doubts, caveats
        "trusted", "doubtful" or "retrain"; why; and what else the method has to say.
    dates
        When.
    software
        Names and versions of the programs that did it.
    key_id
        The key that signs the report.
    remains, not_claimed
        What still knows the records and until when, and what the report does not say.
    """

    request: AskedFor
    model: str
    base: ModelVersion
    from_version: int
    into: ModelVersion
    records: RecordCounts
    method: str
    settings: str
    predicted_error: ErrorEstimate | None
    no_error_because: str | None
    verdict: str
    doubts: tuple[str, ...]
    caveats: tuple[str, ...]
    dates: Dates
    software: Mapping[str, str]
    key_id: str
    remains: tuple[Residue, ...]
    not_claimed: tuple[str, ...] = NOT_CLAIMED

    def __post_init__(self):
        if (self.predicted_error is None) == (self.no_error_because is None):
            raise LedgerError("a report has either predicted_error or no_error_because")
        if self.verdict not in VERDICTS:
            raise LedgerError(f"verdict is {self.verdict!r}, not one of {', '.join(VERDICTS)}")
        if len(self.request.records) != self.records.asked:
            held = len(self.request.records)
            raise LedgerError(f"{self.records.asked} records were asked for, with commitments to {held}")


@dataclasses.dataclass(frozen=True)
class Openings:
    """What the commitments of a report were made of: for the requester only, outside of what is signed."""

    subject: Opening | None = None
    records: tuple[Opening, ...] = ()

    def require(self, request: AskedFor) -> None:
        """Refuse, by `LedgerError`, openings that are not of the commitments of a request."""
        if self.subject is not None:
            self.subject.require(request.subject)
        left = list(request.records)
        for opening in self.records:
            if opening.commitment not in left:
                raise LedgerError("the salt and the details of a record are not those of any commitment")
            left.remove(opening.commitment)


def _moment(name: str, text: object) -> datetime.datetime:
    """A day or a moment, as one that can be compared."""
    if isinstance(text, str) and (_DATE.fullmatch(text) or is_time(text)):
        try:
            moment = datetime.datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            return moment.replace(tzinfo=datetime.UTC)
    raise LedgerError(f"{name} is {text!r}, not a date as in 2026-11-18 or 2026-11-18T09:30:00Z")


def _is_by(done: str, deadline: str) -> bool:
    """Whether something was done by a deadline; one that is a day lasts until its end, in UTC."""
    if is_time(done) and is_time(deadline):
        return _moment("applied", done) <= _moment("due", deadline)
    return _moment("applied", done).date() <= _moment("due", deadline).date()
