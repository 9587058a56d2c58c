"""The series of derivatives: exact where it ends, and the site is the gradient of the value."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from models.rows import grid
from unbayes.inference.series import Series, SeriesModel
from unbayes.models.derivatives import Derivatives, of_outputs
from unbayes.posteriors import small_change

ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)))
# Of 1, f, …, f⁵ in log p, which is concave in the place that matters.
COEFFICIENTS = (0.3, -0.4, -0.6, 0.2, -0.07, 0.04)
NODES = grid(2, 5)


def polynomial(degree: int):
    """Log-density of such a degree in f = aᵀθ: derivatives of higher order vanish."""

    def log_density(theta, record):
        return jnp.polyval(jnp.array(COEFFICIENTS[degree::-1]), record @ theta)

    return ub.DensityModel(lambda theta: -0.5 * theta @ theta, log_density, dim=2)


@pytest.fixture(scope="module")
def centre():
    return ub.FullGaussian(jnp.array([0.4, -0.7]), jnp.array([[0.5, 0.0], [0.2, 0.8]]))


@pytest.fixture(scope="module")
def far():
    """Four standard deviations away, and twice as wide."""
    return ub.FullGaussian(jnp.array([1.9, 1.5]), jnp.array([[1.2, 0.0], [-0.7, 0.9]]))


def derivatives_of(degree: int, gaussian) -> Derivatives:
    """Closed forms: of each record, the derivatives of the polynomial, averaged over its f."""
    along = np.asarray(ROWS @ gaussian.scale_tril)
    mean, scale = np.asarray(ROWS @ gaussian.mean), np.linalg.norm(along, axis=1)
    log_p = np.polynomial.Polynomial(COEFFICIENTS[: degree + 1])
    x, weights = np.polynomial.hermite_e.hermegauss(5)
    f = mean[:, None] + scale[:, None] * x
    each = [log_p.deriv(order)(f) @ weights / weights.sum() for order in (3, 4, 5)]
    tensors = [values.reshape(-1, *[1] * order) for order, values in enumerate(each, 3)]
    return of_outputs(jnp.asarray(along)[:, None], tensors)


def series(degree: int, centre, damping: float = 0.0) -> Series:
    projection = jnp.linalg.inv(centre.scale_tril)
    return Series(centre.mean, projection, derivatives_of(degree, centre), jnp.asarray(damping))


@eqx.filter_jit
def of_records(model, gaussian):
    """E_q[log p], its gradient by the mean, and minus the curvature."""
    value, site = model.expected_log_likelihood_and_site(gaussian, ROWS, NODES)
    return value, site.gradient_at(gaussian.mean), site.precision.matrix


def test_the_derivatives_are_those_of_the_model(centre):
    found = eqx.filter_jit(polynomial(5).derivatives)(centre, centre.scale_tril, ROWS, NODES)
    expected = derivatives_of(5, centre)
    np.testing.assert_allclose(found.third, expected.third, rtol=1e-8)
    np.testing.assert_allclose(found.fourth, expected.fourth, rtol=1e-4)


@pytest.mark.parametrize("degree", [3, 4])
def test_it_is_exact_where_derivatives_of_higher_order_vanish(degree, centre, far):
    model = polynomial(degree)
    value, gradient, precision = of_records(model, centre)
    true_value, true_gradient, true_precision = of_records(model, far)
    move = far.mean - centre.mean
    second = far.covariance - centre.covariance + jnp.outer(move, move)
    rest = true_value - (value + gradient @ move - 0.5 * jnp.sum(precision * second))
    found, site = eqx.filter_jit(Series.value_and_site)(series(degree, centre), far)
    assert abs(float(rest)) > 1
    assert float(found) == pytest.approx(float(rest), rel=1e-11)
    own = site.gradient_at(far.mean), site.precision.matrix
    expected = true_gradient - (gradient - precision @ move), true_precision - precision
    for one, other in zip(own, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10 * float(jnp.abs(other).max()))


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_the_site_is_the_gradient_of_the_value(order, damping, centre, far):
    """By the mean, and −2 times that by the covariance."""
    given = series(4, centre, damping)
    if order == 3:
        given = eqx.tree_at(lambda s: s.derivatives, given, Derivatives(given.derivatives.third))

    @jax.jit
    def slopes(mean, covariance):
        def value(mean, covariance):
            return given.value_and_site(ub.FullGaussian(mean, jnp.linalg.cholesky(covariance)))[0]

        return jax.grad(value, (0, 1))(mean, covariance)

    by_mean, by_covariance = slopes(far.mean, far.covariance)
    _, site = eqx.filter_jit(Series.value_and_site)(given, far)
    np.testing.assert_allclose(site.gradient_at(far.mean), by_mean, rtol=1e-10)
    np.testing.assert_allclose(
        site.precision.matrix, -(by_covariance + by_covariance.T), rtol=1e-9, atol=1e-10
    )


def test_damping_changes_terms_of_higher_order_alone(centre):
    """The plain series and a damped one differ by less and less of themselves as a belief comes closer."""
    ratios = []
    for size in (1e-2, 1e-3):
        near = ub.FullGaussian(centre.mean + size, centre.scale_tril * (1 + size))
        plain, damped = (series(4, centre, damping).value_and_site(near)[0] for damping in (0.0, 0.5))
        ratios.append(abs(float(damped / plain) - 1))
    assert ratios[1] < 0.15 * ratios[0] < 0.15 * 0.1


def test_the_next_term_is_what_is_missing(centre, far):
    """Of a polynomial of fifth degree, nothing is missing but this one term."""
    model, given = polynomial(5), series(5, centre)
    (_, gradient, precision), (_, true_gradient, true_precision) = (
        of_records(model, each) for each in (centre, far)
    )
    _, site = given.value_and_site(far)
    told = gradient - precision @ (far.mean - centre.mean) + site.gradient_at(far.mean)
    missing = true_gradient - told, true_precision - precision - site.precision.matrix
    expected = small_change(far.scale_tril, *missing)
    assert float(given.next_term(far, far.natural)) == pytest.approx(float(expected), rel=1e-9)
    assert series(4, centre).next_term(far, far.natural) == pytest.approx(0, abs=1e-20)
    unknown = eqx.tree_at(lambda s: s.derivatives, given, Derivatives(given.derivatives.third))
    assert unknown.next_term(far, far.natural) is None


def test_records_at_hand_join_the_series(centre, far):
    model, given = polynomial(4), series(4, centre)
    own, _ = given.value_and_site(far)
    both = SeriesModel(model, given)
    assert float(both.expected_log_likelihood(far, None, NODES)) == pytest.approx(float(own), rel=1e-12)
    value, *site = of_records(both, far)
    records, *sites = of_records(model, far)
    assert float(value) == pytest.approx(float(own + records), rel=1e-12)
    np.testing.assert_allclose(site[1], sites[1] + given.value_and_site(far)[1].precision.matrix, rtol=1e-11)
