"""Mixtures of bell-shaped densities: densities, moments and KL against integration and simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import unbayes as ub
from unbayes.models import NormalMixturePredictive, StudentTPredictive

WEIGHTS = np.array([0.2, 0.5, 0.3])
LOCATIONS = np.array([[0.0, 1.0, -2.0], [0.3, 0.3, 0.3]])
SCALES = np.array([[0.1, 1.5, 0.7], [0.02, 0.4, 6.0]])


def mixture(shift=0.0, stretch=1.0):
    return NormalMixturePredictive(
        jnp.asarray(LOCATIONS + shift), jnp.asarray(stretch * SCALES), jnp.log(WEIGHTS)
    )


def student(shift=0.0):
    return StudentTPredictive(
        jnp.asarray(LOCATIONS + shift), jnp.log(WEIGHTS), jnp.asarray(0.7), jnp.asarray(4.0)
    )


def over_y(function, row):
    """∫ of a function of y, finely near every component and as far as the tails reach."""
    t = np.linspace(-18, 18, 20_001)
    y = LOCATIONS[row, 0] + 1e-3 * np.sinh(t)
    values = function(jnp.broadcast_to(y, (2, len(y))))[row]
    return integrate.simpson(np.asarray(values) * 1e-3 * np.cosh(t), x=t)


@pytest.mark.parametrize("predictive", [mixture(), student()], ids=["normal", "student"])
@pytest.mark.parametrize("row", [0, 1])
def test_densities_integrate_to_one_and_have_their_mean(predictive, row):
    density = jax.jit(lambda y: jnp.exp(predictive._log_prob(y)))
    assert over_y(density, row) == pytest.approx(1, abs=1e-6)
    assert over_y(lambda y: density(y) * y, row) == pytest.approx(float(predictive.decision()[row]), abs=1e-5)


@pytest.mark.parametrize("pair", [(mixture(), mixture(0.1, 1.3)), (student(), student(0.4))])
def test_kl_is_the_integral(pair):
    """Components of very different widths, too: nodes for the widest alone gave a KL below 0."""
    one, other = pair
    found = one.kl(other)

    @jax.jit
    def term(y):
        own, others = one._log_prob(y), other._log_prob(y)
        return jnp.where(own > -700, jnp.exp(own) * (own - others), 0)

    for row in (0, 1):
        assert float(found[row]) == pytest.approx(over_y(term, row), rel=1e-3)
    np.testing.assert_allclose(one.kl(one), 0, atol=1e-12)


def test_moments_are_those_of_draws():
    predictive, rng = mixture(), np.random.default_rng(0)
    which = rng.choice(3, 200_000, p=WEIGHTS)
    for row in (0, 1):
        draws = rng.normal(LOCATIONS[row, which], SCALES[row, which])
        assert abs(draws.mean() - predictive.mean[row]) < 4 * draws.std() / 447
        spread = (draws - draws.mean()) ** 2
        assert abs(spread.mean() - predictive.variance[row]) < 4 * spread.std() / 447


@pytest.mark.parametrize("correlation", [0.0, 0.8, -0.95])
@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_unknown_noise_is_integrated_over_its_scale_alone(correlation, spread):
    """f₀ is far more uncertain than the noise is wide: a mixture over both is a row of spikes."""
    mean, scales = np.array([0.5, -0.3]), np.array([0.8, spread])
    root = scales[:, None] * np.array([[1, 0], [correlation, np.sqrt(1 - correlation**2)]])
    likelihood, nodes = ub.HeteroscedasticLikelihood(0.05), ub.softmax_regression(1, 3).nodes()
    found = likelihood.joint_predictive(jnp.asarray(mean)[None], jnp.asarray(root)[None], nodes)
    rng = np.random.default_rng(0)
    f = mean + rng.normal(size=(400_000, 2)) @ root.T
    for y in (-0.5, 0.4, 1.3):
        near = np.exp(stats.norm.logpdf(y, f[:, 0], 0.05 * np.exp(f[:, 1])))
        error = near.std() / np.sqrt(len(f))
        assert abs(np.exp(found.log_prob(jnp.array([y]))[0]) - near.mean()) < 4 * error
    noise = 0.05**2 * np.exp(2 * mean[1] + 2 * spread**2)
    np.testing.assert_allclose(found.mean, mean[:1], atol=1e-12)
    np.testing.assert_allclose(found.variance, 0.8**2 + noise, rtol=1e-9)
