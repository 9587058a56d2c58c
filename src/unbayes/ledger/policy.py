"""When waiting requests are applied: at once, before they are due, or when there are many."""

import dataclasses
import datetime
import re

from unbayes.ledger.errors import LedgerError

FORMS = re.compile(r"(?P<now>now)|due-in (?P<days>\d{1,4})d|every (?P<number>[1-9]\d{0,6})(?: requests?)?")


@dataclasses.dataclass(frozen=True)
class Policy:
    """Apply what waits once enough of it does, or the earliest due date is near.

    Attributes
    ----------
    number
        So many waiting requests are enough; None where their number does not matter.
    days
        Days before the earliest due date at which all that waits is applied.
    """

    number: int | None = 1
    days: int = 7

    def is_time(self, waiting: int, earliest_due: datetime.date | None, today: datetime.date) -> bool:
        """Whether to apply now, given the number of waiting requests and the earliest of their due dates."""
        if not waiting or earliest_due is None:
            return False
        is_enough = self.number is not None and waiting >= self.number
        return is_enough or earliest_due - today <= datetime.timedelta(days=self.days)


def read_policy(text: str) -> Policy:
    """`now`, `due-in 7d`, or `every 100 requests` (or seven days before the first is due)."""
    if (match := FORMS.fullmatch(text.strip())) is None:
        raise LedgerError(f"when must be now, due-in 7d (days) or every 100 requests, got {text!r}")
    if match["now"]:
        return Policy()
    if match["days"] is not None:
        return Policy(number=None, days=int(match["days"]))
    return Policy(number=int(match["number"]))
