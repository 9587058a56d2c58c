"""What an estimator keeps between calls: a trained belief, and sums over the records erased since.

At rest everything is a NumPy array, so that pickles and copies do not depend on JAX's settings.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from unbayes._numerics.records import CHUNK_ELEMENTS, padded
from unbayes.memory import Keep, Memory
from unbayes.models import AbstractLikelihood, LinearModel, WeightedLikelihood
from unbayes.posteriors import FullGaussian
from unbayes.training import Trained, fit
from unbayes.training.natural import NaturalGradientVI
from unbayes.trust import TOLERANCE
from unbayes.unlearning import AbstractMethod, Statistics, Unlearned, solve, summarise
from unbayes.unlearning.methods.exact import Exact
from unbayes.unlearning.methods.natural_gradient import NaturalGradient
from unbayes.unlearning.provenance import Missing

QUADRATURE_NODES = 128

Tree = TypeVar("Tree")


class State(NamedTuple):
    """A trained model and what was taken out of it.

    Attributes
    ----------
    model
        Features, likelihood and prior.
    trained
        q(θ|D), at which all statistics are taken.
    memory
        What training kept; records of it that were erased are blank.
    method
        How records are taken out.
    seed
        Of the key for whatever is random.
    posterior
        The belief without the erased records; `trained` as long as there are none.
    statistics
        Sums over the erased records, None as long as there are none.
    has_sample_weights
        Whether training was given weights of records.
    """

    model: LinearModel
    trained: FullGaussian
    memory: Memory
    method: AbstractMethod
    seed: int
    posterior: FullGaussian
    statistics: Statistics | None = None
    has_sample_weights: bool = False

    @classmethod
    def train(
        cls,
        model: LinearModel,
        X: Float[np.ndarray, "n k"],
        targets: np.ndarray,
        weights: Float[np.ndarray, " n"] | None,
        *,
        seed: int,
        training: NaturalGradientVI | None = None,
        memory: Keep = None,
        ids: Iterable[Any] | None = None,
        has_sample_weights: bool = False,
    ) -> tuple[Self, Trained]:
        """Train on all records: exactly, where `training` is None."""
        if weights is not None:
            model = dataclasses.replace(model, likelihood=WeightedLikelihood(model.likelihood))
        records = X, _with_weights(targets, weights)
        trained = fit(model, records, method=training, memory=memory, ids=ids, key=jax.random.key(seed))
        assert trained.memory is not None
        assert isinstance(trained.posterior, FullGaussian)
        belief = at_rest(trained.posterior)
        # Stationary for the nodes of training and no others: one of them, for Laplace's approximation.
        method = Exact() if training is None else NaturalGradient(nodes=training.nodes)
        return cls(
            at_rest(model), belief, at_rest(trained.memory), method, seed, belief, None, has_sample_weights
        ), trained

    @property
    def remaining(self) -> int:
        """Number of training records that are left."""
        return self.memory.records - (0 if self.statistics is None else self.statistics.records)

    def unlearn(
        self,
        X: Float[np.ndarray, "n k"],
        targets: np.ndarray,
        weights: Float[np.ndarray, " n"] | None,
        *,
        ids: Iterable[Any] | None = None,
        missing: Missing = "refuse",
        tolerance: float = TOLERANCE,
    ) -> tuple[Self, Unlearned]:
        """The state once these records are erased too, and what was found out; itself unchanged.

        Statistics are taken at the trained belief and added to those of earlier calls: how records are
        spread over calls makes no difference.
        """
        key = jax.random.key(self.seed)
        model, trained, memory = in_use((self.model, self.trained, self.memory))
        settings: dict[str, Any] = {"memory": memory, "method": self.method, "key": key}
        records = X, _with_weights(targets, weights)
        statistics = summarise(trained, model, records, ids=ids, missing=missing, **settings)
        # The roster tells which records are gone, by whatever they are known.
        statistics = dataclasses.replace(statistics, ids=())
        if self.statistics is not None:
            statistics = in_use(self.statistics) + statistics
        result = solve(trained, model, statistics, tolerance=tolerance, **settings)
        posterior = at_rest(result.posterior)
        assert isinstance(posterior, FullGaussian)
        result = dataclasses.replace(result, posterior=posterior, memory=at_rest(result.memory))
        memory = at_rest(memory.blanked(statistics.matches, statistics.provenance.members))
        statistics = at_rest(_without_members(statistics))
        return self._replace(memory=memory, posterior=posterior, statistics=statistics), result

    def predict(self, X: Float[np.ndarray, "n k"]) -> list[Any]:
        """Predictive distributions of targets, part by part, with NumPy arrays."""
        key = jax.random.key(self.seed)
        model, posterior = in_use((self.model, self.posterior))
        outputs = model.likelihood.outputs
        draws = 1000 if outputs > 1 else QUADRATURE_NODES
        size = CHUNK_ELEMENTS // (draws * outputs)
        parts = []
        for start in range(0, len(X), size):
            part = X[start : start + size]
            predictive = model.predictive(posterior, padded(part, model.dtype)[0], key=key, draws=draws)
            parts.append(_first(predictive, len(part)))
        return parts


def plain(likelihood: AbstractLikelihood) -> AbstractLikelihood:
    """The likelihood of a record that counts once."""
    return likelihood.likelihood if isinstance(likelihood, WeightedLikelihood) else likelihood


def _without_members(statistics: Statistics) -> Statistics:
    """The same once the roster has lost the records: later ones alone are to be looked for in it."""
    provenance = statistics.provenance
    members = None if provenance.members is None else provenance.members[:0]
    return dataclasses.replace(statistics, provenance=dataclasses.replace(provenance, members=members))


def _with_weights(targets: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    return targets if weights is None else np.column_stack([targets, weights])


def _first(predictive, count: int):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], predictive)


def at_rest(tree: Tree) -> Tree:
    """The same with NumPy arrays."""
    return jax.tree.map(np.asarray, tree)


def in_use(tree: Tree) -> Tree:
    """The same with JAX's arrays."""
    return jax.tree.map(jnp.asarray, tree)
