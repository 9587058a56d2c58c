"""Sums over records in a Dask cluster: everything that takes a source runs there.

The workers need the same versions of unbayes and JAX as the process that asks.
"""

import dataclasses
import pickle
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle
import dask.config
import dask.threaded
import numpy as np
import pyarrow
from dask.base import get_scheduler, is_dask_collection, optimize
from dask.callbacks import Callback
from dask.core import flatten

from unbayes._numerics.fingerprint import fingerprint
from unbayes.data.encoding import AbstractEncoder
from unbayes.data.readers import ArrayReader
from unbayes.data.refusal import Refused
from unbayes.data.scan import Scan, scan
from unbayes.data.source import BATCH_ROWS, AbstractSource, AbstractTask, Advance
from unbayes.distributed.sending import (
    FAN_IN,
    Partial,
    added,
    job_of,
    partial_of,
    partial_of_table,
    partition,
)
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior, AbstractVariational
from unbayes.training import Trained
from unbayes.training import fit as _fit
from unbayes.training import refine as _refine
from unbayes.unlearning import Statistics, Unlearned
from unbayes.unlearning import summarise as _summarise
from unbayes.unlearning import unlearn as _unlearn

if TYPE_CHECKING:
    from distributed import Client

# A task is sent once for a pass, as part of the graph, where a lost worker's copy can be made again.
LARGEST_GRAPH = "1TiB"


def source(
    data: Any,
    *,
    client: "Client | None" = None,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    batch_rows: int = BATCH_ROWS,
) -> "DaskSource":
    """Records for Dask's workers to sum over, for every call that takes a source.

    Parameters
    ----------
    data
        A `dask.dataframe`, whose partitions stay where they are. A `dask.array`, or several in a tuple such
        as (inputs, targets), in chunks of records. A `scan` of files, which the workers read.
    client
        Of the cluster; by default the current client or, where there is none or Dask is set to another
        scheduler, that scheduler: this machine's threads, unless it is told otherwise.
    columns, target, ids, batch_rows
        Of a dataframe, as for `unbayes.scan`.
    """
    if client is not None and (not hasattr(client, "get") or client.asynchronous):
        raise TypeError("client must be a Client of Dask's that is not asynchronous, or None")
    if isinstance(data, Scan):
        if not (columns is target is ids is None):
            raise Refused("columns, target and ids must be left out for a scan, which has its own")
        return _scanned(data, client)
    arrays: tuple[Any, ...] = data if isinstance(data, tuple) else (data,)
    if all(is_dask_collection(each) and hasattr(each, "chunks") for each in arrays):
        if not (columns is target is ids is None):
            raise Refused("columns, target and ids must be left out for arrays, whose columns have no names")
        return _chunked(arrays, isinstance(data, tuple), client, batch_rows)
    if is_dask_collection(data) and hasattr(data, "columns"):
        frame: Any = data
        empty = frame._meta.reset_index(drop=True)
        recipe = scan(empty, columns=columns, target=target, ids=ids, batch_rows=batch_rows)
        return _partitioned(frame, recipe, client)
    raise TypeError(
        "data must be a dask.dataframe, a dask.array or a tuple of them, or a scan, got a "
        f"{type(data).__name__}"
    )


def fit(
    model: AbstractModel,
    data: Any,
    *,
    client: "Client | None" = None,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    **settings: Any,
) -> Trained:
    """As `unbayes.fit`, on a Dask cluster.

    Parameters
    ----------
    model
        Prior and likelihood.
    data, client, columns, target, ids
        As for `source`.
    settings
        Of `unbayes.fit`.
    """
    return _fit(model, source(data, client=client, columns=columns, target=target, ids=ids), **settings)


def refine(
    posterior: AbstractVariational,
    model: AbstractModel,
    data: Any,
    *,
    client: "Client | None" = None,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    **settings: Any,
) -> Trained:
    """As `unbayes.refine`, on a Dask cluster.

    Parameters
    ----------
    posterior, model
        Where to start; prior and likelihood.
    data, client, columns, target
        The remaining records, as for `source`.
    settings
        Of `unbayes.refine`.
    """
    return _refine(posterior, model, source(data, client=client, columns=columns, target=target), **settings)


def summarise(
    posterior: AbstractPosterior,
    model: AbstractModel,
    data: Any,
    *,
    client: "Client | None" = None,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    **settings: Any,
) -> Statistics:
    """As `unbayes.summarise`, on a Dask cluster.

    Parameters
    ----------
    posterior, model
        The trained posterior; the model it was trained with.
    data, client, columns, target, ids
        The erased records, as for `source`.
    settings
        Of `unbayes.summarise`.
    """
    erased = source(data, client=client, columns=columns, target=target, ids=ids)
    return _summarise(posterior, model, erased, **settings)


def unlearn(
    posterior: AbstractPosterior,
    model: AbstractModel,
    data: Any,
    *,
    client: "Client | None" = None,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    **settings: Any,
) -> Unlearned:
    """As `unbayes.unlearn`, on a Dask cluster.

    Parameters
    ----------
    posterior, model
        The trained posterior; the model it was trained with.
    data, client, columns, target, ids
        The erased records, as for `source`.
    settings
        Of `unbayes.unlearn`.
    """
    erased = source(data, client=client, columns=columns, target=target, ids=ids)
    return _unlearn(posterior, model, erased, **settings)


@dataclasses.dataclass(frozen=True)
class DaskSource(AbstractSource):
    """Records in parts that Dask's workers read.

    Attributes
    ----------
    parts
        What makes a `Partial` of each: a function of the job, and its other arguments, as in Dask's graphs.
    graph
        What the parts are computed from.
    origin
        What tells these records from others.
    rows, has_ids
        As in every source.
    client
        Of the cluster; None for whatever Dask uses otherwise.
    """

    parts: Sequence[tuple[Any, ...]]
    graph: dict[Any, Any]
    origin: str
    rows: int | None
    has_ids: bool
    client: "Client | None" = None
    is_once: bool = False

    @property
    def signature(self) -> str:
        """As `Scan` tells; of frames and arrays, Dask's own names of what is computed."""
        return self.origin

    def total(self, task: AbstractTask, advance: Advance | None = None) -> Any:
        """The sum over all records, of which workers add up parts, and neighbours' sums as a tree."""
        name = uuid.uuid4().hex
        job = f"unbayes-task-{name}"
        graph = {**self.graph, job: job_of(task)}
        keys = []
        for number, (function, *arguments) in enumerate(self.parts):
            keys.append((f"unbayes-part-{name}", number))
            graph[keys[-1]] = (function, job, *arguments)
        parts, level = list(keys), 0
        while len(keys) > 1:
            groups = [keys[first : first + FAN_IN] for first in range(0, len(keys), FAN_IN)]
            keys = [(f"unbayes-sum-{name}", level, number) for number in range(len(groups))]
            graph.update({key: (_added, job, group) for key, group in zip(keys, groups, strict=True)})
            level += 1
        get = get_scheduler() or dask.threaded.get if self.client is None else self.client.get
        client = getattr(get, "__self__", None)
        if client is None:
            total = _here(get, graph, keys[0], parts, advance)
        else:
            total = _there(client, graph, keys[0], parts, advance)
        return pickle.loads(total.sums)


def _scanned(data: Scan, client: "Client | None") -> DaskSource:
    if data.is_once:
        raise Refused("data must be records that workers can read, but an iterator stays in this process")
    try:
        parts = [(_of_scan, cloudpickle.dumps(part)) for part in data.parts()]
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise Refused("data must be records that can be sent to workers, such as files") from error
    return DaskSource(parts, {}, data.signature, data.rows, data.has_ids, client)


def _chunked(
    arrays: tuple[Any, ...], are_several: bool, client: "Client | None", batch_rows: int
) -> DaskSource:
    first, *others = (each.rechunk(dict.fromkeys(range(1, each.ndim), -1)) for each in arrays)
    rows = first.chunks[0]
    together = [first]
    for each in others:
        # Sizes that nobody knows are NaN, which equals nothing; workers will see whether they fit.
        is_known = not np.isnan([*rows, *each.chunks[0]]).any()
        if len(each.chunks[0]) != len(rows) or (is_known and each.chunks[0] != rows):
            if not is_known or sum(rows) != sum(each.chunks[0]):
                raise Refused(
                    "data must be arrays of the same number of records, in chunks of known sizes or the same "
                    "number of chunks; compute_chunk_sizes() makes them known"
                )
            each = each.rechunk({0: rows})
        together.append(each)
    together = optimize(*together)
    graph = {key: found for each in together for key, found in each.__dask_graph__().items()}
    blocks = list(zip(*(list(flatten(each.__dask_keys__())) for each in together), strict=True))
    parts = [(_of_arrays, number, batch_rows, are_several, list(keys)) for number, keys in enumerate(blocks)]
    known = None if np.isnan(rows).any() else int(sum(rows))
    return DaskSource(parts, graph, fingerprint(str(blocks), batch_rows), known, False, client)


def _partitioned(data: Any, recipe: Scan, client: "Client | None") -> DaskSource:
    wanted = recipe.columns
    # Not by dask.optimize, which takes a wrong part of some graphs for the result.
    found = (data if wanted is None else data[wanted]).optimize()
    packed = cloudpickle.dumps(recipe)
    keys = found.__dask_keys__()
    parts = [(_of_table, number, packed, key) for number, key in enumerate(keys)]
    origin = fingerprint(str(keys), recipe.signature)
    return DaskSource(parts, dict(found.__dask_graph__()), origin, None, recipe.has_ids, client)


def _here(
    get: Callable[..., Any], graph: dict[Any, Any], root: Any, parts: list[Any], advance: Advance | None
) -> Partial:
    """Computed by one of Dask's schedulers for one machine."""
    wanted = set(parts)

    def told(key: Any, found: Any, *_: Any) -> None:
        if advance is not None and key in wanted:
            advance(found.rows)

    with Callback(posttask=told):
        return get(graph, root)


def _there(
    client: "Client", graph: dict[Any, Any], root: Any, parts: list[Any], advance: Advance | None
) -> Partial:
    """Computed in a cluster; whatever ends the wait ends the work."""
    from distributed import as_completed

    counts = {}
    if advance is not None:
        # No part's sum is kept for being counted.
        counts = {("unbayes-rows-" + key[0], key[1]): (_rows, key) for key in parts}
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": LARGEST_GRAPH}):
        futures: Any = client.get({**graph, **counts}, [root, *counts], sync=False)
    total, *told = futures
    try:
        finished: Any = as_completed(told, with_results=True)
        for _, rows in finished:
            assert advance is not None
            advance(rows)
        return total.result()
    except BaseException:
        client.cancel([total, *told])
        raise


def _threads() -> int:
    from distributed import get_worker

    try:
        return get_worker().state.nthreads
    except ValueError:
        return 1


def _added(job: bytes, partials: list[Partial]) -> Partial:
    return added(job, partials, _threads())


def _rows(partial: Partial) -> int:
    return partial.rows


def _of_scan(job: bytes, part: bytes) -> Partial:
    return partial_of(job, pickle.loads(part), _threads())


def _of_arrays(job: bytes, number: int, batch_rows: int, are_several: bool, blocks: list[Any]) -> Partial:
    with partition(number):
        reader = ArrayReader(tuple(blocks) if are_several else blocks[0])
        return partial_of(job, Scan(reader, batch_rows=batch_rows, part=number), _threads())


def _of_table(job: bytes, number: int, recipe: bytes, table: Any) -> Partial:
    # The index is no column of the records, though Arrow would make it one.
    table = pyarrow.Table.from_pandas(table, preserve_index=False)
    return partial_of_table(job, recipe, number, table, _threads())
