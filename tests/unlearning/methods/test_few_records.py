"""Few erased records beside many parameters: the same step as by dense matrices, in less time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY
from unbayes.unlearning.methods import few_records, natural_gradient
from unbayes.unlearning.methods.few_records import LEAST_DIM, few_records_step

# Above the least, and at which 128 records, the least number that one program serves, are few.
DIM, RECORDS, ERASED = 300, 900, 40


def belief(model: ub.LinearModel, x: np.ndarray, curvature: float = 0.2) -> ub.FullGaussian:
    """As records of that curvature would leave it, with some mean."""
    outputs = model.likelihood.outputs
    precision = np.kron(np.eye(outputs), curvature * x.T @ x) + np.diag(1 / np.asarray(model.prior.variance))
    mean = np.random.default_rng(1).normal(size=model.dim) / DIM**0.5
    return ub.FullGaussian.from_covariance(mean, np.linalg.inv(precision).astype(model.dtype))


def inputs(dim: int = DIM) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(RECORDS, dim))


def logistic(x: np.ndarray):
    y = np.random.default_rng(2).random(len(x)) < 0.5
    return ub.logistic_regression(x.shape[1], bias=False), (x[:ERASED], y[:ERASED])


def softmax(x: np.ndarray):
    x = x[:, : DIM // 2]
    y = np.random.default_rng(2).integers(0, 2, len(x))
    return ub.softmax_regression(DIM // 2, 2, bias=False, prior_scale=2.0), (x[:30], y[:30])


def gaussian(x: np.ndarray):
    y = np.random.default_rng(2).normal(size=len(x))
    return ub.linear_regression(DIM, noise_scale=3.0, bias=False), (x[:ERASED], y[:ERASED])


def both(monkeypatch, *call, **settings) -> tuple[ub.Unlearned, ub.Unlearned]:
    """The call by few records, and by dense matrices."""
    taken = []
    monkeypatch.setattr(
        natural_gradient,
        "few_records_step",
        lambda *given: taken.append(few_records_step(*given)) or taken[-1],
    )
    short = ub.unlearn(*call, key=KEY, **settings)
    assert taken[0] is not None
    monkeypatch.setattr(few_records, "LEAST_DIM", 10**6)
    return short, ub.unlearn(*call, key=KEY, **settings)


def assert_same(short: ub.Unlearned, dense: ub.Unlearned, tolerance: float = 1e-9) -> None:
    spread = dense.posterior.variance**0.5
    np.testing.assert_allclose(short.posterior.mean / spread, dense.posterior.mean / spread, atol=tolerance)
    np.testing.assert_allclose(
        short.posterior.covariance / spread / spread[:, None],
        dense.posterior.covariance / spread / spread[:, None],
        atol=tolerance,
    )
    assert (short.trust.verdict, short.trust.doubts) == (dense.trust.verdict, dense.trust.doubts)
    found, expected = short.trust.measures._asdict(), dense.trust.measures._asdict()
    for name, value in expected.items():
        if isinstance(value, float):
            assert found[name] == pytest.approx(value, rel=tolerance, abs=10 * tolerance), name
        else:
            assert found[name] == value, name


@pytest.mark.long
def test_the_result_and_all_measures_are_those_of_dense_matrices(monkeypatch):
    x = inputs()
    model, erased = logistic(x)
    assert_same(*both(monkeypatch, belief(model, x), model, erased))


@pytest.mark.long
def test_a_gaussian_likelihood_is_exact_either_way(monkeypatch):
    x = inputs()
    model, erased = gaussian(x)
    trained = belief(model, x, curvature=1 / 9)
    assert_same(*both(monkeypatch, trained, model, erased, method=ub.NaturalGradient()))


@pytest.mark.long
def test_several_outputs_count_each_record_several_times(monkeypatch):
    monkeypatch.setattr(few_records, "LARGEST_RANK_SHARE", 0.9)
    x = inputs()
    model, erased = softmax(x)
    assert_same(*both(monkeypatch, belief(model, x[:, : DIM // 2]), model, erased))


@pytest.mark.long
def test_a_dense_prior_is_known_with_all_its_entries(monkeypatch):
    x = inputs()
    _, erased = logistic(x)
    root = np.tril(np.random.default_rng(3).normal(size=(DIM, DIM))) / DIM**0.5 + np.eye(DIM)
    prior = ub.FullGaussian(np.zeros(DIM), root)
    model = ub.LinearModel(ub.RawFeatures(DIM, bias=False), ub.BernoulliLikelihood(), prior)
    precision = 0.2 * x.T @ x + np.asarray(prior.natural.precision.matrix)
    trained = ub.FullGaussian.from_covariance(np.zeros(DIM), np.linalg.inv(precision))
    assert_same(*both(monkeypatch, trained, model, erased))


def sites_of(posterior, model, erased):
    evidence = model.encode(erased)
    weights = np.ones(len(evidence.design))
    return ub.NaturalGradient().summarise(posterior, model, evidence, weights, memory=None, key=KEY)


def test_records_that_exceed_the_belief_leave_its_width(monkeypatch):
    """The belief is far too wide: no step of it is a share of its precision."""
    x = inputs()
    model, erased = logistic(x)
    wide = ub.FullGaussian(np.zeros(DIM), 0.3 * np.eye(DIM))
    sites = sites_of(wide, model, erased)
    step = few_records_step(wide, model, sites, ERASED)
    dense = natural_gradient.natural_gradient_step(wide, model, None, sites)
    assert step is not None
    assert step.info.keeps_width
    assert step.info.taken < 1
    np.testing.assert_allclose(step.posterior.scale_tril, wide.scale_tril)
    np.testing.assert_allclose(step.posterior.mean, dense.posterior.mean, atol=1e-9)
    for own, other in zip(step.info, dense.info, strict=True):
        assert own is other is None or float(own) == pytest.approx(float(other), rel=1e-9, abs=1e-9)


@pytest.mark.long
def test_single_precision_is_as_good_as_by_dense_matrices(monkeypatch):
    x = inputs()
    exact = both(monkeypatch, belief(logistic(x)[0], x), *logistic(x))[1].posterior
    exact_mean, spread = np.asarray(exact.mean), np.asarray(exact.variance) ** 0.5
    monkeypatch.setattr(few_records, "LEAST_DIM", LEAST_DIM)
    with jax.enable_x64(False):
        model, erased = logistic(x)
        short, dense = both(monkeypatch, belief(model, x), model, erased)
        means = [np.asarray(found.posterior.mean) for found in (short, dense)]
        errors = [np.abs((mean - exact_mean) / spread).max() for mean in means]
        assert errors[0] < 2 * errors[1] + 1e-5
        assert short.trust.verdict == dense.trust.verdict
        own, other = (found.trust.measures for found in (short, dense))
        for name in ("share_removed", "change", "evidence_left", "information"):
            assert getattr(own, name) == pytest.approx(getattr(other, name), rel=1e-3, abs=1e-3), name


@pytest.mark.long
def test_batches_add_up(monkeypatch):
    x = inputs()
    model, erased = logistic(x)
    trained = belief(model, x)
    halves = [
        ub.summarise(trained, model, jax.tree.map(lambda a, rows=rows: a[rows], erased), key=KEY)
        for rows in (slice(0, 15), slice(15, None))
    ]
    added = ub.solve(trained, model, sum(halves), key=KEY)
    assert_same(added, both(monkeypatch, trained, model, erased)[1])


def test_where_records_are_many_or_parameters_few_matrices_are_dense():
    x = inputs()
    model, erased = logistic(x)
    trained = belief(model, x)
    sites = sites_of(trained, model, erased)
    assert few_records_step(trained, model, sites, ERASED) is not None
    assert few_records_step(trained, model, sites, DIM) is None
    small = x[:, : LEAST_DIM - 1]
    model, erased = logistic(small)
    trained = belief(model, small)
    sites = sites_of(trained, model, erased)
    assert few_records_step(trained, model, sites, ERASED) is None


def test_a_precision_of_higher_rank_than_records_can_have_is_left_to_dense_matrices():
    x = inputs()
    model, erased = logistic(x)
    trained = belief(model, x)
    sites = sites_of(trained, model, erased)
    precision = sites.natural.precision + ub.posteriors.DensePrecision(1e-3 * jnp.eye(DIM))
    odd = type(sites)(ub.posteriors.GaussianNatural(sites.natural.linear, precision))
    assert few_records_step(trained, model, odd, ERASED) is None
