"""How far two posteriors are apart."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._validation import require_precision
from unbayes.data.scan import as_source, is_source
from unbayes.data.source import AbstractTask, Batch
from unbayes.inference.passes import filled
from unbayes.models import ClassPredictive, LinearModel
from unbayes.posteriors import (
    AbstractExponentialFamily,
    AbstractGaussian,
    AbstractPosterior,
    gaussian_kl,
)


class Estimate(NamedTuple):
    """A number and its standard error, zero where it was computed in closed form."""

    value: float
    error: float


class Spread(NamedTuple):
    """Mean and standard deviation over inputs."""

    mean: float
    std: float


class PredictiveKL(NamedTuple):
    """KL between the predictive distributions of two posteriors, over inputs.

    Attributes
    ----------
    forward
        KL[first‖second]; with the unlearned posterior first, the direction that the paper writes.
    backward
        KL[second‖first].
    """

    forward: Spread
    backward: Spread


def predictive_kl(
    first: AbstractPosterior,
    second: AbstractPosterior,
    model: LinearModel,
    inputs: Any,
    *,
    key: PRNGKeyArray | None = None,
    draws: int = 1000,
) -> PredictiveKL:
    """KL between predictive distributions, mean and standard deviation over `inputs`.

    Parameters
    ----------
    first, second
        For instance the unlearned posterior, and the one retrained from scratch.
    model
        The model of both.
    inputs
        Raw inputs, shape (n, k): those of D_e, or of D_r. Or where they come from, such as a `scan`, which is
        read once, a few batches at a time; of records with targets, these are left out.
    key, draws
        Where the predictive distribution has to be sampled; both sides share the key, so that most of the
        noise cancels.
    """
    require_precision(first=first, second=second, model=model)
    return PredictiveKL(*_Comparison(first, second, model, key, draws, _both_ways).over(inputs))


def parameter_kl(
    first: AbstractPosterior,
    second: AbstractPosterior,
    *,
    key: PRNGKeyArray | None = None,
    draws: int = 10_000,
) -> Estimate:
    """KL[first‖second] over θ: in closed form between Gaussians, else sampled, which takes a key."""
    require_precision(first=first, second=second)
    if isinstance(first, AbstractGaussian) and isinstance(second, AbstractGaussian):
        return Estimate(float(_gaussian_kl(first, second)), 0.0)
    if key is None:
        raise ValueError("key must be given: this divergence is sampled")
    thetas, log_first = _draw(first, key, draws)
    return _estimate(log_first - second.log_prob(thetas))


def agreement(
    first: AbstractPosterior,
    second: AbstractPosterior,
    model: LinearModel,
    inputs: Any,
    *,
    key: PRNGKeyArray | None = None,
    draws: int = 1000,
) -> float:
    """Share of inputs at which both posteriors predict the same class; arguments as for `predictive_kl`."""
    require_precision(first=first, second=second, model=model)
    (share,) = _Comparison(first, second, model, key, draws, _decisions).over(inputs)
    return share.mean


def entropy(
    posterior: AbstractPosterior, *, key: PRNGKeyArray | None = None, draws: int = 10_000
) -> Estimate:
    """Entropy of a posterior: in closed form, or sampled for a flow, which takes a key."""
    require_precision(posterior=posterior)
    if isinstance(posterior, AbstractExponentialFamily):
        return Estimate(float(posterior.entropy()), 0.0)
    if key is None:
        raise ValueError("key must be given: the entropy of a flow is sampled")
    return _estimate(-_draw(posterior, key, draws)[1])


def information(
    remaining: AbstractPosterior, full: AbstractPosterior, *, key: PRNGKeyArray | None = None
) -> Estimate:
    """I = H(θ|D_r) − H(θ|D) in nats: what the erased records told the model."""
    require_precision(remaining=remaining, full=full)
    after, before = entropy(remaining, key=key), entropy(full, key=key)
    return Estimate(after.value - before.value, (after.error**2 + before.error**2) ** 0.5)


class _Comparison(eqx.Module, AbstractTask):
    """Of numbers that two predictions give at each input: how many, their sum, that of their squares."""

    first: AbstractPosterior
    second: AbstractPosterior
    model: LinearModel
    key: PRNGKeyArray | None
    draws: int
    compare: Callable[[Any, Any], tuple[Float[Array, " n"], ...]]

    def over(self, inputs: Any) -> tuple[Spread, ...]:
        """How these numbers spread over all inputs."""
        if not is_source(inputs):
            return tuple(_spread(values) for values in self._at(inputs))
        found = as_source(inputs).total(self)
        if found is None:
            raise ValueError("inputs must hold at least one record, got none")
        return tuple(_spread_of(*sums) for sums in found)

    def of(self, batch: Batch) -> tuple[tuple[int, float, float], ...]:
        """Of a batch."""
        records = filled(batch)
        with batch.named():
            found = self._at(records[0] if isinstance(records, tuple) else records)
        values = [np.asarray(each, np.float64)[: batch.size] for each in found]
        return tuple((batch.size, float(each.sum()), float((each**2).sum())) for each in values)

    def add(self, left, right):
        """Sums add up."""
        return tuple(
            tuple(a + b for a, b in zip(*both, strict=True)) for both in zip(left, right, strict=True)
        )

    def _at(self, inputs: Any) -> tuple[Float[Array, " n"], ...]:
        p = self.model.predictive(self.first, inputs, key=self.key, draws=self.draws)
        q = self.model.predictive(self.second, inputs, key=self.key, draws=self.draws)
        return self.compare(p, q)


def _both_ways(p, q) -> tuple[Float[Array, " n"], ...]:
    return p.kl(q), q.kl(p)


def _decisions(p, q) -> tuple[Float[Array, " n"], ...]:
    if not isinstance(p, ClassPredictive):
        raise TypeError("model must predict classes: numbers rarely agree to the last digit")
    return ((p.decision() == q.decision()).astype(jnp.result_type(float)),)


def _spread_of(records: int, total: float, squares: float) -> Spread:
    mean = total / records
    return Spread(mean, max(squares / records - mean**2, 0.0) ** 0.5)


@eqx.filter_jit
def _gaussian_kl(first: AbstractGaussian, second: AbstractGaussian):
    return gaussian_kl(first, second)


@eqx.filter_jit
def _draw(posterior: AbstractPosterior, key, draws: int):
    return posterior.sample_and_log_prob(key, (draws,))


def _spread(values: Float[Array, " n"]) -> Spread:
    return Spread(float(values.mean()), float(values.std()))


def _estimate(values: Float[Array, " s"]) -> Estimate:
    return Estimate(float(values.mean()), float(values.std() / jnp.sqrt(values.size)))
