"""A few passes over the remaining records finish what unlearning began."""

import numpy as np
import pytest

import unbayes as ub
from moon import moon
from problems import KEY, logistic, take
from unbayes.metrics import parameter_kl


@pytest.mark.parametrize("scenario", ["moon", "random", "yellow 30", "yellow 40", "yellow 50"])
@pytest.mark.long
def test_a_fifth_of_the_passes_of_a_cold_start(scenario):
    """Passes until the ELBO is within a thousandth of a nat of its maximum."""
    problem = moon(scenario)
    full = ub.fit(problem.model, problem.full, memory=80, key=KEY)
    cold = ub.fit(problem.model, problem.remaining, key=KEY)
    unlearned = ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)
    warm = ub.refine(unlearned.posterior, problem.model, problem.remaining, key=KEY)
    enough = cold.elbo - 1e-3
    needed = 1 + int(np.argmax(warm.trace >= enough))
    needed_cold = cold.passes - len(cold.trace) + 1 + int(np.argmax(cold.trace >= enough))
    assert warm.elbo >= enough
    assert needed <= needed_cold / 5
    assert parameter_kl(warm.posterior, cold.posterior).value < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("family", [ub.FullGaussian, ub.DiagonalGaussian])
def test_a_stream_is_the_same_as_all_at_once(family):
    problem = logistic(erased=50)
    full = ub.fit(problem.model, problem.full, family=family, key=KEY).posterior
    retrained = ub.fit(problem.model, problem.remaining, family=family, key=KEY).posterior
    calls = []

    def stream():
        calls.append(1)
        return (take(problem.remaining, part) for part in np.array_split(np.arange(100), 3))

    streamed = ub.refine(full, problem.model, stream, passes=12, key=KEY)
    whole = ub.refine(full, problem.model, problem.remaining, passes=12, key=KEY)
    np.testing.assert_allclose(streamed.posterior.mean, whole.posterior.mean, atol=1e-9)
    np.testing.assert_allclose(streamed.posterior.variance, whole.posterior.variance, atol=1e-9)
    assert len(calls) == len(streamed.trace) <= 12
    assert parameter_kl(streamed.posterior, retrained).value < 1e-4
    assert streamed.memory.records == 100


def test_a_flow_cannot_be_refined_on_a_stream():
    problem = logistic()
    full = ub.fit(problem.model, problem.full, key=KEY).posterior
    flow = ub.AutoregressiveFlow(full, key=KEY, layers=1, width=4)
    with pytest.raises(TypeError, match="remaining must be records, not a stream"):
        ub.refine(flow, problem.model, lambda: [problem.remaining], key=KEY)


def test_bad_requests_are_refused():
    problem = logistic()
    full = ub.fit(problem.model, problem.full, key=KEY).posterior
    with pytest.raises(ValueError, match="passes must be an integer of at least 1, got 0"):
        ub.refine(full, problem.model, problem.remaining, passes=0, key=KEY)
    with pytest.raises(ValueError, match="remaining must hold at least one record"):
        ub.refine(full, problem.model, list, key=KEY)
    with pytest.raises(ValueError, match="remaining inputs must be finite"):
        ub.refine(full, problem.model, (np.full((2, 2), np.nan), np.zeros(2)), key=KEY)
