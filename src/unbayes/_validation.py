"""Checks that training and unlearning have in common, each a sentence that names the argument."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Settings that are counts, and the least that each may be.
COUNTS = {"iterations": 1, "draws": 1, "batch_size": 1, "nodes": 1, "mixing": 0}


def require_settings(method: Any) -> None:
    """Refuse counts that are too small, and a threshold outside [0, 1]."""
    for name, least in COUNTS.items():
        value = getattr(method, name, None)
        if value is not None and not (isinstance(value, int) and value >= least):
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if hasattr(method, "lam"):
        require_threshold(method.lam)


def require_threshold(lam: Any) -> float:
    """Refuse a λ outside [0, 1]."""
    if not isinstance(lam, float | int) or not 0 <= lam <= 1:
        raise ValueError(f"lam must lie in [0, 1], got {lam!r}")
    return lam


def require_key(key: Any) -> None:
    """Refuse anything but a typed key."""
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise TypeError(f"key must come from jax.random.key, got {key!r}")


def require_ids(ids: Iterable[Any] | None, records: int) -> tuple[str, ...] | None:
    """Identifiers as words, or a sentence where they are not one for each record, all different."""
    if ids is None:
        return None
    given = list(ids)
    if isinstance(ids, str) or not all(isinstance(each, str | int | np.integer) for each in given):
        raise TypeError("ids must be a list of words or whole numbers, one for each record")
    words = tuple(map(str, given))
    if len(words) != records:
        raise ValueError(f"ids must name each of the {records} records, got {len(words)}")
    if len(set(words)) < len(words):
        twice = next(word for word, times in Counter(words).items() if times > 1)
        raise ValueError(f"ids must be different, got {twice!r} more than once")
    return words
