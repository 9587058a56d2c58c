"""GPyTorch modules against closed forms, our own sparse processes and GPyTorch's own ELBO."""

import copy
import functools
import re
import threading
from concurrent import futures

import jax
import jax.numpy as jnp
import numpy as np
import pytest

gpytorch = pytest.importorskip("gpytorch", reason="needs the extra torch; run make test-torch")
torch = pytest.importorskip("torch")

import unbayes as ub
from reachable import rows_found
from unbayes.adapters.gpytorch import remember, settle, unlearn

from .gpytorch_processes import (
    CHOLESKY,
    CONSTANT,
    ERASED,
    KEY,
    LABELS,
    LENGTHSCALES,
    MEAN_FIELD,
    REMAINING,
    SCALE,
    TARGETS,
    UNWHITENED,
    WHITENED,
    AccurateBernoulli,
    Process,
    X,
    Z,
    belief,
    bernoulli_likelihood,
    constant_mean,
    gaussian_likelihood,
    gradient_of_elbo,
    inducing_covariance,
    kernels,
    optimum,
    predictions,
    rbf,
    scaled,
    set_belief,
    tensors,
)


def state(*modules):
    return [{name: value.clone() for name, value in module.state_dict().items()} for module in modules]


def assert_unchanged(before, *modules):
    for old, new in zip(before, state(*modules), strict=True):
        assert old.keys() == new.keys()
        assert all(torch.equal(old[name], new[name]) for name in old)


REGRESSIONS = {
    "whitened rbf": (WHITENED, rbf, constant_mean),
    "whitened matern 0.5": (
        WHITENED,
        lambda: scaled(kernels.MaternKernel(nu=0.5, ard_num_dims=2)),
        constant_mean,
    ),
    "unwhitened matern 1.5": (
        UNWHITENED,
        lambda: scaled(kernels.MaternKernel(nu=1.5, ard_num_dims=2)),
        constant_mean,
    ),
    "unwhitened bare matern 2.5": (
        UNWHITENED,
        lambda: kernels.MaternKernel(nu=2.5),
        gpytorch.means.ZeroMean,
    ),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regression_is_the_optimum_without_the_erased_records(name):
    strategy, kernel, mean = REGRESSIONS[name]
    gp, likelihood = Process(strategy, CHOLESKY, kernel, mean), gaussian_likelihood()
    set_belief(gp, *optimum(gp, slice(None)))
    assert gradient_of_elbo(gp, likelihood, TARGETS) < 1e-5
    recovered, result = unlearn(gp, likelihood, tensors(X[ERASED], TARGETS[ERASED]), key=KEY)
    assert result.trusted
    assert isinstance(result.method, ub.Exact)
    retrained = set_belief(Process(strategy, CHOLESKY, kernel, mean), *optimum(gp, REMAINING))
    for own, expected in zip(belief(recovered), belief(retrained), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-8)
    for own, expected in zip(
        predictions(recovered, likelihood), predictions(retrained, likelihood), strict=True
    ):
        np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-8)


def own_features(gp):
    """The same process, built by hand."""
    jitter = gp.variational_strategy.jitter_val / SCALE
    kernel = ub.SquaredExponential(SCALE, LENGTHSCALES)
    return ub.InducingInputs(Z, kernel, conditional_variance=True, jitter=jitter)


def classifier(features):
    return ub.LinearModel(features, ub.ProbitLikelihood(), features.prior, offset=CONSTANT)


@functools.cache
def classified():
    """Our own sparse process, trained; θ = u − mean."""
    model = classifier(own_features(Process()))
    return model, ub.fit(model, (X, LABELS), key=KEY).posterior


@pytest.mark.parametrize("strategy", [WHITENED, UNWHITENED])
def test_classification_is_that_of_our_own_sparse_process(strategy):
    model, posterior = classified()
    gp, likelihood = Process(strategy), bernoulli_likelihood()
    set_belief(gp, np.asarray(posterior.mean) + CONSTANT, np.asarray(posterior.covariance))
    assert gradient_of_elbo(gp, AccurateBernoulli(), LABELS) < 1e-5
    expected = ub.unlearn(posterior, model, (X[ERASED], LABELS[ERASED]), key=KEY)
    recovered, result = unlearn(gp, likelihood, tensors(X[ERASED], LABELS[ERASED]), key=KEY)
    mean, covariance = belief(recovered)
    np.testing.assert_allclose(mean - CONSTANT, expected.posterior.mean, atol=1e-5)
    np.testing.assert_allclose(covariance, expected.posterior.covariance, atol=1e-5)
    chance = model.predictive(expected.posterior, X).probabilities[:, 1]
    np.testing.assert_allclose(predictions(recovered, likelihood)[0], chance, atol=1e-5)
    assert result.information == pytest.approx(expected.information, abs=1e-5)
    assert result.verdict is expected.verdict


def test_a_memory_brings_the_result_closer_to_retraining():
    """Retrained is the module whose bound on the remaining records is stationary."""
    _, posterior = classified()
    gp, likelihood = Process(), bernoulli_likelihood()
    set_belief(gp, np.asarray(posterior.mean) + CONSTANT, np.asarray(posterior.covariance))
    memory = remember(gp, likelihood, tensors(X, LABELS), 40, key=KEY)
    assert memory.stationarity < 1e-8
    erased = tensors(X[ERASED], LABELS[ERASED])
    one_step, _ = unlearn(gp, likelihood, erased, key=KEY)
    answered, result = unlearn(gp, likelihood, erased, memory=memory, key=KEY)
    trained, step, answer = (
        gradient_of_elbo(module, AccurateBernoulli(), LABELS, REMAINING)
        for module in (gp, one_step, answered)
    )
    assert step < 0.5 * trained
    assert answer < 0.01 * trained
    assert result.trusted
    assert result.memory.size == 32
    # Rows of the memory are features of records.
    features = classified()[0].encode((X, LABELS)).design
    assert rows_found((answered, result), np.asarray(features[ERASED])) == 0
    assert rows_found((answered, result), X) == 0


@pytest.mark.parametrize("strategy", [WHITENED, UNWHITENED])
def test_sums_bring_closer_and_hold_no_record(strategy):
    gp, likelihood = Process(strategy), bernoulli_likelihood()
    gp, _ = settle(gp, likelihood, tensors(X, LABELS), key=KEY)
    memory = remember(gp, likelihood, tensors(X, LABELS), key=KEY)
    assert (memory.size, memory.sums.derivatives.order, memory.sums.directions.shape) == (0, 4, (6, 6))
    erased = tensors(X[ERASED], LABELS[ERASED])
    one_step, _ = unlearn(gp, likelihood, erased, key=KEY)
    answered, result = unlearn(gp, likelihood, erased, memory=memory, key=KEY)
    retrained, _ = settle(gp, likelihood, tensors(X[REMAINING], LABELS[REMAINING]), key=KEY)

    def off(module):
        return np.abs(belief(module)[0] - belief(retrained)[0]).max()

    assert off(answered) < 0.05 * off(one_step) < 0.05 * off(gp)
    assert rows_found((memory, answered, result), X) == 0
    # The memory that comes back serves the module that comes back.
    rest = tensors(X[12:], LABELS[12:])
    more = tensors(X[8:12], LABELS[8:12])
    one_step, _ = unlearn(answered, likelihood, more, key=KEY)
    again, later = unlearn(answered, likelihood, more, memory=result.memory, key=KEY)
    retrained, _ = settle(gp, likelihood, rest, key=KEY)
    assert off(again) < 0.1 * off(one_step)
    assert (later.memory.records, later.memory.sums.directions.shape) == (28, (6, 6))


@pytest.mark.parametrize("strategy", [WHITENED, UNWHITENED])
def test_mean_field_regression_is_the_best_diagonal_belief(strategy):
    """In the coordinates of the strategy: the mean of the full belief, and one over its precisions."""

    def coordinates(gp, rows):
        mean, covariance = optimum(gp, rows)
        if strategy is UNWHITENED:
            return mean, np.linalg.inv(covariance)
        root = np.linalg.cholesky(inducing_covariance(gp))
        return np.linalg.solve(root, mean - CONSTANT), root.T @ np.linalg.inv(covariance) @ root

    gp, likelihood = Process(strategy, MEAN_FIELD), gaussian_likelihood()
    distribution = gp.variational_strategy._variational_distribution
    mean, precision = coordinates(gp, slice(None))
    with torch.no_grad():
        distribution.variational_mean.copy_(torch.tensor(mean))
        # GPyTorch takes either sign.
        distribution._variational_stddev.copy_(-torch.tensor(np.diag(precision) ** -0.5))
    assert gradient_of_elbo(gp, likelihood, TARGETS) < 1e-5
    memory = remember(gp, likelihood, tensors(X, TARGETS), 0, key=KEY)
    recovered, result = unlearn(
        gp, likelihood, tensors(X[ERASED], TARGETS[ERASED]), memory=memory, key=KEY, in_place=True
    )
    assert recovered is gp
    mean, precision = coordinates(gp, REMAINING)
    own = [parameter.detach().numpy() for parameter in distribution.parameters()]
    np.testing.assert_allclose(own[0], mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(own[1], np.diag(precision) ** -0.5, rtol=1e-6)
    assert memory.stationarity < 1e-9
    assert result.memory.records == 32


@pytest.mark.parametrize("in_place", [False, True])
def test_single_precision_in_place_or_not(in_place):
    """Module and session in float32; the arithmetic in between in float64."""
    gp, likelihood = Process(dtype=torch.float32), gaussian_likelihood(torch.float32)
    set_belief(gp, *optimum(gp, slice(None)))
    stale, before = predictions(gp, likelihood), state(gp, likelihood)
    erased = tensors(X[ERASED], TARGETS[ERASED], dtype=torch.float32)
    with jax.enable_x64(False):
        recovered, result = unlearn(gp, likelihood, erased, key=KEY, in_place=in_place)
        assert jnp.ones(1).dtype == jnp.float32
    assert result.posterior.dtype == jnp.float64
    assert (recovered is gp) == in_place
    if not in_place:
        assert_unchanged(before, gp, likelihood)
        np.testing.assert_array_equal(predictions(gp, likelihood), stale)
    retrained = set_belief(Process(dtype=torch.float32), *optimum(gp, REMAINING))
    own, expected = (predictions(module, likelihood) for module in (recovered, retrained))
    np.testing.assert_allclose(own, expected, atol=2e-4)
    assert np.abs(np.subtract(own, stale)).max() > 1e-2


def test_a_module_in_the_middle_of_training_can_be_copied():
    gp, likelihood = Process(), gaussian_likelihood()
    set_belief(gp, *optimum(gp, slice(None)))
    gp.train()
    gp(torch.tensor(X)).mean.sum().backward()
    recovered, _ = unlearn(gp, likelihood, tensors(X[ERASED], TARGETS[ERASED]), key=KEY)
    np.testing.assert_allclose(belief(recovered)[0], optimum(gp, REMAINING)[0], rtol=1e-6)


def test_inputs_of_one_column_may_be_a_vector():
    class Line(Process):
        def __init__(self):
            super().__init__(
                strategy=lambda gp, _, q: WHITENED(gp, torch.tensor(Z[:, :1]), q), kernel=kernels.RBFKernel
            )

    gp, likelihood = Line(), gaussian_likelihood()
    with torch.no_grad():
        gp.variational_strategy._variational_distribution.chol_variational_covar.mul_(0.1)
    both = [unlearn(gp, likelihood, (inputs, TARGETS[:1]), key=KEY)[0] for inputs in (X[:1, 0], X[:1, :1])]
    own = [module.variational_strategy._variational_distribution() for module in both]
    assert torch.equal(own[0].mean, own[1].mean)
    assert not torch.allclose(own[0].mean, torch.zeros(6, dtype=torch.float64))


def test_labels_of_either_convention():
    _, posterior = classified()
    gp, likelihood = Process(), bernoulli_likelihood()
    set_belief(gp, np.asarray(posterior.mean) + CONSTANT, np.asarray(posterior.covariance))
    both = [
        unlearn(gp, likelihood, (X[ERASED], labels), key=KEY)[0]
        for labels in (LABELS[ERASED], 2 * LABELS[ERASED] - 1)
    ]
    np.testing.assert_array_equal(belief(both[0])[0], belief(both[1])[0])
    with pytest.raises(ValueError, match=r"erased targets must hold labels 0 to 1, got -1 in row 0"):
        unlearn(gp, likelihood, (X[:2], [-1, 0]), key=KEY)


def batched(points, size):
    return lambda: Process(
        strategy=lambda gp, _, q: WHITENED(gp, torch.zeros(*points, 6, 2), q),
        distribution=lambda m: CHOLESKY(m, batch_shape=torch.Size(size)),
    )


def untrained():
    gp = Process()
    gp.variational_strategy.variational_params_initialized.fill_(0)
    return gp


def outdated():
    gp = Process()
    gp.variational_strategy.updated_strategy.fill_(False)
    return gp


BAD_PROCESSES = {
    "no process": (lambda: torch.nn.Linear(2, 1), r"gp must be an ApproximateGP of GPyTorch, got Linear"),
    "batch": (batched([3], [3]), r"gp must be one process with one output, got .* shape \(3, 6, 2\)"),
    "batch of beliefs": (batched([], [3]), r"got inducing points .* variational mean of shape \(3, 6\)"),
    "untrained": (untrained, r"gp must be trained, got a module whose variational parameters were never"),
    "outdated": (outdated, r"gp must be called once after loading"),
}


@pytest.mark.parametrize("name", BAD_PROCESSES)
def test_a_process_that_cannot_be_read_is_refused(name):
    make, match = BAD_PROCESSES[name]
    gp, likelihood = make(), gaussian_likelihood()
    before = state(gp, likelihood)
    with pytest.raises((TypeError, ValueError), match=match):
        unlearn(gp, likelihood, (X[:2], TARGETS[:2]), key=KEY, in_place=True)
    assert_unchanged(before, gp, likelihood)


GOOD = (X[:2], TARGETS[:2])
BAD_CALLS = {
    "noise levels": (
        {"likelihood": gpytorch.likelihoods.GaussianLikelihood(batch_shape=torch.Size([2]))},
        r"with one noise level, got GaussianLikelihood",
    ),
    "no pair": ({"erased": torch.tensor(X)}, r"erased must be a pair \(inputs, targets\), got Tensor"),
    "ragged targets": (
        {"erased": (X[:2], [[1.0], [2.0, 3.0]])},
        r"erased targets must be an array, got rows of different lengths",
    ),
    "ragged": ({"erased": ([[1.0, 2.0], [3.0]], [0.0, 1.0])}, r"inputs must be an array, got rows of diff"),
    "words": (
        {"likelihood": bernoulli_likelihood(), "erased": (X[:2], ["yes", "no"])},
        r"erased targets must be numeric, got an array of dtype <U",
    ),
    "not a number": ({"erased": (X[:2] * np.nan, TARGETS[:2])}, r"erased inputs must be finite"),
    "columns": (
        {"erased": (X[:2, :1], TARGETS[:2])},
        r"erased inputs must have shape \(n, 2\), got \(2, 1\)",
    ),
    "lengths": ({"erased": (X[:2], TARGETS[:3])}, r"erased must pair inputs and targets, got 2 and 3"),
    "never trained on": ({"erased": (np.zeros((99, 2)), np.zeros(99))}, r"cannot have been part of"),
    "key": ({"key": 0}, r"key must come from jax.random.key, got 0"),
    "method": ({"method": "exact"}, r"method must be an unlearning method such as EUBO\(\), got 'exact'"),
    "memory": ({"memory": 3}, r"memory must be what fit kept, trained.memory, got int"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_call_leaves_the_module_untouched(name):
    given, match = BAD_CALLS[name]
    gp = Process()
    set_belief(gp, *optimum(gp, slice(None)))
    call = {"likelihood": gaussian_likelihood(), "erased": GOOD, "key": KEY, **given}
    before = state(gp)
    with pytest.raises((TypeError, ValueError), match=match):
        unlearn(gp, call.pop("likelihood"), call.pop("erased"), in_place=True, **call)
    assert_unchanged(before, gp)


@pytest.mark.parametrize("name", ["memory", "size"])
def test_a_memory_of_no_kind_is_refused(name):
    with pytest.raises(ValueError, match=r"memory must be 'sums', .* a number of records .*, got -1"):
        remember(Process(), gaussian_likelihood(), GOOD, key=KEY, **{name: -1})


def test_a_number_of_records_may_still_be_called_size():
    gp, likelihood = Process(), gaussian_likelihood()
    set_belief(gp, *optimum(gp, slice(None)))
    old, new = (
        remember(gp, likelihood, tensors(X, TARGETS), key=KEY, **kept)
        for kept in ({"size": 9}, {"memory": 9})
    )
    assert old.sums is None
    np.testing.assert_array_equal(old.weights, new.weights)


def half_trained(likelihood=gaussian_likelihood):
    """A module whose mean is on its way from the prior to where training ends."""
    gp = Process()
    mean, covariance = optimum(gp, slice(None))
    return set_belief(gp, 0.8 * mean + 0.2 * belief(gp)[0], covariance), likelihood()


@pytest.mark.parametrize("in_place", [False, True])
def test_settling_ends_training(in_place):
    gp, likelihood = half_trained()
    before, stale = state(gp), predictions(gp, likelihood)
    settled, found = settle(gp, likelihood, tensors(X, TARGETS), key=KEY, in_place=in_place)
    assert (settled is gp) == in_place
    if not in_place:
        assert_unchanged(before, gp)
        np.testing.assert_array_equal(predictions(gp, likelihood), stale)
    for own, expected in zip(belief(settled), optimum(gp, slice(None)), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-8)
    assert found.before > 1
    assert found.after < 1e-10
    assert found.converged
    assert re.fullmatch(r"[\d.e+]+ nats from stationary, .* after 2 passes: converged", str(found))
    memory = remember(settled, likelihood, tensors(X, TARGETS), 0, key=KEY)
    assert memory.stationarity == pytest.approx(found.after, abs=1e-10)


def test_settling_says_when_it_did_not_arrive():
    gp, likelihood = Process(), bernoulli_likelihood()
    _, found = settle(gp, likelihood, tensors(X, LABELS), passes=2, key=KEY)
    assert not found.converged
    assert 0 < found.after < found.before
    assert str(found).endswith("after 2 passes: not converged")


def test_training_that_had_not_converged_is_the_reason():
    gp, likelihood = half_trained()
    memory = remember(gp, likelihood, tensors(X, TARGETS), 0, key=KEY)
    erased = tensors(X[:1], TARGETS[:1])
    _, result = unlearn(gp, likelihood, erased, memory=memory, key=KEY)
    assert "training had not converged" in result.doubts[0]
    settled, _ = settle(gp, likelihood, tensors(X, TARGETS), key=KEY)
    memory = remember(settled, likelihood, tensors(X, TARGETS), 0, key=KEY)
    assert unlearn(settled, likelihood, erased, memory=memory, key=KEY)[1].trusted


def test_a_second_request_in_place_is_noticed():
    gp, likelihood = Process(), gaussian_likelihood()
    set_belief(gp, *optimum(gp, slice(None)))
    trained = copy.deepcopy(gp)
    unlearn(gp, likelihood, (X[:2], TARGETS[:2]), key=KEY, in_place=True)
    before = state(gp)
    for again in (gp, copy.deepcopy(gp)):
        with pytest.raises(
            ValueError, match=r"gp was already changed in place by an earlier unlearn, and req"
        ):
            unlearn(again, likelihood, (X[2:4], TARGETS[2:4]), key=KEY, in_place=True)
    assert_unchanged(before, gp)
    both, _ = unlearn(trained, likelihood, (X[:4], TARGETS[:4]), key=KEY, in_place=True)
    np.testing.assert_allclose(belief(both)[0], optimum(gp, slice(4, 40))[0], rtol=1e-6)
    # Training on makes it another module.
    settle(gp, likelihood, (X[2:], TARGETS[2:] + 0.1), key=KEY, in_place=True)
    unlearn(gp, likelihood, (X[2:4], TARGETS[2:4] + 0.1), key=KEY, in_place=True)


def test_requests_at_once_lose_none_silently():
    """Of several threads, one writes; the others say that they did not."""
    gp, likelihood = Process(), gaussian_likelihood()
    set_belief(gp, *optimum(gp, slice(None)))
    start = threading.Barrier(4)

    def request(row):
        start.wait()
        try:
            unlearn(gp, likelihood, (X[row : row + 1], TARGETS[row : row + 1]), key=KEY, in_place=True)
        except (RuntimeError, ValueError) as error:
            return str(error)
        return row

    with futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(request, range(4)))
    erased = [answer for answer in answers if isinstance(answer, int)]
    assert len(erased) == 1
    for answer in answers:
        assert answer in erased or "changed by another call while" in answer or "already changed" in answer
    kept = np.delete(np.arange(40), erased)
    np.testing.assert_allclose(belief(gp)[0], optimum(gp, kept)[0], rtol=1e-6)


def test_nothing_of_the_erased_records_is_left():
    gp, likelihood = half_trained()
    settled, found = settle(gp, likelihood, tensors(X, TARGETS), key=KEY)
    memory = remember(settled, likelihood, tensors(X, TARGETS), 40, key=KEY)
    recovered, result = unlearn(
        settled, likelihood, tensors(X[ERASED], TARGETS[ERASED]), memory=memory, key=KEY
    )
    rows = np.asarray(memory.coreset.design)[ERASED]
    assert rows_found(memory, rows) == 8
    assert rows_found((gp, settled, found, recovered, result), rows) == 0
    assert rows_found((gp, settled, found, recovered, result), X) == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_records_are_known_again(dtype):
    gp, likelihood = Process(dtype=dtype), gaussian_likelihood(dtype)
    set_belief(gp, *optimum(gp, slice(None)))

    def records(rows, shift=0.0):
        return tensors(X[rows], TARGETS[rows] + shift, dtype=dtype)

    memory = remember(gp, likelihood, records(slice(None)), 20, key=KEY)
    with pytest.raises(ValueError, match="1 of 1 are not: row 0"):
        unlearn(gp, likelihood, records(slice(0, 1), 1e6), memory=memory, key=KEY)
    recovered, result = unlearn(gp, likelihood, records(slice(0, 5)), memory=memory, key=KEY)
    # The memory that comes back serves the module that comes back, and no other.
    with pytest.raises(ValueError, match="5 of 5 are not"):
        unlearn(recovered, likelihood, records(slice(0, 5)), memory=result.memory, key=KEY)
    with pytest.raises(ValueError, match="kept for this posterior"):
        unlearn(recovered, likelihood, records(slice(5, 9)), memory=memory, key=KEY)


def test_inducing_points_that_are_erased_records_are_named():
    gp, likelihood = Process(), gaussian_likelihood()
    with torch.no_grad():
        gp.variational_strategy.inducing_points[:3] = torch.from_numpy(X[:3])
    set_belief(gp, *optimum(Process(), slice(None)))
    gp, _ = settle(gp, likelihood, tensors(X, TARGETS), key=KEY)
    _, result = unlearn(gp, likelihood, tensors(X[1:9], TARGETS[1:9]), key=KEY)
    total = len(gp.variational_strategy.inducing_points)
    sentence = "inducing inputs that are inputs of erased records stay in the model"
    assert result.caveats[0] == f"{sentence}: 2 of {total}"
