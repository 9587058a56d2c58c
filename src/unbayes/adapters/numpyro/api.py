"""The calls of the NumPyro adapter."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray
from numpyro.infer.autoguide import AutoGuide

import unbayes.memory
import unbayes.unlearning
from unbayes._numerics.quadrature import Nodes, random_nodes
from unbayes._numerics.records import padded
from unbayes._validation import require_key
from unbayes.adapters.numpyro.arguments import separate
from unbayes.adapters.numpyro.guides import AbstractTrained, Laplace, LowRank, read
from unbayes.adapters.numpyro.program import Program
from unbayes.inference.ascent import Bound, stationarity
from unbayes.memory import Memory
from unbayes.memory.kinds import Keep, kinds_of
from unbayes.metrics import parameter_kl
from unbayes.posteriors import AbstractGaussian, AbstractPrecision, AbstractVariational, FullGaussian
from unbayes.progress import AbstractProgress
from unbayes.training import refine
from unbayes.trust import TOLERANCE, judge
from unbayes.unlearning import AbstractMethod, Unlearned
from unbayes.unlearning.methods.auto import Auto
from unbayes.unlearning.provenance import Missing

AUTO = Auto()
# Draws on which a settled guide must be no worse than before. Its own steps rest on fewer nodes, always the
# same, which a belief with heavy tails can come to fit in place of the posterior.
CHECKS = 2048


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


class Settled(NamedTuple):
    """Parameters of a guide that is stationary, or nearer to it.

    Attributes
    ----------
    params
        For the guide, in place of `svi_result.params`; those that were given where no step made them better.
    guide
        A copy of the guide without the data that it was set up with. That of an `AutoLaplaceApproximation`
        takes its covariance from here.
    before, after
        KL, in nats, from the guide to its own full natural-gradient step on all records: zero where training
        has converged.
    """

    params: dict[str, Any]
    guide: AutoGuide
    before: float
    after: float


def unlearn(
    model: Callable[..., Any],
    guide: AutoGuide,
    params: Mapping[str, Any],
    *args: Any,
    key: PRNGKeyArray,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
    missing: Missing = "refuse",
    tolerance: float = TOLERANCE,
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
    method, missing, tolerance
        How, what to do with records that the memory does not know, and how close is good enough; see
        `unbayes.unlearn`.
    progress
        A `ProgressBar()`, say.
    """
    require_key(key)
    trained, posterior, program, erased = _translate(model, guide, params, args, kwargs, key)
    _require_same_arguments(memory, erased)
    result = unbayes.unlearning.unlearn(
        posterior,
        program,
        erased,
        memory=memory,
        method=method,
        missing=missing,
        tolerance=tolerance,
        key=key,
        progress=progress,
    )
    solved = result.posterior
    found = trained.with_posterior(solved)
    if isinstance(found, LowRank):
        assert isinstance(posterior, FullGaussian)
        if result.trust.measures.keeps_width:
            sites = result.method.summarise(
                posterior, program, *padded(program.encode(erased), program.dtype), memory=None, key=key
            )
            result = _held_back(result, posterior, sites.natural.precision)
            assert isinstance(result.posterior, FullGaussian)
            found = found.with_posterior(result.posterior)
        result = _projected(result, posterior, found)
    if result.memory is not None:
        handed_on = result.memory.kept_for(found.posterior, program)
        if handed_on.sums is not None and isinstance(found, LowRank):
            assert isinstance(solved, AbstractGaussian)
            handed_on = dataclasses.replace(handed_on, sums=handed_on.sums.moved(solved, found.posterior))
        result = dataclasses.replace(result, memory=handed_on)
    return UnlearnedGuide(found.params, found.bare, result)


def remember(
    model: Callable[..., Any],
    guide: AutoGuide,
    params: Mapping[str, Any],
    *args: Any,
    memory: Keep = "sums",
    size: int | None = None,
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
    memory
        What to keep, as `unbayes.fit` takes it: "sums" of derivatives over all records, which hold nobody's
        row, or `Sums(...)`; a number of records; several of these; or "curvature" for nothing but how the
        parameters of a mean-field guide depend on each other, which the other kinds keep too. An
        `AutoIAFNormal` has no memory. Records that are kept are training data, and to be protected as such.
    size
        A number of records in place of `memory`; 0 keeps none of them, as "curvature" does.
    key
        Key of whatever is random.
    """
    require_key(key)
    if size is not None and not (isinstance(size, int) and size >= 0):
        raise ValueError(f"size must be a number of records to keep, got {size!r}")
    kinds = kinds_of(memory if size is None else size)
    trained, posterior, program, evidence = _translate(model, guide, params, args, kwargs, key)
    left = None
    # A guide of low rank is stationary within its family, which a full step leaves.
    if isinstance(posterior, AbstractGaussian) and not isinstance(trained, LowRank):
        left = float(stationarity(posterior, program, evidence))
    return unbayes.memory.remember(posterior, program, evidence, kinds, left, key=key)


def settle(
    model: Callable[..., Any],
    guide: AutoGuide,
    params: Mapping[str, Any],
    *args: Any,
    passes: int = 10,
    key: PRNGKeyArray,
    **kwargs: Any,
) -> Settled:
    """Train a guide to its end by a few natural-gradient steps, before `remember` and before records go.

    SVI leaves the noise of its last steps in the parameters, and often more. Unlearning takes the trained
    belief to be stationary: what was left undone stands beside what it changes.

    Parameters
    ----------
    model, guide, params
        As for `unlearn`; the guide mean-field, full-rank or a Laplace approximation.
    *args, **kwargs
        The arguments of the model in training.
    passes
        Passes over the data, at most.
    key
        Key of the draws on which the outcome is checked.
    """
    require_key(key)
    trained, posterior, program, evidence = _translate(model, guide, params, args, kwargs, key)
    if isinstance(trained, LowRank) or not isinstance(posterior, AbstractGaussian):
        raise TypeError(
            "guide must be mean-field, full-rank or a Laplace approximation to be settled by natural "
            f"gradients, got {type(guide).__name__}: train it on by SVI, with a smaller step size"
        )
    before = float(stationarity(posterior, program, evidence))
    refined = refine(posterior, program, evidence, passes=passes, key=key)
    other = program.nodes() if program.pointwise else random_nodes(key, program.dim, program.dtype, CHECKS)
    assert isinstance(refined.posterior, AbstractGaussian)
    assert refined.stationarity is not None
    old, new = (float(_elbo(belief, program, evidence, other)) for belief in (posterior, refined.posterior))
    if not new >= old:
        return Settled(trained.params, trained.bare, before, before)
    found = trained.with_posterior(refined.posterior)
    return Settled(found.params, found.bare, before, refined.stationarity)


@eqx.filter_jit
def _elbo(gaussian: AbstractGaussian, program: Program, evidence: Any, nodes: Nodes):
    return Bound(program, evidence, nodes).value(gaussian)


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


def _held_back(result: Unlearned, trained: FullGaussian, erased: AbstractPrecision) -> Unlearned:
    """The result with a shorter step of the mean, where a low rank hides how parameters pull together.

    The precision that a trained guide of low rank holds is right on average: tr(ΣH) = d for that of all the
    data. If the erased records are like the others, their share of it is the same in every direction that
    the guide describes well. A share along the step that is larger than their mean share says by how much the
    step would go too far.
    """
    assert isinstance(result.posterior, FullGaussian)
    move = result.posterior.mean - trained.mean
    along = move @ (erased @ move) / (move @ (trained.natural.precision @ move))
    mean_share = erased.trace_with(trained) / trained.dim
    together = float(jnp.where((mean_share > 0) & (along > mean_share), along / mean_share, 1))
    shorter = FullGaussian(trained.mean + move / together, trained.scale_tril)
    measures = result.trust.measures
    measures = measures._replace(step=(measures.step or 1.0) / together)
    return dataclasses.replace(result, posterior=shorter, trust=judge(measures))


def _projected(result: Unlearned, trained: AbstractVariational, found: LowRank) -> Unlearned:
    """The result with the belief that the guide holds, and a doubt where that is not quite what was found."""
    loss = parameter_kl(found.posterior, result.posterior).value
    change = parameter_kl(found.posterior, trained).value
    measures = result.trust.measures._replace(change=change, projection_loss=loss)
    return dataclasses.replace(result, posterior=found.posterior, trust=judge(measures))
