"""What callers get."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from unbayes.ledger.states import RequestState
from unbayes.ledger.tokens import Scope

Time = str
Missing = Literal["refuse", "skip"]


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
    kinds: list[str] = Field(description="Of the events that are told; all where it is empty.")
    created: Time
    waiting: int = Field(description="Events that it is still to be told of.")
    given_up: int = Field(description="Events that it was not told of in time.")
    error: str | None = Field(description="Why the next one was not delivered at the last try.")


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
