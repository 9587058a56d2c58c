"""Scales and inducing inputs, chosen from the data where the user leaves that open."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import euclidean_distances

from unbayes.models.kernels import AbstractKernel

# Rows on which scales are tried out, and from which inducing inputs are chosen, at most.
LARGEST_TRIAL = 5000
# Added to the diagonal of the kernel matrix, relative to the kernel's variance.
JITTER = 1e-6
# Ratios of noise to signal variance that are tried.
NOISE_RATIOS = np.geomspace(1e-4, 10, 16)
# Weight of the vague Gamma priors on both precisions, as in scikit-learn's BayesianRidge.
VAGUE = 1e-6


def evidence_scales(
    X: Float[np.ndarray, "n k"],
    y: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    noise_scale: float | str,
    prior_scale: float | str,
) -> tuple[float, float]:
    """Scales of noise and of weights that maximise the evidence of a linear model (MacKay 1992).

    Parameters
    ----------
    X, y
        Centred where the model has an intercept.
    weights
        How often each record counts.
    noise_scale, prior_scale
        Kept where they are numbers, chosen where "auto".
    """
    if not isinstance(noise_scale, str) and not isinstance(prior_scale, str):
        return noise_scale, prior_scale
    records, start = weights.sum(), variance(y, weights)
    # The evidence of weighted records is that of rows that are longer by the root of their weight.
    X, y = X * np.sqrt(weights)[:, None], y * np.sqrt(weights)
    left, singular, _ = np.linalg.svd(X, full_matrices=False)
    along = left.T @ y
    unexplained = max(float(y @ y - along @ along), 0.0)
    squares = singular**2
    noise = 1 / (start + np.finfo(float).eps) if isinstance(noise_scale, str) else noise_scale**-2.0
    weight = 1.0 if isinstance(prior_scale, str) else prior_scale**-2.0
    inverse = np.divide(1, singular, where=singular > 0, out=np.zeros_like(singular))
    for _ in range(300):
        shrinkage = weight / (noise * squares + weight)
        residual = unexplained + ((shrinkage * along) ** 2).sum()
        size = (((1 - shrinkage) * along * inverse) ** 2).sum()
        determined = (1 - shrinkage).sum()
        before = noise, weight
        if isinstance(prior_scale, str):
            weight = (determined + 2 * VAGUE) / (size + 2 * VAGUE)
        if isinstance(noise_scale, str):
            noise = (records - determined + 2 * VAGUE) / (residual + 2 * VAGUE)
        if np.allclose(before, (noise, weight), rtol=1e-4, atol=0):
            break
    return noise**-0.5, weight**-0.5


class ProcessScales(NamedTuple):
    """Scales of a Gaussian process with noise.

    Attributes
    ----------
    lengthscale
        As a multiple of the units of the inputs.
    signal, noise
        Standard deviations.
    """

    lengthscale: float
    signal: float
    noise: float


def variance(values: Float[np.ndarray, "n ..."], weights: Float[np.ndarray, " n"]) -> Any:
    """Variance of a number, or of each of several, over weighted records."""
    return np.average((values - np.average(values, 0, weights)) ** 2, 0, weights)


def spread(X: Float[np.ndarray, "n k"], weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, " k"]:
    """Standard deviation of every column; one where it does not vary."""
    scale = np.sqrt(variance(X, weights))
    return np.where(scale > 1e-10 * np.abs(X).max(0, initial=1e-300), scale, 1.0)


def process_scales(
    X: Float[np.ndarray, "n k"],
    Y: Float[np.ndarray, "n c"],
    weights: Float[np.ndarray, " n"],
    locations: Float[np.ndarray, "m k"],
    kernel: AbstractKernel,
    multiples: Float[np.ndarray, " l"],
) -> ProcessScales:
    """Scales that maximise the bound on the evidence of a sparse process (Titsias 2009), over a grid.

    Parameters
    ----------
    X
        Inputs in units of their lengthscales.
    Y
        Centred targets, one column for each process; they share their scales.
    weights
        How often each record counts.
    locations
        Inducing inputs, in the same units.
    kernel
        Of the shape that matters here, whatever its scales.
    multiples
        Lengthscales to try.
    """
    records, size, roots = weights.sum(), len(locations), np.sqrt(weights)
    squared = euclidean_distances(np.concatenate([locations, X]), locations, squared=True)
    Y = Y * roots[:, None]
    energy = (Y**2).sum(0).mean()
    # Targets that do not vary tell no scale.
    least = np.finfo(float).eps * energy / records or 1.0
    tried = []
    for lengthscale in multiples:
        correlations = np.asarray(kernel.correlation(jnp.asarray(squared / lengthscale**2)))
        factor = np.linalg.cholesky(correlations[:size] + JITTER * np.eye(size))
        features = roots * solve_triangular(factor, correlations[size:].T, lower=True)
        values, vectors = np.linalg.eigh(features @ features.T)
        values = np.maximum(values, JITTER * values.max())
        along = ((vectors.T @ (features @ Y)) ** 2).mean(1) / values
        unexplained, missed = max(energy - along.sum(), 0.0), max(records - values.sum(), 0.0)
        variances = values + NOISE_RATIOS[:, None]
        square = (along / variances).sum(1) + unexplained / NOISE_RATIOS
        signal = np.maximum(square / records, least)
        log_det = np.log(variances).sum(1) + (records - size) * np.log(NOISE_RATIOS)
        evidence = -records * np.log(signal) - log_det - missed / NOISE_RATIOS
        best = int(evidence.argmax())
        scales = ProcessScales(lengthscale, signal[best] ** 0.5, (signal[best] * NOISE_RATIOS[best]) ** 0.5)
        tried.append((evidence[best], scales))
    return max(tried)[1]


def inducing_inputs(
    X: Float[np.ndarray, "n k"], weights: Float[np.ndarray, " n"], count: int, rng
) -> Float[np.ndarray, "m k"]:
    """At most `count` centres of k-means, or all different inputs where there are no more."""
    different = np.unique(X, axis=0)
    if len(different) <= count:
        return different
    seed = rng.randint(np.iinfo(np.int32).max)
    return KMeans(count, max_iter=20, random_state=seed).fit(X, sample_weight=weights).cluster_centers_
