"""What a result says of itself."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unbayes as ub
from moon import moon
from problems import KEY, linear_gaussian, logistic, trained


def test_prints_what_a_user_asks_for():
    problem = logistic()
    result = ub.unlearn(
        trained(logistic),
        problem.model,
        problem.erased,
        method=ub.EUBO(lam=1e-3, iterations=50, draws=100),
        key=KEY,
    )
    text = str(result)
    for part in ("20 records unlearned by EUBO", "lam=0.001", "information removed", "k-hat", "seconds"):
        assert part in text
    assert len(result.trace) == 50
    assert result.seconds > 0
    assert result.trusted == ("nothing speaks against" in text)


def test_exact_needs_no_weights():
    problem = linear_gaussian()
    result = ub.unlearn(trained(linear_gaussian), problem.model, problem.erased, method=ub.Exact(), key=KEY)
    assert result.khat is None
    assert "k-hat" not in str(result)
    retrained = trained(linear_gaussian, "remaining")
    assert result.information == pytest.approx(
        float(retrained.entropy() - trained(linear_gaussian).entropy()), abs=1e-9
    )


def test_collapsed_weights_are_doubted_in_words():
    """The moon data: the effective sample size of a whole bank is a handful of draws."""
    problem = moon("moon")
    full = ub.fit(problem.model, problem.full, key=KEY).posterior
    result = ub.unlearn(full, problem.model, problem.erased, method=ub.BankReverseKL(draws=20_000), key=KEY)
    assert result.khat > 0.7
    assert result.effective_sample_size < 200
    assert not result.trusted
    assert "k-hat" in result.doubts[0]
    assert "retrain" in result.doubts[0]
    assert result.verdict is ub.Verdict.RETRAIN
    assert "because" in str(result)
    assert np.isfinite(np.linalg.cholesky(result.posterior.covariance)).all()


def test_a_posterior_that_cannot_be_recovered_is_not_returned():
    problem = logistic()
    diverging = ub.EUBO(iterations=30, draws=50, optimizer=optax.sgd(1e30))
    with pytest.raises(ub.RetrainingNeeded, match="EUBO found no posterior without these 20 records"):
        ub.unlearn(trained(logistic), problem.model, problem.erased, method=diverging, key=KEY)


@pytest.mark.parametrize(
    ("erased", "verdict"),
    [(1, ub.Verdict.TRUSTED), (130, ub.Verdict.DOUBTFUL), (140, ub.Verdict.RETRAIN)],
)
def test_a_step_that_takes_most_of_the_precision_is_doubted(erased, verdict):
    problem, full = logistic(erased), trained(logistic)
    result = ub.unlearn(full, problem.model, problem.erased, method=ub.NaturalGradient(), key=KEY)
    assert result.verdict is verdict
    assert result.trusted or "from retraining" in result.doubts[-1]
    # Statistics carry all that the verdict needs: the rows would add nothing.
    statistics = ub.summarise(full, problem.model, problem.erased, key=KEY)
    solved = ub.solve(full, problem.model, statistics, key=KEY)
    assert solved.trust == result.trust


@pytest.mark.parametrize(
    "method", [ub.EUBO(iterations=300, draws=200), ub.ReverseKL(iterations=300, draws=200)]
)
def test_units_of_the_data_do_not_matter(method):
    """Inputs in other units: the same predictions before, hence the same after."""
    problem = linear_gaussian()
    x, y = problem.full
    information = []
    for unit in (1.0, 1000.0):
        scale = np.array([2.0, 2.0 / unit, 2.0 / unit, 2.0 / unit])
        model = ub.LinearModel(
            ub.RawFeatures(3), ub.GaussianLikelihood(0.5), ub.DiagonalGaussian(np.zeros(4), scale)
        )
        full = ub.fit(model, (unit * x, y), key=KEY).posterior
        result = ub.unlearn(full, model, (unit * x[180:], y[180:]), method=method, key=KEY)
        information.append(result.information)
    assert information[0] == pytest.approx(information[1], rel=1e-6)


def test_a_descent_that_climbs_is_doubted():
    problem = linear_gaussian()
    method = ub.ReverseKL(iterations=100, draws=100, optimizer=optax.adam(5.0))
    result = ub.unlearn(trained(linear_gaussian), problem.model, problem.erased, method=method, key=KEY)
    assert any("the objective rose" in doubt for doubt in result.doubts)


def test_impossible_records_ask_for_retraining():
    """A likelihood of zero at some draws leaves infinite weights."""
    model = ub.DensityModel(
        lambda theta: jnp.zeros(()), lambda theta, y: jnp.where(theta[0] < y, 0.0, -jnp.inf), dim=1
    )
    full = ub.FullGaussian(jnp.zeros(1), jnp.eye(1))
    for method in (ub.BankReverseKL(draws=500), ub.ReverseKL(iterations=5, draws=50)):
        with pytest.raises(ub.RetrainingNeeded, match="impossible"):
            ub.unlearn(full, model, np.zeros(2), method=method, key=KEY)


@pytest.mark.long
def test_a_small_bank_in_many_dimensions_is_doubted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 40))
    y = x @ rng.normal(size=40) + rng.normal(size=400)
    model = ub.linear_regression(40, noise_scale=1.0, prior_scale=3.0)
    full = ub.fit(model, (x, y), key=KEY).posterior
    result = ub.unlearn(full, model, (x[:20], y[:20]), method=ub.BankReverseKL(draws=2000), key=KEY)
    assert any("the bank is small for 41 parameters" in doubt for doubt in result.doubts)
