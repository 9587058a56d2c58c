"""Checks of the settings that training and unlearning methods have in common."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

COUNTS = ("iterations", "draws", "batch_size", "nodes")


def require_settings(method: Any) -> None:
    """Refuse counts below one."""
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if field.name in COUNTS and value is not None and not (isinstance(value, int) and value >= 1):
            raise ValueError(f"{field.name} must be an integer of at least 1, got {value!r}")


def require_key(key: Any) -> None:
    """Refuse anything but a typed key."""
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise TypeError(f"key must come from jax.random.key, got {key!r}")
