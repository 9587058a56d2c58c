"""No result does harm: guides that were not trained to the end, memories, and `settle`."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)

from adapters.numpyro_programs import (
    KEY,
    admissions,
    hierarchical,
    horseshoe,
    mortality,
    network,
    numpyro_settings,
    set_up,
    train,
    zero_inflated,
)
from unbayes.adapters.numpyro import remember, settle, unlearn
from unbayes.adapters.numpyro.guides import read
from unbayes.metrics import parameter_kl

OPTIMISED = True


def distance(belief, reference) -> float:
    return parameter_kl(belief, reference, key=KEY).value


@pytest.mark.parametrize("family", [AutoMultivariateNormal, AutoLowRankMultivariateNormal, AutoNormal])
@pytest.mark.long
def test_a_guide_that_was_stopped_early_comes_back_no_further_from_retraining(family):
    """The guide is wider than what the erased records alone tell: no step that trusts it is safe."""
    case = mortality()
    with numpyro_settings("float32"):
        trained, retrained = (train(case, family, part, steps=300) for part in ("full", "remaining"))
        result = unlearn(case.program, *trained, key=KEY, **case.arguments("erased")).result
        reference = read(*retrained).posterior
        before, after = (distance(q, reference) for q in (read(*trained).posterior, result.posterior))
    assert result.verdict == "retrain"
    assert result.trust.measures.step < 0.5
    assert any("only the mean was moved, by " in doubt for doubt in result.doubts)
    assert after < 1.1 * before


@pytest.mark.long
def test_a_low_rank_that_hides_how_parameters_pull_together_holds_a_network_back():
    case = network()
    with numpyro_settings("float32"):
        trained, retrained = (
            train(case, AutoLowRankMultivariateNormal, part, steps=2000) for part in ("full", "remaining")
        )
        result = unlearn(case.program, *trained, key=KEY, **case.arguments("erased")).result
        reference = read(*retrained).posterior
        before, after = (distance(q, reference) for q in (read(*trained).posterior, result.posterior))
    assert result.trust.measures.step < 0.9
    assert not result.trusted
    assert after < before


WITH_A_MEMORY = [
    (admissions, AutoMultivariateNormal),
    (admissions, AutoNormal),
    (zero_inflated, AutoNormal),
    (hierarchical, AutoNormal),
    (horseshoe, AutoMultivariateNormal),
    (horseshoe, AutoNormal),
    (network, AutoNormal),
]


@pytest.mark.parametrize(("make", "family"), WITH_A_MEMORY)
@pytest.mark.long
def test_a_memory_is_no_worse_than_none(make, family):
    """Nor where training was not finished, when what it holds is of a place that retraining would leave."""
    case = make()
    with numpyro_settings("float32"):
        trained, retrained = (train(case, family, part) for part in ("full", "remaining"))
        reference = read(*retrained).posterior

        def after(memory):
            result = unlearn(
                case.program, *trained, memory=memory, key=KEY, **case.arguments("erased")
            ).result
            return distance(result.posterior, reference)

        settings = {"key": KEY, **case.arguments("full")}
        without, by_rows, by_sums = (
            after(kept)
            for kept in (
                None,
                remember(case.program, *trained, size=100, **settings),
                remember(case.program, *trained, memory="sums", **settings),
            )
        )
    assert max(by_rows, by_sums) < 1.1 * without, (without, by_rows, by_sums)


def known_noise(x, y=None):
    """Conjugate: the posterior is Gaussian, with precision I + XᵀX / 0.25."""
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


X = np.random.default_rng(0).normal(size=(30, 2))
Y = X @ [1.0, -0.5] + 0.5 * np.random.default_rng(1).normal(size=30)
PRECISION = np.eye(2) + X.T @ X / 0.25
MEAN = np.linalg.solve(PRECISION, X.T @ Y / 0.25)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(AutoMultivariateNormal, marks=pytest.mark.long),
        AutoDiagonalNormal,
        pytest.param(AutoLaplaceApproximation, marks=pytest.mark.long),
    ],
)
def test_settling_a_conjugate_program_gives_its_optimum(family):
    """The mean-field optimum has the exact mean, and the diagonal of the exact precision."""
    with numpyro_settings():
        guide, params = set_up(known_noise, family, X, Y)
        kept = jax.tree.map(np.array, params)
        settled = settle(known_noise, guide, params, X, Y, passes=30, key=KEY)
        belief = read(settled.guide, settled.params).posterior
        again = settle(known_noise, settled.guide, settled.params, X, Y, key=KEY)
    expected = np.diag(np.diagonal(PRECISION)) if family is AutoDiagonalNormal else PRECISION
    np.testing.assert_allclose(belief.mean, MEAN, atol=1e-4)
    np.testing.assert_allclose(np.linalg.inv(belief.covariance), expected, rtol=1e-4)
    assert settled.before > 0.1
    assert settled.after < 1e-5
    assert again.before == pytest.approx(settled.after, abs=1e-9)
    jax.tree.map(np.testing.assert_array_equal, kept, params)


def test_settled_guides_hold_no_data():
    with numpyro_settings():
        guide, params = set_up(known_noise, AutoMultivariateNormal, X, Y)
        settled = settle(known_noise, guide, params, X, Y, passes=1, key=KEY)
    assert settled.guide is not guide
    assert "fn" not in settled.guide.prototype_trace["y"]


@pytest.mark.parametrize("family", [AutoLowRankMultivariateNormal, AutoIAFNormal])
def test_settling_what_has_no_natural_gradient_is_refused(family):
    with numpyro_settings():
        guide, params = set_up(known_noise, family, X, Y)
        with pytest.raises(TypeError, match="guide must be mean-field, full-rank or a Laplace"):
            settle(known_noise, guide, params, X, Y, key=KEY)
