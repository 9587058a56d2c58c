"""The paper's equations and propositions, on a conjugate model where everything is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unbayes as ub
from problems import KEY, bimodal, linear_gaussian, logistic, trained
from unbayes.inference.objectives import (
    cross_entropy,
    elbo,
    eubo,
    log_adjusted_likelihood,
    removal_log_weights,
)
from unbayes.posteriors import gaussian_kl


@pytest.fixture(scope="module")
def exact():
    """Evidence, exact posteriors and log marginal likelihoods of the linear-Gaussian problem."""
    problem = linear_gaussian()
    fits = {name: ub.fit(problem.model, getattr(problem, name), key=KEY) for name in ("full", "remaining")}
    evidence = {
        name: problem.model.encode(getattr(problem, name)) for name in ("full", "erased", "remaining")
    }
    return problem.model, evidence, fits


def _candidate(seed, dim, spread=1.0):
    rng = np.random.default_rng(seed)
    return ub.FullGaussian(
        spread * rng.normal(size=dim), np.tril(0.3 * rng.normal(size=(dim, dim))) + 0.5 * np.eye(dim)
    )


@pytest.mark.parametrize("seed", range(5))
def test_elbo_is_log_evidence_minus_kl(exact, seed):
    """Equation (1): L = log p(D) − KL[q‖p(θ|D)], with log p(D) from the marginal Gaussian."""
    model, evidence, fits = exact
    design, y = np.asarray(evidence["full"].design), np.asarray(evidence["full"].targets)
    covariance = 0.25 * np.eye(len(y)) + design @ np.asarray(model.prior.covariance) @ design.T
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    log_evidence = -0.5 * (log_det + y @ np.linalg.solve(covariance, y))
    candidate = _candidate(seed, 4)
    expected = log_evidence - gaussian_kl(candidate, fits["full"].posterior)
    assert elbo(candidate, model, evidence["full"]) == pytest.approx(float(expected), rel=1e-10)
    assert fits["full"].elbo == pytest.approx(log_evidence, rel=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_proposition_2(exact, seed):
    """U = log p(D_e|D_r) + KL[q̃‖p(θ|D_r)] ≥ log p(D_e|D_r), with equality at the retrained posterior."""
    model, evidence, fits = exact
    full, retrained = fits["full"].posterior, fits["remaining"].posterior
    log_conditional = fits["full"].elbo - fits["remaining"].elbo
    candidate = _candidate(seed, 4, spread=0.3)
    bound = float(eubo(candidate, full, model, evidence["erased"]))
    divergence = float(gaussian_kl(candidate, retrained))
    assert bound == pytest.approx(log_conditional + divergence, abs=1e-8 * max(1, abs(divergence)))
    assert bound >= log_conditional
    assert float(eubo(retrained, full, model, evidence["erased"])) == pytest.approx(log_conditional, abs=1e-8)


def test_minimising_one_bound_traces_the_other(exact):
    """Figure 1: ELBO on D_r and EUBO differ by a constant, with the exact posterior."""
    model, evidence, fits = exact
    sums = [
        float(
            eubo(q, fits["full"].posterior, model, evidence["erased"]) + elbo(q, model, evidence["remaining"])
        )
        for q in (_candidate(seed, 4, spread=0.3) for seed in range(4))
    ]
    np.testing.assert_allclose(sums, fits["full"].elbo, rtol=1e-9)


@pytest.mark.parametrize("bound", ["elbo", "eubo"])
def test_sampled_bounds_agree_with_quadrature(bound):
    problem, full = logistic(), trained(logistic)
    erased = problem.model.encode(problem.erased)
    candidate = trained(logistic, "remaining")
    functions = {
        "elbo": lambda **how: elbo(candidate, problem.model, erased, **how),
        "eubo": lambda **how: eubo(candidate, full, problem.model, erased, **how),
    }
    sampled = jax.jit(lambda key: functions[bound](key=key, draws=500))
    draws = jnp.stack([sampled(jax.random.key(seed)) for seed in range(40)])
    error = float(draws.std() / np.sqrt(len(draws)))
    assert abs(float(draws.mean() - functions[bound]())) < 4 * error
    flow = ub.AutoregressiveFlow(candidate, key=KEY, layers=1, width=4)
    with pytest.raises(ValueError, match="key must be given"):
        elbo(flow, problem.model, erased)


def test_a_batch_is_scaled_to_all_records():
    problem = logistic()
    evidence = problem.model.encode(problem.full)
    candidate = trained(logistic)
    halves = [jax.tree.map(lambda a, half=half: a[half::2], evidence) for half in (0, 1)]
    bound = eqx.filter_jit(lambda part, scale: elbo(candidate, problem.model, part, scale=scale))
    whole = bound(evidence, 1.0)
    scaled = np.mean([bound(half, 2.0) for half in halves])
    assert scaled == pytest.approx(float(whole), rel=1e-12)


def test_gradients_agree_with_finite_differences():
    problem, full = logistic(), trained(logistic)
    erased = problem.model.encode(problem.erased)
    log_max = full.max_log_prob()

    def value(shift, how):
        candidate = eqx.tree_at(lambda q: q.mean, full, full.mean + shift)
        return eubo(candidate, full, problem.model, erased, **how)

    for how in ({}, {"key": KEY, "draws": 64}, {"key": KEY, "draws": 64, "lam": 0.0, "log_max": log_max}):
        at = jax.jit(lambda shift, how=how: value(shift, how))
        gradient = jax.jit(jax.grad(at))(jnp.zeros(3))
        step = 1e-5
        numeric = [(at(step * e) - at(-step * e)) / (2 * step) for e in jnp.eye(3)]
        np.testing.assert_allclose(gradient, jnp.stack(numeric), rtol=1e-5, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1), st.lists(st.floats(-50, 0), min_size=2, max_size=20))
def test_adjusted_likelihood_is_one_where_the_posterior_is_small(lam, below_max):
    """Equation (6)."""
    log_full = jnp.asarray(below_max) + 3.0
    log_likelihood = jnp.linspace(-7.0, -1.0, len(below_max))
    adjusted = np.asarray(log_adjusted_likelihood(log_likelihood, log_full, jnp.asarray(3.0), lam))
    inside = np.exp(np.asarray(log_full) - 3.0) > lam
    borderline = np.isclose(np.exp(np.asarray(log_full) - 3.0), lam, rtol=1e-9)
    expected = np.where(inside, np.asarray(log_likelihood), 0)
    np.testing.assert_array_equal(adjusted[~borderline], expected[~borderline])


def test_weights_are_what_equation_7_says():
    full, model, erased = bimodal()
    thetas, log_full = full.sample_and_log_prob(KEY, (500,))
    evidence = model.encode(erased)
    deviations, mean = model.log_likelihood_at(thetas, evidence)
    for lam in (0.0, 0.1, 1.0):
        log_weights = removal_log_weights(deviations, mean, log_full, full.max_log_prob(), lam)
        likelihood = 1 + np.exp(2 * np.asarray(thetas[:, 0]) - 2)
        inside = np.asarray(log_full) > np.log(max(lam, 1e-300)) + float(full.max_log_prob())
        weights = np.where(inside, 1 / likelihood, 1.0)
        np.testing.assert_allclose(np.exp(log_weights), weights / weights.sum(), rtol=1e-10)


def test_cross_entropy_is_least_at_the_weighted_moments():
    """Equation (9): among Gaussians, the weighted mean and covariance minimise the reverse KL."""
    full, model, erased = bimodal()
    thetas = full.sample(KEY, (2000,))
    weights = jax.nn.softmax(-jax.vmap(model.log_likelihood, (0, None))(thetas, model.encode(erased))[:, 0])
    mean = weights @ thetas
    best = ub.DiagonalGaussian(mean, jnp.sqrt(weights @ (thetas - mean) ** 2))
    gradient = jax.grad(lambda q: cross_entropy(q, thetas, jnp.log(weights)))(best)
    for leaf in jax.tree.leaves(gradient):
        np.testing.assert_allclose(leaf, 0, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("total", [1.0, 0.3])
def test_cross_entropy_of_a_dense_gaussian_is_that_of_its_density(total, dtype):
    keys = jax.random.split(KEY, 3)
    thetas = 3 + jax.random.normal(keys[0], (50, 4), dtype)
    log_weights = jax.nn.log_softmax(jax.random.normal(keys[1], (50,), dtype)) + jnp.log(total).astype(dtype)
    factor = jnp.tril(0.3 * jax.random.normal(keys[2], (4, 4), dtype)) + jnp.eye(4, dtype=dtype)
    candidate = ub.FullGaussian(jnp.arange(4, dtype=dtype), factor)

    def term_by_term(candidate):
        return -jnp.exp(log_weights) @ candidate.log_prob(thetas)

    found, expected = (
        jax.value_and_grad(f)(candidate)
        for f in (lambda q: cross_entropy(q, thetas, log_weights), term_by_term)
    )
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert jnp.allclose(ours, theirs, rtol=2e-4 if dtype == jnp.float32 else 1e-10)
