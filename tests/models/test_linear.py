"""Linear models: sites and expectations against the generic path and scipy; conjugacy; types."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import log_expit, log_softmax

from unbayes.models import (
    AbstractModel,
    BernoulliLikelihood,
    LinearModel,
    RawFeatures,
    logistic_regression,
    poisson_regression,
)
from unbayes.posteriors import DiagonalGaussian, FullGaussian

from .rows import INPUTS, MODELS, gaussians, grid, over_models, predictor_moments


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"dtc"}))
def test_site_agrees_with_the_generic_path_and_with_differences(name):
    model, targets = MODELS[name]
    evidence = model.encode((INPUTS, targets))
    over_f, over_theta = grid(model.integral_dim, 40), grid(model.dim, 30)

    @eqx.filter_jit
    def all_ways(gaussian):
        def expected(mean):
            moved = eqx.tree_at(lambda q: q.mean, gaussian, mean)
            return model.expected_log_likelihood(moved, evidence, over_f)

        step = 1e-4
        ahead, behind = (
            jax.vmap(expected)(gaussian.mean + side * step * jnp.eye(model.dim)) for side in (1, -1)
        )
        own = model.site(gaussian, evidence, over_f), expected(gaussian.mean)
        both = model.expected_log_likelihood_and_site(gaussian, evidence, over_f)
        generic = (
            AbstractModel.site(model, gaussian, evidence, over_theta),
            AbstractModel.expected_log_likelihood(model, gaussian, evidence, over_theta),
        )
        return own, both[::-1], generic, (ahead - behind) / (2 * step)

    for gaussian in gaussians(model.dim):
        own, both, generic, slope = all_ways(gaussian)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), own, both)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), own, generic)
        site, _ = own
        np.testing.assert_allclose(site.gradient_at(gaussian.mean), slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["logistic", "dtc", "svgp"])
def test_expected_log_likelihood_is_the_integral(name):
    model, targets = MODELS[name]
    evidence = model.encode((INPUTS, targets))
    for gaussian in gaussians(model.dim):
        terms = [
            integrate.quad(lambda z, m=m, s=s, y=y: stats.norm.pdf(z) * log_expit(y * (m + s * z)), -9, 9)[0]
            for m, s, y in zip(*predictor_moments(model, gaussian), 2 * targets - 1, strict=True)
        ]
        own = eqx.filter_jit(model.expected_log_likelihood)(gaussian, evidence, model.nodes())
        assert float(own) == pytest.approx(sum(terms), rel=1e-7)


def test_expected_log_likelihood_of_softmax_is_the_average_over_draws():
    model, targets = MODELS["softmax"]
    evidence, rng = model.encode((INPUTS, targets)), np.random.default_rng(0)
    for gaussian in gaussians(3):
        weights = rng.multivariate_normal(gaussian.mean, gaussian.covariance, 20_000)
        each = log_softmax(weights[:, None, :] * INPUTS, axis=2)[:, np.arange(5), targets].sum(1)
        exact, default = (
            float(eqx.filter_jit(model.expected_log_likelihood)(gaussian, evidence, nodes))
            for nodes in (grid(2, 40), model.nodes())
        )
        error = each.std() / np.sqrt(20_000)
        assert abs(exact - each.mean()) < 4 * error
        assert abs(exact - default) < 1e-6


def test_conjugate_posterior_is_the_textbook():
    model, targets = MODELS["linear"]
    design = np.c_[np.ones(5), INPUTS]
    precision = np.eye(2) + design.T @ design / 0.25
    added = eqx.filter_jit(model.sufficient_statistics)(model.encode((INPUTS, targets)))
    posterior = FullGaussian.from_natural(jax.tree.map(jnp.add, model.conjugate_prior.natural, added))
    np.testing.assert_allclose(
        posterior.mean, np.linalg.solve(precision, design.T @ targets / 0.25), rtol=1e-10
    )
    np.testing.assert_allclose(posterior.covariance, np.linalg.inv(precision), rtol=1e-10)


def test_an_offset_is_what_the_targets_exceed():
    """For a Gaussian likelihood; the predictions exceed those of the shifted targets by it."""
    model, targets = MODELS["linear"]
    shifted = LinearModel(model.features, model.likelihood, model.prior, offset=-1.5)
    own = shifted.sufficient_statistics(shifted.encode((INPUTS, targets)))
    plain = model.sufficient_statistics(model.encode((INPUTS, targets + 1.5)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), own, plain)
    belief = gaussians(2)[1]
    np.testing.assert_allclose(
        shifted.predictive(belief, INPUTS).mean, model.predictive(belief, INPUTS).mean - 1.5, rtol=1e-12
    )


def test_only_a_gaussian_likelihood_is_conjugate():
    model, targets = MODELS["logistic"]
    assert model.conjugate_prior is None
    with pytest.raises(TypeError, match="LinearModel has no conjugate prior"):
        model.sufficient_statistics(model.encode((INPUTS, targets)))


@pytest.mark.parametrize("family", [0, 1], ids=["diagonal", "full"])
@pytest.mark.parametrize("make", [logistic_regression, poisson_regression])
def test_records_of_zeros_leave_gradients_finite(make, family):
    model = make(2, bias=False)
    evidence = model.encode((np.zeros((1, 2)), [1]))
    gradient = eqx.filter_grad(lambda q: model.expected_log_likelihood(q, evidence, model.nodes()))
    leaves = jax.tree.leaves(eqx.filter_jit(gradient)(gaussians(2)[family]))
    assert all(bool((leaf == 0).all()) for leaf in leaves)


@over_models
def test_computes_in_the_type_of_its_prior(model, targets):
    """Whatever the type of features and likelihood, and of JAX."""
    prior = DiagonalGaussian.standard(model.dim, jnp.float32)
    single = LinearModel(model.features, model.likelihood, prior)
    evidence, nodes = single.encode((INPUTS, targets)), single.nodes()
    results = jax.eval_shape(
        lambda: (
            single.log_likelihood(prior.mean, evidence),
            single.expected_log_likelihood(prior, evidence, nodes),
            single.site(prior, evidence, nodes),
        )
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(results)} == {jnp.dtype("float32")}


def test_prior_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match=r"prior must have length 3 \(1 outputs × 3 features\), got 2"):
        LinearModel(RawFeatures(2), BernoulliLikelihood(), DiagonalGaussian.standard(2))


@pytest.mark.parametrize("name", ["linear", "logistic", "softmax", "svgp", "fitc", "noise"])
def test_changes_of_sites_agree_with_the_generic_path(name):
    model, targets = MODELS[name]
    evidence, nodes = model.encode((INPUTS, targets)), model.nodes()
    _, before = gaussians(model.dim)
    after = FullGaussian(before.mean + 0.3, 1.2 * before.scale_tril)

    @eqx.filter_jit
    def both_ways():
        arguments = (before, after, evidence, nodes)
        return model.site_changes(*arguments), AbstractModel.site_changes(model, *arguments)

    own, generic = both_ways()
    np.testing.assert_allclose(own, generic, rtol=1e-9, atol=1e-12)
    assert (own >= 0).all()
    assert (own.max() > 1e-6) == (name != "linear")


class Shifted(RawFeatures):
    """The inputs, and a known part of f."""

    def offset(self, x):
        return 0.7 * x[:, 0] - 0.2


@pytest.mark.long
@pytest.mark.parametrize("posterior", gaussians(2), ids=["diagonal", "full"])
def test_a_known_part_of_f_is_one_more_coefficient(posterior):
    """Known values 0.7 and −0.2 of the coefficients are added to their mean."""
    prior, likelihood = DiagonalGaussian.standard(2), BernoulliLikelihood()
    known, plain = (LinearModel(kind(1), likelihood, prior) for kind in (Shifted, RawFeatures))
    moved = eqx.tree_at(lambda q: q.mean, posterior, posterior.mean + jnp.array([-0.2, 0.7]))
    records = INPUTS, MODELS["logistic"][1]
    nodes = known.nodes()
    own, expected = (
        (
            model.log_likelihood(belief.mean, model.encode(records)),
            model.expected_log_likelihood(belief, model.encode(records), nodes),
            model.influence(belief, model.encode(records), nodes),
            model.site(belief, model.encode(records), nodes).precision,
            model.site(belief, model.encode(records), nodes).gradient_at(belief.mean),
            eqx.filter_jit(model.derivatives)(
                belief, belief.to_full().scale_tril, model.encode(records), nodes, order=5
            ),
            model.predictive(belief, INPUTS).log_probabilities,
            model.log_predictive(belief, records),
        )
        for model, belief in ((known, posterior), (plain, moved))
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), own, expected)
