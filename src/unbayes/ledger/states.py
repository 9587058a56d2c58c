"""The states of a request, and which may follow which.

A hold, a duplicate, the last error or a lease is a column and no state: a state per accident is how requests
get stuck.
"""

import enum

from unbayes.ledger.errors import Conflict


class RequestState(enum.StrEnum):
    """Where a request stands."""

    # Somebody has to say whether it is carried out.
    RECEIVED = "received"
    # The next apply takes its records out of the model, unless it is on hold.
    APPROVED = "approved"
    # Its records cannot be taken out within the tolerance: it waits for a model that was trained anew.
    NEEDS_RETRAIN = "needs_retrain"
    # The current version of the model was made without its records.
    APPLIED = "applied"
    # Its report was signed.
    REPORTED = "reported"
    # Its rows are gone, and the key that could read them. The end.
    CLOSED = "closed"
    # Somebody gave a ground for not carrying it out. The end.
    DENIED = "denied"
    # Whoever asked took it back. The end.
    WITHDRAWN = "withdrawn"


FOLLOWING = {
    RequestState.RECEIVED: {RequestState.APPROVED, RequestState.DENIED, RequestState.WITHDRAWN},
    RequestState.APPROVED: {
        RequestState.APPLIED,
        RequestState.NEEDS_RETRAIN,
        RequestState.DENIED,
        RequestState.WITHDRAWN,
    },
    RequestState.NEEDS_RETRAIN: {
        RequestState.APPROVED,
        RequestState.APPLIED,
        RequestState.DENIED,
        RequestState.WITHDRAWN,
    },
    RequestState.APPLIED: {RequestState.REPORTED},
    RequestState.REPORTED: {RequestState.CLOSED},
    RequestState.CLOSED: set(),
    RequestState.DENIED: set(),
    RequestState.WITHDRAWN: set(),
}
# Those that a deadline presses.
WAITING = (RequestState.RECEIVED, RequestState.APPROVED, RequestState.NEEDS_RETRAIN)
# Those that have taken effect, and whose rows are gone.
TAKEN_OUT = (RequestState.APPLIED, RequestState.REPORTED, RequestState.CLOSED)
# Those whose people a later training has to leave out.
TO_LEAVE_OUT = (RequestState.APPROVED, RequestState.NEEDS_RETRAIN, *TAKEN_OUT)


def require_following(number: int, before: RequestState, after: RequestState) -> None:
    """Refuse a step that the states do not have."""
    if after not in FOLLOWING[before]:
        possible = ", ".join(sorted(FOLLOWING[before])) or "nothing"
        raise Conflict(f"request {number} is {before}; it can become {possible}, not {after}")
