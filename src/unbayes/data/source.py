"""Where records come from, in batches of bounded size, and sums over all of them.

Whatever is computed from many records is a sum: over batches, parts of the data, workers. A task says what
one batch adds; a source knows how to sum that over all of its records, here or elsewhere.
"""

import abc
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from unbayes.data.refusal import Refused

# Records of a batch: enough that reading one costs more than starting to work on it, few megabytes.
BATCH_ROWS = 1 << 16

Advance = Callable[[int], None]


# Places that a message names.
NAMED_PLACES = 3


class Stretch(NamedTuple):
    """Rows of one place, such as a file, between which records were read: from `first` to `last`."""

    name: str
    first: int
    last: int


class Batch(NamedTuple):
    """Some records, as a model takes them.

    Attributes
    ----------
    records
        A pytree of arrays with the records along the leading axis, such as a pair (inputs, targets).
    size
        Number of records.
    full
        Number of records that a full batch of this source has.
    ids
        Their identifiers; None where the source has none.
    part, number
        Which part of the source they are of, and which batch of it, from 0.
    stretches
        Where they were read.
    """

    records: Any
    size: int
    full: int
    ids: list[str] | None = None
    part: int = 0
    number: int = 0
    stretches: tuple[Stretch, ...] = ()

    @property
    def place(self) -> str:
        """What messages call it."""
        rows = [f"{each.name}, rows {each.first} to {each.last}" for each in self.stretches]
        more = [f"{len(rows) - NAMED_PLACES} more"] if len(rows) > NAMED_PLACES else []
        where = f" ({'; '.join(rows[:NAMED_PLACES] + more)})" if rows else ""
        return name_of(self.part, self.number) + where

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Within this context, a refusal says in which batch the trouble is, if there are several."""
        try:
            yield
        except (ValueError, TypeError) as error:
            if not self.stretches:
                raise
            raise Refused(f"{self.place}: {error}") from error


def name_of(part: int, number: int) -> str:
    """What messages call a batch, by its part of the source."""
    return f"part {part}, batch {number}" if part else f"batch {number}"


class AbstractTask(abc.ABC):
    """What one batch adds to a sum; pure, so that it may be repeated, and small, so that it may be sent."""

    @abc.abstractmethod
    def of(self, batch: Batch) -> Any:
        """What the batch adds: a tree of tuples, dicts, arrays and modules that `storage` can write.

        None where it adds nothing.
        """

    @abc.abstractmethod
    def add(self, left: Any, right: Any) -> Any:
        """The sum of two such sums."""


class AbstractSource(abc.ABC):
    """Records that can be summed over, as often as need be unless it `is_once`.

    Attributes
    ----------
    rows
        Number of records, where that is known without reading them.
    is_once
        Whether it can be read a single time, as an iterator.
    has_ids
        Whether its records have identifiers.
    """

    rows: int | None
    is_once: bool
    has_ids: bool

    @property
    def signature(self) -> str:
        """What tells these records from others, as far as that is known without reading them."""
        from unbayes._numerics.fingerprint import fingerprint

        return fingerprint(self.rows, self.has_ids)

    @abc.abstractmethod
    def total(self, task: AbstractTask, advance: Advance | None = None) -> Any:
        """The sum over all records of what `task` makes of them; None where there are no records.

        `advance` is told how many records were done.
        """


def work(task: AbstractTask, batches: Iterable[Batch], advance: Advance | None = None) -> Any:
    """The sum over batches, or None where there are none: what every engine does with each part."""
    total = None
    for batch in batches:
        found = task.of(batch)
        total = _sum(task, total, found)
        if advance is not None:
            advance(batch.size)
    return total


def _sum(task: AbstractTask, left: Any, right: Any) -> Any:
    return right if left is None else left if right is None else task.add(left, right)


def add_all(task: AbstractTask, totals: Sequence[Any]) -> Any:
    """The sum of some sums, neighbours first, so that rounding does not grow with their number."""
    left = [each for each in totals if each is not None]
    while len(left) > 1:
        pairs = [task.add(*left[i : i + 2]) for i in range(0, len(left) - 1, 2)]
        left = pairs + ([left[-1]] if len(left) % 2 else [])
    return left[0] if left else None
