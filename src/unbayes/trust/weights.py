"""How far importance weights can be trusted."""

from typing import NamedTuple

import numpy as np

# A fit takes a tail of five, a fifth of the draws where these are few.
FEWEST_DRAWS = 25


class WeightDiagnosis(NamedTuple):
    """Pareto-smoothed weights and what they say about themselves.

    Attributes
    ----------
    log_weights
        Smoothed and normalised, shape (s,).
    effective_sample_size
        1 / Σ w².
    khat
        Shape of the Pareto distribution that fits the largest weights; −inf where these are all equal, inf
        where they are too few or too uneven for a fit.
    """

    log_weights: np.ndarray
    effective_sample_size: float
    khat: float


def diagnose_weights(log_weights) -> WeightDiagnosis:
    """Smooth importance weights, given as logarithms up to a constant, and diagnose them."""
    raw = np.asarray(log_weights, np.float64)
    largest = raw.max(initial=-np.inf)
    if not np.isfinite(largest):
        raise ValueError(
            f"erased holds records that overflow: the largest of the log-weights −log p(D_e|θ) is {largest}"
        )
    smoothed, khat = _smooth(raw)
    normalised = smoothed - np.logaddexp.reduce(smoothed)
    return WeightDiagnosis(normalised, float(1 / np.sum(np.exp(2 * normalised))), khat)


def _smooth(raw: np.ndarray) -> tuple[np.ndarray, float]:
    if np.ptp(raw) <= 1e-12:
        return raw, -np.inf
    if raw.size < FEWEST_DRAWS:
        return raw, np.inf
    # Imported here: it brings scipy.stats, which takes longer to import than JAX.
    from arviz_stats.base.array import array_stats

    try:
        # arviz expects log-likelihoods, whose negatives are the log-weights of leave-one-out.
        with np.errstate(all="ignore"):
            smoothed, khat = array_stats.psislw(-raw)
    except ValueError:  # all values in the tail are the same
        return raw, -np.inf
    if not np.isfinite(khat) or np.isnan(smoothed).any():
        return raw, np.inf
    return smoothed, float(khat)
