"""Checks of the settings that training and unlearning methods have in common."""

from typing import Any

import jax
import jax.numpy as jnp

# Counts, and the least that each may be.
COUNTS = {"iterations": 1, "draws": 1, "batch_size": 1, "nodes": 1, "mixing": 0}


def require_settings(method: Any) -> None:
    """Refuse counts that are too small."""
    for name, least in COUNTS.items():
        value = getattr(method, name, None)
        if value is not None and not (isinstance(value, int) and value >= least):
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def require_key(key: Any) -> None:
    """Refuse anything but a typed key."""
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise TypeError(f"key must come from jax.random.key, got {key!r}")
