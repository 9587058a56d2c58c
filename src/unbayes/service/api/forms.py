"""What callers send and get, with its limits."""

import datetime
import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

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


class HookForm(Form):
    """Where events are to be told to."""

    url: Annotated[
        str,
        Field(min_length=8, max_length=2000, pattern=r"^https?://[!-~]+$"),
    ]
    kinds: Annotated[list[Name], Field(max_length=100)] | None = Field(
        None, description="Kinds of events; all of them if none is named."
    )
