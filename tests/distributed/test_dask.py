"""Sums over records in a Dask cluster are those of one process."""

import asyncio
import os
import pickle
import signal

import jax
import numpy as np
import pytest

import unbayes as ub
from counting import Count
from problems import KEY, assert_same, logistic, take
from unbayes.data import files
from unbayes.data.refusal import Refused
from unbayes.data.source import AbstractTask

dask = pytest.importorskip("dask", reason="needs the extra dask")
dd = pytest.importorskip("dask.dataframe")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from unbayes.distributed import dask as on_dask  # noqa: E402
from unbayes.distributed import sending  # noqa: E402

INPUTS = ["a", "b"]
PROBLEM = logistic()
MODEL = PROBLEM.model
FRAME = pd.DataFrame(
    {
        **{name: PROBLEM.full[0][:, place] for place, name in enumerate(INPUTS)},
        "y": PROBLEM.full[1],
        "id": [f"r{row}" for row in range(150)],
    }
)
COLUMNS = {"columns": INPUTS, "target": "y"}


@pytest.fixture(scope="module")
def client():
    """Two workers, each a process, which compile in a hurry as the tests do."""
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    try:
        with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
            yield client
    finally:
        del os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three files of fifty records, each a part of its own."""
    monkeypatch.setattr(files, "PART_ROWS", 1)
    for number in range(3):
        table = pa.Table.from_pandas(FRAME[50 * number : 50 * number + 50], preserve_index=False)
        pq.write_table(table, tmp_path / f"{number}.parquet")
    return tmp_path


def in_files(folder):
    """A scan of the files."""
    return ub.scan(folder, **COLUMNS), {}


def in_frame(folder=None, size=50):
    """A frame in partitions, and how to read it."""
    return dd.from_pandas(FRAME, chunksize=size), COLUMNS


def in_arrays(folder=None, size=50):
    """A pair of arrays in chunks."""
    return tuple(da.from_array(each, chunks=size) for each in PROBLEM.full), {}


@pytest.mark.parametrize("records", [in_files, in_frame, in_arrays])
def test_training_is_that_of_one_process(client, folder, records):
    here = ub.fit(MODEL, in_files(folder)[0], memory=(ub.Sums(), 20), key=KEY)
    data, columns = records(folder)
    there = on_dask.fit(MODEL, data, client=client, **columns, memory=(ub.Sums(), 20), key=KEY)
    assert_same(there.posterior, here.posterior)
    assert_same(there.memory, here.memory)
    assert (there.passes, there.converged) == (here.passes, here.converged)


@pytest.mark.parametrize("records", [in_frame, in_arrays])
def test_partitions_change_nothing_but_rounding(client, records):
    trained = ub.fit(MODEL, PROBLEM.full, key=KEY)
    here = ub.summarise(trained.posterior, MODEL, PROBLEM.full, memory=trained.memory, key=KEY)
    for size in (7, 150):
        data, columns = records(size=size)
        there = on_dask.summarise(
            trained.posterior, MODEL, data, client=client, **columns, memory=trained.memory, key=KEY
        )
        assert_same(there, here)


def test_arrays_need_not_be_in_the_same_chunks(client):
    trained = ub.fit(MODEL, PROBLEM.full, key=KEY)
    here = ub.summarise(trained.posterior, MODEL, PROBLEM.full, key=KEY)
    inputs = da.from_array(PROBLEM.full[0], chunks=(40, 1))
    targets = da.from_array(PROBLEM.full[1], chunks=70)
    there = on_dask.summarise(trained.posterior, MODEL, (inputs, targets), client=client, key=KEY)
    assert_same(there, here)


def test_one_array_is_conditioned_on_exactly(client):
    model = ub.BetaBernoulli(ub.Beta(1.0, 2.0))
    trained = on_dask.fit(model, da.from_array(PROBLEM.full[1], chunks=40), client=client, key=KEY)
    ones = PROBLEM.full[1].sum()
    assert_same(trained.posterior, ub.Beta(1.0 + ones, 2.0 + 150 - ones))


def test_erased_records_are_found_in_few_partitions(client):
    """Some partitions hold none of them."""
    trained = ub.fit(MODEL, PROBLEM.full, ids=FRAME["id"], key=KEY)
    settings = {"memory": trained.memory, "key": KEY}
    erased = FRAME["id"][60:80].tolist()
    here = ub.unlearn(trained.posterior, MODEL, take(PROBLEM.full, slice(60, 80)), ids=erased, **settings)
    frame, _ = in_frame()
    there = on_dask.unlearn(
        trained.posterior, MODEL, frame[frame["id"].isin(erased)], ids="id", **COLUMNS, **settings
    )
    assert_same(there.posterior, here.posterior)
    assert_same(there.memory, here.memory)
    assert there.verdict == here.verdict
    with pytest.raises(ValueError, match="must hold at least one record"):
        on_dask.summarise(trained.posterior, MODEL, frame[frame["id"] == "r"], **COLUMNS, **settings)


@pytest.mark.long
def test_refining_is_that_of_one_process(client):
    trained = ub.fit(MODEL, PROBLEM.full, key=KEY)
    here = ub.refine(trained.posterior, MODEL, PROBLEM.remaining, key=KEY)
    # Of a size that nobody knows before it is computed.
    frame = in_frame()[0].loc[: len(PROBLEM.remaining[1]) - 1]
    arrays = frame[INPUTS].to_dask_array(), frame["y"].to_dask_array()
    for data, columns in ((frame, COLUMNS), (arrays, {})):
        there = on_dask.refine(trained.posterior, MODEL, data, client=client, **columns, key=KEY)
        assert_same(there.posterior, here.posterior)
        assert there.memory.records == 130


class Processes(AbstractTask):
    """In which processes parts are summed up."""

    def of(self, batch):
        return {os.getpid()}

    def add(self, left, right):
        return left | right


def test_work_is_done_where_it_was_asked_for(client):
    frame, columns = in_frame(size=10)
    for given in (client, None):
        assert os.getpid() not in on_dask.source(frame, client=given, **columns).total(Processes())
    with dask.config.set(scheduler="threads"):
        assert on_dask.source(frame, **columns).total(Processes()) == {os.getpid()}


def test_threads_of_this_process_do_as_well(folder):
    here = ub.fit(MODEL, in_files(folder)[0], memory=20, key=KEY)
    with dask.config.set(scheduler="threads"):
        progress = Count()
        there = on_dask.fit(MODEL, in_frame()[0], **COLUMNS, memory=20, key=KEY, progress=progress)
    assert_same(there.memory, here.memory)
    assert [done for _, _, done, _ in progress.passes] == [150] * there.passes


def test_progress_counts_what_workers_have_done(client, folder):
    progress = Count()
    trained = ub.fit(MODEL, PROBLEM.full, key=KEY)
    on_dask.refine(
        trained.posterior, MODEL, in_files(folder)[0], client=client, passes=2, key=KEY, progress=progress
    )
    assert [(total, done) for _, total, done, _ in progress.passes] == [(150, 150)]


def test_a_checkpoint_knows_what_is_read(folder):
    """The same collection made again, and no other."""
    for records in (in_frame, in_arrays):
        one, again, other = (
            on_dask.source(data, **columns).signature
            for data, columns in (records(), records(), records(size=10))
        )
        assert one == again != other
    scan, _ = in_files(folder)
    assert on_dask.source(scan).signature == scan.signature


def test_trouble_names_the_partition_and_the_row(client):
    wrong = FRAME.copy()
    wrong.loc[70, "a"] = np.nan
    expected = r"partition 1 \(from 0\): .*row 20 \(from 0\)"
    with pytest.raises(Refused, match=expected):
        on_dask.fit(MODEL, dd.from_pandas(wrong, chunksize=50), client=client, **COLUMNS, key=KEY)
    arrays = da.from_array(wrong[INPUTS].to_numpy(), chunks=50), in_arrays()[0][1]
    with pytest.raises(Refused, match=expected):
        on_dask.fit(MODEL, arrays, client=client, key=KEY)


def test_a_damaged_file_is_named(client, folder):
    source, _ = in_files(folder)
    (folder / "1.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(Refused, match=r"1\.parquet cannot be read"):
        on_dask.fit(MODEL, source, client=client, key=KEY)


def test_what_workers_cannot_read_is_refused(client, folder):
    frame, arrays = in_frame()[0], in_arrays()[0]
    scan = in_files(folder)[0]
    for wrong in (scan, arrays):
        with pytest.raises(Refused, match="columns, target and ids must be left out"):
            on_dask.source(wrong, columns=INPUTS)
    with pytest.raises(Refused, match="an iterator stays in this process"):
        on_dask.source(ub.scan(iter([PROBLEM.full])))
    with pytest.raises(Refused, match="must be arrays of the same number of records"):
        on_dask.source((arrays[0], arrays[1][:140]))
    with pytest.raises(TypeError, match=r"data must be a dask\.dataframe"):
        on_dask.source(FRAME, **COLUMNS)
    with pytest.raises(Refused, match="c"):
        on_dask.source(frame, columns=["c"], target="y")
    with pytest.raises(TypeError, match="client must be a Client of Dask's"):
        on_dask.source(frame, client="localhost", **COLUMNS)

    async def asynchronously():
        async with distributed.Client(client.scheduler.address, asynchronous=True) as other:
            on_dask.source(frame, client=other, **COLUMNS)

    with pytest.raises(TypeError, match="that is not asynchronous"):
        asyncio.run(asynchronously())


@pytest.mark.parametrize("library", ["unbayes", "jax"])
def test_workers_of_another_version_refuse(library, folder):
    job = pickle.loads(sending.job_of(Processes()))._replace(sender="elsewhere", **{library: "0.0"})
    with pytest.raises(RuntimeError, match=f"workers must run {library} 0.0 as the process does"):
        sending.partial_of(pickle.dumps(job), in_files(folder)[0], threads=1)


def test_workers_compute_in_the_senders_precision(client):
    with jax.enable_x64(False):
        model = ub.logistic_regression(2)
        here = ub.fit(model, ub.scan(lambda: iter([PROBLEM.full])), key=KEY)
        there = on_dask.fit(model, in_frame(size=150)[0], client=client, **COLUMNS, key=KEY)
        assert there.posterior.dtype == here.posterior.dtype == np.float32
        np.testing.assert_allclose(there.posterior.mean, here.posterior.mean, 1e-5)


def test_a_worker_that_is_killed_changes_nothing(client, folder):
    here = ub.fit(MODEL, in_files(folder)[0], key=KEY)
    marker = folder.with_name("killed")

    def dies_once(batch):
        table = batch.to_pandas()
        if (table["id"] == "r60").any() and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return table[INPUTS].to_numpy(), table["y"].to_numpy()

    there = on_dask.fit(MODEL, ub.scan(folder, columns=dies_once), client=client, key=KEY)
    assert marker.exists()
    assert_same(there.posterior, here.posterior)
    assert_same(there.memory, here.memory)
