"""Training in passes over a source, of which no more than a few batches are in memory.

The steps are those of training in memory, taken one pass at a time: what the compiled loops evaluate on all
records at once is here a sum over batches.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.quadrature import Nodes, centre_node
from unbayes.inference.ascent import (
    SMALLEST_STEP,
    AscentState,
    Bound,
    after,
    attainable,
    init,
    not_worse,
    proposal,
    step_length,
)
from unbayes.inference.newton import NEWTON_ITERATIONS, NewtonStep, newton_step_to, point_mass
from unbayes.inference.passes import AbstractPass, Expectation, Passes, Together, shared
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, FullGaussian, GaussianNatural
from unbayes.training.base import Trained
from unbayes.training.natural import COARSE_TOLERANCE, WIDE_MIXING, NaturalGradientVI, belief_at


class Point(NamedTuple):
    """A belief, the ELBO there, natural parameters after a full step and how far that goes; how many records.

    `others` are the sums of tasks that shared the pass.
    """

    gaussian: AbstractGaussian
    elbo: Float[Array, ""]
    target: GaussianNatural
    gap: Float[Array, ""]
    records: int
    others: tuple[Any, ...] = ()


class Evaluation(NamedTuple):
    """The ELBO of all records of a source and its natural gradient, by one pass for each belief."""

    passes: Passes
    model: AbstractModel
    nodes: Nodes

    def at(self, gaussian: AbstractGaussian, what: str, *others: AbstractPass) -> Point:
        """Evaluate at a belief; other tasks may share the pass."""
        bound = Bound(self.model, None, self.nodes)
        around, value, site = _without_records(bound, gaussian)
        name = self.passes.name
        tasks = (Expectation(self.model, name, around, self.nodes), *others)
        expected, *rest = self.passes.total(Together(self.model, name, tasks), what)
        elbo, target = value + expected[0], jax.tree.map(jnp.add, site, expected[1])
        return Point(gaussian, elbo, target, _gap(gaussian, target), int(expected[2]), tuple(rest))


class End(NamedTuple):
    """Where training ended.

    Attributes
    ----------
    trained
        As in memory.
    target
        Natural parameters after a full step from there, dense where that is affordable.
    others
        Sums of the tasks that shared the first pass.
    """

    trained: Trained
    target: GaussianNatural
    others: tuple[Any, ...]


def train_by_passes(
    method: NaturalGradientVI,
    evaluation: Evaluation,
    family: type[AbstractGaussian],
    start: AbstractGaussian,
    *others: AbstractPass,
) -> End:
    """As `NaturalGradientVI.run`; other tasks may share the first pass."""
    model, passes = evaluation.model, evaluation.passes
    tolerance = method.tolerance if model.integral_dim == 1 else max(method.tolerance, COARSE_TOLERANCE)
    tolerance = attainable(tolerance, start.dtype)
    is_laplace = evaluation.nodes.count == 1 and issubclass(family, FullGaussian)
    enough = tolerance if is_laplace else max(tolerance, float(jnp.finfo(model.dtype).eps) ** 0.5)
    theta, newton, found = _find_mode(evaluation, start.mean, enough, others)
    first = belief_at(family, theta, newton.precision, newton.scale_tril)
    if is_laplace:
        end = evaluation.at(first, "Laplace's approximation")
        gap, trace = float(newton.gain), np.asarray(end.elbo)[None]
        trained = Trained(first, method, float(end.elbo), gap, gap <= tolerance, trace, passes.taken)
        return End(trained, end.target, found)
    state = _init(model, first, method.iterations, _mixing(method, evaluation))
    while bool(state.moving(tolerance)) and int(state.passes) < method.iterations:
        candidate, natural = _proposal(state)
        point = evaluation.at(candidate, _distance(state.stationarity))
        state = _after(state, candidate, natural, point.elbo, point.target)
    gap, taken = float(state.stationarity), int(state.passes)
    trained = Trained(
        posterior=state.gaussian,
        method=method,
        elbo=float(state.value),
        stationarity=gap,
        converged=gap <= tolerance,
        trace=np.asarray(state.trace[:taken]),
        passes=passes.taken,
    )
    return End(trained, state.target, found)


def _mixing(method: NaturalGradientVI, evaluation: Evaluation) -> int:
    if method.mixing is not None:
        return method.mixing
    return WIDE_MIXING if Bound(evaluation.model, None, evaluation.nodes).is_wide else 0


def _distance(stationarity: Float[Array, ""]) -> str:
    left = float(stationarity)
    return f"{left:.2g} nats to go" if np.isfinite(left) else "at the mode"


def _find_mode(
    evaluation: Evaluation, start: Float[Array, " d"], enough: float, others: tuple[AbstractPass, ...]
) -> tuple[Float[Array, " d"], NewtonStep, tuple[Any, ...]]:
    """The mode of p(θ|D) by guarded Newton steps, each of one pass, the step from there, and others' sums."""
    model = evaluation.model
    at_mean = evaluation._replace(nodes=centre_node(model.integral_dim, model.dtype))
    theta, value = start, None
    direction, step, newton, shared = jnp.zeros_like(start), 1.0, None, ()
    for _ in range(NEWTON_ITERATIONS):
        here = theta + step * direction
        around, site = _without_records_at(model, here, at_mean.nodes)
        task = Expectation(model, evaluation.passes.name, around, at_mean.nodes)
        tasks = (task, *others) if newton is None else (task,)
        said = "looking for the mode" if newton is None else f"{2 * float(newton.gain):.2g} nats to the mode"
        found, *rest = evaluation.passes.total(Together(model, task.name, tasks), said)
        expected, records_site, _ = found
        shared = tuple(rest) if newton is None else shared
        log_joint = model.log_prior(here) + expected
        if value is not None and not bool(not_worse(log_joint, value, model.dtype)):
            step /= 2
            if step < SMALLEST_STEP:
                break
            continue
        theta, value = here, log_joint
        newton = _newton(jax.tree.map(jnp.add, site, records_site), theta)
        if 2 * float(newton.gain) <= enough:
            break
        direction, step = newton.direction, 1.0
    assert newton is not None
    return theta, newton, shared


@eqx.filter_jit
def _without_records(
    bound: Bound, gaussian: AbstractGaussian
) -> tuple[AbstractGaussian, Float[Array, ""], GaussianNatural]:
    """Belief at which sites are taken, and what the prior and the entropy add to the bound and its step."""
    full = gaussian.to_full() if bound.model.has_dense_sites else gaussian
    return full, *bound.base_value_and_site(gaussian)


@eqx.filter_jit
def _without_records_at(
    model: AbstractModel, theta: Float[Array, " d"], nodes: Nodes
) -> tuple[FullGaussian, GaussianNatural]:
    point = point_mass(theta)
    return point, model.prior_site(point, nodes)


_newton = eqx.filter_jit(newton_step_to)
_gap = eqx.filter_jit(step_length)
_proposal = eqx.filter_jit(proposal)
_after = eqx.filter_jit(after)


@eqx.filter_jit
def _init(model: AbstractModel, first: AbstractGaussian, iterations: int, mixing: int) -> AscentState:
    return init(model, first, iterations, mixing)


class SufficientStatistics(AbstractPass):
    """What records add to the natural parameters of a conjugate prior."""

    def of_evidence(self, evidence, weights, batch) -> Any:
        """Of the batch."""
        return _sufficient_statistics(self.model, evidence, weights)


class LogLikelihood(AbstractPass):
    """Log p(D|θ) at one θ."""

    theta: Float[Array, " d"]

    def of_evidence(self, evidence, weights, batch) -> Float[Array, ""]:
        """Of the batch."""
        return _log_likelihood(self.model, self.theta, evidence, weights)


@eqx.filter_jit
def _sufficient_statistics(model: AbstractModel, evidence, weights) -> Any:
    return shared(lambda model, *records: model.sufficient_statistics(*records), model, evidence, weights)


@eqx.filter_jit
def _log_likelihood(model: AbstractModel, theta, evidence, weights) -> Float[Array, ""]:
    return model.log_likelihood(theta, evidence) @ weights


def middle_of(posterior: Any, key: PRNGKeyArray) -> Float[Array, " d"]:
    """A θ that is possible: the mean or, where that may be at the edge of what is, the middle of draws."""
    is_gaussian = isinstance(posterior, AbstractGaussian)
    return posterior.mean if is_gaussian else posterior.sample(key, (256,)).mean(0)
