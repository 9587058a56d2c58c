"""When an answer may be asked for, by whichever way a request comes."""

import datetime

from unbayes.ledger import Ledger, LedgerError

# Days that a due date may be ahead.
LONGEST = datetime.timedelta(days=3650)


def require_ahead(ledger: Ledger, due: datetime.date | None) -> datetime.date | None:
    """Refuse a due date that is past, or too far off; None is by the model's rule."""
    today = ledger.today
    if due is not None and not today <= due <= today + LONGEST:
        raise LedgerError(f"due must be from {today} to {today + LONGEST}, got {due}")
    return due
