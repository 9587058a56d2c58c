"""Whether numbers are finite."""

import numpy as np


def is_finite(array: np.ndarray) -> bool:
    """Whether all are: a sum is finite only if all of its terms are, and takes a fraction of the time."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())
