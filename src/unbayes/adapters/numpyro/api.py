"""The calls of the NumPyro adapter."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jaxtyping import PRNGKeyArray
from numpyro.infer.autoguide import AutoGuide

import unbayes.memory
import unbayes.unlearning
from unbayes._validation import require_key
from unbayes.adapters.numpyro.arguments import separate
from unbayes.adapters.numpyro.guides import AbstractTrained, Laplace, LowRank, read
from unbayes.adapters.numpyro.program import Program
from unbayes.inference.ascent import stationarity
from unbayes.memory import Memory
from unbayes.metrics import parameter_kl
from unbayes.posteriors import AbstractGaussian, AbstractVariational
from unbayes.progress import AbstractProgress
from unbayes.trust import judge
from unbayes.unlearning import AbstractMethod, Unlearned
from unbayes.unlearning.methods.auto import Auto

AUTO = Auto()


class UnlearnedGuide(NamedTuple):
    """Parameters from which records have been erased, and how far to trust them.

    Attributes
    ----------
    params
        For the guide, in place of `svi_result.params`; parameters of the model itself are as they were.
    guide
        A copy of the guide that was handed in, without the data that it was set up with, which the original
        keeps. That of an `AutoLaplaceApproximation` takes its covariance from here.
    result
        The belief over the unconstrained latent vector, a verdict and its reasons.
    """

    params: dict[str, Any]
    guide: AutoGuide
    result: Unlearned

    def __str__(self) -> str:
        return str(self.result)


def unlearn(
    model: Callable[..., Any],
    guide: AutoGuide,
    params: Mapping[str, Any],
    *args: Any,
    key: PRNGKeyArray,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
    progress: AbstractProgress | None = None,
    **kwargs: Any,
) -> UnlearnedGuide:
    """Take records back out of a guide that SVI has trained.

    The records must be independent given the latent variables, and lie along the first axis of some of the
    model's arguments. Which ones is found out by running the model; arguments that are not data can also be
    bound with `functools.partial`. Repeated requests: give the *trained* parameters again, and all the
    records erased so far.

    A guide object itself keeps the arguments it was set up with; this call leaves it as it is, and returns a
    copy without them.

    Parameters
    ----------
    model
        The program, as `SVI` takes it, without subsampling.
    guide
        An `AutoNormal`, `AutoDiagonalNormal`, `AutoMultivariateNormal`, `AutoLowRankMultivariateNormal`,
        `AutoLaplaceApproximation` or `AutoIAFNormal` that has been trained.
    params
        Its parameters, `svi_result.params`.
    *args, **kwargs
        The arguments of the model with the erased rows only, observed values included.
    key
        Key of whatever is random.
    memory
        What `remember` kept; it brings the result closer to retraining, that of a mean-field guide most.
    method
        How; see `unbayes.unlearn`.
    progress
        A `ProgressBar()`, say.
    """
    require_key(key)
    trained, posterior, program, erased = _translate(model, guide, params, args, kwargs, key)
    _require_same_arguments(memory, erased)
    result = unbayes.unlearning.unlearn(
        posterior, program, erased, memory=memory, method=method, key=key, progress=progress
    )
    found = trained.with_posterior(result.posterior)
    if isinstance(found, LowRank):
        result = _projected(result, posterior, found)
    return UnlearnedGuide(found.params, found.bare, result)


def remember(
    model: Callable[..., Any],
    guide: AutoGuide,
    params: Mapping[str, Any],
    *args: Any,
    size: int,
    key: PRNGKeyArray,
    **kwargs: Any,
) -> Memory:
    """Keep what helps to unlearn later, while all the training data are at hand.

    Parameters
    ----------
    model, guide, params
        As for `unlearn`.
    *args, **kwargs
        The arguments of the model in training.
    size
        Number of records to keep; 0 keeps none of them, only how the parameters of a mean-field guide depend
        on each other. Records that are kept are training data, and to be protected as such.
    key
        Key of whatever is random.
    """
    require_key(key)
    if not (isinstance(size, int) and size >= 0):
        raise ValueError(f"size must be a number of records to keep, got {size!r}")
    trained, posterior, program, evidence = _translate(model, guide, params, args, kwargs, key)
    left = None
    # A guide of low rank is stationary within its family, which a full step leaves.
    if isinstance(posterior, AbstractGaussian) and not isinstance(trained, LowRank):
        left = float(stationarity(posterior, program, evidence))
    return unbayes.memory.remember(posterior, program, evidence, size, left, key=key)


def _translate(
    model, guide, params, args: tuple, kwargs: dict, key
) -> tuple[AbstractTrained, AbstractVariational, Program, Any]:
    """The guide, its belief, the program as a model of ours, and the records."""
    if not callable(model):
        raise TypeError(f"model must be a NumPyro program, a callable, got {type(model).__name__}")
    trained = read(guide, params)
    posterior = trained.posterior
    program, records = separate(model, trained.bare, trained.constants, args, kwargs, posterior.sample(key))
    program = dataclasses.replace(program, pointwise=isinstance(trained, Laplace))
    return trained, posterior, program, records


def _require_same_arguments(memory: Memory | None, erased: Any) -> None:
    """Refuse a memory whose records are other arguments than the erased ones."""
    if not isinstance(memory, Memory) or memory.coreset is None:
        return
    expected, given = (
        [leaf.shape[1:] for leaf in jax.tree.leaves(tree)] for tree in (memory.coreset, erased)
    )
    if jax.tree.structure(memory.coreset) != jax.tree.structure(erased) or expected != given:
        raise ValueError(
            "memory must hold the same arguments of the model, given in the same way, as args: its records "
            f"are {len(expected)} arrays with rows of shapes {expected}, got {len(given)} of {given}"
        )


def _projected(result: Unlearned, trained: AbstractVariational, found: LowRank) -> Unlearned:
    """The result with the belief that the guide holds, and a doubt where that is not quite what was found."""
    loss = parameter_kl(found.posterior, result.posterior).value
    change = parameter_kl(found.posterior, trained).value
    measures = result.trust.measures._replace(change=change, projection_loss=loss)
    return dataclasses.replace(result, posterior=found.posterior, trust=judge(measures))
