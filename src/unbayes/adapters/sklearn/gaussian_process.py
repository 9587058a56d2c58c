"""Sparse Gaussian processes: beliefs about a function's values at a few inducing inputs."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from sklearn.utils import check_array
from sklearn.utils._param_validation import StrOptions

from unbayes.adapters.sklearn.base import COUNT, POSITIVE, POSITIVE_OR_AUTO
from unbayes.adapters.sklearn.choices import (
    JITTER,
    LARGEST_TRIAL,
    ProcessScales,
    inducing_inputs,
    process_scales,
    spread,
)
from unbayes.adapters.sklearn.classification import AbstractUnlearningClassifier
from unbayes.adapters.sklearn.regression import AbstractUnlearningRegressor
from unbayes.adapters.sklearn.state import plain
from unbayes.models import GaussianLikelihood, InducingInputs, LinearModel, Matern, SquaredExponential
from unbayes.posteriors import FullGaussian

# Lengthscales that are tried, in standard deviations times the square root of the number of columns.
MULTIPLES = np.geomspace(0.25, 8, 8)
KERNELS = {"rbf": SquaredExponential, "matern": Matern}
PROCESS_CONSTRAINTS: dict = {
    "n_inducing": [COUNT],
    "inducing_inputs": ["array-like", None],
    "kernel": [StrOptions(set(KERNELS))],
    "lengthscale": [*POSITIVE_OR_AUTO, "array-like"],
}


class SparseGPRegressor(AbstractUnlearningRegressor):
    """Sparse Gaussian process regression; records come out exactly, at the scales that `fit` chose.

    Parameters
    ----------
    n_inducing
        Number of inducing inputs, centres of k-means: more of them follow the data more closely.
    inducing_inputs
        Inducing inputs to take instead, shape (m, n_features), such as points of a grid, which no record can
        be read off.
    kernel
        "rbf", smooth, or "matern", twice differentiable.
    lengthscale
        Distance over which the function changes, a number or one per column; "auto" takes a multiple of every
        column's standard deviation, that which maximises a bound on the evidence.
    signal_scale
        Standard deviation of the function; "auto" maximises the same bound.
    noise_scale
        Standard deviation of the noise; "auto" maximises the same bound.
    random_state
        Seed or generator: the inducing inputs, and, of more than 5000 rows, those that scales are tried on.

    Attributes
    ----------
    inducing_inputs_
        Shape (m, n_features).
    lengthscale_
        Shape (n_features,).
    signal_scale_, noise_scale_
        As given, or chosen.
    log_evidence_
        Lower bound on log p(D) of the training records.
    """

    _parameter_constraints: ClassVar[dict] = {
        **AbstractUnlearningRegressor._parameter_constraints,
        **PROCESS_CONSTRAINTS,
        "signal_scale": POSITIVE_OR_AUTO,
        "noise_scale": POSITIVE_OR_AUTO,
    }

    def __init__(
        self,
        *,
        n_inducing=100,
        inducing_inputs=None,
        kernel="rbf",
        lengthscale="auto",
        signal_scale="auto",
        noise_scale="auto",
        random_state=None,
    ):
        self.n_inducing = n_inducing
        self.inducing_inputs = inducing_inputs
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.signal_scale = signal_scale
        self.noise_scale = noise_scale
        self.random_state = random_state

    def _choose(self, X, y, weights, rng):
        offset = np.average(y, weights=weights)
        targets = (y - offset)[:, None]
        lengthscales, locations, scales = _scales_and_locations(self, X, targets, weights, rng)
        signal = scales.signal if isinstance(self.signal_scale, str) else self.signal_scale
        noise = scales.noise if isinstance(self.noise_scale, str) else self.noise_scale
        kernel = KERNELS[self.kernel](signal**2, lengthscales)
        return _process(locations, kernel, GaussianLikelihood(noise), offset)

    def _described(self, state):
        assert isinstance(state.model.features, InducingInputs)
        likelihood = plain(state.model.likelihood)
        assert isinstance(likelihood, GaussianLikelihood)
        return {
            **_process_attributes(state.model),
            "signal_scale_": float(state.model.features.kernel.variance) ** 0.5,
            "noise_scale_": float(likelihood.noise_scale),
        }


class SparseGPClassifier(AbstractUnlearningClassifier):
    """Sparse Gaussian process classification: one process for two classes, else one for each, by softmax.

    Parameters
    ----------
    n_inducing
        Number of inducing inputs, centres of k-means: more of them follow the data more closely.
    inducing_inputs
        Inducing inputs to take instead, shape (m, n_features), such as points of a grid, which no record can
        be read off.
    kernel
        "rbf", smooth, or "matern", twice differentiable.
    lengthscale
        Distance over which log-odds change, a number or one per column; "auto" takes a multiple of every
        column's standard deviation, that which maximises a bound on the evidence of a regression on the
        labels.
    signal_scale
        Standard deviation of the log-odds before any data.
    class_weight
        How often records of a class count: a number for each label in a dict, "balanced" for as often in all
        as those of any other class, None for once.
    memory
        What to keep of the training records, which brings `unlearn` much closer to retraining, as
        `unbayes.fit` takes it: "sums" over all of them, which hold nobody's record; a number of records,
        which are training data and to be protected as such, and are dropped when they are erased; both, as a
        tuple; None for nothing. "auto" keeps, where there are at most 300 parameters, sums along up to 40
        directions for two classes, and 100 records for more, where sums would slow training.
    max_iter
        Passes over the data, at most.
    tol
        KL, in nats, that a step of training may still move the belief at the end.
    random_state
        Seed or generator: the inducing inputs (and, of more than 5000 rows, those that they and lengthscales
        are chosen from), the records that are kept and, for more than three classes, the numbers with which
        predictions are averaged.

    Attributes
    ----------
    classes_
        Labels, in order.
    class_weight_
        Weights of the classes in that order; None where all count once.
    inducing_inputs_
        Shape (m, n_features).
    lengthscale_
        Shape (n_features,).
    n_iter_
        Passes that training took, after those that found a start.
    """

    _parameter_constraints: ClassVar[dict] = {
        **AbstractUnlearningClassifier._parameter_constraints,
        **PROCESS_CONSTRAINTS,
        "signal_scale": [POSITIVE],
    }

    def __init__(
        self,
        *,
        n_inducing=50,
        inducing_inputs=None,
        kernel="rbf",
        lengthscale="auto",
        signal_scale=3.0,
        class_weight=None,
        memory="auto",
        max_iter=200,
        tol=1e-5,
        random_state=None,
    ):
        self.n_inducing = n_inducing
        self.inducing_inputs = inducing_inputs
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.signal_scale = signal_scale
        self.class_weight = class_weight
        self.memory = memory
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _choose(self, X, labels, weights, likelihood, rng):
        # A likelihood of two classes has one output.
        indicators = np.eye(max(likelihood.outputs, 2))[labels]
        centred = indicators - np.average(indicators, 0, weights)
        lengthscales, locations, _ = _scales_and_locations(self, X, centred, weights, rng)
        kernel = KERNELS[self.kernel](self.signal_scale**2, lengthscales)
        return _process(locations, kernel, likelihood)

    def _described(self, state):
        return _process_attributes(state.model)


def _scales_and_locations(
    estimator, X, Y, weights, rng
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "m k"], ProcessScales]:
    """Lengthscales, one per column, inducing inputs, and the other scales."""
    shape = KERNELS[estimator.kernel](1.0, 1.0)
    if isinstance(estimator.lengthscale, str):
        # Distances between typical inputs grow with the square root of the number of columns.
        units, multiples = spread(X, weights), MULTIPLES * np.sqrt(X.shape[1])
    else:
        units, multiples = _given_lengthscales(estimator.lengthscale, X.shape[1]), np.ones(1)
    if len(X) > LARGEST_TRIAL:
        rows = rng.choice(len(X), LARGEST_TRIAL, replace=False)
        X, Y, weights = X[rows], Y[rows], weights[rows]
    if estimator.inducing_inputs is None:
        locations = inducing_inputs(X / units, weights, estimator.n_inducing, rng)
    else:
        locations = _given_locations(estimator.inducing_inputs, X.shape[1]) / units
    scales = process_scales(X / units, Y, weights, locations, shape, multiples)
    return units * scales.lengthscale, units * locations, scales


def _given_lengthscales(lengthscale, columns: int) -> Float[np.ndarray, " k"]:
    values = np.asarray(lengthscale, np.float64)
    if values.shape not in ((), (columns,)) or not (values > 0).all():
        raise ValueError(
            f"lengthscale must be positive, one number or one for each of {columns} columns, "
            f"got {lengthscale!r}"
        )
    return np.broadcast_to(values, (columns,))


def _given_locations(locations, columns: int) -> Float[np.ndarray, "m k"]:
    values = check_array(locations, dtype="float64", input_name="inducing_inputs")
    if values.shape[1] != columns:
        raise ValueError(
            f"inducing_inputs must have the {columns} columns of X, got an array of shape {values.shape}"
        )
    return values


def _process(locations, kernel, likelihood, offset: float | None = None) -> LinearModel:
    """A process of mean `offset` for every output, at common inducing inputs."""
    single = likelihood.outputs == 1
    features = InducingInputs(locations, kernel, conditional_variance=single, jitter=JITTER)
    factor = np.kron(np.eye(likelihood.outputs), features.scale_tril)
    return LinearModel(features, likelihood, FullGaussian(jnp.zeros(len(factor)), factor), offset)


def _process_attributes(model: LinearModel) -> dict[str, np.ndarray]:
    assert isinstance(model.features, InducingInputs)
    return {
        "inducing_inputs_": np.asarray(model.features.locations),
        "lengthscale_": np.asarray(model.features.kernel.lengthscales),
    }
