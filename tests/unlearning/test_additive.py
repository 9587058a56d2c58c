"""Statistics add up: batches in any order and any split give the same answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY, linear_gaussian, logistic, take, trained

CASES = {
    "exact": (ub.Exact(), linear_gaussian),
    "natural gradient": (ub.NaturalGradient(), logistic),
    "natural gradient, conjugate": (ub.NaturalGradient(), linear_gaussian),
    "reverse KL, bank": (ub.BankReverseKL(draws=3000, lam=1e-6), logistic),
}


def _in_batches(case, batches, seed):
    method, make = CASES[case]
    problem, full = make(erased=120), trained(make)
    rows = np.random.default_rng(seed).permutation(120)
    parts = [take(problem.erased, part) for part in np.array_split(rows, batches)]
    total = sum(ub.summarise(full, problem.model, part, method=method, key=KEY) for part in parts)
    assert total.records == 120
    return ub.solve(full, problem.model, total, method=method, key=KEY).posterior


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batches", [1, 2, 7, 100])
def test_any_split_and_order_gives_the_same(case, batches):
    method, make = CASES[case]
    problem, full = make(erased=120), trained(make)
    at_once = ub.unlearn(full, problem.model, problem.erased, method=method, key=KEY).posterior
    found = _in_batches(case, batches, seed=batches)
    np.testing.assert_allclose(found.mean, at_once.mean, atol=1e-9, rtol=0)
    np.testing.assert_allclose(found.covariance, at_once.covariance, atol=1e-9, rtol=0)


def test_one_pass_serves_every_lambda():
    problem, full = logistic(), trained(logistic)
    statistics = ub.summarise(full, problem.model, problem.erased, method=ub.BankReverseKL(), key=KEY)
    for lam in (0.5, 1e-3, 0.0):
        method = ub.BankReverseKL(lam=lam)
        solved = ub.solve(full, problem.model, statistics, method=method, key=KEY)
        at_once = ub.unlearn(full, problem.model, problem.erased, method=method, key=KEY)
        jax.tree.map(np.testing.assert_array_equal, solved.posterior, at_once.posterior)


def test_statistics_of_another_origin_do_not_add_up():
    problem, full = linear_gaussian(), trained(linear_gaussian)
    here = ub.summarise(full, problem.model, problem.erased, method=ub.Exact(), key=KEY)
    unlearned = ub.unlearn(full, problem.model, problem.erased, method=ub.Exact(), key=KEY).posterior
    elsewhere = ub.summarise(unlearned, problem.model, problem.erased, method=ub.Exact(), key=KEY)
    with pytest.raises(ValueError, match="same posterior, model, memory, method and key"):
        here + elsewhere
    with pytest.raises(ValueError, match="statistics must come from the posterior"):
        ub.solve(full, problem.model, elsewhere, method=ub.Exact(), key=KEY)
    with pytest.raises(TypeError, match="statistics add to statistics"):
        here + 3


@pytest.mark.parametrize("method", [ub.EUBO(), ub.ReverseKL()])
def test_methods_that_need_the_rows_say_so(method):
    problem, full = logistic(), trained(logistic)
    with pytest.raises(TypeError, match="reads the erased rows in every iteration"):
        ub.summarise(full, problem.model, problem.erased, method=method, key=KEY)


def test_float32_keeps_the_digits_that_weights_live_in():
    """100,000 records sum to a log-likelihood whose last float32 digit is 0.004 or more."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100_000, 2))
    y = (x[:, 0] + rng.logistic(size=100_000) > 0).astype(int)
    found = {}
    for name in ("float32", "float64"):
        with jax.enable_x64(name == "float64"):
            model = ub.logistic_regression(2)
            full = ub.DiagonalGaussian(jnp.array([0.0, 1.0, 0.0]), jnp.full(3, 0.003))
            nodes = np.random.default_rng(1).normal(size=(50, 3))
            thetas = jax.vmap(full.colour)(jnp.asarray(nodes, full.dtype))
            deviations, _ = model.log_likelihood_at(thetas, model.encode((x, y)))
            found[name] = np.asarray(deviations, np.float64)
    assert np.abs(found["float64"]).max() > 1
    np.testing.assert_allclose(found["float32"], found["float64"], atol=2e-3)


def test_more_than_was_seen_is_refused_however_it_arrives():
    """No batch is too much by itself, their sum is."""
    problem, full, method = logistic(), trained(logistic), ub.BankReverseKL(draws=200)
    parts = [ub.summarise(full, problem.model, problem.full, method=method, key=KEY) for _ in range(4)]
    with pytest.raises(ValueError, match="erased holds more evidence than the posterior"):
        ub.solve(full, problem.model, sum(parts), method=method, key=KEY)


def test_statistics_of_another_model_do_not_add_up():
    problem, full = logistic(), trained(logistic)
    other = ub.logistic_regression(2, prior_scale=5.0)
    method = ub.NaturalGradient()
    here, elsewhere = (
        ub.summarise(full, model, problem.erased, method=method, key=KEY) for model in (problem.model, other)
    )
    with pytest.raises(ValueError, match="same posterior, model"):
        here + elsewhere
