"""Sums over a Spark DataFrame are those of one process."""

import os
import shutil
import signal
import sys

import numpy as np
import pytest

import unbayes as ub
from counting import Count
from problems import KEY, assert_same, logistic, take
from unbayes.data import files
from unbayes.data.refusal import Refused

pytest.importorskip("pyspark", reason="needs the extra spark")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java", allow_module_level=True)

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from unbayes.distributed import spark as on_spark

pytestmark = [
    pytest.mark.long,
    # Spark says so wherever Arrow is used, though no pandas is.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # To start Java, which is another program at once.
    pytest.mark.filterwarnings(r"ignore:os.fork\(\) was called:RuntimeWarning"),
]

PROBLEM = logistic()
MODEL = PROBLEM.model
TABLE = pa.table(
    {
        "a": PROBLEM.full[0][:, 0],
        "b.c": PROBLEM.full[0][:, 1],
        "y": PROBLEM.full[1],
        "id": [f"r{row}" for row in range(150)],
    }
)
COLUMNS = {"columns": ["a", "b.c"], "target": "y"}


@pytest.fixture(scope="module")
def spark():
    """Two workers on this machine, which try again where one is lost."""
    environment = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "PYSPARK_PYTHON": sys.executable}
    os.environ.update(environment)
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "localhost").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
        for name in environment:
            del os.environ[name]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three files of fifty records, each a part of its own."""
    monkeypatch.setattr(files, "PART_ROWS", 1)
    for number in range(3):
        pq.write_table(TABLE.slice(50 * number, 50), tmp_path / f"{number}.parquet")
    return tmp_path


def frame_of(spark, table, partitions):
    """A frame in so many partitions, in order."""
    rows = -(-len(table) // partitions)
    parts = [table.slice(first, rows).to_pylist() for first in range(0, len(table), rows)]
    records = [tuple(row.values()) for part in parts for row in part]
    return spark.createDataFrame(
        spark.sparkContext.parallelize(records, partitions), "a double, `b.c` double, y long, id string"
    )


def test_training_is_that_of_one_process(spark, folder):
    settings = {"memory": (ub.Sums(), 20), "key": KEY}
    here = ub.fit(MODEL, ub.scan(folder, **COLUMNS), **settings)
    progress = Count()
    there = on_spark.fit(MODEL, frame_of(spark, TABLE, 3), **COLUMNS, **settings, progress=progress)
    assert_same(there.posterior, here.posterior)
    assert_same(there.memory, here.memory)
    assert [done for _, _, done, _ in progress.passes] == [150] * here.passes


def test_erased_records_are_found_in_few_partitions(spark):
    """More partitions than are added at once, most of them without a record."""
    trained = ub.fit(MODEL, PROBLEM.full, ids=TABLE["id"].to_pylist(), key=KEY)
    settings = {"memory": trained.memory, "key": KEY}
    erased = TABLE["id"].to_pylist()[60:80]
    here = ub.unlearn(trained.posterior, MODEL, take(PROBLEM.full, slice(60, 80)), ids=erased, **settings)
    frame = frame_of(spark, TABLE, 20)
    chosen = frame.where(frame["id"].isin(erased))
    there = on_spark.unlearn(trained.posterior, MODEL, chosen, ids="id", **COLUMNS, **settings)
    assert_same(there.posterior, here.posterior)
    assert_same(there.memory, here.memory)
    assert there.verdict == here.verdict
    sums = on_spark.summarise(trained.posterior, MODEL, chosen, ids="id", **COLUMNS, **settings)
    assert sums.records == 20
    with pytest.raises(ValueError, match="must hold at least one record"):
        on_spark.summarise(trained.posterior, MODEL, frame.where("id = 'r'"), **COLUMNS, **settings)


def test_refining_is_that_of_one_process(spark, tmp_path):
    trained = ub.fit(MODEL, PROBLEM.full, key=KEY)
    here = ub.refine(trained.posterior, MODEL, PROBLEM.remaining, key=KEY)
    frame = frame_of(spark, TABLE.slice(0, 130), 7)
    checkpoint = ub.Checkpoint(tmp_path)
    there = on_spark.refine(trained.posterior, MODEL, frame, **COLUMNS, key=KEY, checkpoint=checkpoint)
    assert_same(there.posterior, here.posterior)


def test_trouble_names_the_partition_and_the_row(spark):
    inputs = TABLE["a"].to_numpy().copy()
    inputs[70] = np.nan
    wrong = frame_of(spark, TABLE.set_column(0, "a", pa.array(inputs)), 3)
    with pytest.raises(Refused, match=r"partition 1 \(from 0\): .*row 20 \(from 0\)"):
        on_spark.fit(MODEL, wrong, **COLUMNS, key=KEY)
    with pytest.raises(Refused, match="the data has no column c"):
        on_spark.source(wrong, columns=["c"], target="y")
    with pytest.raises(TypeError, match="data must be a DataFrame of Spark's"):
        on_spark.source(TABLE, **COLUMNS)


def test_a_worker_that_is_killed_changes_nothing(spark, tmp_path):
    here = ub.fit(MODEL, ub.scan(PROBLEM.full), key=KEY)
    marker = tmp_path / "killed"

    def dies_once(batch):
        table = batch.to_pydict()
        if "r60" in table["id"] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.stack([table["a"], table["b.c"]], axis=1), np.array(table["y"])

    there = on_spark.fit(MODEL, frame_of(spark, TABLE, 3), columns=dies_once, key=KEY)
    assert marker.exists()
    assert_same(there.posterior, here.posterior)
