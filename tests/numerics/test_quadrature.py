"""Nodes against the moments of a standard normal."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from unbayes._numerics.quadrature import (
    gauss_hermite,
    gauss_laguerre,
    quasi_random_nodes,
    random_nodes,
    safe_sqrt,
    standard_normal_nodes,
    trapezoid,
)


@pytest.mark.parametrize("count", [3, 10, 40])
def test_gauss_hermite_is_exact_for_polynomials(count):
    nodes = gauss_hermite(jnp.float64, count)
    z, weights = np.asarray(nodes.points[:, 0]), np.asarray(nodes.weights)
    assert nodes.points.shape == (count, 1)
    assert weights.sum() == pytest.approx(1, abs=1e-14)
    for degree in range(min(2 * count, 21)):
        size = weights @ np.abs(z) ** degree
        assert abs(weights @ z**degree - stats.norm.moment(degree)) < 1e-12 * max(size, 1)
    if count == 3:
        assert abs(weights @ z**6 - stats.norm.moment(6)) > 1


def test_gauss_laguerre_is_exact_for_polynomials_that_fall_off():
    nodes = gauss_laguerre(jnp.float64)
    x = np.asarray(nodes.points[:, 0])
    for degree in range(6):
        found = np.asarray(nodes.weights) @ (x**degree * np.exp(-x))
        assert found == pytest.approx(math.factorial(degree), rel=1e-10)


def test_trapezoid_resolves_a_narrow_bump():
    """E[exp(−(5z)²/2)] = 1/√26, which forty Gauss–Hermite nodes miss."""
    nodes = trapezoid(jnp.float64)
    z, weights = np.asarray(nodes.points[:, 0]), np.asarray(nodes.weights)
    assert weights @ np.exp(-12.5 * z**2) == pytest.approx(26**-0.5, rel=1e-12)
    for degree in range(0, 12, 2):
        assert weights @ z**degree == pytest.approx(stats.norm.moment(degree), rel=1e-8)


@pytest.mark.parametrize(("dim", "count"), [(1, 10), (4, 257)])
def test_random_nodes_integrate_quadratics_exactly(dim, count, dtype):
    nodes = jax.jit(lambda key: random_nodes(key, dim, dtype, count))(jr.key(0))
    points, weights = np.float64(nodes.points), np.float64(nodes.weights)
    assert nodes.points.shape == (count // 2 * 2, dim)
    assert nodes.points.dtype == nodes.weights.dtype == dtype
    tolerance = 2e3 * float(jnp.finfo(dtype).eps)
    assert weights.sum() == pytest.approx(1, abs=tolerance)
    np.testing.assert_allclose(weights @ points, 0, atol=tolerance)
    np.testing.assert_allclose((points.T * weights) @ points, np.eye(dim), atol=tolerance)


def test_random_nodes_follow_their_key():
    first, again, other = (random_nodes(jr.key(seed), 2, jnp.float64, 100) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.points, again.points)
    assert not np.allclose(first.points, other.points)
    half = np.asarray(random_nodes(jr.key(2), 2, jnp.float64, 20_000).points[:10_000, 0])
    assert stats.kstest(half, "norm").pvalue > 1e-3


def test_fewer_pairs_than_dimensions_are_left_as_drawn():
    nodes = random_nodes(jr.key(0), 10, jnp.float64, 6)
    np.testing.assert_array_equal(nodes.points[:3], -nodes.points[3:])
    assert np.isfinite(nodes.points).all()


def test_nodes_are_the_same_whenever_they_are_asked_for():
    nodes = standard_normal_nodes(1, jnp.float64)
    np.testing.assert_array_equal(nodes.points, gauss_hermite(jnp.float64).points)
    first, again = (standard_normal_nodes(3, jnp.float64, 64) for _ in range(2))
    assert first.points.shape == (64, 3)
    np.testing.assert_array_equal(first.points, again.points)
    assert np.isfinite(standard_normal_nodes(3000, jnp.float64, 64).points).all()


@pytest.mark.parametrize("count", [4, 81, 256, 10_000])
def test_grids_without_corners_are_as_good(count, dtype):
    """Moments up to the second, and the softplus of a sum, which is that of one normal variable."""
    nodes = standard_normal_nodes(2, dtype, count)
    assert len(nodes.weights) <= min(count, 184)
    points, weights = np.float64(nodes.points), np.float64(nodes.weights)
    tolerance = 20 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(weights @ points, 0, atol=tolerance)
    np.testing.assert_allclose((points.T * weights) @ points, np.eye(2), atol=tolerance)
    z, one = np.polynomial.hermite_e.hermegauss(60)
    exact = (one / one.sum()) @ np.logaddexp(0, 2**0.5 * z)
    if count >= 81:
        assert weights @ np.logaddexp(0, points.sum(1)) == pytest.approx(exact, rel=3e-6)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_nodes_for_a_grid_are_the_mean(count):
    np.testing.assert_array_equal(standard_normal_nodes(2, jnp.float64, count).points, np.zeros((1, 2)))


def test_quasi_random_nodes_come_closer_than_random_ones():
    """E[log(1 + Σ exp z)] over nine dimensions, as softmax regression on ten classes needs it."""

    def expectation(nodes):
        return float(nodes.weights @ jnp.log1p(jnp.exp(2 * nodes.points).sum(1)))

    truth = expectation(quasi_random_nodes(9, jnp.float64, 1 << 16))
    errors = [expectation(random_nodes(jr.key(seed), 9, jnp.float64, 256)) - truth for seed in range(20)]
    error = expectation(quasi_random_nodes(9, jnp.float64, 256)) - truth
    assert abs(error) < np.std(errors)


def test_safe_sqrt_has_a_slope_of_zero_at_zero():
    values = jnp.array([0.0, 4.0, jnp.nan])
    np.testing.assert_array_equal(safe_sqrt(values), [0.0, 2.0, np.nan])
    np.testing.assert_array_equal(jax.vmap(jax.grad(safe_sqrt))(values[:2]), [0.0, 0.25])
