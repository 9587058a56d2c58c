"""How far importance weights can be trusted."""

from typing import NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats

# Above this Pareto shape, weighted averages converge too slowly to be used (Vehtari et al., 2024).
LARGEST_TRUSTED_KHAT = 0.7


class WeightDiagnosis(NamedTuple):
    """Pareto-smoothed weights and what they say about themselves.

    Attributes
    ----------
    log_weights
        Smoothed and normalised, shape (s,).
    effective_sample_size
        1 / Σ w².
    khat
        Shape of the Pareto distribution that fits the largest weights; −inf where all weights are equal.
    """

    log_weights: np.ndarray
    effective_sample_size: float
    khat: float


def diagnose_weights(log_weights) -> WeightDiagnosis:
    """Smooth importance weights, given as logarithms up to a constant, and diagnose them."""
    raw = np.asarray(log_weights, np.float64)
    if np.ptp(raw) <= 1e-12:
        uniform = np.full(raw.shape, -np.log(raw.size))
        return WeightDiagnosis(uniform, float(raw.size), -np.inf)
    # arviz expects log-likelihoods, whose negatives are the log-weights of leave-one-out.
    smoothed, khat = array_stats.psislw(-raw)
    normalised = smoothed - np.logaddexp.reduce(smoothed)
    return WeightDiagnosis(normalised, float(1 / np.sum(np.exp(2 * normalised))), float(khat))
