"""Scales and inducing inputs, chosen from the data where the user leaves that open."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import euclidean_distances

from unbayes.models.kernels import AbstractKernel

# Rows on which scales are tried out, and rows that k-means sees, at most.
LARGEST_TRIAL, LARGEST_CLUSTERED = 200, 5000
# Ratios of noise to signal variance that are tried.
NOISE_RATIOS = np.geomspace(1e-4, 10, 16)
# Weight of the vague Gamma priors on both precisions, as in scikit-learn's BayesianRidge.
VAGUE = 1e-6


def evidence_scales(
    X: Float[np.ndarray, "n k"],
    y: Float[np.ndarray, " n"],
    noise_scale: float | str,
    prior_scale: float | str,
) -> tuple[float, float]:
    """Scales of noise and of weights that maximise the evidence of a linear model (MacKay 1992).

    Parameters
    ----------
    X, y
        Centred where the model has an intercept.
    noise_scale, prior_scale
        Kept where they are numbers, chosen where "auto".
    """
    if not isinstance(noise_scale, str) and not isinstance(prior_scale, str):
        return noise_scale, prior_scale
    left, singular, _ = np.linalg.svd(X, full_matrices=False)
    along = left.T @ y
    unexplained = max(float(y @ y - along @ along), 0.0)
    squares = singular**2
    noise = 1 / (y.var() + np.finfo(float).eps) if isinstance(noise_scale, str) else noise_scale**-2.0
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
            noise = (len(y) - determined + 2 * VAGUE) / (residual + 2 * VAGUE)
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


def spread(X: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " k"]:
    """Standard deviation of every column; one where it does not vary."""
    scale = X.std(0)
    return np.where(scale > 1e-10 * np.abs(X).max(0, initial=1e-300), scale, 1.0)


def process_scales(
    X: Float[np.ndarray, "n k"],
    Y: Float[np.ndarray, "n c"],
    kernel: AbstractKernel,
    multiples: Float[np.ndarray, " l"],
    rng,
) -> ProcessScales:
    """Scales that maximise the evidence of a Gaussian process on some of the rows, over a grid.

    Parameters
    ----------
    X
        Inputs in units of their lengthscales.
    Y
        Centred targets, one column for each process; they share their scales.
    kernel
        Of the shape that matters here, whatever its scales.
    multiples
        Lengthscales to try.
    rng
        Draws the rows.
    """
    if len(X) > LARGEST_TRIAL:
        rows = rng.choice(len(X), LARGEST_TRIAL, replace=False)
        X, Y = X[rows], Y[rows]
    squared = euclidean_distances(X, squared=True)
    # Targets that do not vary tell no scale.
    least = np.finfo(float).eps * (Y**2).mean() or 1.0
    tried = []
    for lengthscale in multiples:
        values, vectors = np.linalg.eigh(kernel.correlation(jnp.asarray(squared / lengthscale**2)))
        along = ((vectors.T @ Y) ** 2).mean(1)
        variances = np.maximum(values, 0) + NOISE_RATIOS[:, None]
        signal = np.maximum((along / variances).mean(1), least)
        evidence = -len(X) * np.log(signal) - np.log(variances).sum(1)
        best = int(evidence.argmax())
        scales = ProcessScales(lengthscale, signal[best] ** 0.5, (signal[best] * NOISE_RATIOS[best]) ** 0.5)
        tried.append((evidence[best], scales))
    return max(tried)[1]


def inducing_inputs(X: Float[np.ndarray, "n k"], count: int, rng) -> Float[np.ndarray, "m k"]:
    """At most `count` centres of k-means, or all different inputs where there are no more."""
    if len(X) > LARGEST_CLUSTERED:
        X = X[rng.choice(len(X), LARGEST_CLUSTERED, replace=False)]
    different = np.unique(X, axis=0)
    if len(different) <= count:
        return different
    seed = rng.randint(np.iinfo(np.int32).max)
    return KMeans(count, max_iter=20, random_state=seed).fit(X).cluster_centers_
