"""What an operator chooses for the service."""

import dataclasses
import urllib.parse
from collections.abc import Mapping

from unbayes.ledger.errors import LedgerError
from unbayes.ledger.lookup import Lookup

MEBIBYTE = 2**20
POSITIVE = (
    *("body_limit", "json_limit", "bodies_limit", "body_seconds", "rate", "burst"),
    *("most_rows", "table_memory", "table_seconds", "table_readers"),
)


@dataclasses.dataclass(frozen=True)
class OIDC:
    """An issuer of identities whose tokens are accepted, beside the ledger's own.

    Attributes
    ----------
    issuer
        Its address, as its tokens have it; its keys are found by its discovery document.
    audience
        Whom its tokens have to be made for.
    roles_claim
        Where a token lists what its bearer may do; dots lead into claims, as in ``realm_access.roles``.
    prefix
        Before the name of a scope in a role, so that somebody who is an admin elsewhere is none here.
    leeway
        Seconds by which clocks may differ.
    """

    issuer: str
    audience: str
    roles_claim: str = "roles"
    prefix: str = "unbayes:"
    leeway: float = 30.0

    def __post_init__(self):
        parsed = urllib.parse.urlsplit(self.issuer)
        is_local = parsed.scheme == "http" and parsed.hostname in ("127.0.0.1", "localhost", "::1")
        if not parsed.hostname or not (parsed.scheme == "https" or is_local):
            raise LedgerError(f"the issuer must have an address with https, got {self.issuer!r}")
        if not self.audience:
            raise LedgerError("audience must name whom the issuer's tokens are made for, but is empty")


@dataclasses.dataclass(frozen=True)
class ServiceSettings:
    """What an operator chooses for the service.

    Attributes
    ----------
    body_limit, json_limit
        Bytes that an uploaded table may have, and any other body of a request.
    bodies_limit
        Bytes that the bodies of all calls which are not answered yet may have together.
    body_seconds
        Within which a body has to arrive.
    rate, burst
        Calls a second that a caller may make of one process in the long run, and at once.
    is_https
        Whether browsers reach the page by HTTPS, so that its cookie is never sent without.
    hosts
        Names by which the service may be called; empty for any.
    oidc
        An issuer of identities; None where only tokens of the ledger are accepted.
    sources
        Where the records of a person are found, by the name of the model.
    most_rows
        Records that an uploaded table may have.
    table_memory, table_seconds, table_readers
        Bytes and seconds that reading a table may take, and how many are read at once.
    """

    body_limit: int = 32 * MEBIBYTE
    json_limit: int = 4 * MEBIBYTE
    bodies_limit: int = 512 * MEBIBYTE
    body_seconds: float = 30.0
    rate: float = 50.0
    burst: int = 200
    is_https: bool = False
    hosts: tuple[str, ...] = ()
    oidc: OIDC | None = None
    sources: Mapping[str, Lookup] = dataclasses.field(default_factory=dict)
    most_rows: int = 1_000_000
    table_memory: int = 1024 * MEBIBYTE
    table_seconds: float = 20.0
    table_readers: int = 2

    def __post_init__(self):
        for name in POSITIVE:
            if not getattr(self, name) > 0:
                raise LedgerError(f"{name} must be positive, got {getattr(self, name)!r}")
