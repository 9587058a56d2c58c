"""Linear and logistic regression."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from unbayes.adapters.sklearn.base import (
    POSITIVE,
    POSITIVE_OR_AUTO,
    AbstractUnlearningClassifier,
    AbstractUnlearningRegressor,
)
from unbayes.adapters.sklearn.choices import evidence_scales
from unbayes.adapters.sklearn.state import Framed, State
from unbayes.models import GaussianLikelihood, LinearModel, RawFeatures
from unbayes.posteriors import DiagonalGaussian

# Prior scale of an intercept at the mean input: in log-odds, or in standard deviations of the targets.
INTERCEPT_SCALE = 10.0


class BayesianLinearRegression(AbstractUnlearningRegressor):
    """Linear regression with Gaussian noise; records come out exactly, at the scales that `fit` chose.

    Parameters
    ----------
    noise_scale
        Standard deviation of the noise; "auto" maximises the evidence.
    prior_scale
        Standard deviation of the weights before any data; "auto" maximises the evidence.
    fit_intercept
        Whether to add an intercept, with a wide prior around the mean of the targets.
    random_state
        Seed or generator; means and deviations do not depend on it.

    Attributes
    ----------
    coef_
        Means of the weights, shape (n_features,).
    intercept_
        Mean of the intercept.
    noise_scale_, prior_scale_
        As given, or chosen.
    log_evidence_
        Log p(D) of the training records.
    """

    _parameter_constraints: ClassVar[dict] = {
        **AbstractUnlearningRegressor._parameter_constraints,
        "noise_scale": POSITIVE_OR_AUTO,
        "prior_scale": POSITIVE_OR_AUTO,
        "fit_intercept": ["boolean"],
    }

    def __init__(self, *, noise_scale="auto", prior_scale="auto", fit_intercept=True, random_state=None):
        self.noise_scale = noise_scale
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def _choose(self, X, y, rng):
        offset = y.mean() if self.fit_intercept else 0.0
        centre = X.mean(0) if self.fit_intercept else 0.0
        noise, prior = evidence_scales(X - centre, y - offset, self.noise_scale, self.prior_scale)
        intercept_scale = INTERCEPT_SCALE * max(y.std(), noise)
        model = _linear_model(
            GaussianLikelihood(noise), X.shape[1], prior, intercept_scale if self.fit_intercept else None
        )
        return Framed(model, centre, offset)

    def _describe(self):
        weights, intercepts = _coefficients(self._state, self.fit_intercept)
        self.coef_ = weights[0]
        self.intercept_ = float(intercepts[0] + self._state.framed.target_offset)
        model = self.model_
        assert isinstance(model.likelihood, GaussianLikelihood)
        assert isinstance(model.prior, DiagonalGaussian)
        self.noise_scale_ = float(model.likelihood.noise_scale)
        self.prior_scale_ = float(np.exp(model.prior.log_scale[-1]))


class BayesianLogisticRegression(AbstractUnlearningClassifier):
    """Logistic regression for two classes, softmax regression for more, with a Gaussian belief.

    Parameters
    ----------
    prior_scale
        Standard deviation of the weights before any data; the square root of scikit-learn's C.
    fit_intercept
        Whether to add an intercept, with a wide prior.
    memory
        Number of training records to keep, which bring `unlearn` much closer to retraining; they are dropped
        when they are erased. "auto" keeps 100 where there are at most 300 parameters, None keeps none.
        Records that are kept are training data, and to be protected as such.
    max_iter
        Passes over the data, at most.
    tol
        KL, in nats, that a step of training may still move the belief at the end.
    random_state
        Seed or generator: which records are kept and, for more than three classes, the numbers with which
        predictions are averaged.

    Attributes
    ----------
    classes_
        Labels, in order.
    coef_
        Means of the weights, shape (1, n_features), or (n_classes, n_features) for more than two classes.
    intercept_
        Means of the intercepts, shape (1,) or (n_classes,).
    n_iter_
        Passes that training took, after those that found a start.
    """

    _parameter_constraints: ClassVar[dict] = {
        **AbstractUnlearningClassifier._parameter_constraints,
        "prior_scale": [POSITIVE],
        "fit_intercept": ["boolean"],
    }

    def __init__(
        self,
        *,
        prior_scale=1.0,
        fit_intercept=True,
        memory="auto",
        max_iter=200,
        tol=1e-5,
        random_state=None,
    ):
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.memory = memory
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _choose(self, X, labels, likelihood, rng):
        intercept_scale = INTERCEPT_SCALE if self.fit_intercept else None
        model = _linear_model(likelihood, X.shape[1], self.prior_scale, intercept_scale)
        return Framed(model, X.mean(0) if self.fit_intercept else 0.0)

    def _describe(self):
        self.coef_, self.intercept_ = _coefficients(self._state, self.fit_intercept)


def _linear_model(likelihood, inputs: int, prior_scale: float, intercept_scale: float | None) -> LinearModel:
    """Weights N(0, prior_scale²) and an intercept N(0, intercept_scale²), for every output."""
    features = RawFeatures(inputs, bias=intercept_scale is not None)
    scales = np.full((likelihood.outputs, features.size), float(prior_scale))
    if intercept_scale is not None:
        scales[:, 0] = intercept_scale
    return LinearModel(features, likelihood, DiagonalGaussian(np.zeros(scales.size), scales.ravel()))


def _coefficients(
    state: State, has_intercept: bool
) -> tuple[Float[np.ndarray, "o k"], Float[np.ndarray, " o"]]:
    """Means of weights and intercepts, for inputs as users have them."""
    weights = np.asarray(state.posterior.mean).reshape(state.framed.model.likelihood.outputs, -1)
    if not has_intercept:
        return weights.copy(), np.zeros(len(weights))
    return weights[:, 1:].copy(), weights[:, 0] - weights[:, 1:] @ state.framed.input_offset
