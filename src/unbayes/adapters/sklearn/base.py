"""What the estimators share: training and unlearning in float64, under the conventions of scikit-learn."""

import abc
import contextlib
import dataclasses
import threading
import warnings
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

import jax
import numpy as np
from jaxtyping import Float
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from unbayes._fork import require_usable_process
from unbayes.adapters.sklearn.state import State
from unbayes.memory import Memory
from unbayes.models import LinearModel
from unbayes.posteriors import FullGaussian
from unbayes.trust import TOLERANCE
from unbayes.unlearning import Unlearned
from unbayes.unlearning.provenance import Missing, NothingLeft

POSITIVE = Interval(Real, 0, None, closed="neither")
POSITIVE_OR_AUTO = [POSITIVE, StrOptions({"auto"})]
COUNT = Interval(Integral, 1, None, closed="left")
# Parameters that "auto" leaves to `fit`.
CHOSEN = ("noise_scale", "prior_scale", "lengthscale", "signal_scale")
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
    _chosen: list[str]
    last_unlearning_: Unlearned

    @abc.abstractmethod
    def fit(self, X, y, sample_weight=None, *, ids=None) -> Self:
        """Train on records X, y, and forget all that was before."""

    @abc.abstractmethod
    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Targets as the likelihood takes them, or a sentence on why that cannot be."""

    def unlearn(
        self,
        X,
        y,
        sample_weight=None,
        *,
        ids=None,
        missing: Missing = "refuse",
        tolerance: float = TOLERANCE,
    ) -> Self:
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
        sample_weight
            Their weights, shape (n,), as they were given to `fit`; None where none were.
        ids
            Their identifiers, as they were given to `fit`; None where none were.
        missing
            What to do with records that are not among the training records that are left, because they were
            erased before or never trained on: "refuse" all of them, "skip" those, or "allow" them, with a
            verdict to match.
        tolerance
            Nats per parameter between the result and retraining that are good enough, for the verdict.

        Returns
        -------
        self
            With the diagnosis, an `unbayes.Unlearned`, in `last_unlearning_`; it covers all records erased
            since `fit`.
        """
        self._unlearn(X, y, sample_weight, ids=ids, missing=missing, tolerance=tolerance)
        return self

    def _unlearn(
        self, X, y, sample_weight, *, ids, missing: Missing, tolerance: float, caveats: tuple[str, ...] = ()
    ) -> Unlearned:
        """The diagnosis, which says too what was not unlearned on the way to this estimator."""
        check_is_fitted(self)
        with self._alone():
            X, y = self._validated(X, y, reset=False)
            targets = self._targets(y)
            self._require_weights_as_in_training(sample_weight)
            weights = self._weights(sample_weight, X, targets)
            if len(targets) > self._state.remaining and missing != "skip":
                raise ValueError(
                    f"X must hold some of the {self._state.remaining} training records that are left, "
                    f"got {len(targets)}"
                )
            try:
                with jax.enable_x64(True):
                    state, result = self._state.unlearn(
                        X, targets, weights, ids=ids, missing=missing, tolerance=tolerance
                    )
            except NothingLeft:
                # A request that is repeated finds all its records gone, and changes nothing.
                if not hasattr(self, "last_unlearning_"):
                    raise
                return self.last_unlearning_
            result = dataclasses.replace(result, caveats=(*result.caveats, *self._own_caveats(), *caveats))
            self._adopt(state, last_unlearning_=result)
        return result

    def refit(self, X, y, sample_weight=None, *, ids=None) -> Self:
        """Train afresh on the remaining records; the same as `fit`.

        What was chosen with the erased records in sight (scales, inducing inputs) is chosen anew.
        """
        return self.fit(X, y, sample_weight, ids=ids)

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

    def _weights(self, sample_weight, X, targets) -> Float[np.ndarray, " n"] | None:
        """How often each record counts; None where all count once."""
        if sample_weight is None:
            return None
        return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)

    def _require_weights_as_in_training(self, sample_weight) -> None:
        if (sample_weight is None) == (not self._state.has_sample_weights):
            return
        given, expected = ("None", "an array") if sample_weight is None else ("an array", "None")
        raise ValueError(
            f"sample_weight must be {expected}, as it was in fit, so that records count as often as then; "
            f"got {given}"
        )

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

    def _choices(self) -> list[str]:
        """What `fit` chooses by looking at the records, by the present parameters."""
        chosen = ["the centre of the inputs"] if getattr(self, "fit_intercept", False) else []
        chosen += [name for name in CHOSEN if isinstance(getattr(self, name, None), str)]
        if "inducing_inputs" in self.get_params(deep=False) and self.get_params()["inducing_inputs"] is None:
            chosen.append("the inducing inputs")
        return chosen

    def _own_caveats(self) -> tuple[str, ...]:
        if not self._chosen:
            return ()
        return (
            f"chosen with the erased records in sight, until `refit` chooses anew: {', '.join(self._chosen)}",
        )

    def _adopt(self, state: State, **attributes: Any) -> Self:
        """Change to another state, with all that follows from it, in one step that cannot be interrupted."""
        vars(self).pop("last_unlearning_", None)
        if "last_unlearning_" not in attributes:
            attributes["_chosen"] = self._choices()
        vars(self).update(_state=state, **self._described(state), **attributes)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A copy at once, since another thread may be changing the estimator; locks cannot be copied.
        state = dict(cast(dict[str, Any], super().__getstate__()))
        state.pop("_lock", None)
        return state


def that_count(X, y, weights) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Records of which choices are made, and how often each counts."""
    if weights is None:
        return X, y, np.ones(len(X))
    counts = weights > 0
    return X[counts], y[counts], weights[counts]


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
