"""Times as the ledger writes them: UTC, as text that sorts."""

import datetime
from collections.abc import Callable

Clock = Callable[[], datetime.datetime]


def utc_now() -> datetime.datetime:
    """The time of this machine."""
    return datetime.datetime.now(datetime.UTC)


def to_text(time: datetime.datetime) -> str:
    """Microseconds always, so that text sorts as times do."""
    return time.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime.datetime:
    """What `to_text` wrote."""
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.UTC)
