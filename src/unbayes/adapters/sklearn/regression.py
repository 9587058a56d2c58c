"""What the regressors share."""

import abc
from typing import Self

import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin

from unbayes.adapters.sklearn.base import AbstractUnlearner, that_count
from unbayes.adapters.sklearn.state import State
from unbayes.models import LinearModel


class AbstractUnlearningRegressor(RegressorMixin, AbstractUnlearner):
    """Real targets with Gaussian noise, from which records come out exactly."""

    @abc.abstractmethod
    def _choose(
        self,
        X: Float[np.ndarray, "n k"],
        y: Float[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
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
            Real numbers, shape (n,).
        sample_weight
            How often each record counts, shape (n,); once unless given. Zero is as good as leaving it out.
        ids
            One identifier for each record, a word or a whole number, by which `unlearn` will know it. Digests
            of them are kept. Without any, records are known by their digits.
        """
        self._validate_params()
        with self._alone():
            X, y = self._validated(X, y, y_numeric=True)
            y = self._targets(y)
            weights = self._weights(sample_weight, X, y)
            rng, seed = self._seeded()
            with jax.enable_x64(True):
                model = self._choose(*that_count(X, y, weights), rng)
                state, trained = State.train(
                    model, X, y, weights, seed=seed, ids=ids, has_sample_weights=sample_weight is not None
                )
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
