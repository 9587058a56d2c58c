"""Noise whose scale is learnt: expectations against integrals and closed forms, derivatives, types."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import unbayes as ub
from unbayes._numerics.quadrature import standard_normal_nodes

NOISE = 0.3
# Mean and covariance of f = (f₀, f₁), from certain to wide, and a target.
CASES = [
    ([0.2, -0.5], [[0.0, 0.0], [0.0, 0.0]], 0.4),
    ([0.2, -0.5], [[0.3, 0.1], [0.1, 0.2]], 0.4),
    ([-1.0, 0.7], [[0.02, -0.03], [-0.03, 0.5]], 1.3),
    ([1.0, -1.0], [[2.0, 0.6], [0.6, 0.3]], -2.0),
]
over_cases = pytest.mark.parametrize(("mean", "covariance", "y"), CASES)


def log_prob(f, y):
    return stats.norm.logpdf(y, f[..., 0], NOISE * np.exp(f[..., 1]))


def closed_form(mean, covariance, y):
    """E[log p]: exp(−2 f₁) moves the mean of f₀ by −2 cov(f₀, f₁)."""
    (m0, m1), ((s00, s01), (_, s11)) = mean, covariance
    square = ((y - m0 + 2 * s01) ** 2 + s00) * np.exp(2 * s11 - 2 * m1) / NOISE**2
    return -0.5 * np.log(2 * np.pi) - np.log(NOISE) - m1 - 0.5 * square


def root_of(covariance):
    return np.linalg.cholesky(np.asarray(covariance) + 1e-300 * np.eye(2))


def by_grid(function, mean, covariance):
    z = np.stack(np.meshgrid(*[np.linspace(-9, 9, 601)] * 2), -1)
    weights = np.exp(-0.5 * (z**2).sum(-1))
    return (weights * function(np.asarray(mean) + z @ root_of(covariance).T)).sum() / weights.sum()


def integrals(mean, covariance, y, dtype=jnp.float64):
    likelihood = ub.HeteroscedasticLikelihood(NOISE)
    nodes = standard_normal_nodes(2, dtype)
    f = jnp.asarray(mean, dtype)[:, None] + jnp.asarray(root_of(covariance), dtype) @ nodes.points.T
    return eqx.filter_jit(likelihood.integrals_at)(f, jnp.asarray(y, dtype), jnp.asarray(nodes.weights))


@over_cases
def test_log_density_and_its_derivatives_are_the_integrals(mean, covariance, y):
    """The grid of nodes leaves out its corners, which are good for the fourth digit of the widest."""
    assert by_grid(lambda f: log_prob(f, y), mean, covariance) == pytest.approx(
        closed_form(mean, covariance, y), rel=1e-8
    )
    found = integrals(mean, covariance, y)
    assert float(found.value) == pytest.approx(closed_form(mean, covariance, y), rel=1e-4)
    slope = jax.jit(jax.grad(closed_form_in_jax))(jnp.asarray(mean), jnp.asarray(covariance), y)
    curvature = -jax.jit(jax.hessian(closed_form_in_jax))(jnp.asarray(mean), jnp.asarray(covariance), y)
    np.testing.assert_allclose(found.slope, slope, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.curvature, curvature, rtol=1e-3, atol=1e-3)


def closed_form_in_jax(mean, covariance, y):
    square = ((y - mean[0] + 2 * covariance[0, 1]) ** 2 + covariance[0, 0]) / NOISE**2
    return -mean[1] - 0.5 * square * jnp.exp(2 * covariance[1, 1] - 2 * mean[1])


@over_cases
def test_single_precision_gives_the_same(mean, covariance, y):
    with jax.enable_x64(False):
        single = integrals(mean, covariance, y, jnp.float32)
    assert {part.dtype for part in single} == {jnp.dtype("float32")}
    for found, expected in zip(single, integrals(mean, covariance, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_values_far_out_leave_gradients_finite(dtype):
    log_density = ub.HeteroscedasticLikelihood(NOISE).log_prob
    for f in ([0.0, 0.0], [1e4, 3.0], [0.0, 30.0], [2.0, -15.0]):
        slope = jax.grad(log_density)(jnp.array(f, dtype), jnp.asarray(2.0, dtype))
        assert np.isfinite(slope).all(), f


def noisy(outliers):
    """A wave whose noise grows to the right, or has outliers; the last records, and some from everywhere."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 120))[:, None]
    y = np.sin(2 * x[:, 0]) + 0.2 * np.exp(0.6 * x[:, 0]) * rng.normal(size=120)
    y[::17] += 3.0 * outliers
    return (x, y), {"everywhere": np.arange(5, 120, 10), "the right": np.arange(100, 120)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("likelihood", "outliers", "without_memory"),
    [(ub.HeteroscedasticLikelihood(0.3), 0, 0.2), (ub.StudentTLikelihood(0.2, 4.0), 1, 0.05)],
    ids=["learnt scale", "heavy tails"],
)
def test_unlearning_comes_close_to_retraining(likelihood, outliers, without_memory):
    """One step leaves a small part of the distance that doing nothing does; with sums, a thousandth."""
    records, erasures = noisy(outliers)
    model = ub.sparse_gp(
        np.linspace(-2, 2, 8)[:, None], ub.SquaredExponential(1.0, [0.8]), likelihood, jitter=1e-6
    )
    trained = ub.fit(model, records, memory="sums", key=jax.random.key(0))
    assert trained.converged
    for rows in erasures.values():
        left = np.setdiff1d(np.arange(120), rows)
        retrained = ub.fit(model, [part[left] for part in records], key=jax.random.key(0)).posterior

        def away(posterior, retrained=retrained):
            return ub.metrics.parameter_kl(retrained, posterior).value

        gone = [part[rows] for part in records]
        one, more = (
            ub.unlearn(trained.posterior, model, gone, memory=memory, key=jax.random.key(0))
            for memory in (None, trained.memory)
        )
        nothing = away(trained.posterior)
        assert away(one.posterior) < without_memory * nothing
        assert away(more.posterior) < 1e-3 * nothing
        assert more.verdict == "trusted"
