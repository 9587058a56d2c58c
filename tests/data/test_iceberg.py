"""Iceberg tables as a source: the records of one snapshot."""

import numpy as np
import pytest

import unbayes as ub
from unbayes.data.refusal import Refused

pa = pytest.importorskip("pyarrow", reason="needs the extra data")
pytest.importorskip("pyiceberg", reason="needs the extra iceberg")
pytest.importorskip("sqlalchemy", reason="needs pyiceberg's catalogue in SQLite")

ROWS = 90


@pytest.fixture
def table(tmp_path):
    """Three data files of thirty records each."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("test", uri="sqlite://", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    rows = pa.table(
        {
            "row": list(range(ROWS)),
            "who": [f"p{i // 10}" for i in range(ROWS)],
            "x": [None if i == 45 else float(i) for i in range(ROWS)],
        }
    )
    made = catalog.create_table("n.t", schema=rows.schema)
    for first in range(0, ROWS, 30):
        made.append(rows.slice(first, 30))
    yield made
    catalog.close()


def read(data, **settings):
    """The numbers of the rows that a scan yields."""
    scan = ub.scan(data, columns=["row"], batch_rows=16, **settings)
    found = [batch.records[:, 0] for part in scan.parts() for batch in part.batches()]
    return sorted(np.concatenate(found).astype(int)) if found else []


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (None, range(ROWS)),
        (("who", "in", ["p1", "p7"]), [*range(10, 20), *range(70, 80)]),
        (("who", "named", ["p1"]), range(10, 20)),
        ([("x", ">=", 40), ("x", "<", 50)], [*range(40, 45), *range(46, 50)]),
        (("x", "in", [None, 3.0]), [3, 45]),
        (("x", "not in", [float(i) for i in range(80)]), [45, *range(80, 90)]),
        (("x", "!=", 3.0), [i for i in range(ROWS) if i not in (3, 45)]),
        (("who", "in", []), []),
    ],
)
def test_conditions(table, where, wanted):
    assert read(table, where=where) == list(wanted)


def test_rows_that_were_deleted_are_not_read(table):
    before = table.current_snapshot().snapshot_id
    signature = ub.scan(table, columns=["row"]).signature
    table.delete("row < 10 or row == 50")
    kept = [i for i in range(10, ROWS) if i != 50]
    assert read(table) == kept
    assert read(table.scan(row_filter="row > 80")) == list(range(81, 90))
    assert read(table.scan(snapshot_id=before)) == list(range(ROWS))
    assert ub.scan(table, columns=["row"]).rows == len(kept)
    assert ub.scan(table, columns=["row"]).signature != signature
    assert ub.scan(table.scan(snapshot_id=before), columns=["row"]).signature == signature


def test_only_files_that_matter_are_opened(table):
    scan = ub.scan(table, columns=["row"], where=("who", "in", ["p4"]))
    assert len(scan.reader.tasks) == 1
    assert scan.rows is None


def test_what_cannot_be_read_is_a_sentence(table, tmp_path):
    with pytest.raises(Refused, match="a scan must have no limit"):
        ub.scan(table.scan(limit=3), columns=["row"])
    with pytest.raises(Refused, match="where must name columns of the data, which have no weight"):
        ub.scan(table, columns=["row"], where=("weight", ">", 1))
    with pytest.raises(Refused, match=r"row 15 \(from 0\), column x is empty"):
        list(ub.scan(table, columns=["x"]).batches())
    scan = ub.scan(table, columns=["row"])
    files = sorted(tmp_path.rglob("*.parquet"))
    files[0].unlink()
    with pytest.raises(Refused, match="parquet cannot be read: the file is gone, as files are once"):
        list(scan.batches())
    files[1].write_bytes(b"no Parquet")
    files[2].write_bytes(b"no Parquet")
    with pytest.raises(Refused, match=r"parquet cannot be read: (it is damaged|the file is gone)"):
        list(ub.scan(table, columns=["row"], where=("row", "<", 30)).batches())
