"""Natural parameters of Gaussians: evidence adds, and gradients are those of the log-density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unbayes.posteriors import DensePrecision, DiagonalPrecision, FullGaussian, GaussianNatural

MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
DENSE = GaussianNatural(jnp.array([1.0, -2.0]), DensePrecision(jnp.asarray(MATRIX)))
DIAGONAL = GaussianNatural(jnp.array([0.3, 0.1]), DiagonalPrecision(jnp.array([4.0, 0.5])))


@pytest.mark.parametrize(("left", "right"), [(DENSE, DIAGONAL), (DIAGONAL, DENSE), (DENSE, DENSE)])
def test_log_densities_add(left, right):
    """Products of densities, up to a constant: the gradient of the sum is the sum of the gradients."""
    theta = jnp.array([0.7, -0.2])
    for result, sign in ((left + right, 1), (left - right, -1)):
        expected = left.gradient_at(theta) + sign * right.gradient_at(theta)
        np.testing.assert_allclose(result.gradient_at(theta), expected, atol=1e-14)
    back = left + right - right
    np.testing.assert_allclose(back.linear, left.linear, atol=1e-14)
    np.testing.assert_allclose(back.precision.matrix, left.precision.matrix, atol=1e-14)


def test_gradient_is_that_of_the_log_density():
    gaussian, theta = FullGaussian.from_natural(DENSE), jnp.array([0.7, -0.2])
    np.testing.assert_allclose(DENSE.gradient_at(theta), jax.grad(gaussian.log_prob)(theta), atol=1e-12)
    np.testing.assert_allclose(DENSE.gradient_at(gaussian.mean), 0, atol=1e-12)


def test_cannot_be_unpacked():
    """A pair of arrays would invite arithmetic that ignores the form of the precision."""
    with pytest.raises(TypeError, match="not iterable"):
        tuple(DENSE)
