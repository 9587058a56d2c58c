"""Distances between posteriors, and Proposition 1 of the paper."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import unbayes as ub
from problems import KEY, logistic, take
from unbayes.metrics import agreement, entropy, information, parameter_kl, predictive_kl
from unbayes.models import linear_regression, logistic_regression, poisson_regression, softmax_regression
from unbayes.posteriors import DiagonalGaussian, FullGaussian, Table, gaussian_kl
from unbayes.posteriors.flow import AutoregressiveFlow

INPUTS = np.array([[-1.5], [0.0], [0.4], [2.0]])
FIRST = FullGaussian([0.3, 1.0], [[0.5, 0.0], [0.2, 0.4]])
SECOND = DiagonalGaussian([-0.2, 0.7], [0.6, 0.3])


@functools.cache
def flow() -> AutoregressiveFlow:
    return AutoregressiveFlow(FIRST, key=jr.key(0), layers=2, width=6)


def test_parameter_kl_of_gaussians_is_exact():
    found = parameter_kl(FIRST, SECOND)
    assert found.value == pytest.approx(float(gaussian_kl(FIRST, SECOND)))
    assert found.error == 0


def test_parameter_kl_is_sampled_within_its_error():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    first, second = (Table(np.eye(3), np.log(side)) for side in (p, q))
    found = [parameter_kl(first, second, key=jr.key(seed)) for seed in range(20)]
    scores = np.array([(estimate.value - stats.entropy(p, q)) / estimate.error for estimate in found])
    assert np.abs(scores).max() < 4
    assert 0.5 < scores.std() < 1.6
    with pytest.raises(ValueError, match="key must be given: this divergence is sampled"):
        parameter_kl(first, second)


def test_parameter_kl_from_a_flow_that_starts_at_a_gaussian():
    to_frame = parameter_kl(flow(), FIRST, key=jr.key(0))
    assert 0 <= to_frame.value + 3 * to_frame.error < 0.05
    exact = float(gaussian_kl(FIRST, SECOND))
    found = parameter_kl(flow(), SECOND, key=jr.key(0))
    assert abs(found.value - exact) < 4 * found.error + 0.1


@pytest.mark.parametrize(
    "model",
    [linear_regression(1, noise_scale=0.5), logistic_regression(1), poisson_regression(1)],
    ids=["linear", "logistic", "poisson"],
)
def test_predictive_kl_is_the_spread_over_inputs(model):
    found = predictive_kl(FIRST, SECOND, model, INPUTS)
    p, q = model.predictive(FIRST, INPUTS), model.predictive(SECOND, INPUTS)
    for direction, values in ((found.forward, p.kl(q)), (found.backward, q.kl(p))):
        assert direction.mean == pytest.approx(float(np.mean(values)))
        assert direction.std == pytest.approx(float(np.std(values)))
        assert direction.mean > 1e-3
    same = predictive_kl(FIRST, FIRST, model, INPUTS)
    assert same.forward == same.backward == pytest.approx((0, 0), abs=1e-12)


def test_sampled_predictive_kl_shares_its_noise():
    model = softmax_regression(1, 2, bias=False)
    same = predictive_kl(FIRST, FIRST, model, INPUTS, key=jr.key(0))
    assert same.forward == pytest.approx((0, 0), abs=1e-12)
    near = predictive_kl(flow(), FIRST, logistic_regression(1), INPUTS, key=jr.key(0), draws=20_000)
    assert near.forward.mean < 1e-3
    with pytest.raises(ValueError, match="key must be given"):
        predictive_kl(flow(), FIRST, logistic_regression(1), INPUTS)


def test_agreement_is_the_share_of_equal_decisions():
    model = logistic_regression(1)
    rising, falling = (DiagonalGaussian([0.1, slope], [0.1, 0.1]) for slope in (1.0, -1.0))
    assert agreement(rising, rising, model, INPUTS) == 1
    assert agreement(rising, falling, model, INPUTS) == 0.25
    with pytest.raises(TypeError, match="model must predict classes"):
        agreement(rising, falling, linear_regression(1, noise_scale=1.0), INPUTS)


def test_entropy_and_information():
    assert entropy(FIRST) == pytest.approx((stats.multivariate_normal([0, 0], FIRST.covariance).entropy(), 0))
    told = information(SECOND, FIRST)
    assert told.value == pytest.approx(np.log(0.6 * 0.3) - np.log(0.5 * 0.4))
    assert told.error == 0
    with pytest.raises(ValueError, match="key must be given: the entropy of a flow is sampled"):
        entropy(flow())


def test_entropy_of_a_flow_near_a_gaussian_is_sampled_within_its_error():
    found, exact = entropy(flow(), key=jr.key(0)), float(FIRST.entropy())
    assert found.error > 0
    assert abs(found.value - exact) < 4 * found.error + 0.1
    told = information(SECOND, flow(), key=jr.key(0))
    assert told.value == pytest.approx(float(SECOND.entropy()) - found.value)
    assert told.error == pytest.approx(found.error)


small, scale = st.floats(-2, 2), st.floats(0.2, 1.5)
beliefs = st.builds(
    lambda m, n, s, r, t: FullGaussian(jnp.array([m, n]), jnp.array([[s, 0.0], [r, t]])),
    small,
    small,
    scale,
    small.map(lambda value: value / 2),
    scale,
)


def predictions_are_no_further_apart_than_parameters(model, p, q):
    """Proposition 1, in both directions and at every input."""
    one, other = model.predictive(p, INPUTS / 2), model.predictive(q, INPUTS / 2)
    for nearer, further in ((one.kl(other), gaussian_kl(p, q)), (other.kl(one), gaussian_kl(q, p))):
        assert (np.asarray(nearer) >= -1e-9).all()
        assert (np.asarray(nearer) <= float(further) + 1e-6).all()


@pytest.mark.long
@settings(max_examples=40, deadline=None, derandomize=True)
@given(p=beliefs, q=beliefs)
def test_proposition_1_for_classes(p, q):
    predictions_are_no_further_apart_than_parameters(logistic_regression(1), p, q)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(p=beliefs, q=beliefs)
def test_proposition_1_for_real_numbers(p, q):
    predictions_are_no_further_apart_than_parameters(linear_regression(1, noise_scale=0.1), p, q)


@pytest.mark.parametrize("mean", [1.0, 3.0])
def test_proposition_1_for_counts(mean):
    p, q = (DiagonalGaussian([mean + shift, 0.2], [0.8, 0.5]) for shift in (0.0, 0.05))
    predictions_are_no_further_apart_than_parameters(poisson_regression(1), p, q)


def of_batches(size, records):
    """The same records in pieces."""
    first = range(0, len(jax.tree.leaves(records)[0]), size)
    return ub.scan(lambda: (take(records, slice(i, i + size)) for i in first), batch_rows=50)


@pytest.mark.parametrize("size", [7, 200])
def test_records_of_a_source_are_compared_as_in_memory(size):
    problem = logistic()
    p, q = (
        ub.fit(problem.model, records, key=KEY).posterior for records in (problem.full, problem.remaining)
    )
    x, _ = problem.full
    whole = predictive_kl(p, q, problem.model, x)
    for records in (x, problem.full):
        found = predictive_kl(p, q, problem.model, of_batches(size, records))
        np.testing.assert_allclose(found, whole, rtol=1e-9)
    assert agreement(p, q, problem.model, of_batches(size, problem.full)) == pytest.approx(
        agreement(p, q, problem.model, x), rel=1e-12
    )


def test_a_source_that_holds_nothing_or_what_no_model_takes_is_refused():
    problem = logistic()
    prior = ub.FullGaussian.standard(3, jnp.float64)
    with pytest.raises(ValueError, match="inputs must hold at least one record"):
        agreement(prior, prior, problem.model, lambda: iter([]))
    with pytest.raises(ValueError, match=r"batch 0 \(batch 0 as given, rows 0 to 1\): .*shape"):
        agreement(prior, prior, problem.model, lambda: iter([np.ones((2, 5))]))
