"""What the processes of `scale.py` do: each makes, reads or sums up records, and says what it took."""

import contextlib
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pyarrow
import pyarrow.parquet as pq

import unbayes as ub

jax.config.update("jax_enable_x64", True)

FEATURES, NOISE = 20, 0.5
NAMES = [f"x{i}" for i in range(FEATURES)]
KEY = jax.random.key(0)
MODELS: dict[str, Callable[[], Any]] = {
    "linear": lambda: ub.linear_regression(FEATURES, noise_scale=NOISE, prior_scale=3.0),
    "logistic": lambda: ub.logistic_regression(FEATURES, prior_scale=3.0),
}
TARGETS = {"linear": "y", "logistic": "label"}
# Records of a batch; what the rival reads at once is the same.
BATCH = 1 << 16
# Numbers of files that are never written: records to train on, and to compare by.
TRAINING, HELD_OUT = 1 << 30, 1 << 31
HELD_OUT_ROWS = 100_000


def write(folder: str, rows: int, numbers: list[int]) -> dict[str, Any]:
    """Files of so many records in single precision, each the same whenever it is written."""
    sizes = 0
    for number in numbers:
        x, y, label = records(number, rows)
        columns = {**dict(zip(NAMES, x, strict=True)), "y": y, "label": label}
        path = Path(folder) / f"{number:04}.parquet"
        unfinished = path.with_suffix(".unfinished")
        pq.write_table(pyarrow.table(columns), unfinished)
        unfinished.rename(path)
        sizes += path.stat().st_size
    return {"bytes": sizes}


def records(number: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (features first), a number with noise, and a label, all of the same f = wᵀx."""
    weights = np.random.default_rng(0).normal(size=FEATURES).astype(np.float32) / 2
    rng = np.random.default_rng([1, number])
    x = rng.standard_normal((FEATURES, rows), np.float32)
    f = weights @ x
    y = f + np.float32(NOISE) * rng.standard_normal(rows, np.float32)
    return x, y, (rng.random(rows) < 1 / (1 + np.exp(-f))).astype(np.int8)


def scanned(files: list[str], model: str, **settings: Any) -> ub.Scan:
    """The files as a source."""
    return ub.scan(files, columns=NAMES, target=TARGETS[model], **settings)


def train(model: str, files: list[str], out: str) -> dict[str, Any]:
    """Train on files, and save the result."""
    own = MODELS[model]()
    found = ub.fit(own, scanned(files, model), roster=False, key=KEY)
    ub.save(out, found.posterior, own)
    return {"seconds": found.seconds}


def trained(model: str, place: str | None = None) -> Any:
    """A posterior to erase from: a saved one, or of few records."""
    if place is not None:
        return ub.load(place).posterior
    x, y, label = records(TRAINING, 20_000)
    return ub.fit(MODELS[model](), (x.T, y if model == "linear" else label), key=KEY).posterior


def summarise(files: list[str], model: str, warm: list[str], repeats: int = 1) -> dict[str, Any]:
    """Statistics of all records; compilation, and the first look at files, are behind."""
    posterior, own = trained(model), MODELS[model]()

    def run(files):
        return ub.summarise(posterior, own, scanned(files, model), key=KEY)

    run(warm)
    return _timed(lambda: run(files), repeats)


def product(files: list[str], repeats: int = 1) -> dict[str, Any]:
    """The rival: pyarrow reads the same columns, NumPy multiplies them with a vector."""
    theta = np.ones(FEATURES)

    def run():
        total = 0.0
        for batch in _batches(files):
            values = np.empty((FEATURES, batch.num_rows))
            for place, name in enumerate(NAMES):
                values[place] = batch.column(name).to_numpy()
            total += (theta @ values).sum() + batch.column("y").to_numpy().sum()
        return total

    return _timed(run, repeats)


def read(files: list[str], repeats: int = 1) -> dict[str, Any]:
    """The same columns, read and dropped."""
    return _timed(lambda: sum(batch.num_rows for batch in _batches(files)), repeats)


def _batches(files: list[str]) -> Iterator[pyarrow.RecordBatch]:
    for each in files:
        with pq.ParquetFile(each) as file:
            yield from file.iter_batches(BATCH, columns=[*NAMES, "y"])


def _timed(call: Callable[[], Any], repeats: int) -> dict[str, Any]:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return {"seconds": float(np.median(times)), "peak": peak()}


def peak() -> float:
    """The most memory that this process ever held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Engine(NamedTuple):
    """What runs the sums.

    Attributes
    ----------
    source
        From a scan to a source that it sums over.
    processes
        Numbers of its workers' processes, as the operating system has them.
    """

    source: Callable[[ub.Scan], Any]
    processes: Callable[[], list[int]]


@contextlib.contextmanager
def _here(workers: int) -> Iterator[Engine]:
    """No engine: this process, and so many threads."""
    pyarrow.set_cpu_count(workers)
    yield Engine(lambda source: source, list)


@contextlib.contextmanager
def _dask(workers: int) -> Iterator[Engine]:
    """A cluster of processes with one thread each."""
    from dask.distributed import Client, LocalCluster

    from unbayes.distributed import dask

    settings = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(processes=True, memory_limit=0, **settings) as cluster, Client(cluster) as client:
        yield Engine(
            lambda source: dask.source(source, client=client), lambda: sorted(client.run(os.getpid).values())
        )


@contextlib.contextmanager
def _spark(workers: int) -> Iterator[Engine]:
    """Spark on this machine, with so many threads, each of which has a process of Python."""
    from pyspark.sql import SparkSession

    from unbayes.distributed import spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1"}
    session = SparkSession.builder.master(f"local[{workers}]").config(map=settings).getOrCreate()

    def source(found: ub.Scan) -> Any:
        *columns, target = found.columns or ()
        places = dict.fromkeys(file.name for file in found.reader.files)
        frame = session.read.parquet(*places)
        return spark.source(frame, columns=columns, target=target, batch_rows=found.batch_rows)

    try:
        yield Engine(source, list)
    finally:
        session.stop()


ENGINES = {"here": _here, "dask": _dask, "spark": _spark}


def on_engine(
    engine: str,
    workers: int,
    model: str,
    files: list[str],
    warm: list[str],
    out: str,
    batch_rows: int = BATCH,
    kill: float | None = None,
    posterior: str | None = None,
) -> dict[str, Any]:
    """Statistics of all records by an engine whose workers are up and have compiled; saved to `out`.

    `kill` is after how many seconds to end a worker, as an operating system does that runs out of memory.
    """
    belief, own = trained(model, posterior), MODELS[model]()
    with ENGINES[engine](workers) as running:

        def run(files):
            source = running.source(scanned(files, model, batch_rows=batch_rows))
            return ub.summarise(belief, own, source, key=KEY)

        if warm:
            run(warm)
        victim = None if kill is None else running.processes()[0]
        began = time.perf_counter()
        if kill is not None:
            threading.Timer(kill, os.kill, (victim, signal.SIGKILL)).start()
        statistics = run(files)
        seconds = time.perf_counter() - began
        survived = victim is None or victim in running.processes()
    if kill is not None and (survived or seconds <= kill):
        raise RuntimeError("the worker was to be killed in the middle of the work, and was not")
    ub.save_statistics(out, statistics)
    sent = len(pickle.dumps(jax.device_get(jax.tree.leaves(statistics))))
    return {"seconds": seconds, "records": statistics.records, "bytes": sent, "peak": peak()}


def differences(model: str, files: list[str], posterior: str | None = None) -> dict[str, Any]:
    """How far statistics are from the first ones and, where that is possible, what solving makes of them.

    Entries are compared with the largest one of their array: near zero they are differences of large numbers.
    """
    first, *others = (ub.load_statistics(each) for each in files)

    def away(left, right):
        pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
        return max(float(np.abs(np.subtract(*pair)).max() / np.abs(pair[0]).max()) for pair in pairs)

    found: dict[str, Any] = {
        "statistics": [away((first.value, first.site), (each.value, each.site)) for each in others]
    }
    if posterior is not None:
        belief, own = trained(model, posterior), MODELS[model]()
        solved = [ub.solve(belief, own, each, key=KEY) for each in (first, *others)]
        found["posterior"] = [away(solved[0].posterior, each.posterior) for each in solved[1:]]
        found["verdicts"] = sorted({str(each.verdict) for each in solved})
    return found


def fit(files: list[str], warm: list[str], streamed: bool) -> dict[str, Any]:
    """Logistic regression, in passes over the files or of all their records in memory."""
    model = MODELS["logistic"]()
    source = scanned(files, "logistic")
    if streamed:
        ub.fit(model, scanned(warm, "logistic"), roster=False, key=KEY)
        records_ = source
    else:
        parts = [batch.records for part in source.parts() for batch in part.batches()]
        records_ = tuple(np.concatenate(each) for each in zip(*parts, strict=True))
        ub.fit(model, records_, roster=False, key=KEY)
    began = time.perf_counter()
    found = ub.fit(model, records_, roster=False, key=KEY)
    seconds = time.perf_counter() - began
    x, _, label = records(HELD_OUT, HELD_OUT_ROWS)
    likelihood = float(model.log_predictive(found.posterior, (x.T, label)).mean())
    return {
        "seconds": seconds,
        "passes": found.passes,
        "per row and pass": seconds / found.passes / (source.rows or 1),
        "log-likelihood": likelihood,
        "peak": peak(),
    }


def descend(files: list[str], passes: int) -> dict[str, Any]:
    """scikit-learn's stochastic gradients over the same stream, with the same prior."""
    from sklearn.linear_model import SGDClassifier

    source = scanned(files, "logistic")
    rows = source.rows or 1
    # The same prior. Averages of steps of one size are what is advised for a pass or a few.
    settings = {"loss": "log_loss", "alpha": 1 / (9 * rows), "learning_rate": "constant", "eta0": 0.01}
    machine = SGDClassifier(**settings, average=True, random_state=0)
    x, _, label = records(HELD_OUT, HELD_OUT_ROWS)
    times, likelihoods = [], []
    for _ in range(passes):
        began = time.perf_counter()
        for part in source.parts():
            for batch in part.batches():
                machine.partial_fit(*batch.records, classes=[0, 1])
        times.append(time.perf_counter() - began)
        f = machine.decision_function(x.T.astype(np.float64))
        likelihoods.append(float(-np.logaddexp(0, np.where(label == 1, -f, f)).mean()))
    return {"seconds": times, "log-likelihood": likelihoods, "peak": peak()}
