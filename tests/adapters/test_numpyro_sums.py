"""Sums of derivatives as the memory of a guide: nobody's row, and closer to retraining than a few rows."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import (
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
)

import unbayes as ub
from adapters.numpyro_programs import KEY, numpyro_settings, poisson, regression, set_up, train
from unbayes.adapters.numpyro import remember, settle, unlearn
from unbayes.adapters.numpyro.guides import read
from unbayes.metrics import parameter_kl

OPTIMISED = True


def known_noise(x, y=None):
    """Conjugate: the posterior is Gaussian, with precision I + XᵀX / 0.25."""
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


X = np.random.default_rng(0).normal(size=(30, 2))
Y = X @ [1.0, -0.5] + 0.5 * np.random.default_rng(1).normal(size=30)


def exact_posterior(rows):
    covariance = np.linalg.inv(np.eye(2) + X[rows].T @ X[rows] / 0.25)
    return covariance @ (X[rows].T @ Y[rows]) / 0.25, covariance


@pytest.mark.long
def test_sums_of_a_conjugate_program_leave_the_exact_posterior_twice():
    """One request after the other, the second from what the first handed on."""
    with numpyro_settings():
        guide, _ = set_up(known_noise, AutoMultivariateNormal, X, Y)
        mean, covariance = exact_posterior(slice(None))
        params = {"auto_loc": jnp.asarray(mean), "auto_scale_tril": jnp.linalg.cholesky(covariance)}
        memory = remember(known_noise, guide, params, X, Y, key=KEY)
        first = unlearn(known_noise, guide, params, X[:5], Y[:5], memory=memory, key=KEY)
        second = unlearn(
            known_noise, first.guide, first.params, X[5:9], Y[5:9], memory=first.result.memory, key=KEY
        )
    assert memory.sums is not None
    assert memory.coreset is None
    np.testing.assert_allclose(memory.sums.derivatives.fourth, 0, atol=1e-6)
    assert (first.result.memory.records, second.result.memory.records) == (25, 21)
    belief, (mean, covariance) = second.result.posterior, exact_posterior(slice(9, None))
    np.testing.assert_allclose(belief.mean, mean, atol=1e-6)
    np.testing.assert_allclose(belief.covariance, covariance, atol=1e-7)
    with numpyro_settings(), pytest.raises(ValueError, match="erased must be among the training records"):
        unlearn(known_noise, guide, params, X[:2] + 1, Y[:2], memory=memory, key=KEY)


@pytest.mark.parametrize("family", [AutoLaplaceApproximation, AutoLowRankMultivariateNormal])
@pytest.mark.long
def test_other_guides_hand_sums_on(family):
    with numpyro_settings():
        guide, params = set_up(known_noise, family, X, Y)
        params["auto_loc"] = jnp.asarray(exact_posterior(slice(None))[0])
        memory = remember(known_noise, guide, params, X, Y, memory=ub.Sums(order=3), key=KEY)
        found = unlearn(known_noise, guide, params, X[:3], Y[:3], memory=memory, key=KEY)
        again = unlearn(
            known_noise, found.guide, found.params, X[3:5], Y[3:5], memory=found.result.memory, key=KEY
        )
    assert memory.sums.derivatives.order == 3
    assert again.result.memory.records == 25
    assert np.isfinite(again.result.posterior.mean).all()


def test_what_cannot_be_kept_is_refused():
    with numpyro_settings():
        guide, params = set_up(known_noise, AutoMultivariateNormal, X, Y)
        with pytest.raises(ValueError, match=r"memory must be 'sums', .* got 'all'"):
            remember(known_noise, guide, params, X, Y, memory="all", key=KEY)
        with pytest.raises(ValueError, match="size must be a number of records to keep, got 'sums'"):
            remember(known_noise, guide, params, X, Y, size="sums", key=KEY)
        flow = set_up(known_noise, AutoIAFNormal, X, Y)
        with pytest.raises(ValueError, match="memory must be left out: it serves Gaussians and"):
            remember(known_noise, *flow, X, Y, key=KEY)


@pytest.mark.parametrize("make", [regression, poisson])
@pytest.mark.long
def test_sums_come_closer_to_retraining_than_a_step_and_than_a_coreset(make):
    """Retraining is SVI, then natural gradients to its end."""
    case, family = make(), AutoMultivariateNormal
    with numpyro_settings():
        trained, retrained = (
            settle(case.program, *train(case, family, part, 400), passes=40, key=KEY, **case.arguments(part))
            for part in ("full", "remaining")
        )
        reference = read(retrained.guide, retrained.params).posterior
        guide, params = trained.guide, trained.params

        def distance(kept):
            memory = kept
            if kept is not None:
                memory = remember(case.program, guide, params, memory=kept, key=KEY, **case.arguments("full"))
            erased = case.arguments("erased")
            result = unlearn(case.program, guide, params, memory=memory, key=KEY, **erased).result
            return parameter_kl(reference, result.posterior, key=KEY).value, result

        (step, _), (coreset, _), (sums, result) = (distance(kept) for kept in (None, 30, "sums"))
    assert result.trust.measures.order == 4
    assert sums < 0.01 * step, (sums, step)
    assert sums < 0.2 * coreset, (sums, coreset)
