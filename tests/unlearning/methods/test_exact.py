"""Exact unlearning of conjugate pairs and of tables, in every type."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unbayes as ub
from problems import KEY, take

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))


def _pairs():
    """Constructors, so that each runs in the type that is JAX's default at the time."""
    weights = np.array([0.2, 1.0, -1.0])
    return {
        "beta–bernoulli": (lambda: ub.BetaBernoulli(ub.Beta(2.0, 3.0)), RNG.integers(0, 2, 60)),
        "dirichlet–categorical": (
            lambda: ub.DirichletCategorical(ub.Dirichlet([1.0, 0.5, 2.0])),
            RNG.integers(0, 3, 60),
        ),
        "gamma–poisson": (lambda: ub.GammaPoisson(ub.Gamma(2.0, 1.0)), RNG.poisson(3.0, 60)),
        "normal–inverse-gamma": (
            lambda: ub.UnknownNoiseRegression(
                ub.RawFeatures(2), ub.NormalInverseGamma(jnp.zeros(3), jnp.eye(3), 2.0, 1.0)
            ),
            (X, X @ weights[1:] + weights[0] + 0.3 * RNG.normal(size=60)),
        ),
        "known noise": (
            lambda: ub.linear_regression(2, noise_scale=0.3),
            (X, X @ weights[1:] + weights[0] + 0.3 * RNG.normal(size=60)),
        ),
        "sparse GP regression": (
            lambda: ub.sparse_gp(
                X[:6],
                ub.SquaredExponential(1.0, [1.0, 1.0]),
                ub.GaussianLikelihood(0.3),
                conditional_variance=True,
            ),
            (X, np.sin(X[:, 0])),
        ),
    }


PAIRS = _pairs()


@pytest.mark.parametrize("name", PAIRS)
def test_unlearning_is_retraining(name, dtype):
    make, records = PAIRS[name]
    model = make()
    full = ub.fit(model, records, key=KEY).posterior
    retrained = ub.fit(model, take(records, np.arange(45)), key=KEY).posterior
    result = ub.unlearn(full, model, take(records, np.arange(45, 60)), method=ub.Exact(), key=KEY)
    tolerance = 1e-9 if dtype == jnp.float64 else 2e-3
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance),
        result.posterior,
        retrained,
    )
    assert result.khat is None
    assert result.trusted, result.doubts


@pytest.mark.parametrize("name", PAIRS)
def test_erasing_everything_gives_the_prior_and_says_so(name):
    make, records = PAIRS[name]
    model = make()
    full = ub.fit(model, records, key=KEY).posterior
    result = ub.unlearn(full, model, records, method=ub.Exact(), key=KEY)
    for after, prior in zip(
        jax.tree.leaves(result.posterior.natural), jax.tree.leaves(model.conjugate_prior.natural), strict=True
    ):
        np.testing.assert_allclose(after, prior, atol=1e-8)
    assert "nothing is left beyond the prior" in result.doubts[0]


@pytest.mark.parametrize("name", PAIRS)
def test_erasing_more_than_was_seen_is_refused(name):
    make, records = PAIRS[name]
    model = make()
    full = ub.fit(model, take(records, np.arange(20)), key=KEY).posterior
    with pytest.raises(ValueError, match="erased holds more evidence than the posterior"):
        ub.unlearn(full, model, records, method=ub.Exact(), key=KEY)


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=30), st.data())
def test_order_and_split_of_requests_do_not_matter(outcomes, data):
    y = np.asarray(outcomes, int)
    model = ub.BetaBernoulli(ub.Beta(1.0, 1.0))
    full = ub.fit(model, y, key=KEY).posterior
    erased = data.draw(st.permutations(range(len(y))).map(lambda rows: rows[: len(y) // 2]))
    cut = data.draw(st.integers(1, max(len(erased) - 1, 1)))
    step_by_step = full
    for part in (erased[:cut], erased[cut:]):
        if part:
            step_by_step = ub.unlearn(step_by_step, model, y[part], method=ub.Exact(), key=KEY).posterior
    at_once = ub.unlearn(full, model, y[np.asarray(erased)], method=ub.Exact(), key=KEY).posterior
    np.testing.assert_allclose(jnp.stack(step_by_step.natural), jnp.stack(at_once.natural), rtol=1e-12)


@pytest.mark.long
def test_a_table_is_conjugate_to_any_model(dtype):
    """Discrete θ: p(θ|D_r) by dividing the table is p(θ|D_r) by Bayes' rule on D_r."""
    model = ub.logistic_regression(1, bias=False)
    grid = jnp.linspace(-3.0, 3.0, 31)[:, None]
    x, y = RNG.normal(size=(40, 1)), RNG.integers(0, 2, 40)

    def posterior(rows):
        evidence = model.encode((x[rows], y[rows]))
        return ub.Table(
            grid, jax.vmap(lambda t: model.log_likelihood(t, evidence).sum() + model.log_prior(t))(grid)
        )

    full, retrained = posterior(np.arange(40)), posterior(np.arange(30))
    result = ub.unlearn(full, model, (x[30:], y[30:]), method=ub.Exact(), key=KEY)
    tolerance = 1e-12 if dtype == jnp.float64 else 1e-5
    np.testing.assert_allclose(result.posterior.probabilities, retrained.probabilities, atol=tolerance)
    assert result.information == pytest.approx(
        float(retrained.entropy() - full.entropy()), abs=10 * tolerance
    )
