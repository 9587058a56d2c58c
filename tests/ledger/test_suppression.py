"""Whom a training leaves out, whatever its table reads identifiers as."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from unbayes.data.refusal import Refused
from unbayes.ledger import LedgerError, Records

GONE = (3, 5)


@pytest.fixture
def numbered(ledger, setting):
    """Whom to leave out of 300 records that are called by numbers; requests named them in two ways."""
    for row, name in zip(GONE, (np.int64(GONE[0]), float(GONE[1])), strict=True):
        records = Records.of_arrays(setting.x[[row]], setting.y[[row]], [name])
        ledger.approve(ledger.request("m", subject=f"p{row}", rows=records).id)
    return ledger.suppressed("m")


IDS = {
    "integers": np.arange(10),
    "floats": np.arange(10, dtype=float),
    "short floats": np.arange(10, dtype=np.float32),
    "words": [str(i) for i in range(10)],
    "a list": list(range(10)),
}


@pytest.mark.parametrize("kind", IDS)
def test_arrays(numbered, kind):
    assert np.flatnonzero(~numbered.keep(IDS[kind])).tolist() == list(GONE)
    assert numbered.count(IDS[kind]) == 2


def test_what_names_nobody(numbered):
    with pytest.raises(Refused, match=r"row 2 \(from 0\), ids must be words or whole numbers, but is empty"):
        numbered.keep([1.0, 2.0, float("nan")])


@pytest.mark.parametrize("kind", ["int64", "float64", "Int64", "str"])
def test_frames_of_pandas(numbered, kind):
    frame = pd.DataFrame({"id": pd.Series(range(10)).astype(kind), "x": range(10)})
    frame.index = range(50, 60)
    kept = numbered.filter_frame(frame)
    assert kept["x"].tolist() == [0, 1, 2, 4, 6, 7, 8, 9]
    assert kept.index.tolist() == [50, 51, 52, 54, 56, 57, 58, 59]


def test_a_frame_with_a_gap(numbered):
    frame = pd.DataFrame({"who": [3, None, 4]})
    with pytest.raises(Refused, match=r"row 1 \(from 0\), column who must be words or whole numbers"):
        numbered.filter_frame(frame, "who")
    assert numbered.filter_frame(frame.dropna(), "who")["who"].tolist() == [4.0]


@pytest.mark.parametrize("kind", [pl.Int32, pl.Float64, pl.String])
def test_frames_of_polars(numbered, kind):
    frame = pl.DataFrame({"id": range(10), "x": range(10)}).with_columns(pl.col("id").cast(kind))
    if kind == pl.String:
        assert frame["id"][3] == "3"
    assert numbered.filter_frame(frame)["x"].to_list() == [0, 1, 2, 4, 6, 7, 8, 9]


@pytest.mark.parametrize("frame", [pd.DataFrame({"x": [1]}), pl.DataFrame({"x": [1]})])
def test_frames_without_the_column(numbered, frame):
    with pytest.raises(LedgerError, match="must have a column id"):
        numbered.filter_frame(frame)


@pytest.mark.parametrize("kind", ["int64", "float64", "string"])
def test_tables(numbered, tmp_path, kind):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = pa.array(range(10)).cast(pa.type_for_alias(kind))
    pq.write_table(pa.table({"id": cells, "x": range(10)}), tmp_path / "all.parquet")
    assert numbered.filter_parquet(tmp_path / "all.parquet", tmp_path / "kept.parquet") == 2
    assert pq.read_table(tmp_path / "kept.parquet").column("x").to_pylist() == [0, 1, 2, 4, 6, 7, 8, 9]


def test_a_table_with_a_gap_writes_nothing(numbered, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"id": [1.0, None]}), tmp_path / "all.parquet")
    with pytest.raises(Refused, match=r"row 1 \(from 0\), column id of"):
        numbered.filter_parquet(tmp_path / "all.parquet", tmp_path / "kept.parquet")
    assert not (tmp_path / "kept.parquet").exists()


def test_requests_from_tables_of_floats(ledger, setting, tmp_path):
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    columns = {"a": setting.x[:2, 0], "b": setting.x[:2, 1], "y": setting.y[:2]}
    pq.write_table(pa.table({"id": [7.0, 8.0], **columns}), tmp_path / "rows.parquet")
    ledger.approve(ledger.request("m", subject="p", rows=tmp_path / "rows.parquet").id)
    assert ledger.suppressed("m").keep(["7", "8", "9"]).tolist() == [False, False, True]
