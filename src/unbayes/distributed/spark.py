"""Sums over the records of a Spark DataFrame: everything that takes a source runs there.

The workers need the same versions of unbayes and JAX as the process that asks.
"""

import dataclasses
import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow
from pyspark import TaskContext
from pyspark.sql.functions import col, floor

from unbayes._numerics.fingerprint import fingerprint
from unbayes.data.encoding import AbstractEncoder
from unbayes.data.refusal import Refused
from unbayes.data.scan import scan
from unbayes.data.source import BATCH_ROWS, AbstractSource, AbstractTask, Advance
from unbayes.distributed.sending import FAN_IN, Partial, added, job_of, partial_of_table
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior, AbstractVariational
from unbayes.training import Trained
from unbayes.training import fit as _fit
from unbayes.training import refine as _refine
from unbayes.unlearning import Statistics, Unlearned
from unbayes.unlearning import summarise as _summarise
from unbayes.unlearning import unlearn as _unlearn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# One row for every partition: its number, how many records it has, what they add, or what is wrong there.
COLUMNS = "part int, rows long, sums binary, trouble string, is_type_error boolean"
ARROW = pyarrow.schema(
    [
        ("part", pyarrow.int32()),
        ("rows", pyarrow.int64()),
        ("sums", pyarrow.binary()),
        ("trouble", pyarrow.string()),
        ("is_type_error", pyarrow.bool_()),
    ]
)


def source(
    data: "DataFrame",
    *,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    batch_rows: int = BATCH_ROWS,
) -> "SparkSource":
    """Records for Spark's workers to sum over, for every call that takes a source.

    Every pass computes the DataFrame anew: `persist` it where that takes long.

    Parameters
    ----------
    data
        A DataFrame of Spark's, whose partitions stay where they are.
    columns, target, ids, batch_rows
        As for `unbayes.scan`.
    """
    if not hasattr(data, "mapInArrow"):
        raise TypeError(f"data must be a DataFrame of Spark's, got a {type(data).__name__}")
    # Columns and their types, for which Spark computes nothing.
    empty = data.limit(0).toArrow()
    recipe = scan(empty, columns=columns, target=target, ids=ids, batch_rows=batch_rows)
    names = empty.column_names if recipe.columns is None else recipe.columns
    # Spark hands no columns to Arrow that have dots in their names.
    data = data.select(
        *(col("`" + name.replace("`", "``") + "`").alias(f"c{n}") for n, name in enumerate(names))
    )
    return SparkSource(data, tuple(names), cloudpickle.dumps(recipe), recipe.signature, recipe.has_ids)


def fit(
    model: AbstractModel,
    data: "DataFrame",
    *,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    **settings: Any,
) -> Trained:
    """As `unbayes.fit`, by Spark; data, columns, target and ids as for `source`."""
    return _fit(model, source(data, columns=columns, target=target, ids=ids), **settings)


def refine(
    posterior: AbstractVariational,
    model: AbstractModel,
    data: "DataFrame",
    *,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    **settings: Any,
) -> Trained:
    """As `unbayes.refine`, by Spark; the remaining records as for `source`."""
    return _refine(posterior, model, source(data, columns=columns, target=target), **settings)


def summarise(
    posterior: AbstractPosterior,
    model: AbstractModel,
    data: "DataFrame",
    *,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    **settings: Any,
) -> Statistics:
    """As `unbayes.summarise`, by Spark; the erased records as for `source`."""
    erased = source(data, columns=columns, target=target, ids=ids)
    return _summarise(posterior, model, erased, **settings)


def unlearn(
    posterior: AbstractPosterior,
    model: AbstractModel,
    data: "DataFrame",
    *,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    **settings: Any,
) -> Unlearned:
    """As `unbayes.unlearn`, by Spark; the erased records as for `source`."""
    erased = source(data, columns=columns, target=target, ids=ids)
    return _unlearn(posterior, model, erased, **settings)


@dataclasses.dataclass(frozen=True)
class SparkSource(AbstractSource):
    """Records in partitions that Spark's workers read.

    Attributes
    ----------
    data
        The columns that are wanted.
    names
        What they are called.
    recipe
        The scan that reads a partition, as bytes.
    origin
        What tells that scan from others.
    has_ids
        As in every source.
    """

    data: "DataFrame"
    names: tuple[str, ...]
    recipe: bytes
    origin: str
    has_ids: bool
    rows: None = None
    is_once: bool = False

    @property
    def signature(self) -> str:
        """By columns and their types, and the names of files that the DataFrame is read from."""
        return fingerprint(self.origin, str(self.data.schema), sorted(self.data.inputFiles()))

    def total(self, task: AbstractTask, advance: Advance | None = None) -> Any:
        """The sum over all records: workers add up partitions and neighbours' sums, this process the rest.

        Progress is told once, at the end.
        """
        job, recipe, names = job_of(task), self.recipe, self.names

        def sum_up(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            named = (batch.rename_columns(names) for batch in batches)
            yield from _row(job, recipe, named).to_batches()

        def add_up(rows: pyarrow.Table) -> pyarrow.Table:
            return _added(job, rows)

        sums = self.data.mapInArrow(sum_up, COLUMNS)
        groups = sums.groupBy(floor(sums["part"] / FAN_IN)).applyInArrow(add_up, COLUMNS)
        last = _added(job, groups.toArrow()).to_pylist()[0]
        if last["trouble"] is not None:
            raise (TypeError if last["is_type_error"] else Refused)(last["trouble"])
        if advance is not None:
            advance(last["rows"])
        return pickle.loads(last["sums"])


def _row(job: bytes, recipe: bytes, batches: Iterator[pyarrow.RecordBatch]) -> pyarrow.Table:
    """The row of the partition that is worked on; what is wrong with its records will be no better again."""
    context = TaskContext.get()
    assert context is not None
    number, first = context.partitionId(), next(batches, None)
    partial, trouble = Partial(0, pickle.dumps(None)), None
    try:
        if first is not None:
            table = pyarrow.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))
            partial = partial_of_table(job, recipe, number, table, context.cpus())
    except (ValueError, TypeError) as error:
        trouble = error
    return _table(number, partial, trouble)


def _added(job: bytes, rows: pyarrow.Table) -> pyarrow.Table:
    """One row for several, in the order of partitions; trouble instead of a sum if one of them has any."""
    found = sorted(rows.to_pylist(), key=lambda row: row["part"])
    number = found[0]["part"] if found else 0
    for row in found:
        if row["trouble"] is not None:
            return pyarrow.Table.from_pylist([row], ARROW)
    partials = [Partial(row["rows"], row["sums"]) for row in found]
    context = TaskContext.get()
    return _table(number, added(job, partials, 1 if context is None else context.cpus()), None)


def _table(number: int, partial: Partial, trouble: Exception | None) -> pyarrow.Table:
    said = None if trouble is None else str(trouble)
    row = {
        "part": number,
        **partial._asdict(),
        "trouble": said,
        "is_type_error": isinstance(trouble, TypeError),
    }
    return pyarrow.Table.from_pylist([row], ARROW)
