"""The default method: a choice with a reason, and never a silent failure."""

import warnings

import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import unbayes as ub
from moon import moon
from problems import KEY, linear_gaussian, logistic, split, take, trained

CHOICES = {
    "conjugate": (lambda: (trained(linear_gaussian), linear_gaussian()), ub.Exact, "conjugate"),
    "gaussian": (lambda: (trained(logistic), logistic()), ub.NaturalGradient, "natural parameters"),
    "diagonal": (
        lambda: (trained(linear_gaussian, family=ub.DiagonalGaussian), linear_gaussian()),
        ub.NaturalGradient,
        "natural parameters",
    ),
    "flow": (
        lambda: (ub.AutoregressiveFlow(trained(logistic), key=KEY, layers=1, width=4), logistic()),
        ub.Transport,
        "moments",
    ),
    "table": (
        lambda: (ub.Table(jnp.linspace(-1.0, 1.0, 9)[:, None] * jnp.ones(3), jnp.zeros(9)), logistic()),
        ub.Exact,
        "table",
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_chooses_and_says_why(name):
    make, method, reason = CHOICES[name]
    posterior, problem = make()
    chosen, why = ub.Auto().choose(posterior, problem.model)
    assert isinstance(chosen, method)
    assert reason in why


def test_a_general_model_with_many_parameters_is_sampled():
    model = ub.DensityModel(lambda t: -t @ t, lambda t, y: -((y - t[0]) ** 2), dim=400)
    chosen, why = ub.Auto().choose(ub.DiagonalGaussian.standard(400), model)
    assert isinstance(chosen, ub.BankReverseKL)
    assert "400 parameters are too many" in why


def test_the_result_explains_the_choice():
    problem = logistic()
    result = ub.unlearn(trained(logistic), problem.model, problem.erased, key=KEY)
    assert isinstance(result.method, ub.NaturalGradient)
    assert "chosen because         FullGaussian has natural parameters" in str(result)
    statistics = ub.summarise(trained(logistic), problem.model, problem.erased, key=KEY)
    solved = ub.solve(trained(logistic), problem.model, statistics, key=KEY)
    np.testing.assert_allclose(solved.posterior.mean, result.posterior.mean, atol=1e-12)


@st.composite
def erasures(draw):
    """Rows of 150 records: one, most, a class, an outlier among them, some twice."""
    kind = draw(st.sampled_from(["one", "some", "nine tenths", "class"]))
    order = np.random.default_rng(draw(st.integers(0, 1000))).permutation(150)
    if kind == "class":
        return kind, np.flatnonzero(logistic().full[1] == draw(st.integers(0, 1)))
    return kind, order[: {"one": 1, "some": 20, "nine tenths": 135}[kind]]


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(
    erasures(),
    st.sampled_from([ub.FullGaussian, ub.DiagonalGaussian]),
    st.booleans(),
    st.sampled_from(["as it is", "with an outlier", "with duplicates"]),
)
@pytest.mark.long
def test_never_nan_never_indefinite_never_silent(erasure, family, remember, data):
    _, rows = erasure
    x, y = (np.array(part) for part in logistic().full)
    if data == "with an outlier":
        x[rows[0]] = 50.0
    elif data == "with duplicates":
        x[75:], y[75:] = x[:75], y[:75]
    problem = split(logistic().model, (x, y), rows)
    full = ub.fit(problem.model, problem.full, family=family, memory=30, key=KEY)
    memory = full.memory if remember else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ub.unlearn(full.posterior, problem.model, problem.erased, memory=memory, key=KEY)
    assert np.isfinite(np.linalg.cholesky(result.posterior.covariance)).all()
    assert np.isfinite(result.posterior.mean).all()
    # Without a memory, a diagonal posterior is never trusted, nor is the erasure of nine tenths of the data.
    if not remember and (family is ub.DiagonalGaussian or len(rows) == 135):
        assert result.verdict is not ub.Verdict.TRUSTED
        assert result.doubts


@pytest.mark.long
def test_too_little_left_means_retrain():
    problem = moon("random")
    model = ub.logistic_regression(2, prior_scale=10.0)
    full = ub.fit(model, problem.full, memory=0, key=KEY)
    most = take(problem.full, np.arange(95))
    result = ub.unlearn(full.posterior, model, most, key=KEY)
    assert result.verdict is ub.Verdict.RETRAIN
    everything = ub.unlearn(full.posterior, model, problem.full, memory=full.memory, key=KEY)
    assert everything.verdict is ub.Verdict.RETRAIN
    assert any("all the training data were erased" in doubt for doubt in everything.doubts)
