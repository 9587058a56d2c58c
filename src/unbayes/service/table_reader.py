"""A process of its own that reads tables which somebody has uploaded: it may run out of memory, or die.

It writes no files, and has no more memory than it is told. On standard input come a line of JSON with its
limits and then tables; a frame is eight bytes with a length, and so many bytes. What is asked for is a frame
of JSON and one with the table; the answer is a frame of JSON and one with the numbers.
"""

import io
import json
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from unbayes.data.choosing import require_found
from unbayes.data.columns import Columns
from unbayes.data.refusal import Refused
from unbayes.data.rows import PARQUET_MAGIC, AbstractRows, CSVRows, ParquetRows

if TYPE_CHECKING:
    import pyarrow

ARROW_FILE, ARROW_STREAM = b"ARROW1", b"\xff\xff\xff\xff"
LENGTH_BYTES = 8
BATCH = 32 * 1024
# What the description of a Parquet file may take.
DESCRIPTION_BYTES, DESCRIPTION_ITEMS = 8 * 2**20, 100_000
LONGEST_WORD = 1000
TOO_LARGE = "the table must take less memory when it is read; send it in parts"


class InMemory:
    """Stands for the path of a table that is in no file."""

    def __init__(self, data: bytes):
        self._data = data

    def __str__(self) -> str:
        return "the table"

    def open(self, *_: Any, encoding: str, newline: str) -> io.TextIOWrapper:
        """What `Path.open` gives."""
        return io.TextIOWrapper(io.BytesIO(self._data), encoding, newline=newline)


class ArrowRows(ParquetRows):
    """A table that pyarrow has read, with the columns that are needed."""

    def __init__(self, table: "pyarrow.Table"):
        self.path = InMemory(b"")  # pyright: ignore[reportAttributeAccessIssue]
        self.names, self._table = list(table.column_names), table

    def words(self, column: str) -> list[str]:
        """The cells of one column; of numbers, their digits."""
        from pyarrow import types

        kind = self._table.column(column).type
        plain = kind.value_type if types.is_dictionary(kind) else kind
        allowed = (types.is_string, types.is_large_string, types.is_string_view, types.is_integer)
        if not any(is_kind(plain) for is_kind in allowed):
            raise Refused(f"column {column} of the table must hold words or whole numbers, but is {kind}")
        return super().words(column)

    def _read(self, columns: Sequence[str]) -> "pyarrow.Table":
        return self._table.select(list(columns))


def read(data: bytes, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Identifiers, people and numbers of a table."""
    form, subject = asked["columns"], asked["subject"]
    columns = Columns(form["inputs"], form["target"])
    words = [form["ids"], *([] if subject is None else [subject])]
    table = _open(data, [*columns.columns, *words], asked["most_rows"])
    found = [table.words(name) for name in words]
    if any(len(word) > LONGEST_WORD for column in found for word in column):
        raise Refused(f"the words of the table must have at most {LONGEST_WORD} characters")
    numbers = table.encoded(columns).astype("<f8").tobytes()
    return {"ids": found[0], "subjects": None if subject is None else found[1]}, numbers


def _open(data: bytes, wanted: list[str], most_rows: int) -> AbstractRows:
    """The table, by its first bytes; with a column of each name that is wanted."""
    import pyarrow

    if not data:
        raise Refused("the table must hold records, but is empty")
    try:
        if data.startswith(PARQUET_MAGIC):
            return _collect(_parquet(data, wanted, most_rows), most_rows)
        if data.startswith((ARROW_FILE, ARROW_STREAM)):
            return _collect(_arrow(data, wanted), most_rows)
    except pyarrow.ArrowMemoryError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        if isinstance(error, Refused):
            raise
        raise Refused("the table is damaged: it cannot be read as what its first bytes say") from error
    if data.count(b"\n") > most_rows + 1:
        raise _too_many(most_rows)
    table = CSVRows(InMemory(data), has_header=True)  # pyright: ignore[reportArgumentType]
    require_found(wanted, table.names, "the table")
    return table


def _parquet(data: bytes, wanted: list[str], most_rows: int) -> "Iterator[Any]":
    import pyarrow
    from pyarrow import parquet

    file = parquet.ParquetFile(
        pyarrow.BufferReader(data),
        thrift_string_size_limit=DESCRIPTION_BYTES,
        thrift_container_size_limit=DESCRIPTION_ITEMS,
        pre_buffer=False,
    )
    require_found(wanted, list(file.schema_arrow.names), "the table")
    if file.metadata.num_rows > most_rows:
        raise _too_many(most_rows)
    yield pyarrow.schema([file.schema_arrow.field(name) for name in wanted])
    for batch in file.iter_batches(BATCH, columns=wanted, use_threads=False):
        yield batch.select(wanted)


def _arrow(data: bytes, wanted: list[str]) -> "Iterator[Any]":
    import pyarrow
    from pyarrow import ipc

    is_file = data.startswith(ARROW_FILE)
    start = ipc.open_file if is_file else ipc.open_stream
    schema = start(pyarrow.BufferReader(data)).schema
    require_found(wanted, list(schema.names), "the table")
    places = sorted(schema.get_field_index(name) for name in wanted)
    options = ipc.IpcReadOptions(use_threads=False, included_fields=places)
    reader = start(pyarrow.BufferReader(data), options=options)
    yield pyarrow.schema([schema.field(name) for name in wanted])
    batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
    for batch in batches:
        # Offsets that lead elsewhere would be read as they are.
        batch.validate(full=True)
        yield batch.select(wanted)


def _collect(parts: "Iterator[Any]", most_rows: int) -> ArrowRows:
    import pyarrow

    schema, batches, rows = next(parts), [], 0
    for batch in parts:
        rows += batch.num_rows
        if rows > most_rows:
            raise _too_many(most_rows)
        batches.append(batch)
    if not rows:
        raise Refused("the table must hold records, but has none")
    return ArrowRows(pyarrow.Table.from_batches(batches, schema))


def _too_many(most_rows: int) -> Refused:
    return Refused(f"the table must have at most {most_rows} rows; send it in parts")


def main() -> None:
    """Read tables until there are no more."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Whatever a library prints goes elsewhere.
    os.dup2(2, 1)
    limits = json.loads(source.readline())
    _restrict(limits["memory"])
    while (header := read_frame(source)) is not None:
        asked, data = json.loads(header), read_frame(source)
        try:
            answer, numbers = read(data or b"", asked)
            line = json.dumps(answer).encode()
            if len(line) + len(numbers) > limits["answer"]:
                raise MemoryError
        except MemoryError:
            line, numbers = json.dumps({"refused": TOO_LARGE}).encode(), b""
        except Refused as refusal:
            line, numbers = json.dumps({"refused": str(refusal)}).encode(), b""
        del data
        write_frames(sink, line, numbers)


def _restrict(memory: int) -> None:
    """Import what is needed, then allow so many bytes more, no files, and no picture of the memory."""
    import numpy as np  # noqa: F401
    import pyarrow
    from pyarrow import ipc, parquet  # noqa: F401

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    for limit, value in (
        (resource.RLIMIT_AS, now + memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def read_frame(source: IO[bytes], longest: int | None = None) -> bytes | None:
    """The next frame; None where there is none, or where it is too long."""
    head = source.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "little")
    if longest is not None and length > longest:
        return None
    data = source.read(length)
    return data if len(data) == length else None


def write_frames(sink: IO[bytes], *frames: bytes) -> None:
    """Write frames."""
    for frame in frames:
        sink.write(len(frame).to_bytes(LENGTH_BYTES, "little"))
        sink.write(frame)
    sink.flush()


if __name__ == "__main__":
    main()
