"""What training had left undone stays undone: unlearning moves the mean by the erased records alone."""

import numpy as np
import pytest

import unbayes as ub
from problems import KEY, logistic, take


class Pair:
    """The same problem trained to convergence, and not."""

    def __init__(self, memory):
        self.problem, self.memory = logistic(), memory
        self.retrained = ub.fit(self.problem.model, self.problem.remaining, key=KEY).posterior
        self.converged, self.from_converged = self.train()

    def train(self, method=None):
        """The trained model, and what is left of it without the erased records."""
        problem = self.problem
        full = ub.fit(problem.model, problem.full, method=method, memory=self.memory, key=KEY)
        return full, ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)

    def size(self, move):
        """Root mean square, in standard deviations."""
        return float(np.sqrt(np.mean(np.asarray(move) ** 2 / np.asarray(self.retrained.variance))))


@pytest.fixture(scope="module", params=["sums", 60])
def pair(request):
    return Pair(request.param)


@pytest.mark.parametrize("passes", [1, 3, 6])
def test_the_mean_is_moved_by_the_erased_records_alone(pair, passes):
    """As from the converged posterior, but for what the site of a record differs between the two."""
    full, result = pair.train(ub.NaturalGradientVI(iterations=passes))
    own = result.posterior.mean - full.posterior.mean
    expected = pair.from_converged.posterior.mean - pair.converged.posterior.mean
    undone = pair.size(full.posterior.mean - pair.converged.posterior.mean)
    assert undone > 1e-4
    assert pair.size(own - expected) < undone
    assert pair.size(own - expected) < 0.3 * pair.size(expected)


@pytest.mark.parametrize("passes", [1, 3, 6])
def test_what_is_left_undone_is_no_more_than_was_measured(pair, passes):
    """In standard deviations that KL makes of the mean's displacement, and the share that was erased adds."""
    full, result = pair.train(ub.NaturalGradientVI(iterations=passes))
    measured = np.sqrt(2 * full.memory.stationarity / pair.problem.model.dim)
    own = pair.size(pair.from_converged.posterior.mean - pair.retrained.mean)
    assert pair.size(result.posterior.mean - pair.retrained.mean) < 2 * measured + own
    assert result.error.nats >= full.memory.stationarity


def test_training_is_not_finished_by_unlearning(pair):
    """A posterior that is far from its optimum stays as far, instead of being moved there unasked."""
    full, result = pair.train(ub.NaturalGradientVI(iterations=1))
    undone = pair.size(full.posterior.mean - pair.converged.posterior.mean)
    left = pair.size(result.posterior.mean - pair.from_converged.posterior.mean)
    assert 0.5 * undone < left < 2 * undone
    assert any("training had not converged" in doubt for doubt in result.doubts)


def test_the_next_request_knows_what_is_undone(pair):
    """Nor is a result from it trusted that the first request would not have been."""
    model, erased = pair.problem.model, pair.problem.erased
    full, _ = pair.train(ub.NaturalGradientVI(iterations=1))
    posterior, memory = full.posterior, full.memory
    for rows in (slice(0, 10), slice(10, 20)):
        found = ub.unlearn(posterior, model, take(erased, rows), memory=memory, key=KEY)
        posterior, memory = found.posterior, found.memory
        assert found.error.nats >= full.memory.stationarity
        assert not found.trusted
