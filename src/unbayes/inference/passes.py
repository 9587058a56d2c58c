"""What one pass over many records sums up: tasks whose batches are evaluated by compiled programs.

Batches are filled up to one of two shapes, so that at most two programs are compiled however the records come.
Where JAX has several devices here, each batch is shared out between them.
"""

import abc
import time
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from unbayes._numerics.quadrature import Nodes
from unbayes._numerics.records import SMALLEST_BATCH, count
from unbayes.data.source import AbstractSource, AbstractTask, Batch
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, GaussianNatural
from unbayes.progress import AbstractProgress, Silent

# A last batch that is smaller than this part of a full one is filled up to that part alone.
SMALL_SHARE = 16

Sums = TypeVar("Sums")


class Passes:
    """Sums over a source, one pass after the other; whoever waits is told how far each is.

    Attributes
    ----------
    source
        The records.
    taken
        Number of passes so far.
    """

    def __init__(self, source: AbstractSource, progress: AbstractProgress | None, name: str = "records"):
        self.source, self.progress, self.name = source, progress or Silent(), name
        self.taken = 0

    def total(self, task: AbstractTask, what: str) -> Any:
        """The sum over all records; `what` says what for."""
        self.taken += 1
        if self.source.is_once and self.taken > 1:
            raise ValueError(
                f"{self.name} must be read in several passes, which an iterator cannot; give a function that "
                "returns one"
            )
        description, began, done = f"pass {self.taken}, {what}", time.perf_counter(), 0
        with self.progress.track(description, self.source.rows) as meter:

            def advance(rows: int) -> None:
                nonlocal done
                done += rows
                meter(rows, f"{done / (time.perf_counter() - began):,.0f} records/s")

            found = self.source.total(task, None if self.progress.silent else advance)
        if found is None:
            raise ValueError(f"{self.name} must hold at least one record, got none")
        return found


class AbstractPass(eqx.Module, AbstractTask):
    """A task on evidence.

    Attributes
    ----------
    model
        What encodes the records.
    name
        What refusals call the records.
    """

    model: eqx.AbstractVar[AbstractModel]
    name: eqx.AbstractVar[str]

    def of(self, batch: Batch) -> Any:
        """What the batch adds."""
        return self.of_evidence(*encoded(self.model, batch, self.name), batch)

    @abc.abstractmethod
    def of_evidence(self, evidence: Any, weights: Float[Array, " n"], batch: Batch) -> Any:
        """What a batch adds, filled up by records whose weight is zero."""

    def add(self, left: Any, right: Any) -> Any:
        """Sums of arrays.

        What came before is waited for, so that no more than one batch is worked on while another is read.
        """
        jax.block_until_ready(left)
        return jax.tree.map(jnp.add, left, right)


class Together(AbstractPass):
    """Several tasks in one pass, which reads and encodes every record once."""

    model: AbstractModel
    tasks: tuple[AbstractPass, ...]
    name: str = "records"

    def of_evidence(self, evidence, weights, batch) -> tuple[Any, ...]:
        """What the batch adds to each."""
        return tuple(task.of_evidence(evidence, weights, batch) for task in self.tasks)

    def add(self, left, right) -> tuple[Any, ...]:
        """Each by its own sum."""
        return tuple(task.add(*both) for task, *both in zip(self.tasks, left, right, strict=True))


class Expectation(AbstractPass):
    """E_q[log p(D|θ)], its natural gradient, and the number of records."""

    model: AbstractModel
    gaussian: AbstractGaussian
    nodes: Nodes
    name: str = "records"

    def of_evidence(self, evidence, weights, batch) -> tuple[Any, Any, Any]:
        """Value, site and number."""
        value, site = _expectation(self.gaussian, self.model, evidence, self.nodes, weights)
        return value, site, np.asarray(batch.size)


@eqx.filter_jit
def _expectation(
    gaussian: AbstractGaussian, model: AbstractModel, evidence, nodes: Nodes, weights
) -> tuple[Float[Array, ""], GaussianNatural]:
    return shared(
        lambda fixed, evidence, weights: fixed[0].expected_log_likelihood_and_site(
            fixed[1], evidence, fixed[2], weights
        ),
        (model, gaussian, nodes),
        evidence,
        weights,
    )


class AllAtOnce(AbstractSource):
    """Records that are in memory, as a source of one batch."""

    is_once, has_ids = False, False

    def __init__(self, records: Any, size: int):
        self.records, self.rows = records, size

    def total(self, task: AbstractTask, advance: Callable[[int], None] | None = None) -> Any:
        """What the task makes of all records at once."""
        found = task.of(Batch(self.records, self.rows, self.rows))
        if advance is not None:
            advance(self.rows)
        return found


def encoded(model: AbstractModel, batch: Batch, name: str = "records") -> tuple[Any, Float[np.ndarray, " n"]]:
    """Evidence of a batch that is filled up by its last record, and weights that count only the given ones."""
    target = _filled_size(batch.size, batch.full)
    records = batch.records
    if extra := target - batch.size:
        records = jax.tree.map(lambda leaf: _filled(np.asarray(leaf), extra), records)
    with batch.named():
        evidence = model.encode(records, name)
    return evidence, np.repeat(np.array([1, 0], model.dtype), [batch.size, extra])


def _filled_size(size: int, full: int) -> int:
    small = max(full // SMALL_SHARE, SMALLEST_BATCH)
    target = small if size <= small < full else max(full, size)
    devices = len(jax.local_devices())
    return -(-target // devices) * devices


def _filled(leaf: np.ndarray, extra: int) -> np.ndarray:
    return np.concatenate([leaf, np.repeat(leaf[-1:], extra, axis=0)])


def shared(function: Callable[[Any, Any, Any], Sums], fixed: Any, evidence: Any, weights: Any) -> Sums:
    """`function(fixed, evidence, weights)`, a sum over records, by all devices that JAX has here.

    `fixed` is the same for all records. Where their number cannot be shared out evenly, one device does all.
    """
    devices = len(jax.local_devices())
    if devices == 1 or count(evidence) % devices:
        return function(fixed, evidence, weights)
    arrays, static = eqx.partition(fixed, eqx.is_array)

    def share(arrays, evidence, weights):
        return jax.lax.psum(function(eqx.combine(arrays, static), evidence, weights), "records")

    everywhere, each = PartitionSpec(), PartitionSpec("records")
    mesh = jax.make_mesh((devices,), ("records",), devices=jax.local_devices())
    return jax.shard_map(
        share, mesh=mesh, in_specs=(everywhere, each, each), out_specs=everywhere, check_vma=False
    )(arrays, evidence, weights)
