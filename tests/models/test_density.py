"""Models written as log-densities, against scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm, t
from scipy import stats

from unbayes.models import DensityModel, GammaShape
from unbayes.posteriors import DensePrecision, DiagonalGaussian, FullGaussian

from .rows import gaussians, grid

RECORDS = np.array([0.3, 1.7, 2.4])


def location_scale() -> DensityModel:
    """y ~ N(θ₁, exp(θ₂)), θ Student-t with five degrees of freedom."""
    return DensityModel(
        lambda theta: t.logpdf(theta, 5.0).sum(),
        lambda theta, record: norm.logpdf(record, theta[0], jnp.exp(theta[1])),
        dim=2,
    )


def test_log_densities_are_those_given(dtype):
    model = location_scale()
    evidence, theta = model.encode(RECORDS), jnp.array([0.5, -0.3])
    own = model.log_likelihood(theta, evidence)
    assert own.dtype == model.log_prior(theta).dtype == model.dtype == dtype
    np.testing.assert_allclose(own, stats.norm.logpdf(RECORDS, 0.5, np.exp(-0.3)), rtol=1e-5)
    assert float(model.log_prior(theta)) == pytest.approx(stats.t.logpdf([0.5, -0.3], 5).sum(), rel=1e-5)


def test_records_may_be_any_pytree():
    model = DensityModel(lambda theta: 0.0, lambda theta, r: theta[0] * r["x"].sum() + r["group"], 1)
    evidence = model.encode({"x": np.ones((3, 2), np.float32), "group": np.array([0, 1, 2], np.int8)})
    assert evidence["x"].dtype == jnp.float64
    assert evidence["group"].dtype == jnp.int8
    as_float = {"x": evidence["x"], "group": evidence["group"].astype(float)}
    np.testing.assert_allclose(model.log_likelihood(jnp.array([2.0]), as_float), [4.0, 5.0, 6.0])


@pytest.mark.parametrize("gaussian", gaussians(2), ids=["diagonal", "full"])
def test_sites_are_derivatives_of_expectations(gaussian):
    """Bonnet and Price: ∇_m E and −∇²_m E of data and of a prior that is not Gaussian."""
    model, nodes = location_scale(), grid(2)
    evidence = model.encode(RECORDS)
    root = np.asarray(gaussian.to_full().scale_tril)

    @jax.jit
    def both_ways(mean):
        def data(mean):
            return model.expected_log_likelihood(FullGaussian(mean, root), evidence, nodes)

        def prior(mean):
            return model.expected_log_prior(FullGaussian(mean, root), nodes)

        sites = model.site(gaussian, evidence, nodes), model.prior_site(gaussian, nodes)
        return sites, [
            gaussian.site(jax.grad(f)(mean), DensePrecision(-jax.hessian(f)(mean))) for f in (data, prior)
        ]

    for own, other in zip(*both_ways(gaussian.mean), strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8), own, other)


def test_expected_log_prior_is_the_integral():
    model = DensityModel(lambda theta: t.logpdf(theta[0], 5.0), lambda theta, record: 0.0, 1)
    expected = stats.norm(0.4, 0.7).expect(lambda x: stats.t.logpdf(x, 5))
    own = model.expected_log_prior(DiagonalGaussian([0.4], [0.7]), model.nodes())
    assert float(own) == pytest.approx(expected, rel=1e-7)


RATE = 2.0


def gamma_shape() -> GammaShape:
    return GammaShape(RATE, DiagonalGaussian([0.0], [1.0]))


def test_gamma_shape_is_that_of_scipy(dtype):
    model = gamma_shape()
    evidence = model.encode(RECORDS)
    own = model.log_likelihood(jnp.array([0.6], dtype), evidence)
    assert own.dtype == model.dtype == dtype
    np.testing.assert_allclose(own, stats.gamma.logpdf(RECORDS, np.exp(0.6), scale=1 / RATE), rtol=1e-5)
    assert float(model.log_prior(jnp.array([0.6], dtype))) == pytest.approx(stats.norm.logpdf(0.6), rel=1e-5)


def test_gamma_shape_expectation_and_site_are_integrals():
    model = gamma_shape()
    evidence = model.encode(RECORDS)
    scale = 0.3

    z = np.linspace(-9, 9, 2001)

    def expected(mean):
        shape = np.exp(mean + scale * z)[:, None]
        log_density = stats.gamma.logpdf(RECORDS, shape, scale=1 / RATE).sum(1)
        return np.trapezoid(stats.norm.pdf(z) * log_density, z)

    gaussian = DiagonalGaussian([0.6], [scale])
    own = model.expected_log_likelihood(gaussian, evidence, model.nodes())
    assert float(own) == pytest.approx(expected(0.6), rel=1e-8)
    step = 1e-3
    behind, here, ahead = (expected(0.6 + side * step) for side in (-1, 0, 1))
    precision = -(ahead - 2 * here + behind) / step**2
    linear = (ahead - behind) / (2 * step) + precision * 0.6
    site = model.site(gaussian, evidence, model.nodes())
    np.testing.assert_allclose(site.precision.diagonal, [precision], rtol=1e-4)
    np.testing.assert_allclose(site.linear, [linear], rtol=1e-4)


def test_gamma_shape_has_one_parameter():
    with pytest.raises(ValueError, match="prior must have length 1, got 2"):
        GammaShape(1.0, DiagonalGaussian.standard(2))
