"""What the estimators share: training and unlearning in float64, under the conventions of scikit-learn."""

import abc
import contextlib
import threading
import warnings
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from unbayes._fork import require_usable_process
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes.adapters.sklearn.state import State
from unbayes.memory import Memory
from unbayes.models import BernoulliLikelihood, CategoricalLikelihood, LinearModel
from unbayes.posteriors import FullGaussian
from unbayes.training import Trained
from unbayes.training.natural import NaturalGradientVI
from unbayes.unlearning import Unlearned

POSITIVE = Interval(Real, 0, None, closed="neither")
POSITIVE_OR_AUTO = [POSITIVE, StrOptions({"auto"})]
COUNT = Interval(Integral, 1, None, closed="left")
# Values of f over which likelihoods are averaged, by the dimension of what they depend on: for three classes
# at most so many; for more, where there is no number, the mean alone, which is Laplace's approximation.
NODES = {1: QUASI_RANDOM_NODES, 2: 81}
# Steps that each step of training learns from.
MIXING = 5
# Records that `memory="auto"` keeps, and parameters beyond which they would make unlearning slow.
DEFAULT_MEMORY, LARGEST_WITH_MEMORY = 100, 300
# Gigabytes from which a dense copy of sparse inputs may come as a surprise: an eighth of a small computer's.
LARGE_DENSE = 1.0


class AbstractUnlearner(BaseEstimator, abc.ABC):
    """An estimator whose training records can be taken back out.

    After `fit` it holds `model_`, `posterior_` and `memory_`, as the rest of unbayes takes them but with
    NumPy arrays; after `unlearn` also `last_unlearning_`. It computes in float64, whatever JAX is set to.

    Several threads may share it: they train and unlearn one after the other, and no request is lost.
    """

    _parameter_constraints: ClassVar[dict] = {"random_state": ["random_state"]}

    random_state: Any
    _state: State

    @abc.abstractmethod
    def fit(self, X, y) -> Self:
        """Train on records X, y, and forget all that was before."""

    @abc.abstractmethod
    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Targets as the likelihood takes them, or a sentence on why that cannot be."""

    def unlearn(self, X, y) -> Self:
        """Take records back out, in place.

        Whether in one call or in several makes no difference: what is kept of erased records are sums, taken
        at the belief that `fit` found. Where they cannot be taken out, an error says why and the estimator
        stays as it is.

        Parameters
        ----------
        X
            Inputs of the erased records, shape (n, n_features), dense or sparse.
        y
            Their targets, shape (n,), as they were given to `fit`.

        Returns
        -------
        self
            With the diagnosis, an `unbayes.Unlearned`, in `last_unlearning_`; it covers all records erased
            since `fit`.
        """
        self._unlearn(X, y)
        return self

    def _unlearn(self, X, y) -> Unlearned:
        check_is_fitted(self)
        with self._alone():
            X, y = self._validated(X, y, reset=False)
            targets = self._targets(y)
            if len(targets) > self._state.remaining:
                raise ValueError(
                    f"X must hold some of the {self._state.remaining} training records that are left, "
                    f"got {len(targets)}"
                )
            with jax.enable_x64(True):
                state, result = self._state.unlearn(X, targets)
            self._adopt(state, last_unlearning_=result)
        return result

    def refit(self, X, y) -> Self:
        """Train afresh on the remaining records; the same as `fit`.

        What was chosen with the erased records in sight (scales, inducing inputs) is chosen anew.
        """
        return self.fit(X, y)

    @property
    def model_(self) -> LinearModel:
        """Features, likelihood and prior."""
        return self._state.model

    @property
    def posterior_(self) -> FullGaussian:
        """The belief over the parameters, without what was erased."""
        return self._state.posterior

    @property
    def memory_(self) -> Memory:
        """What is kept of the training records beside `posterior_`, without those that were erased."""
        last = vars(self).get("last_unlearning_")
        return self._state.memory if last is None else last.memory

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validated(self, X, *y, **settings) -> Any:
        """Dense float64 inputs, and targets where given, or scikit-learn's own sentence on why not."""
        checked = validate_data(self, X, *y, dtype=np.float64, accept_sparse="csr", **settings)
        return (_dense(checked[0]), *checked[1:]) if y else _dense(checked)

    def _predictives(self, X) -> list[Any]:
        """Predictive distributions, part by part."""
        require_usable_process()
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        with jax.enable_x64(True):
            return self._state.predict(X)

    @abc.abstractmethod
    def _described(self, state: State) -> dict[str, Any]:
        """Attributes that follow from the state, and from nothing else: parameters may be set after `fit`."""

    def _seeded(self) -> tuple[np.random.RandomState, int]:
        """Random numbers for choices, and a seed for JAX's keys."""
        rng = check_random_state(self.random_state)
        return rng, int(rng.randint(np.iinfo(np.int32).max))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread at a time train or unlearn, so that each goes on from what the last one left."""
        require_usable_process()
        # The first thread's lock is everybody's: `setdefault` cannot be interrupted.
        with vars(self).setdefault("_lock", threading.RLock()):
            yield

    def _adopt(self, state: State, **attributes: Any) -> Self:
        """Change to another state, with all that follows from it, in one step that cannot be interrupted."""
        vars(self).pop("last_unlearning_", None)
        vars(self).update(_state=state, **self._described(state), **attributes)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A copy at once, since another thread may be changing the estimator; locks cannot be copied.
        state = dict(cast(dict[str, Any], super().__getstate__()))
        state.pop("_lock", None)
        return state


class AbstractUnlearningRegressor(RegressorMixin, AbstractUnlearner):
    """Real targets with Gaussian noise, from which records come out exactly."""

    @abc.abstractmethod
    def _choose(self, X: Float[np.ndarray, "n k"], y: Float[np.ndarray, " n"], rng) -> LinearModel:
        """The model for these data; under JAX's float64."""

    def fit(self, X, y) -> Self:
        """Train on all records, and forget all that was before.

        Parameters
        ----------
        X
            Inputs, shape (n, n_features), dense or sparse; a dense copy is made of sparse ones.
        y
            Real numbers, shape (n,).
        """
        self._validate_params()
        with self._alone():
            X, y = self._validated(X, y, y_numeric=True)
            y = self._targets(y)
            rng, seed = self._seeded()
            with jax.enable_x64(True):
                state, trained = State.train(self._choose(X, y, rng), X, y, seed=seed)
            return self._adopt(state, log_evidence_=trained.elbo)

    def predict(self, X, return_std: bool = False):
        """Predictive means, and on request standard deviations, noise included.

        Parameters
        ----------
        X
            Inputs, shape (n, n_features).
        return_std
            Whether to return standard deviations too.

        Returns
        -------
        mean
            Shape (n,).
        std
            Shape (n,), only where `return_std`.
        """
        parts = self._predictives(X)
        mean = np.concatenate([part.mean for part in parts])
        if not return_std:
            return mean
        return mean, np.sqrt(np.concatenate([part.variance for part in parts]))

    def _targets(self, y):
        return y.astype(np.float64)


class AbstractUnlearningClassifier(ClassifierMixin, AbstractUnlearner):
    """Two classes by their log-odds, or several by softmax.

    Beliefs are variational for up to three classes. For more, where expectations under a belief would have to
    be sampled, they are Laplace's approximation: the mode, and the curvature there.
    """

    _parameter_constraints: ClassVar[dict] = {
        **AbstractUnlearner._parameter_constraints,
        "memory": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"}), None],
        "max_iter": [COUNT],
        "tol": [POSITIVE],
    }

    memory: int | str | None
    max_iter: int
    tol: float
    classes_: np.ndarray

    @abc.abstractmethod
    def _choose(
        self,
        X: Float[np.ndarray, "n k"],
        labels: Int[np.ndarray, " n"],
        likelihood: BernoulliLikelihood | CategoricalLikelihood,
        rng,
    ) -> LinearModel:
        """The model for these data; under JAX's float64."""

    def fit(self, X, y) -> Self:
        """Train on all records, and forget all that was before.

        Parameters
        ----------
        X
            Inputs, shape (n, n_features), dense or sparse; a dense copy is made of sparse ones.
        y
            Class labels of any kind, shape (n,).
        """
        self._validate_params()
        with self._alone():
            X, y = self._validated(X, y)
            check_classification_targets(y)
            classes, labels = np.unique(y, return_inverse=True)
            if len(classes) < 2:
                raise ValueError(f"y must hold at least two classes, got one class: {classes.tolist()[0]!r}")
            state, trained = self._train(X, labels, len(classes))
            self._adopt(state, classes_=classes, n_iter_=len(trained.trace))
        self._warn_unless_converged(trained)
        return self

    def _train(self, X, labels, classes: int) -> tuple[State, Trained]:
        rng, seed = self._seeded()
        with jax.enable_x64(True):
            likelihood = BernoulliLikelihood() if classes == 2 else CategoricalLikelihood(classes)
            model = self._choose(X, labels, likelihood, rng)
            nodes = NODES.get(model.integral_dim, 1)
            training = NaturalGradientVI(self.max_iter, self.tol, nodes, MIXING)
            memory = self.memory
            if isinstance(memory, str):
                memory = DEFAULT_MEMORY if model.dim <= LARGEST_WITH_MEMORY else None
            return State.train(model, X, labels, seed=seed, training=training, memory=memory)

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


def _dense(X) -> Float[np.ndarray, "n k"]:
    """The same as a dense array: centred inputs, and kernels, have no zeros that could be left out."""
    if not issparse(X):
        return X
    gigabytes = np.prod(X.shape, dtype=float) * np.float64().itemsize / 1e9
    if gigabytes > LARGE_DENSE:
        warnings.warn(
            f"X is sparse, but estimators of unbayes compute with dense arrays: its {X.shape[0]} rows of "
            f"{X.shape[1]} columns take {gigabytes:.1f} GB; fewer columns take less",
            DataConversionWarning,
            stacklevel=4,
        )
    return X.toarray()
