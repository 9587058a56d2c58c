"""Linear and logistic regression."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from unbayes.adapters.sklearn.base import POSITIVE, POSITIVE_OR_AUTO
from unbayes.adapters.sklearn.choices import evidence_scales, variance
from unbayes.adapters.sklearn.classification import AbstractUnlearningClassifier
from unbayes.adapters.sklearn.regression import AbstractUnlearningRegressor
from unbayes.adapters.sklearn.state import State, plain
from unbayes.models import CentredFeatures, GaussianLikelihood, LinearModel, RawFeatures
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

    def _choose(self, X, y, weights, rng):
        given = self.noise_scale, self.prior_scale
        if not self.fit_intercept:
            noise, prior = evidence_scales(X, y, weights, *given)
            return _linear_model(GaussianLikelihood(noise), X.shape[1], prior)
        centre, offset = np.average(X, 0, weights), np.average(y, weights=weights)
        noise, prior = evidence_scales(X - centre, y - offset, weights, *given)
        intercept_scale = INTERCEPT_SCALE * max(variance(y, weights) ** 0.5, noise)
        return _intercept_model(GaussianLikelihood(noise), centre, prior, intercept_scale, offset)

    def _described(self, state):
        weights, intercepts = _coefficients(state)
        likelihood = plain(state.model.likelihood)
        assert isinstance(likelihood, GaussianLikelihood)
        assert isinstance(state.model.prior, DiagonalGaussian)
        return {
            "coef_": weights[0],
            "intercept_": float(intercepts[0]),
            "noise_scale_": float(likelihood.noise_scale),
            "prior_scale_": float(np.exp(state.model.prior.log_scale[-1])),
        }


class BayesianLogisticRegression(AbstractUnlearningClassifier):
    """Logistic regression for two classes, softmax regression for more, with a Gaussian belief.

    Parameters
    ----------
    prior_scale
        Standard deviation of the weights before any data; the square root of scikit-learn's C.
    fit_intercept
        Whether to add an intercept, with a wide prior.
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
        Seed or generator: which records are kept and, for more than three classes, the numbers with which
        predictions are averaged.

    Attributes
    ----------
    classes_
        Labels, in order.
    class_weight_
        Weights of the classes in that order; None where all count once.
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
        class_weight=None,
        memory="auto",
        max_iter=200,
        tol=1e-5,
        random_state=None,
    ):
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.memory = memory
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _choose(self, X, labels, weights, likelihood, rng):
        if not self.fit_intercept:
            return _linear_model(likelihood, X.shape[1], self.prior_scale)
        return _intercept_model(likelihood, np.average(X, 0, weights), self.prior_scale, INTERCEPT_SCALE)

    def _described(self, state):
        weights, intercepts = _coefficients(state)
        return {"coef_": weights, "intercept_": intercepts}


def _linear_model(likelihood, inputs: int, prior_scale: float) -> LinearModel:
    """Weights N(0, prior_scale²) for every output."""
    scales = np.full(likelihood.outputs * inputs, float(prior_scale))
    features = RawFeatures(inputs, bias=False)
    return LinearModel(features, likelihood, DiagonalGaussian(np.zeros(len(scales)), scales))


def _intercept_model(
    likelihood,
    centre: Float[np.ndarray, " k"],
    prior_scale: float,
    intercept_scale: float,
    offset: float | None = None,
) -> LinearModel:
    """The same and an intercept N(offset, intercept_scale²), which is the value of f at `centre`."""
    features = CentredFeatures(RawFeatures(len(centre)), centre)
    scales = np.full((likelihood.outputs, features.size), float(prior_scale))
    scales[:, 0] = intercept_scale
    prior = DiagonalGaussian(np.zeros(scales.size), scales.ravel())
    return LinearModel(features, likelihood, prior, offset)


def _coefficients(state: State) -> tuple[Float[np.ndarray, "o k"], Float[np.ndarray, " o"]]:
    """Means of weights and intercepts, for inputs and targets as users have them."""
    model = state.model
    weights = np.asarray(state.posterior.mean).reshape(model.likelihood.outputs, -1)
    if not isinstance(model.features, CentredFeatures):
        return weights.copy(), np.zeros(len(weights))
    offset = 0.0 if model.offset is None else float(model.offset)
    slopes = weights[:, 1:]
    return slopes.copy(), weights[:, 0] - slopes @ np.asarray(model.features.centre) + offset
