"""What one pass over many records sums up: tasks whose batches are evaluated by compiled programs.

Batches are filled up to one of two shapes, so that at most two programs are compiled however records come.
Where JAX has several devices here, each batch is shared out between them.
"""

import abc
import operator
import time
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, Float

from unbayes._numerics.fingerprint import fingerprint
from unbayes._numerics.quadrature import Nodes
from unbayes._numerics.records import SMALLEST_BATCH, count
from unbayes.data.source import AbstractSource, AbstractTask, Batch
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, GaussianNatural
from unbayes.progress import AbstractProgress, Silent

# A last batch that is smaller than this part of a full one is filled up to that part alone.
SMALL_SHARE = 16
# What is said of a pass that was kept.
RESUMED = "from the checkpoint"

Sums = TypeVar("Sums")


class AbstractCheckpoint(abc.ABC):
    """Where the sums of finished passes are kept, so that long work goes on where it was broken off.

    Passes are pure functions of the belief at which they are taken, and everything between them is
    deterministic: work that begins again finds the sums of its first passes here, and reads no records.
    """

    @abc.abstractmethod
    def find(self, number: int, origin: str) -> Any | None:
        """The sum of that pass, counted from 1, if it was kept for that task and these records; else None."""

    @abc.abstractmethod
    def keep(self, number: int, origin: str, total: Any) -> None:
        """Keep the sum of a pass; `origin` is the fingerprint of task and records."""

    @abc.abstractmethod
    def clear(self) -> None:
        """Forget all sums: the work has ended."""


class Passes:
    """Sums over a source, one pass after the other; whoever waits is told how far each is.

    Attributes
    ----------
    source
        The records.
    name
        What messages call them.
    taken
        Number of passes so far.
    """

    def __init__(
        self,
        source: AbstractSource,
        progress: AbstractProgress | None = None,
        name: str = "records",
        checkpoint: AbstractCheckpoint | None = None,
    ):
        if not isinstance(checkpoint, AbstractCheckpoint | None):
            raise TypeError(f"checkpoint must be a Checkpoint(folder) or None, got {checkpoint!r}")
        self.source, self.name, self.taken = source, name, 0
        self._progress, self._checkpoint = progress or Silent(), checkpoint
        self._records = 0
        self._signature = "" if checkpoint is None else source.signature

    def total(self, task: AbstractTask, what: str) -> Any:
        """The sum over all records; `what` says what for."""
        self.taken += 1
        if self._checkpoint is None:
            return self._read(task, what)
        origin = fingerprint(task, self._signature)
        found = self._checkpoint.find(self.taken, origin)
        if found is None:
            found = self._read(task, what)
            self._checkpoint.keep(self.taken, origin, found)
        else:
            with self._progress.track(f"pass {self.taken}, {what}", self.source.rows) as meter:
                meter(self.source.rows or 0, RESUMED)
        return found

    def end(self) -> None:
        """The work has ended: nothing of the records is kept by a checkpoint."""
        if self._checkpoint is not None:
            self._checkpoint.clear()

    def _read(self, task: AbstractTask, what: str) -> Any:
        if self.source.is_once and self.taken > 1:
            raise ValueError(
                f"{self.name} must be read in several passes, which an iterator cannot; give a function that "
                "returns one"
            )
        began, done = time.perf_counter(), 0
        with self._progress.track(f"pass {self.taken}, {what}", self.source.rows) as meter:

            def advance(rows: int) -> None:
                nonlocal done
                done += rows
                meter(rows, f"{done / (time.perf_counter() - began):,.0f} records/s")

            found = self.source.total(task, advance)
        if found is None:
            raise ValueError(f"{self.name} must hold at least one record, got none")
        self._records = self._records or done
        if done != self._records:
            raise ValueError(
                f"{self.name} must be the same in every pass, but there were {self._records} of them in one "
                f"and {done} in another, pass {self.taken}"
            )
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

    model: AbstractModel
    name: str

    def of(self, batch: Batch) -> Any:
        """What the batch adds."""
        return self.of_evidence(*encoded(self.model, batch, self.name), batch)

    @abc.abstractmethod
    def of_evidence(self, evidence: Any, weights: Float[Array | np.ndarray, " n"], batch: Batch) -> Any:
        """What a batch adds, filled up by records whose weight is zero."""

    def add(self, left: Any, right: Any) -> Any:
        """Sums of arrays and numbers.

        What came before is waited for, so that no more than one batch is worked on while another is read.
        """
        jax.block_until_ready(left)
        return jax.tree.map(operator.add, left, right)


class Together(AbstractPass):
    """Several tasks in one pass, which reads and encodes every record once."""

    tasks: tuple[AbstractPass, ...]

    def of_evidence(self, evidence, weights, batch) -> tuple[Any, ...]:
        """What the batch adds to each."""
        return tuple(task.of_evidence(evidence, weights, batch) for task in self.tasks)

    def add(self, left, right) -> tuple[Any, ...]:
        """Each by its own sum."""
        return tuple(task.add(*both) for task, *both in zip(self.tasks, left, right, strict=True))


class Expectation(AbstractPass):
    """E_q[log p(D|θ)], its natural gradient, and the number of records."""

    gaussian: AbstractGaussian
    nodes: Nodes

    def of_evidence(self, evidence, weights, batch) -> tuple[Any, Any, Any]:
        """Value, site and number."""
        value, site = _expectation(self.gaussian, self.model, evidence, self.nodes, weights)
        return value, site, batch.size


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
        self.records, self.rows, self._size = records, size, size

    @property
    def signature(self) -> str:
        """All that they hold."""
        return fingerprint(self.records)

    def total(self, task: AbstractTask, advance: Callable[[int], None] | None = None) -> Any:
        """What the task makes of all records at once."""
        found = task.of(Batch(self.records, self._size, self._size))
        if advance is not None:
            advance(self._size)
        return found


def encoded(model: AbstractModel, batch: Batch, name: str = "records") -> tuple[Any, Float[np.ndarray, " n"]]:
    """Evidence of a batch, filled up by its last record, and weights that count only the given ones."""
    # So that few shapes are encoded, records are filled up; but others may not be tied to what fills them up.
    is_tied, extra = model.has_tied_records, _missing(batch)
    with batch.named():
        evidence = model.encode(batch.records if is_tied else filled(batch), name)
    evidence = _filled(evidence, extra) if is_tied else evidence
    return evidence, np.repeat(np.array([1, 0], model.dtype), [batch.size, extra])


def filled(batch: Batch) -> Any:
    """Records of a batch, filled up by its last one."""
    return _filled(batch.records, _missing(batch))


def _missing(batch: Batch) -> int:
    """How many records a batch is short of the shape up to which it is filled."""
    small = max(batch.full // SMALL_SHARE, SMALLEST_BATCH)
    target = small if batch.size <= small < batch.full else max(batch.full, batch.size)
    devices = len(jax.local_devices())
    return -(-target // devices) * devices - batch.size


def _filled(tree: Any, extra: int) -> Any:
    if not extra:
        return tree
    return jax.tree.map(
        lambda leaf: np.concatenate([leaf, np.repeat(np.asarray(leaf)[-1:], extra, axis=0)]), tree
    )


def require_untied(model: AbstractModel, name: str) -> None:
    """Refuse a source for records that say nothing without others, which it may put into another batch."""
    if model.has_tied_records:
        raise TypeError(
            f"{name} must be in memory: those of a {type(model).__name__} are tied to each other, and a "
            "source may divide them"
        )


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
    mesh = jax.make_mesh((devices,), ("records",), (AxisType.Auto,), devices=jax.local_devices())
    return jax.shard_map(
        share, mesh=mesh, in_specs=(everywhere, each, each), out_specs=everywhere, check_vma=False
    )(arrays, evidence, weights)
