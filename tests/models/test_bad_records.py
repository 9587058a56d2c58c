"""Records at the boundary: what is refused, in which words, and what must be taken."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jax.scipy.stats import norm

from unbayes.models import (
    BetaBernoulli,
    DensityModel,
    DirichletCategorical,
    GammaPoisson,
    GammaShape,
    LinearModel,
    ProbitLikelihood,
    RawFeatures,
    UnknownNoiseRegression,
    linear_regression,
    logistic_regression,
    poisson_regression,
    softmax_regression,
)
from unbayes.posteriors import Beta, DiagonalGaussian, Dirichlet, Gamma, NormalInverseGamma

PAIRS = {
    "linear": linear_regression(2, noise_scale=0.5),
    "logistic": logistic_regression(2),
    "poisson": poisson_regression(2),
    "probit": LinearModel(RawFeatures(2), ProbitLikelihood(), DiagonalGaussian.standard(3)),
    "softmax": softmax_regression(2, 3),
    "unknown noise": UnknownNoiseRegression(
        RawFeatures(2), NormalInverseGamma(np.zeros(3), np.eye(3), 1.0, 1.0)
    ),
}
VECTORS = {
    "beta": BetaBernoulli(Beta(1.0, 1.0)),
    "dirichlet": DirichletCategorical(Dirichlet(np.ones(3))),
    "gamma": GammaPoisson(Gamma(1.0, 1.0)),
    "gamma shape": GammaShape(1.0, DiagonalGaussian.standard(1)),
}
DENSITY = DensityModel(lambda theta: 0.0, lambda theta, r: norm.logpdf(r, theta[0]), 1)

X, Y = np.ones((3, 2)), np.array([1, 0, 1])


def changed(array, value):
    array = array.astype(float)
    array[1] = value
    return array


# What any model of pairs refuses, what any model of a vector refuses, and what some models refuse.
BAD_PAIRS = [
    ((changed(X, np.nan), Y), ValueError, r"erased inputs must be finite .*nan.* in row 1"),
    ((changed(X, np.inf), Y), ValueError, r"erased inputs must be finite .*inf.* in row 1"),
    ((X, changed(Y, np.nan)), ValueError, r"erased targets must be finite .*nan in row 1"),
    ((X, changed(Y, -np.inf)), ValueError, r"erased targets must be finite .*-inf in row 1"),
    ((np.ones((3, 4)), Y), ValueError, r"erased inputs must have shape \(n, 2\), got \(3, 4\)"),
    ((np.ones(3), Y), ValueError, r"erased inputs must have shape \(n, 2\), got \(3,\)"),
    ((X, Y[:, None]), ValueError, r"erased targets must have shape \(n\), got \(3, 1\)"),
    (([[1, 2], [3]], [0, 1]), ValueError, r"erased inputs must be an array, got rows of different lengths"),
    ((np.array([["a", "b"]] * 3), Y), TypeError, r"erased inputs must be numeric, got an array of dtype <U1"),
    ((X, np.array([None, 1, 0])), TypeError, r"erased targets must be numeric, got an array of dtype object"),
    ((X, Y.astype(complex)), TypeError, r"erased targets must be numeric, got an array of dtype complex128"),
    (
        (X, Y.astype("datetime64[D]")),
        TypeError,
        r"erased targets must be numeric, got an .* datetime64",
    ),
    ((X, Y[:2]), ValueError, r"erased must pair inputs and targets, got 3 and 2"),
    ((X[:0], Y[:0]), ValueError, r"erased must hold at least one record, got none"),
    (X, TypeError, r"erased must be a pair \(inputs, targets\), got ndarray"),
    ((X,), TypeError, r"erased must be a pair \(inputs, targets\), got tuple"),
    ({"x": X, "y": Y}, TypeError, r"erased must be a pair \(inputs, targets\), got dict"),
    (None, TypeError, r"erased must be a pair \(inputs, targets\), got NoneType"),
]
BAD_VECTORS = [
    (changed(Y, np.nan), ValueError, r"erased must be finite .*nan in row 1"),
    (changed(Y, np.inf), ValueError, r"erased must be finite .*inf in row 1"),
    (Y[:, None], ValueError, r"erased must have shape \(n\), got \(3, 1\)"),
    (1.0, ValueError, r"erased must have shape \(n\), got \(\)"),
    (["1", "0"], TypeError, r"erased must be numeric, got an array of dtype <U1"),
    ([None], TypeError, r"erased must be numeric, got an array of dtype object"),
    (Y[:0], ValueError, r"erased must hold at least one record, got none"),
]
BAD_TARGETS = [
    ("logistic", 2, r"must hold labels 0 to 1, got 2 in row 1"),
    ("logistic", -1, r"must hold labels 0 to 1, got -1 in row 1"),
    ("logistic", 0.5, r"must hold labels 0 to 1, got 0.5 in row 1"),
    ("probit", -1, r"must hold labels 0 to 1, got -1 in row 1"),
    ("softmax", 3, r"must hold labels 0 to 2, got 3 in row 1"),
    ("softmax", 1.5, r"must hold labels 0 to 2, got 1.5 in row 1"),
    ("poisson", -1, r"must hold non-negative integers, got -1.0 in row 1"),
    ("poisson", 0.5, r"must hold non-negative integers, got 0.5 in row 1"),
    ("beta", 2, r"must hold labels 0 to 1, got 2 in row 1"),
    ("dirichlet", 3, r"must hold labels 0 to 2, got 3 in row 1"),
    ("gamma", -2, r"must hold non-negative integers, got -2.0 in row 1"),
    ("gamma", 0.25, r"must hold non-negative integers, got 0.25 in row 1"),
    ("gamma shape", 0, r"must be positive, got 0 in row 1"),
    ("gamma shape", -3, r"must be positive, got -3 in row 1"),
]
BAD_DENSITY = [
    ([], ValueError, r"erased must hold at least one array, got \[\]"),
    (
        {"a": np.float64(1.0)},
        ValueError,
        r"erased must have the records along their leading axis",
    ),
    ((X, Y[:2]), ValueError, r"erased must share their leading axis, got lengths \[2, 3\]"),
    ((X[:0], Y[:0]), ValueError, r"erased must hold at least one record, got none"),
    ((X, changed(Y, np.nan)), ValueError, r"erased must be finite .*nan in row 1"),
    ({"a": np.array(["x", "y"])}, TypeError, r"erased must be numeric, got an array of dtype <U1"),
]


def refuses(model, records, error, message):
    with pytest.raises(error, match=message):
        model.encode(records, "erased")


@pytest.mark.parametrize("model", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize(("records", "error", "message"), BAD_PAIRS, ids=[row[2] for row in BAD_PAIRS])
def test_bad_pairs_are_refused(model, records, error, message):
    refuses(model, records, error, message)


@pytest.mark.parametrize("model", VECTORS.values(), ids=VECTORS)
@pytest.mark.parametrize(("records", "error", "message"), BAD_VECTORS, ids=[row[2] for row in BAD_VECTORS])
def test_bad_vectors_are_refused(model, records, error, message):
    refuses(model, records, error, message)


@pytest.mark.parametrize(("name", "value", "message"), BAD_TARGETS)
def test_values_outside_the_range_are_refused(name, value, message):
    targets = changed(np.ones(3), value)
    if name in PAIRS:
        refuses(PAIRS[name], (X, targets), ValueError, f"erased targets {message}")
    else:
        refuses(VECTORS[name], targets, ValueError, f"erased {message}")


@pytest.mark.parametrize(("records", "error", "message"), BAD_DENSITY, ids=[row[2] for row in BAD_DENSITY])
def test_bad_pytrees_are_refused(records, error, message):
    refuses(DENSITY, records, error, message)


NUMBERS = ["int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]


@st.composite
def inputs(draw, rows: int):
    """Arrays of any numeric type, some with constant columns or repeated rows."""
    dtype = np.dtype(draw(st.sampled_from(NUMBERS)))
    elements = {"b": st.booleans(), "u": st.integers(0, 20), "i": st.integers(-20, 20)}.get(
        dtype.kind, st.integers(-80, 80).map(lambda quarter: quarter / 4)
    )
    x = draw(arrays(dtype, (rows, 2), elements=elements))
    return draw(st.sampled_from([x, np.zeros_like(x), np.repeat(x[:1], rows, 0)]))


log_likelihood = eqx.filter_jit(lambda model, theta, evidence: model.log_likelihood(theta, evidence))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from([*PAIRS, *VECTORS]), st.sampled_from([1, 4]), st.sampled_from(NUMBERS))
def test_numeric_records_are_taken_in_the_type_of_the_model(data, name, rows, target_type):
    low, high = (1, 1) if name == "gamma shape" else (0, 1)
    elements = st.integers(low, high).map(np.dtype(target_type).type)
    targets = data.draw(arrays(target_type, rows, elements=elements))
    model = PAIRS.get(name) or VECTORS[name]
    evidence = model.encode((data.draw(inputs(rows)), targets) if name in PAIRS else targets)
    own = log_likelihood(model, jnp.full(model.dim, 0.25), evidence)
    assert own.shape == (rows,)
    assert own.dtype == model.dtype
    assert np.isfinite(own).all()


def test_lists_and_jax_arrays_are_records_too():
    model = PAIRS["logistic"]
    expected = model.encode((X, Y))
    for records in ([X.tolist(), Y.tolist()], (jnp.asarray(X), jnp.asarray(Y))):
        np.testing.assert_array_equal(model.encode(records).design, expected.design)
        np.testing.assert_array_equal(model.encode(records).targets, expected.targets)
