"""What is sent to a hook, and how whoever receives it knows that it is genuine."""

import hashlib
import hmac
import time

EVENT, TIMESTAMP, SIGNATURE = "Unbayes-Event", "Unbayes-Timestamp", "Unbayes-Signature"
VERSION = "v1="
# Seconds after which what was signed is no longer accepted.
AGE_LIMIT = 300


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """HMAC-SHA256 over the time, a point, and the body."""
    signed = f"{timestamp}.".encode() + body
    return VERSION + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def signature_is_valid(
    secret: str,
    timestamp: str,
    body: bytes,
    signature: str,
    now: float | None = None,
    age_limit: float = AGE_LIMIT,
) -> bool:
    """Whether an event was sent by whoever has the secret of the hook, just now.

    The same event may come more than once: its key, in the header ``Unbayes-Event``, tells.

    Parameters
    ----------
    secret
        What was shown when the hook was added.
    timestamp, signature
        The headers ``Unbayes-Timestamp`` and ``Unbayes-Signature``, as they came.
    body
        The body, as it came.
    now
        Seconds since 1970; the time of this machine unless given.
    age_limit
        Seconds by which the time of sending may differ from `now`.
    """
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    expected = _signature(secret, int(timestamp), body)
    if not hmac.compare_digest(expected.encode(), signature.encode()):
        return False
    return abs((time.time() if now is None else now) - int(timestamp)) <= age_limit


_signature = signature
