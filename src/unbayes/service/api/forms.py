"""What callers send and get, with its limits."""

import datetime
import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from unbayes.ledger.states import RequestState
from unbayes.ledger.tokens import LONGEST_NAME, Scope

# No database takes a NUL, and no reader wants the other control characters.
PLAIN = r"^[^\x00-\x1f\x7f]*$"
# What PostgreSQL holds in an integer.
LARGEST = 2**31 - 1
LARGEST_EVENT = 2**53
MOST_ROWS, MOST_COLUMNS, MOST_REQUESTS, MOST_LISTED = 100_000, 10_000, 1000, 1000
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _full_day(value: Any) -> Any:
    """Refuse what Python would also read as a day, such as a number of seconds."""
    if isinstance(value, datetime.date) or (isinstance(value, str) and _DAY.fullmatch(value)):
        return value
    raise ValueError("a day is written as in 2026-11-18")


def _finite(value: Any) -> Any:
    """Refuse whole numbers that no float is near to."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return value


Number = Annotated[int, Field(ge=1, le=LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=PLAIN)]
Words = Annotated[str, Field(min_length=1, max_length=2000, pattern=PLAIN)]
Subject = Annotated[str, Field(min_length=1, max_length=1000, pattern=PLAIN)]
Reference = Annotated[str, Field(max_length=200, pattern=PLAIN)]
Key = Annotated[str, Field(min_length=1, max_length=200, pattern=PLAIN)]
RecordId = Annotated[str, Field(min_length=1, max_length=1000, pattern=PLAIN)]
Float = Annotated[float, BeforeValidator(_finite), Field(allow_inf_nan=False)]
Day = Annotated[datetime.date, BeforeValidator(_full_day), Field(strict=False)]
Missing = Literal["refuse", "skip"]
Time = str


class Form(BaseModel):
    """What somebody sends: nothing but what is named, and of these types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    """What somebody gets."""

    model_config = ConfigDict(extra="forbid")


class Problem(Answer):
    """A refusal (RFC 9457)."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str = Field(description="A sentence on what is wrong, and what is expected.")


class SubmissionForm(Form):
    """The request of one person; without ids, inputs and targets, their rows come from the data source."""

    subject: Subject = Field(
        description="Any identifier of the person. A keyed digest of it is kept, and nothing else."
    )
    reference: Reference | None = Field(
        None, description="What the request is called elsewhere. Kept as it is: put nobody's name there."
    )
    due: Day | None = Field(None, description="The last day for an answer; else by the model's rule.")
    missing: Missing = Field("refuse", description="Whether records not in the model hold the request back.")
    ids: Annotated[list[RecordId], Field(min_length=1, max_length=MOST_ROWS)] | None = Field(
        None, description="An identifier for each record."
    )
    inputs: (
        Annotated[list[Annotated[list[Float], Field(max_length=MOST_COLUMNS)]], Field(max_length=MOST_ROWS)]
        | None
    ) = Field(None, description="A list of numbers for each record, in the order of the model's columns.")
    targets: Annotated[list[Float], Field(min_length=1, max_length=MOST_ROWS)] | None = Field(
        None, description="The outcome of each record."
    )


class KeyedSubmissionForm(SubmissionForm):
    """One request among many."""

    idempotency_key: Key | None = Field(None, description="Submitting again under it changes nothing.")


class ManyForm(Form):
    """Requests that are taken in together, all or none."""

    requests: Annotated[list[KeyedSubmissionForm], Field(min_length=1, max_length=MOST_REQUESTS)]


class TableForm(Form):
    """The rows of one person, or of many, as a table."""

    rows: str = Field(
        description="A file: CSV, Parquet, Arrow file or stream.",
        json_schema_extra={"format": "binary"},
    )
    subject: Subject | None = Field(None, description="Whose rows they all are.")
    subject_column: Name | None = Field(None, description="Or: the column that names the person.")
    reference: Reference | None = None
    due: Day | None = None
    missing: Missing = "refuse"

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.subject is None) == (self.subject_column is None):
            raise ValueError("who asks is said by either subject or subject_column")
        return self


class ApprovalForm(Form):
    """What to do about records that are not in the model."""

    missing: Missing | None = None


class DenialForm(Form):
    """Why a request is denied."""

    ground: Words


class ExtensionForm(Form):
    """How many days more, and why."""

    days: Annotated[int, Field(ge=1, le=3650)]
    reason: Words


class SearchForm(Form):
    """Whose requests are looked for."""

    subject: Subject


class TokenForm(Form):
    """A token to make."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=PLAIN)]
    scopes: Annotated[list[Annotated[Scope, Field(strict=False)]], Field(min_length=1, max_length=len(Scope))]
    days: Annotated[int, Field(ge=1, le=3650)] | None = None


def _web_address(value: str) -> str:
    if not value.startswith(("https://", "http://")) or not value.isprintable() or " " in value:
        raise ValueError("must begin with https:// or http://")
    return value


class HookForm(Form):
    """Where events are to be told to."""

    url: Annotated[
        str,
        Field(min_length=8, max_length=2000, pattern=r"^https?://[!-~]+$"),
        AfterValidator(_web_address),
    ]
    kinds: Annotated[list[Name], Field(max_length=100)] | None = Field(
        None, description="Kinds of events; all of them if none is named."
    )


class RequestAnswer(Answer):
    """A request; nothing in it tells who asked."""

    number: int
    model: str
    client: str
    state: RequestState
    received: Time
    age: int = Field(description="Days since its receipt.")
    first_due: str
    due: str
    days_left: int | None = Field(description="Negative once it is overdue; null where nothing is left.")
    overdue: bool
    extended: bool
    reference: str | None
    missing: Missing
    hold: str | None
    records: int
    erased: int | None
    already: int | None
    unknown: int | None
    ended: Time | None
    version: int | None
    verdict: str | None


class RequestsAnswer(Answer):
    """A page of requests, the newest first."""

    requests: list[RequestAnswer]
    next: int | None = Field(description="What to give as `after` for the next page; null on the last one.")


class SubmittedAnswer(Answer):
    """Requests that were taken in, in the order in which they were sent."""

    requests: list[RequestAnswer]
    new: int = Field(description="How many of them were not known before.")


class VersionAnswer(Answer):
    """A version of a model."""

    number: int
    kind: str
    base: int
    created: Time
    digest: str = Field(description="SHA-256 of the model file.")
    is_current: bool
    is_kept: bool
    erased: int = Field(description="Records taken out since the base.")
    verdict: str | None
    findings: dict[str, Any]


class ModelAnswer(Answer):
    """A model, with the version that production should load."""

    name: str
    registered: Time
    inputs: list[str]
    target: str
    ids: str
    settings: dict[str, Any]
    current: VersionAnswer
    wanted: Time | None = Field(description="Since when somebody waits for what is approved to be applied.")
    progress: dict[str, Any] | None = Field(description="What is being done just now: what, done, total.")
    has_source: bool = Field(description="Whether requests may be submitted by the subject alone.")
    waiting: dict[RequestState, int] = Field(description="Requests that wait, by state.")


class WantedAnswer(Answer):
    """Since when somebody waits for what is approved to be applied."""

    wanted: Time


class SuppressedRecord(Answer):
    """A record that the next training has to leave out."""

    digest: str
    request: int


class SuppressionAnswer(Answer):
    """Whom the next training has to leave out."""

    ids: str = Field(description="The column that names records.")
    note: dict[str, Any] = Field(description='Goes into the notes of the trained file, as "left_out".')
    records: list[SuppressedRecord]


class EventAnswer(Answer):
    """An entry of the log."""

    sequence: int
    time: Time
    kind: str
    model: str | None
    request: int | None
    version: int | None
    commitment: str | None


class EventsAnswer(Answer):
    """Entries of the log, in their order."""

    events: list[EventAnswer]


class LogAnswer(Answer):
    """How the log stands."""

    size: int
    root: str


class CheckpointAnswer(Answer):
    """A signed statement of how the log stood (C2SP tlog-checkpoint)."""

    size: int
    time: Time | None
    text: str


class CheckpointsAnswer(Answer):
    """All that were signed, the first first."""

    checkpoints: list[CheckpointAnswer]


class InclusionAnswer(Answer):
    """That an event is in the log (RFC 6962)."""

    index: int
    size: int
    leaf: str
    root: str
    proof: list[str]


class ConsistencyAnswer(Answer):
    """That a later log is an earlier one with more at its end (RFC 6962)."""

    first: int
    second: int
    first_root: str
    second_root: str
    proof: list[str]


class TokenAnswer(Answer):
    """A token, without what its bearer shows."""

    id: int
    name: str
    scopes: list[Scope]
    created: Time
    expires: Time | None
    revoked: Time | None


class TokensAnswer(Answer):
    """All tokens."""

    tokens: list[TokenAnswer]


class NewTokenAnswer(TokenAnswer):
    """A new token."""

    token: str = Field(description="What its bearer shows. It is kept nowhere.")


class HookAnswer(Answer):
    """Where events are told to."""

    id: int
    url: str
    kinds: list[str]
    created: Time


class HooksAnswer(Answer):
    """All of them."""

    hooks: list[HookAnswer]


class NewHookAnswer(HookAnswer):
    """A new one."""

    secret: str = Field(description="By which what is sent is signed. It is not shown again.")


class HealthAnswer(Answer):
    """That all is fine."""

    status: Literal["fine"]


class VersionOfService(Answer):
    """The version of the program."""

    version: str


class ModelsAnswer(Answer):
    """All models."""

    models: list[ModelAnswer]


class VersionsAnswer(Answer):
    """All versions of a model, the first first."""

    versions: list[VersionAnswer]


class StatisticsAnswer(Answer):
    """Requests that were received in a time, and what has become of them."""

    received: int
    applied: int
    denied: int
    withdrawn: int
    waiting: int
    overdue: int
    answered_in_time: int
    mean_days: float | None
    median_days: float | None


class AllStatisticsAnswer(StatisticsAnswer):
    """The same of each model, too."""

    by_model: dict[str, StatisticsAnswer]
