"""Deadlines, by rule. Fields and dates as laws have them; not advice."""

import calendar
import dataclasses
import datetime
import re

from unbayes.ledger.errors import LedgerError


@dataclasses.dataclass(frozen=True)
class Rule:
    """How long an answer may take, counted from the day of receipt.

    Attributes
    ----------
    name
        By which it is chosen and shown.
    months, days
        The time allowed: calendar months, or days.
    more_months, more_days
        By how much it may be extended, once, with a reason.
    """

    name: str
    months: int = 0
    days: int = 0
    more_months: int = 0
    more_days: int = 0

    def due(self, received: datetime.date) -> datetime.date:
        """The last day on which a request is answered in time."""
        return _later(received, self.months, self.days)

    def latest(self, received: datetime.date) -> datetime.date:
        """The last day to which that may be extended."""
        return _later(received, self.months + self.more_months, self.days + self.more_days)


RULES = {
    # GDPR, Art. 12(3): one month, and two further months with a reason.
    "gdpr": Rule("gdpr", months=1, more_months=2),
    # California, CCPA regulations: 45 days, and 45 more with a reason.
    "california": Rule("california", days=45, more_days=45),
}
OWN_RULE = re.compile(r"(\d{1,4})d(?:\+(\d{1,4})d)?")


def read_rule(text: str) -> Rule:
    """A rule by its name, or one of one's own such as "30d+60d": days, and more days."""
    if text in RULES:
        return RULES[text]
    if (match := OWN_RULE.fullmatch(text)) is None or int(match[1]) == 0:
        names = ", ".join(RULES)
        raise LedgerError(f"rule must be one of {names}, or days such as 30d+60d, got {text!r}")
    return Rule(text, days=int(match[1]), more_days=int(match[2] or 0))


def _later(day: datetime.date, months: int, days: int) -> datetime.date:
    """So many calendar months later, on the last day of a month that is too short, and then days."""
    year, month = divmod(day.month - 1 + months, 12)
    year, month = day.year + year, month + 1
    last = calendar.monthrange(year, month)[1]
    return datetime.date(year, month, min(day.day, last)) + datetime.timedelta(days=days)
