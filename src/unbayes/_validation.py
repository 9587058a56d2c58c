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


def require_positive(name: str, values: Any, *, or_zero: bool = False) -> None:
    """Refuse numbers that are not positive."""
    numbers = np.asarray(values)
    fine = numbers >= 0 if or_zero else numbers > 0
    if not fine.all():
        wanted = "positive or zero" if or_zero else "positive"
        raise ValueError(f"{name} must be {wanted}, got {numbers[~fine][0]:g}")


def require_lower_triangular(name: str, factor: Any) -> None:
    """Refuse a matrix with anything above its diagonal, or a zero on it."""
    matrix = np.asarray(factor)
    if (above := np.triu(matrix, 1)).any():
        raise ValueError(f"{name} must be lower triangular, got {above[above != 0][0]:g} above its diagonal")
    if not np.diagonal(matrix).all():
        raise ValueError(f"{name} must have no zero on its diagonal, got one")


def require_precision(**parts: Any) -> None:
    """Refuse float64 in a process that computes in float32.

    Parameters
    ----------
    parts
        Posteriors and models, by the names of the arguments; None is passed over.
    """
    if jnp.result_type(float) == jnp.float64:
        return
    for name, part in parts.items():
        if part is not None and part.dtype == jnp.float64:
            raise ValueError(
                f"{name} must be float32 in a process in which JAX computes in 32 bits, got float64; call "
                'jax.config.update("jax_enable_x64", True) first, or set JAX_ENABLE_X64=1 in the environment'
            )
