"""Bad input gets a sentence that names the argument; the posterior handed in stays as it was."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unbayes as ub
from problems import KEY, linear_gaussian, logistic, trained

QUICK = {
    "eubo": ub.EUBO(iterations=20, draws=50),
    "reverse KL": ub.ReverseKL(iterations=20, draws=50),
    "reverse KL, bank": ub.BankReverseKL(draws=500),
}


def _replaced(records, **changes):
    x, y = (np.array(a, dtype=float) for a in records)
    for row, value in changes.get("x", {}).items():
        x[row] = value
    for row, value in changes.get("y", {}).items():
        y[row] = value
    return x, y


ERASED = logistic().erased
BAD_RECORDS = {
    "NaN input": (
        _replaced(ERASED, x={3: np.nan}),
        ValueError,
        "erased inputs must be finite.* in row 3",
    ),
    "infinite input": (_replaced(ERASED, x={0: np.inf}), ValueError, "erased inputs must be finite"),
    "NaN label": (_replaced(ERASED, y={1: np.nan}), ValueError, "erased targets must be finite"),
    "label out of range": (
        _replaced(ERASED, y={2: 2}),
        ValueError,
        "erased targets must hold labels 0 to 1, got 2 in row 2",
    ),
    "label between classes": (
        _replaced(ERASED, y={2: 0.5}),
        ValueError,
        "erased targets must hold labels 0 to 1, got 0.5",
    ),
    "wrong width": (
        (ERASED[0][:, :1], ERASED[1]),
        ValueError,
        r"erased inputs must have shape \(n, 2\), got \(20, 1\)",
    ),
    "wrong rank": ((ERASED[0][:, 0], ERASED[1]), ValueError, r"erased inputs must have shape \(n, 2\)"),
    "unpaired": ((ERASED[0][:5], ERASED[1]), ValueError, "erased must pair inputs and targets, got 5 and 20"),
    "not a pair": (ERASED[0], TypeError, "erased must be a pair"),
    "text": ((ERASED[0].astype(str), ERASED[1]), TypeError, "erased inputs must be numeric"),
    "empty": ((ERASED[0][:0], ERASED[1][:0]), ValueError, "erased must hold at least one record"),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
@pytest.mark.parametrize("method", QUICK)
def test_bad_records_are_refused(name, method):
    records, error, sentence = BAD_RECORDS[name]
    full = trained(logistic)
    before = jax.tree.map(np.array, full)
    with pytest.raises(error, match=sentence):
        ub.unlearn(full, logistic().model, records, method=QUICK[method], key=KEY)
    jax.tree.map(np.testing.assert_array_equal, full, before)


@pytest.mark.parametrize("method", [ub.EUBO, ub.ReverseKL, ub.BankReverseKL])
@pytest.mark.parametrize("lam", [-0.1, 1.5, float("nan")])
def test_lambda_outside_the_unit_interval_is_refused(method, lam):
    problem = logistic()
    with pytest.raises(ValueError, match=r"lam must lie in \[0, 1\]"):
        ub.unlearn(trained(logistic), problem.model, problem.erased, method=method(lam=lam), key=KEY)
    with pytest.raises(ValueError, match=r"lam must lie in \[0, 1\]"):
        ub.sweep(trained(logistic), problem.model, problem.erased, method=method(), lams=[0.5, lam], key=KEY)


def _unlearn(posterior, model=None, method=QUICK["eubo"]):
    problem = logistic()
    return ub.unlearn(posterior, model or problem.model, problem.erased, method=method, key=KEY)


MISFITS = {
    "wrong length": (
        lambda: _unlearn(ub.FullGaussian.standard(7)),
        ValueError,
        "posterior must have 3 parameters",
    ),
    "wrong type": (
        lambda: _unlearn(ub.FullGaussian.standard(3, jnp.float32)),
        ValueError,
        "of float64 to fit the model, got 3 of float32",
    ),
    "NaN posterior": (
        lambda: _unlearn(ub.FullGaussian(jnp.full(3, jnp.nan), jnp.eye(3))),
        ValueError,
        "posterior must be finite",
    ),
    "not a posterior": (lambda: _unlearn({"mean": 0}), TypeError, "posterior must be a posterior"),
    "not a model": (
        lambda: _unlearn(trained(logistic), model="logistic"),
        TypeError,
        "model must be a model",
    ),
    "not a method": (
        lambda: _unlearn(trained(logistic), method="eubo"),
        TypeError,
        "method must be an unlearning method",
    ),
    "exact, not conjugate": (
        lambda: _unlearn(trained(logistic), method=ub.Exact()),
        TypeError,
        "FullGaussian is not conjugate to LinearModel",
    ),
    "gradients, not variational": (
        lambda: ub.unlearn(
            ub.Beta(3.0, 4.0),
            ub.BetaBernoulli(ub.Beta(1.0, 1.0)),
            np.array([1]),
            method=QUICK["eubo"],
            key=KEY,
        ),
        TypeError,
        "EUBO needs a Gaussian or a flow, got Beta",
    ),
    "natural gradient, flow": (
        lambda: _unlearn(ub.AutoregressiveFlow.standard(3, key=KEY), method=ub.NaturalGradient()),
        TypeError,
        "NaturalGradient needs a Gaussian, got AutoregressiveFlow",
    ),
    "no draws": (
        lambda: _unlearn(trained(logistic), method=ub.BankReverseKL(draws=0)),
        ValueError,
        "draws must be an integer of at least 1, got 0",
    ),
    "no iterations": (
        lambda: _unlearn(trained(logistic), method=ub.EUBO(iterations=0)),
        ValueError,
        "iterations must be an integer of at least 1",
    ),
    "a number for a key": (
        lambda: ub.unlearn(trained(logistic), logistic().model, ERASED, method=QUICK["eubo"], key=0),
        TypeError,
        "key must come from jax.random.key",
    ),
    "an empty sweep": (
        lambda: ub.sweep(trained(logistic), logistic().model, ERASED, method=QUICK["eubo"], lams=[], key=KEY),
        ValueError,
        "lams must hold at least one threshold",
    ),
    "no statistics": (
        lambda: ub.solve(trained(logistic), logistic().model, sum([]), method=ub.NaturalGradient(), key=KEY),
        TypeError,
        "statistics must be a sum of what summarise returned",
    ),
    "exact, diagonal": (
        lambda: ub.unlearn(
            trained(linear_gaussian, family=ub.DiagonalGaussian),
            linear_gaussian().model,
            linear_gaussian().erased,
            method=ub.Exact(),
            key=KEY,
        ),
        TypeError,
        "DiagonalGaussian is not conjugate",
    ),
    "sweep without lambda": (
        lambda: ub.sweep(
            trained(linear_gaussian),
            linear_gaussian().model,
            linear_gaussian().erased,
            method=ub.Exact(),
            lams=[0.0],
            key=KEY,
        ),
        TypeError,
        "must have a threshold lam",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_together_is_refused(name):
    attempt, error, sentence = MISFITS[name]
    with pytest.raises(error, match=sentence):
        attempt()


@pytest.mark.parametrize("method", QUICK)
@pytest.mark.parametrize("family", [ub.FullGaussian, ub.DiagonalGaussian])
def test_records_that_cannot_have_been_seen_are_refused(method, family):
    problem = logistic()
    x, y = problem.full
    elsewhere = (np.tile(x, (4, 1)), np.tile(y, 4))
    with pytest.raises(
        ValueError, match="erased holds more evidence than the posterior has beyond its prior"
    ):
        ub.unlearn(trained(logistic, family=family), problem.model, elsewhere, method=QUICK[method], key=KEY)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_legitimate_erasure_gives_a_proper_posterior(data):
    """One record, most of the data, one class, duplicates, outliers: never NaN, never silence."""
    problem, full = logistic(), trained(logistic)
    x, y = problem.full
    kind = data.draw(st.sampled_from(["one", "most", "class", "outlier", "any"]))
    rows = {
        "one": [data.draw(st.integers(0, len(y) - 1))],
        "most": list(range(int(0.9 * len(y)))),
        "class": np.flatnonzero(y == data.draw(st.integers(0, 1))).tolist(),
        "outlier": np.argsort(-np.abs(x).sum(1))[:5].tolist(),
        "any": data.draw(st.lists(st.integers(0, len(y) - 1), min_size=1, max_size=40, unique=True)),
    }[kind]
    rows = np.asarray(rows)
    result = ub.unlearn(full, problem.model, (x[rows], y[rows]), method=QUICK["reverse KL, bank"], key=KEY)
    assert np.isfinite(np.linalg.cholesky(result.posterior.covariance)).all()
    assert result.khat <= 0.7 or not result.trusted
