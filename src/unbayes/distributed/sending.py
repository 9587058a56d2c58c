"""What travels in a cluster: a task to the workers, and back what their parts of the records add to its sum.

Messages are pickled as those of Dask and Spark are, between processes of one cluster that trust each other;
none is ever a file. Arrays travel as NumPy's.
"""

import contextlib
import ctypes
import dataclasses
import functools
import os
import pickle
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import cloudpickle
import jax
import jax.numpy as jnp

from unbayes._numerics.programs import kept
from unbayes._version import __version__
from unbayes.data.readers import StreamReader
from unbayes.data.refusal import Refused
from unbayes.data.scan import Scan
from unbayes.data.source import AbstractTask, add_all, work

# This process, wherever its messages arrive.
PROCESS = uuid.uuid4().hex
# Tasks, and what tasks are without their arrays, that a worker holds on to.
TASKS, RESTS = 2, 16
# Sums that are added at once. A power of two: neighbours then meet in the same order as in one process.
FAN_IN = 16
# Parameters of glibc's mallopt, and bytes up to which an array is put where one was before: its own limit.
MALLOC_TRIM_THRESHOLD, MALLOC_MMAP_THRESHOLD = -1, -3
HELD_BYTES = 1 << 25
# What tells XLA how many threads to use, before it begins.
XLA_THREADS = "NPROC"


class Partial(NamedTuple):
    """What some of the records add to a sum.

    Attributes
    ----------
    rows
        Their number.
    sums
        What they add, as bytes.
    """

    rows: int
    sums: bytes


class Job(NamedTuple):
    """A task on its way, and what workers must be like to do it.

    Attributes
    ----------
    unbayes, jax
        Versions.
    is_double
        Whether JAX computes in 64 bits.
    sender
        The process that it comes from.
    rest, arrays
        The task without its arrays, and these. Many passes have the former in common: a worker that makes it
        once finds the functions in it to be the same, for which it has compiled programs.
    """

    unbayes: str
    jax: str
    is_double: bool
    sender: str
    rest: bytes
    arrays: bytes


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where an array belongs."""

    number: int


def job_of(task: AbstractTask) -> bytes:
    """A task as workers are sent it."""
    arrays = []

    def taken(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        arrays.append(leaf)
        return _Place(len(arrays) - 1)

    rest = cloudpickle.dumps(jax.tree.map(taken, task))
    is_double = jnp.result_type(float) == jnp.float64
    sent = Job(__version__, jax.__version__, is_double, PROCESS, rest, pickle.dumps(arrays))
    return pickle.dumps(sent)


def partial_of(job: bytes, part: Scan, threads: int) -> Partial:
    """What a part of the records adds, by a worker that has so many threads for this."""
    rows = 0

    def count(more: int) -> None:
        nonlocal rows
        rows += more

    with _opened(job, threads) as task:
        sums = work(task, part.batches(), count)
        return Partial(rows, pickle.dumps(sums))


def partial_of_table(job: bytes, recipe: bytes, number: int, table: Any, threads: int) -> Partial:
    """What a partition adds that is a table, read as the scan that `recipe` holds."""
    with partition(number):
        part = dataclasses.replace(pickle.loads(recipe), reader=StreamReader(table), part=number)
        return partial_of(job, part, threads)


@contextlib.contextmanager
def partition(number: int) -> Iterator[None]:
    """Refusals within say in which partition the trouble is."""
    try:
        yield
    except Refused as error:
        raise Refused(f"partition {number} (from 0): {error}") from error


def added(job: bytes, partials: Sequence[Partial], threads: int) -> Partial:
    """What several parts add together."""
    with _opened(job, threads) as task:
        sums = add_all(task, [pickle.loads(each.sums) for each in partials])
        return Partial(sum(each.rows for each in partials), pickle.dumps(sums))


@contextlib.contextmanager
def _opened(job: bytes, threads: int) -> Iterator[AbstractTask]:
    """The task, in a process that computes as the sender would."""
    sent = _sent(job)
    if sent.sender != PROCESS:
        _require_same_versions(sent)
        _limit(threads)
    with jax.enable_x64(sent.is_double):
        task = _task(job)
        holds_functions = getattr(getattr(task, "model", None), "holds_functions", True)
        with kept(holds_functions):
            yield task


@functools.lru_cache(TASKS)
def _sent(job: bytes) -> Job:
    return pickle.loads(job)


@functools.lru_cache(TASKS)
def _task(job: bytes) -> AbstractTask:
    sent = _sent(job)
    arrays = pickle.loads(sent.arrays)
    return jax.tree.map(
        lambda leaf: arrays[leaf.number] if isinstance(leaf, _Place) else leaf, _rest(sent.rest)
    )


@functools.lru_cache(RESTS)
def _rest(rest: bytes) -> Any:
    return pickle.loads(rest)


def _require_same_versions(sent: Job) -> None:
    for name, wanted, found in (("unbayes", sent.unbayes, __version__), ("jax", sent.jax, jax.__version__)):
        if wanted != found:
            raise RuntimeError(
                f"workers must run {name} {wanted} as the process does that sends them work, got {found}"
            )


def _limit(threads: int) -> None:
    """Let JAX and Arrow use no more threads than a worker was given: others have the other cores.

    JAX asks once, when it begins to compute.
    """
    import pyarrow

    os.environ.setdefault(XLA_THREADS, str(threads))
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    pyarrow.set_cpu_count(threads)
    _hold_memory()


@functools.cache
def _hold_memory() -> None:
    """Let the C library keep some memory that was freed for what comes next.

    Dask's nannies tell it to give all of it back: half of a worker's time then goes into new pages.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(MALLOC_MMAP_THRESHOLD, HELD_BYTES)
        library.mallopt(MALLOC_TRIM_THRESHOLD, 4 * HELD_BYTES)
