"""What all models share: sums over records, their digits, and the terms of a Gaussian prior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_expit

from unbayes._numerics import records
from unbayes.models import BernoulliLikelihood, LinearModel, RawFeatures, logistic_regression
from unbayes.posteriors import DiagonalGaussian, FullGaussian

from .rows import INPUTS, MODELS, gaussians, grid, over_models


@pytest.mark.parametrize("name", ["linear", "softmax"])
def test_sums_do_not_depend_on_chunks(name, monkeypatch):
    model, targets = MODELS[name]
    evidence, nodes = model.encode((INPUTS, targets)), grid(model.integral_dim, 5)
    gaussian, thetas = gaussians(model.dim)[1], jr.normal(jr.key(0), (4, model.dim))

    def sums(gaussian, thetas):
        site = model.site(gaussian, evidence, nodes)
        expected = model.expected_log_likelihood(gaussian, evidence, nodes)
        return site, expected, model.log_likelihood_at(thetas, evidence)

    whole = jax.jit(lambda *both: sums(*both))(gaussian, thetas)
    for name in ("CACHED_ELEMENTS", "CHUNK_ELEMENTS"):
        monkeypatch.setattr(records, name, 2 * nodes.points.size * model.integral_dim)
    monkeypatch.setattr("unbayes.models.base.CHUNK_ELEMENTS", 2 * len(thetas))
    in_pairs = jax.jit(lambda *both: sums(*both))
    assert "scan" in str(in_pairs.trace(gaussian, thetas).jaxpr)
    found = in_pairs(gaussian, thetas)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found, whole)


@over_models
def test_deviations_and_mean_add_up_to_the_log_likelihood(model, targets):
    evidence, thetas = model.encode((INPUTS, targets)), jr.normal(jr.key(0), (4, model.dim))
    deviations, mean = eqx.filter_jit(model.log_likelihood_at)(thetas, evidence)
    log_likelihood = eqx.filter_jit(model.log_likelihood)
    plain = np.array([log_likelihood(theta, evidence).sum() for theta in thetas])
    np.testing.assert_allclose(deviations + mean, plain, rtol=1e-12)
    assert float(deviations.sum()) == pytest.approx(0, abs=1e-10)


def test_deviations_keep_their_digits_in_single_precision():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(100_000, 2)).astype(np.float32)
    thetas = (np.array([0.1, 1.0, -0.5]) + 1e-3 * rng.normal(size=(16, 3))).astype(np.float32)
    labels = (inputs @ [1.0, -0.5] + rng.logistic(size=100_000) > 0).astype(int)
    design = np.c_[np.ones(100_000), inputs]
    exact = log_expit((2 * labels - 1) * (design @ thetas.T.astype(float)).T).sum(1)
    with jax.enable_x64(False):
        model = logistic_regression(2)
        evidence = model.encode((inputs, labels))
        deviations, _ = model.log_likelihood_at(jnp.asarray(thetas), evidence)
        naive = jax.vmap(model.log_likelihood, (0, None))(jnp.asarray(thetas), evidence).sum(1)
        assert deviations.dtype == naive.dtype == jnp.float32
    deviations, naive = np.float64(deviations), np.float64(naive)
    error, naive_error = (
        np.abs(found - (exact - exact.mean())).max() for found in (deviations, naive - naive.mean())
    )
    assert error < 1e-3 * exact.std()
    assert error < naive_error / 5


@pytest.mark.parametrize(
    "gaussian",
    [DiagonalGaussian([1.0, 0.3], [0.5, 0.2]), FullGaussian([1.0, 0.3], [[0.5, 0.0], [0.1, 0.2]])],
    ids=["diagonal", "full"],
)
def test_terms_of_a_gaussian_prior_are_closed_forms(gaussian):
    model = LinearModel(RawFeatures(1), BernoulliLikelihood(), gaussians(2)[1])
    prior = stats.multivariate_normal(model.prior.mean, model.prior.covariance)
    precision = np.linalg.inv(model.prior.covariance)
    expected = prior.logpdf(gaussian.mean) - 0.5 * np.trace(precision @ gaussian.covariance)
    assert float(model.log_prior(gaussian.mean)) == pytest.approx(prior.logpdf(gaussian.mean))
    assert float(model.expected_log_prior(gaussian, model.nodes())) == pytest.approx(expected, rel=1e-10)
    site = model.prior_site(gaussian, model.nodes())
    kept = precision if isinstance(gaussian, FullGaussian) else np.diag(np.diag(precision))
    np.testing.assert_allclose(site.precision.matrix, kept, rtol=1e-8)
    slope = precision @ (np.asarray(model.prior.mean) - gaussian.mean)
    np.testing.assert_allclose(site.linear, slope + kept @ gaussian.mean, rtol=1e-8)
