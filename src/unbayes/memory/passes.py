"""What training keeps of records that do not fit into memory: the same, from one pass or two over them."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unbayes._numerics.fingerprint import fingerprint
from unbayes._numerics.quadrature import Nodes
from unbayes._numerics.records import take
from unbayes._storable import Storable
from unbayes.inference.passes import AbstractPass, Passes, Together, shared
from unbayes.memory.coreset import INFLUENCE_SHARE
from unbayes.memory.kinds import Coreset, Kind, Sums
from unbayes.memory.marks import Marker, Marks, count_equal, magnitudes
from unbayes.memory.memory import Memory
from unbayes.memory.remember import INFLUENCE_NODES, require_rememberable
from unbayes.memory.sums import KeptSums, leading_directions, order_of, prior_derivatives
from unbayes.models import AbstractModel
from unbayes.models.derivatives import Derivatives
from unbayes.posteriors import AbstractGaussian, AbstractPosterior, DiagonalGaussian, GaussianNatural


class Survey(AbstractPass):
    """What is to be known of records besides the likelihood.

    Its sums are their number, the largest log-likelihood that they could have (None where that has no bound),
    and the largest magnitude in each column of theirs, where that is asked for.
    """

    wants_magnitudes: bool

    def of_evidence(self, evidence, weights, batch) -> "Surveyed":
        """Of the batch."""
        most = _largest_log_likelihood(self.model, evidence, weights)
        columns = None
        if self.wants_magnitudes:
            columns = magnitudes(self.model.rows(batch.records, self.name))
        return Surveyed(batch.size, most, columns)

    def add(self, left: "Surveyed", right: "Surveyed") -> "Surveyed":
        """Sums, and the larger of two magnitudes."""
        most = None if left.most is None or right.most is None else left.most + right.most
        columns = None
        if left.magnitudes is not None and right.magnitudes is not None:
            columns = np.maximum(left.magnitudes, right.magnitudes)
        return Surveyed(left.records + right.records, most, columns)


class Surveyed(Storable):
    """What a survey found; magnitudes are in 64 bits, whatever the model computes in."""

    records: int
    most: Float[Array, ""] | None
    magnitudes: Any


@eqx.filter_jit
def _largest_log_likelihood(model: AbstractModel, evidence, weights) -> Float[Array, ""] | None:
    return model.largest_log_likelihood(evidence, weights)


def keep_by_passes(
    passes: Passes,
    posterior: AbstractPosterior,
    model: AbstractModel,
    kinds: tuple[Kind, ...],
    stationarity: float | None,
    surveyed: Surveyed,
    *,
    target: GaussianNatural | None,
    records_site: GaussianNatural | None,
    roster: bool,
    deviance: float | None,
    key: PRNGKeyArray,
    nodes: Nodes,
) -> Memory:
    """As `keep`, in a pass over the records, and a second one for sums.

    Parameters
    ----------
    passes
        Over the training records.
    posterior, model, kinds, stationarity, roster, deviance, key
        As for `keep`; `nodes` are those of the model.
    surveyed
        What `Survey` found.
    target, records_site
        Natural parameters after a full step from the posterior, and the records' part in them.
    """
    sums = next((kind for kind in kinds if isinstance(kind, Sums)), None)
    size = next((kind.size for kind in kinds if isinstance(kind, Coreset)), 0)
    records = surveyed.records
    stationarity = None if stationarity is None else max(stationarity, 0.0)
    kept = Memory(records, stationarity, deviance=deviance).kept_for(posterior, model)
    if kinds:
        require_rememberable(posterior, model, sums)
    marker = None
    if roster or size:
        salt = fingerprint(posterior, key)
        named = passes.source.has_ids
        largest = surveyed.magnitudes
        assert named or largest is not None
        marker = Marker(salt) if largest is None else Marker.for_magnitudes(largest, salt)
    tasks: dict[str, AbstractPass] = {}
    if marker is not None and roster:
        tasks["roster"] = Roster(model, passes.name, marker)
    if size:
        assert isinstance(posterior, AbstractGaussian)
        assert marker is not None
        assert records_site is not None
        share = float(records_site.precision.trace_with(posterior)) / records
        points, seed = model.nodes(INFLUENCE_NODES), np.asarray(jax.random.key_data(key))
        tasks["coreset"] = Draw(model, passes.name, posterior, points, marker, seed, size, records, share)
    if sums is not None:
        assert isinstance(posterior, AbstractGaussian)
        tasks["bending"] = Bending(model, passes.name, posterior, nodes)
    found: dict[str, Any] = {}
    if tasks:
        totals = passes.total(Together(model, passes.name, tuple(tasks.values())), "for the memory")
        found = dict(zip(tasks, totals, strict=True))
    if "roster" in found:
        _require_different(found["roster"], passes)
        kept = dataclasses.replace(kept, marker=marker, roster=found["roster"].in_order())
    if kinds and isinstance(posterior, DiagonalGaussian):
        kept = dataclasses.replace(kept, curvature=target)
    if "coreset" in found:
        kept = dataclasses.replace(kept, marker=marker)
        kept = _with_coreset(kept, found["coreset"], size, model, passes)
    if sums is not None:
        assert isinstance(posterior, AbstractGaussian)
        kept_sums = _kept_sums(passes, posterior, model, found["bending"], sums, nodes)
        kept = dataclasses.replace(kept, sums=kept_sums)
    return dataclasses.replace(kept, lineage=fingerprint(kept))


def _require_different(marks: Marks, passes: Passes) -> None:
    if passes.source.has_ids and len(np.unique(np.asarray(marks.exact), axis=0)) < len(marks):
        raise ValueError("ids must be different, got one of them more than once")


class Roster(AbstractPass):
    """Marks of all records."""

    marker: Marker

    def of_evidence(self, evidence, weights, batch) -> Marks:
        """Of the batch, in its order."""
        return _marks(self.model, self.marker, batch, self.name)

    def add(self, left: Marks, right: Marks) -> Marks:
        """One after the other."""
        return _joined(left, right)


def _marks(model: AbstractModel, marker: Marker, batch, name: str) -> Marks:
    rows = None if marker.is_named else model.rows(batch.records, name)
    return marker.mark(rows, batch.ids)


def _joined(left: Any, right: Any) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), left, right)


class Drawn(Storable):
    """Records with the smallest priorities, in the order of these."""

    priorities: Float[np.ndarray, " k"]
    shares: Float[np.ndarray, " k"]
    evidence: Any
    marks: Marks


class Draw(AbstractPass):
    """A random sample of fixed size, the influential records more often: sequential Poisson sampling.

    Record i has the priority u_i / share_i, with u_i uniform; those with the smallest are taken. The next one
    beyond them tells with which probability each was to be drawn (Duffield, Lund and Thorup 2007). u_i
    depends on the key and on where the record stands in its part of the source, not on batches.
    """

    gaussian: AbstractGaussian
    nodes: Nodes
    marker: Marker
    seed: np.ndarray
    size: int
    records: int
    mean_influence: float

    def of_evidence(self, evidence, weights, batch) -> Drawn:
        """Those of the batch."""
        influence = np.abs(np.asarray(_influence(self.gaussian, self.model, evidence, self.nodes)))
        influence = influence[: batch.size].astype(np.float64)
        mean = max(abs(self.mean_influence), np.finfo(np.float64).tiny)
        shares = (INFLUENCE_SHARE * influence / mean + (1 - INFLUENCE_SHARE)) / self.records
        priorities = self._uniform(batch) / shares
        rows = np.argsort(priorities, kind="stable")[: self.size + 1]
        few = batch._replace(
            records=take(batch.records, rows),
            ids=None if batch.ids is None else [batch.ids[row] for row in rows],
            size=len(rows),
        )
        marks = _marks(self.model, self.marker, few, self.name)
        return Drawn(priorities[rows], shares[rows], take(evidence, rows), marks)

    def _uniform(self, batch) -> Float[np.ndarray, " n"]:
        """One number for each record of the batch, always the same for the same place in the part."""
        bits = np.random.PCG64([*map(int, self.seed.ravel()), batch.part])
        bits.advance(batch.number * batch.full)
        return 1 - np.random.Generator(bits).random(batch.size)

    def add(self, left: Drawn, right: Drawn) -> Drawn:
        """Those with the smallest priorities of both."""
        both = _joined(left, right)
        order = np.argsort(both.priorities, kind="stable")[: self.size + 1]
        return jax.tree.map(lambda leaf: leaf[order], both)


@eqx.filter_jit
def _influence(posterior: AbstractGaussian, model: AbstractModel, evidence, nodes) -> Float[Array, " n"]:
    return model.influence(posterior, evidence, nodes)


class Copies(AbstractPass):
    """How many records have each of some exact marks, shape (k, 2)."""

    marker: Marker
    exact: Int[np.ndarray, "k 2"]

    def of_evidence(self, evidence, weights, batch) -> Int[np.ndarray, " k"]:
        """Of the batch."""
        rows = None if self.marker.is_named else self.model.rows(batch.records, self.name)
        return count_equal(self.marker.exact(rows, batch.ids), self.exact)


class Bending(AbstractPass):
    """How much the records' curvature varies along each direction, as `AbstractModel.bending`."""

    gaussian: AbstractGaussian
    nodes: Nodes

    def of_evidence(self, evidence, weights, batch) -> Float[Array, "d d"]:
        """Of the batch."""
        return _bending(self.gaussian, self.model, evidence, self.nodes, weights)


class HigherDerivatives(AbstractPass):
    """Sums of third derivatives and so on along some directions, as `AbstractModel.derivatives`."""

    gaussian: AbstractGaussian
    basis: Float[Array, "d k"]
    nodes: Nodes
    order: int

    def of_evidence(self, evidence, weights, batch) -> Derivatives:
        """Of the batch."""
        fixed = (self.model, self.gaussian, self.basis, self.nodes)
        return _derivatives(fixed, evidence, weights, self.order)


@eqx.filter_jit
def _bending(gaussian: AbstractGaussian, model: AbstractModel, evidence, nodes: Nodes, weights):
    def part(fixed, evidence, weights):
        gaussian, model, nodes = fixed
        return model.bending(gaussian, gaussian.to_full().scale_tril, evidence, nodes, weights)

    return shared(part, (gaussian, model, nodes), evidence, weights)


@eqx.filter_jit
def _derivatives(fixed: Any, evidence, weights, order: int) -> Derivatives:
    def part(fixed, evidence, weights):
        model, gaussian, basis, nodes = fixed
        return model.derivatives(gaussian, basis, evidence, nodes, weights, order)

    return shared(part, fixed, evidence, weights)


def _with_coreset(memory: Memory, drawn: Drawn, size: int, model: AbstractModel, passes: Passes) -> Memory:
    """The coreset, and how many training records each of its records stands for, and equals."""
    weights = np.ones(len(drawn.shares))
    if len(weights) > size:
        weights = np.maximum(1, 1 / (drawn.shares * drawn.priorities[size]))[:size]
        drawn = jax.tree.map(lambda leaf: leaf[:size], drawn)
    if memory.roster is not None:
        copies = count_equal(memory.roster.exact, drawn.marks.exact)
    else:
        assert memory.marker is not None
        task = Copies(model, passes.name, memory.marker, np.asarray(drawn.marks.exact))
        copies = np.asarray(passes.total(task, "copies of the coreset"), np.int32)
    return dataclasses.replace(
        memory,
        coreset=drawn.evidence,
        weights=jnp.asarray(weights, model.dtype),
        coreset_marks=drawn.marks,
        copies=copies,
    )


def _kept_sums(
    passes: Passes,
    posterior: AbstractGaussian,
    model: AbstractModel,
    bending: Float[Array, "d d"],
    sums: Sums,
    nodes: Nodes,
) -> KeptSums:
    """As `keep_sums`, in one more pass."""
    leading = leading_directions(model, bending, sums)
    order = order_of(model, sums)
    basis = posterior.to_full().scale_tril @ leading.directions
    task = HigherDerivatives(model, passes.name, posterior, basis, nodes, order)
    found = passes.total(task, "higher derivatives")
    prior = prior_derivatives(posterior, model, basis, nodes, order)
    return leading.kept(found if prior is None else found + prior)
