"""A deep Gaussian process of two layers, as a log-density over its inducing variables."""

import jax
import numpy as np
import pytest
from jax.scipy.stats import norm

import unbayes as ub

KEY = jax.random.key(0)
OPTIMISED = True
# A minute, most of it for six trainings.
pytestmark = pytest.mark.slow


def layer(places, variance, lengthscale):
    kernel = ub.SquaredExponential(variance, [lengthscale])
    return ub.WhitenedInducingInputs(ub.InducingInputs(places[:, None], kernel, jitter=1e-6))


def process():
    """As in docs/tutorials/processes.md."""
    inner, outer = layer(np.linspace(-2, 2, 4), 0.5, 1.0), layer(np.linspace(-3, 3, 5), 1.0, 1.5)

    def log_density(theta, record):
        x, y = record
        hidden = x[None] + inner(x[None, None]) @ theta[:4]
        return norm.logpdf(y, (outer(hidden[:, None]) @ theta[4:])[0], 0.3)

    return ub.DensityModel(lambda theta: -0.5 * theta @ theta, log_density, dim=9)


def records():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 100))
    return x, np.tanh(3 * x) + 0.3 * rng.normal(size=100)


MODEL, (X, Y) = process(), records()


def fit(rows, **settings):
    return ub.fit(MODEL, (X[rows], Y[rows]), key=KEY, **settings)


@pytest.fixture(scope="module")
def trained():
    return fit(slice(None), memory="sums")


@pytest.mark.parametrize(
    ("gone", "by_step", "by_sums"),
    [
        (np.arange(3, 100, 10), 0.4, 0.4),
        (np.flatnonzero(abs(X) < 0.3), 0.4, 0.05),
        (np.arange(90, 100), 0.6, 0.1),
    ],
    ids=["every tenth", "middle", "right"],
)
def test_it_comes_closer_to_the_optimum_that_was_found(trained, gone, by_step, by_sums):
    """Each as a part of what doing nothing leaves. No verdict says more than was reached: none is trusted."""
    left = np.setdiff1d(np.arange(100), gone)
    retrained = fit(left, family=trained.posterior).posterior
    nothing = ub.metrics.parameter_kl(retrained, trained.posterior).value
    for memory, part in ((None, by_step), (trained.memory, by_sums)):
        result = ub.unlearn(trained.posterior, MODEL, (X[gone], Y[gone]), memory=memory, key=KEY)
        away = ub.metrics.parameter_kl(retrained, result.posterior).value
        assert away < part * nothing
        assert result.verdict != "trusted"
        assert away < result.error.high


def test_retraining_from_the_prior_may_end_elsewhere(trained):
    """What no prediction knows of: another optimum, far away in θ, of nearly the same evidence."""
    left = np.flatnonzero(abs(X) >= 0.3)
    here, elsewhere = fit(left, family=trained.posterior), fit(left)
    assert elsewhere.elbo < here.elbo
    assert ub.metrics.parameter_kl(elsewhere.posterior, here.posterior).value > 1
