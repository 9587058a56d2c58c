"""What an operator chooses for the service."""

import dataclasses

from unbayes.ledger.errors import LedgerError

MEBIBYTE = 2**20


@dataclasses.dataclass(frozen=True)
class ServiceSettings:
    """What an operator chooses for the service.

    Attributes
    ----------
    body_limit
        Bytes that the body of a request may have.
    rate, burst
        Calls a second that a caller may make in the long run, and at once.
    is_https
        Whether browsers reach the page by HTTPS, so that its cookie is never sent without.
    """

    body_limit: int = 32 * MEBIBYTE
    rate: float = 50.0
    burst: int = 200
    is_https: bool = False

    def __post_init__(self):
        for name in ("body_limit", "rate", "burst"):
            if not getattr(self, name) > 0:
                raise LedgerError(f"{name} must be positive, got {getattr(self, name)!r}")
