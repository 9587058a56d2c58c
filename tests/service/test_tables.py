"""Uploaded tables: what is well is read, and nothing that is bad takes the service down."""

import csv
import io
import os
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from unbayes.data.columns import Column
from unbayes.data.refusal import Refused
from unbayes.ledger.records import TableColumns
from unbayes.service import ServiceSettings
from unbayes.service.settings import MEBIBYTE
from unbayes.service.tables import TableReaders

COLUMNS = TableColumns(("a", "b"), "y", "id")
ROWS = 7


@pytest.fixture(scope="module")
def readers():
    settings = ServiceSettings(
        most_rows=50_000, table_memory=200 * MEBIBYTE, table_seconds=10, table_readers=1
    )
    readers = TableReaders(settings)
    yield readers
    readers.close()


def table(rows=ROWS, **more):
    rng = np.random.default_rng(0)
    columns = {
        "y": rng.normal(size=rows),
        "id": [f"r{i}" for i in range(rows)],
        "note": ["left alone"] * rows,
        "b": rng.normal(size=rows).astype(np.float32),
        "a": rng.integers(0, 9, rows),
        "who": [f"person {i % 3}" for i in range(rows)],
    }
    return pa.table(columns | more)


def as_parquet(value, **options):
    sink = io.BytesIO()
    parquet.write_table(value, sink, **options)
    return sink.getvalue()


def as_arrow(value, writer=ipc.new_file, **options):
    sink = io.BytesIO()
    with writer(sink, value.schema, options=ipc.IpcWriteOptions(**options)) as out:
        out.write_table(value)
    return sink.getvalue()


def as_csv(value):
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(value.column_names)
    writer.writerows(zip(*(column.to_pylist() for column in value.columns), strict=True))
    return text.getvalue().encode()


FORMS = {
    "Parquet": as_parquet,
    "Arrow file": as_arrow,
    "Arrow stream": lambda value: as_arrow(value, ipc.new_stream),
    "compressed": lambda value: as_arrow(value, compression="zstd"),
    "CSV": as_csv,
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_known_by_its_first_bytes(readers, form):
    value = table()
    ((person, records),) = readers.read(FORMS[form](value), COLUMNS)
    assert person is None
    assert records.ids == tuple(f"r{i}" for i in range(ROWS))
    expected = np.stack([value.column(name).to_numpy().astype(float) for name in ("a", "b", "y")], axis=1)
    np.testing.assert_allclose(records.numbers, expected, rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_the_people_of_a_table(readers, form):
    people = dict(readers.read(FORMS[form](table()), COLUMNS, "who"))
    assert {who: records.ids for who, records in people.items()} == {
        "person 0": ("r0", "r3", "r6"),
        "person 1": ("r1", "r4"),
        "person 2": ("r2", "r5"),
    }


def test_identifiers_may_be_numbers_or_a_dictionary(readers):
    for ids in (pa.array(range(ROWS)), pa.array([f"r{i}" for i in range(ROWS)]).dictionary_encode()):
        value = table().set_column(1, "id", ids)
        ((_, records),) = readers.read(as_arrow(value), COLUMNS)
        assert records.ids == tuple(map(str, ids.to_pylist()))


NAN = float("nan")
WRONG = {
    "no column": (lambda: as_parquet(table().drop_columns("b")), "no column b"),
    "two of a name": (lambda: as_arrow(table().append_column("a", [[0] * ROWS])), "more than one column a"),
    "words for numbers": (lambda: as_parquet(table(a=["x"] * ROWS)), "column a .* must hold numbers"),
    "no number": (lambda: as_parquet(table(b=[1.0, NAN] + [1.0] * 5)), "row 1 .* finite"),
    "null": (lambda: as_parquet(table(y=[None] + [1.0] * 6)), "row 0 .* finite"),
    "no identifier": (lambda: as_parquet(table(id=["x", ""] + ["y"] * 5)), "row 1"),
    "twice": (lambda: as_parquet(table(id=["x"] * ROWS)), "each record once"),
    "nested": (lambda: as_parquet(table(id=[[1]] * ROWS)), "words or whole numbers"),
    "long words": (lambda: as_parquet(table(id=["x" * 999 + f"0{i}" for i in range(ROWS)])), "most 1000"),
    "no rows": (lambda: as_parquet(table(0)), "has none"),
    "no rows in Arrow": (lambda: as_arrow(table(0)), "has none"),
    "no rows in CSV": (lambda: b"id,a,b,y\n", "has none"),
    "no bytes": (lambda: b"", "is empty"),
    "too many rows": (lambda: as_parquet(table(50_001)), "at most 50000 rows"),
    "too many in Arrow": (lambda: as_arrow(table(50_001)), "at most 50000 rows"),
    "too many in CSV": (lambda: b"id,a,b,y\n" + b"r,1,2,3\n" * 50_002, "at most 50000 rows"),
    "a bad cell": (lambda: b"id,a,b,y\nr,1,x,3\n", "line 2, column b"),
    "a short line": (lambda: b"id,a,b,y\nr,1\n", "4 cells"),
    "no text": (lambda: b"id,a,b,y\nr\xff,1,2,3\n", "UTF-8"),
    "a zip": (lambda: b"PK\x03\x04" + bytes(range(256)), "UTF-8|no column|CSV"),
    "gzip": (lambda: b"\x1f\x8b" + zlib.compress(b"0" * 100_000), "UTF-8|no column|CSV"),
    "a NUL": (lambda: b"\x00" * 1000, "no column|CSV|line contains NUL"),
    "only magic": (lambda: b"PAR1", "damaged"),
    "magic twice": (lambda: b"PAR1" + b"\x00" * 100 + b"PAR1", "damaged"),
    "Arrow magic": (lambda: b"ARROW1\x00\x00", "damaged"),
    "stream magic": (lambda: b"\xff\xff\xff\xff" + b"\x10\x00\x00\x00" + b"\x07" * 40, "damaged"),
    "a huge length": (lambda: b"\xff" * 4 + struct.pack("<i", 2**31 - 1) + b"\x00" * 40, "damaged|memory"),
    "a long footer": (lambda: b"PAR1" + struct.pack("<I", 2**32 - 1) + b"PAR1", "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(readers, case):
    make, sentence = WRONG[case]
    with pytest.raises(Refused, match=sentence):
        readers.read(make(), COLUMNS)


@pytest.mark.parametrize("form", [as_parquet, as_arrow])
def test_a_table_cut_anywhere_or_changed_anywhere_is_refused_or_read(readers, form):
    data, rng = form(table()), np.random.default_rng(1)
    for _ in range(60):
        place = int(rng.integers(4, len(data)))
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        for bad in (data[:place], bytes(changed)):
            try:
                ((_, records),) = readers.read(bad, COLUMNS)
            except Refused:
                continue
            assert len(records) <= ROWS
    assert readers.read(data, COLUMNS)


def bomb_of_words():
    """A few bytes that stand for fifty gigabytes: one long word, in every row."""
    rows = 50_000
    ids = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 1_000_000]))
    value = table(rows).drop_columns("id").append_column("id", ids)
    return as_parquet(value, compression="zstd", use_dictionary=["id"], store_schema=False)


def bomb_of_zeros():
    """Arrow buffers that are compressed a thousand times: more than there is memory, in rows that are few."""
    value = table(5).drop_columns("id").append_column("id", pa.array(["\0" * 60_000_000] * 5))
    return as_arrow(value, compression="zstd")


def bomb_of_lists():
    value = table(1).append_column("deep", pa.array([[[0] * 4_000_000]]))
    return as_parquet(value.drop_columns("id").append_column("id", value.column("deep")), compression="zstd")


@pytest.mark.parametrize("bomb", [bomb_of_words, bomb_of_zeros, bomb_of_lists])
def test_a_bomb_harms_nobody(readers, bomb):
    data = bomb()
    assert len(data) < MEBIBYTE
    with pytest.raises(Refused, match=r"memory|words"):
        readers.read(data, COLUMNS)
    assert readers.read(as_parquet(table()), COLUMNS)


def test_a_reader_that_dies_is_replaced(readers):
    readers.read(as_csv(table()), COLUMNS)
    reader = readers._free.get()
    os.kill(reader._process.pid, 9)
    reader._process.wait()
    readers._free.put(reader)
    assert readers.read(as_csv(table()), COLUMNS)


def test_a_reader_that_takes_too_long_is_ended():
    readers = TableReaders(ServiceSettings(table_seconds=0.001, table_readers=1))
    with pytest.raises(Refused, match="too much time"):
        readers.read(as_csv(table()), COLUMNS)
    readers.close()


def test_readers_write_no_files(readers):
    """Nothing that a reader has open is a file, and it may not make one grow."""
    readers.read(as_csv(table(50_000)), COLUMNS)
    reader = readers._free.get()
    readers._free.put(reader)
    place = f"/proc/{reader._process.pid}"
    opened = {os.readlink(f"{place}/fd/{each}") for each in os.listdir(f"{place}/fd")}
    assert not [name for name in opened if name.startswith("/") and not name.startswith("/dev/")]
    with open(f"{place}/limits") as file:
        limits = file.read()
    assert "Max file size             0 " in limits
    assert "Max core file size        0 " in limits


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_encoded_as_training_records_were(readers, form):
    who = ("person 0", "person 1", "person 2")
    columns = TableColumns([Column("a", mean=1.0, scale=2.0), Column("who", who)], "y", "id")
    ((_, records),) = readers.read(FORMS[form](table()), columns)
    rows = table().to_pylist()
    expected = [[(row["a"] - 1) / 2, *(row["who"] == each for each in who), row["y"]] for row in rows]
    np.testing.assert_allclose(records.numbers, expected, rtol=1e-12)
