"""Flows move as a Gaussian with their moments does."""

import functools

import jax
import numpy as np
import pytest

import unbayes as ub
from problems import KEY, logistic, take, trained
from unbayes.metrics import parameter_kl, predictive_kl
from unbayes.posteriors import matched_gaussian


@functools.cache
def _flow():
    """A flow with a shape of its own: skewed by a network that is far from zero."""
    start = ub.AutoregressiveFlow(trained(logistic), key=KEY, layers=1, width=8)
    problem = logistic()
    training = ub.GradientVI(iterations=300, draws=50, early_stop=False)
    return ub.fit(problem.model, problem.full, family=start, method=training, memory=60, key=KEY)


@pytest.mark.long
def test_closer_to_retraining_and_closer_still_with_a_memory():
    problem, flow = logistic(), _flow()
    retrained = trained(logistic, "remaining")

    def distance(posterior):
        inputs = problem.erased[0]
        return predictive_kl(posterior, retrained, problem.model, inputs, key=KEY, draws=20_000).forward.mean

    alone, remembering = (
        ub.unlearn(flow.posterior, problem.model, problem.erased, memory=memory, key=KEY)
        for memory in (None, flow.memory)
    )
    assert isinstance(alone.method, ub.Transport)
    before = distance(flow.posterior)
    assert distance(alone.posterior) < 0.3 * before
    assert distance(remembering.posterior) < 0.1 * before
    assert remembering.memory.records == flow.memory.records - alone.records


@pytest.mark.long
def test_a_flow_that_moves_nowhere_stays_what_it_is():
    flow, gaussian = _flow().posterior, trained(logistic)
    stayed = flow.moved(gaussian, gaussian)
    thetas = flow.sample(KEY, (5,))
    np.testing.assert_allclose(stayed.log_prob(thetas), flow.log_prob(thetas), rtol=1e-9)


def test_the_map_takes_one_gaussian_to_the_other():
    before, after = trained(logistic), trained(logistic, "remaining")
    plain = ub.AutoregressiveFlow(before, key=KEY, layers=1, width=2)
    noise = np.asarray(jax.vmap(before.whiten)(plain.sample(KEY, (50,))))
    moved = plain.moved(before, after).sample(KEY, (50,))
    np.testing.assert_allclose(moved, jax.vmap(after.colour)(noise), rtol=1e-9)


@pytest.mark.long
def test_batches_add_up():
    problem, flow = logistic(), _flow().posterior
    parts = [take(problem.erased, rows) for rows in (np.arange(7), np.arange(7, 20))]
    total = sum(ub.summarise(flow, problem.model, part, key=KEY) for part in parts)
    apart = ub.solve(flow, problem.model, total, key=KEY).posterior
    at_once = ub.unlearn(flow, problem.model, problem.erased, key=KEY).posterior
    assert parameter_kl(apart, at_once, key=KEY).value == pytest.approx(0, abs=1e-9)


def test_slopes_over_normal_draws_are_expected_curvatures():
    """Price's theorem: for a Gaussian the step is that of `NaturalGradient`."""
    problem, gaussian = logistic(), trained(logistic)
    plain = ub.AutoregressiveFlow(gaussian, key=KEY, layers=1, width=2)
    moved = ub.unlearn(plain, problem.model, problem.erased, method=ub.Transport(draws=100_000), key=KEY)
    expected = ub.unlearn(gaussian, problem.model, problem.erased, method=ub.NaturalGradient(), key=KEY)
    change = parameter_kl(expected.posterior, gaussian).value
    assert parameter_kl(matched_gaussian(moved.posterior, KEY), expected.posterior).value < 0.02 * change


def test_a_gaussian_is_refused():
    problem = logistic()
    with pytest.raises(TypeError, match="Transport needs an AutoregressiveFlow, got FullGaussian"):
        ub.unlearn(trained(logistic), problem.model, problem.erased, method=ub.Transport(), key=KEY)
