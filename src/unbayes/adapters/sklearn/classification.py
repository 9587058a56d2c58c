"""What the classifiers share."""

import abc
import warnings
from numbers import Integral
from typing import ClassVar, Self, cast

import jax
import numpy as np
from jaxtyping import Float, Int
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets

from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes.adapters.sklearn.base import COUNT, POSITIVE, AbstractUnlearner, that_count
from unbayes.adapters.sklearn.state import State
from unbayes.memory import Coreset, Curvature, Keep, Sums
from unbayes.models import BernoulliLikelihood, CategoricalLikelihood, LinearModel
from unbayes.training import Trained
from unbayes.training.natural import NaturalGradientVI

# Values of f over which likelihoods are averaged, by the dimension of what they depend on: for three classes
# at most so many; for more, where there is no number, the mean alone, which is Laplace's approximation.
NODES = {1: QUASI_RANDOM_NODES, 2: 81}
# Steps that each step of training learns from.
MIXING = 5
# Parameters beyond which `memory="auto"` keeps nothing: any memory would make unlearning slow.
LARGEST_WITH_MEMORY = 300
# Directions of sums that "auto" keeps of two classes, by the number of records up to which summing along so
# many takes a fifth of a second; the few of which it takes about as long as training, whatever that number.
DIRECTIONS = {2000: 40, 6000: 20}
FEW_DIRECTIONS = 12
# Records that it keeps of more classes: summing would take ten to thirty times as long as training.
DEFAULT_CORESET = 100


class AbstractUnlearningClassifier(ClassifierMixin, AbstractUnlearner):
    """Two classes by their log-odds, or several by softmax.

    Beliefs are variational for up to three classes. For more, where expectations under a belief would have to
    be sampled, they are Laplace's approximation: the mode, and the curvature there.
    """

    _parameter_constraints: ClassVar[dict] = {
        **AbstractUnlearner._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "memory": [
            Interval(Integral, 0, None, closed="left"),
            StrOptions({"auto", "sums", "curvature"}),
            Sums,
            Coreset,
            Curvature,
            # What is in them, `unbayes.fit` checks.
            tuple,
            list,
            None,
        ],
        "max_iter": [COUNT],
        "tol": [POSITIVE],
    }

    memory: Keep | str
    max_iter: int
    tol: float
    class_weight: dict | str | None
    classes_: np.ndarray
    class_weight_: np.ndarray | None

    @abc.abstractmethod
    def _choose(
        self,
        X: Float[np.ndarray, "n k"],
        labels: Int[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
        likelihood: BernoulliLikelihood | CategoricalLikelihood,
        rng,
    ) -> LinearModel:
        """The model for these data; under JAX's float64."""

    def fit(self, X, y, sample_weight=None, *, ids=None) -> Self:
        """Train on all records, and forget all that was before.

        Parameters
        ----------
        X
            Inputs, shape (n, n_features), dense or sparse; a dense copy is made of sparse ones.
        y
            Class labels of any kind, shape (n,).
        sample_weight
            How often each record counts, shape (n,); once unless given. Zero is as good as leaving it out.
        ids
            One identifier for each record, a word or a whole number, by which `unlearn` will know it. Digests
            of them are kept. Without any, records are known by their digits.
        """
        self._validate_params()
        with self._alone():
            X, y = self._validated(X, y)
            check_classification_targets(y)
            classes, labels = np.unique(y, return_inverse=True)
            if len(classes) < 2:
                raise ValueError(f"y must hold at least two classes, got one class: {classes.tolist()[0]!r}")
            weights = super()._weights(sample_weight, X, labels)
            class_weights = self._class_weights(classes, labels, weights)
            weights = _combined(weights, class_weights, labels)
            state, trained = self._train(X, labels, weights, len(classes), ids)
            state = state._replace(has_sample_weights=sample_weight is not None)
            self._adopt(state, classes_=classes, class_weight_=class_weights, n_iter_=len(trained.trace))
        self._warn_unless_converged(trained)
        return self

    def _train(self, X, labels, weights, classes: int, ids) -> tuple[State, Trained]:
        rng, seed = self._seeded()
        with jax.enable_x64(True):
            likelihood = BernoulliLikelihood() if classes == 2 else CategoricalLikelihood(classes)
            model = self._choose(*that_count(X, labels, weights), likelihood, rng)
            nodes = NODES.get(model.integral_dim, 1)
            training = NaturalGradientVI(self.max_iter, self.tol, nodes, MIXING)
            return State.train(
                model,
                X,
                labels,
                weights,
                seed=seed,
                training=training,
                memory=self._kept(model, len(X)),
                ids=ids,
            )

    def _kept(self, model: LinearModel, records: int) -> Keep:
        """What to keep, as `unbayes.fit` takes it."""
        if isinstance(self.memory, str) and self.memory == "auto":
            return _affordable(model, records)
        # Searches hand in NumPy's numbers.
        return cast(Keep, int(self.memory) if isinstance(self.memory, np.integer) else self.memory)

    def _class_weights(self, classes, labels, weights) -> Float[np.ndarray, " c"] | None:
        """How often records of each class count; None where all count once."""
        if self.class_weight == "balanced":
            totals = np.bincount(labels, weights, len(classes))
            return totals.sum() / (len(classes) * totals)
        if self.class_weight is None:
            return None
        return compute_class_weight(self.class_weight, classes=classes, y=classes[labels])

    def _weights(self, sample_weight, X, targets):
        return _combined(super()._weights(sample_weight, X, targets), self.class_weight_, targets)

    def predict_proba(self, X) -> Float[np.ndarray, "n c"]:
        """Probabilities of the classes in the order of `classes_`, shape (n, n_classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X) -> Float[np.ndarray, "n c"]:
        """Logarithms of the probabilities, shape (n, n_classes), with all digits where these are tiny."""
        return np.concatenate([part.log_probabilities for part in self._predictives(X)])

    def decision_function(self, X) -> Float[np.ndarray, "..."]:
        """Log-odds of the second class, shape (n,); of more classes, logarithms of their probabilities.

        They are those of `predict_proba`, in which the doubt about the parameters is contained: not the means
        of the log-odds, which would rank records otherwise.
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if log_proba.shape[1] == 2 else log_proba

    def predict(self, X) -> np.ndarray:
        """The likeliest classes, shape (n,)."""
        # Before `classes_`, which an untrained estimator does not have.
        likeliest = self.predict_log_proba(X).argmax(1)
        return self.classes_[likeliest]

    def _warn_unless_converged(self, trained: Trained) -> None:
        if not trained.converged:
            warnings.warn(
                f"training did not converge to tol={self.tol} in {len(trained.trace)} iterations of at most "
                f"max_iter={self.max_iter}: a step would still move the belief by {trained.stationarity:.2g} "
                "nats; scale the inputs, or give a larger max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _targets(self, y):
        """Class numbers; labels that were never seen are refused."""
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            row = int(np.argmax(unknown))
            raise ValueError(
                f"y must hold labels among {self.classes_.tolist()}, got {y.tolist()[row]!r} in row {row}"
            )
        return np.searchsorted(self.classes_, y)


def _combined(weights, class_weights, labels) -> Float[np.ndarray, " n"] | None:
    """Weights of records times those of their classes; None where both are one."""
    if class_weights is None:
        return weights
    return class_weights[labels] if weights is None else class_weights[labels] * weights


def _affordable(model: LinearModel, records: int) -> Sums | Coreset | None:
    """What does not slow training noticeably."""
    if model.dim > LARGEST_WITH_MEMORY:
        return None
    if model.likelihood.outputs > 1:
        return Coreset(DEFAULT_CORESET)
    return Sums(directions=next((k for most, k in DIRECTIONS.items() if records <= most), FEW_DIRECTIONS))
