"""Checks of targets: labels and counts."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.records import to_float_array


def require_labels(y: Any, classes: int, name: str, dtype: jnp.dtype) -> Float[Array, " n"]:
    """Return labels 0 to classes − 1 as floats; raise ValueError for anything else."""
    labels = to_float_array(y, name, dtype, (None,))
    values = np.asarray(labels)
    wrong = (values < 0) | (values >= classes) | (values != np.floor(values))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{name} must hold labels 0 to {classes - 1}, got {values[row]:g} in row {row}")
    return labels


def require_counts(y: Any, name: str, dtype: jnp.dtype) -> Float[Array, " n"]:
    """Return non-negative integers as floats; raise ValueError for anything else."""
    counts = to_float_array(y, name, dtype, (None,))
    values = np.asarray(counts)
    wrong = (values < 0) | (values != np.floor(values))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{name} must hold non-negative integers, got {values[row]} in row {row}")
    return counts
