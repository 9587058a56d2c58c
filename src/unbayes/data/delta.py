"""Delta tables: the records of one version, without those that were taken out."""

import dataclasses
import datetime
import glob
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from unbayes.data.files import FileReader
from unbayes.data.finding import DELTA_LOG, IN_DELTA, opened
from unbayes.data.pruning import has_views, may_hold, row_groups
from unbayes.data.readers import Piece
from unbayes.data.refusal import Refused
from unbayes.data.where import Condition, expression_of, require_columns

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.fs
    from deltalake import DeltaTable

# Features of the format that change nothing for those who read the rows, and vectors, which are read here.
READ_FEATURES = {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}


def is_open_delta(data: Any) -> bool:
    """Whether data are a Delta table that is open."""
    return type(data).__name__ == "DeltaTable" and type(data).__module__.startswith("deltalake")


def is_delta(data: Any, format: str | None, storage_options: dict[str, Any] | None) -> bool:
    """Whether data are a Delta table, or its address.

    Some of a table's files are refused: records that were deleted still stand in them.
    """
    if is_open_delta(data) or format == "delta":
        return True
    places = data if isinstance(data, list | tuple) else [data]
    if format is not None or not all(isinstance(each, str | os.PathLike) for each in places):
        return False
    tables = [_table_around(os.fspath(each), storage_options) for each in places]
    if not any(tables):
        return False
    if isinstance(data, str | os.PathLike) and tables[0] == os.fspath(data).rstrip("/"):
        return True
    table = next(each for each in tables if each)
    raise Refused(f"{table} {IN_DELTA}")


def _table_around(place: str, storage_options: dict[str, Any] | None) -> str | None:
    """The Delta table that a file or a folder is of; of addresses, only the place itself is looked at."""
    if "://" in place:
        filesystem, path = opened(place, storage_options)
        is_table = not glob.has_magic(place) and filesystem.exists(f"{path.rstrip('/')}/{DELTA_LOG}")
        return place.rstrip("/") if is_table else None
    steps = Path(place).parts
    start = next((i for i, step in enumerate(steps) if glob.has_magic(step)), len(steps))
    here = Path(*steps[:start])
    # Of a relative path, only the folders that it names.
    for folder in (here, *here.parents):
        if (folder / DELTA_LOG).is_dir():
            return place.rstrip("/") if folder == Path(place) else str(folder)
    return None


def open_table(
    data: Any, storage_options: dict[str, Any] | None = None, version: int | None = None
) -> "DeltaTable":
    """The table at an address, at its newest version or another; one that is open is taken as it is."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ModuleNotFoundError as error:
        raise Refused("Delta tables need pip install 'unbayes[delta]'") from error

    if is_open_delta(data):
        if storage_options is not None:
            raise Refused("storage_options must be left out for a table that is open: it has its own")
        if version is None:
            return data
        data, storage_options = data.table_uri, data._storage_options
    if not isinstance(data, str | os.PathLike):
        raise Refused("a Delta table must be one address, or a deltalake.DeltaTable")
    try:
        return DeltaTable(os.fspath(data), version=version, storage_options=storage_options)
    except TableNotFoundError as error:
        raise Refused(f"{os.fspath(data)} cannot be opened: there is no Delta table") from error
    except (DeltaError, OSError, ValueError) as error:
        at = "" if version is None else f" at version {version}"
        raise Refused(
            f"{os.fspath(data)} cannot be opened as a Delta table{at}: its log has no such version, is "
            "damaged, or needs other storage_options, as deltalake takes them"
        ) from error


def name_of(table: "DeltaTable") -> str:
    """What messages call it: its address; of one on this machine, its path."""
    uri = table.table_uri.rstrip("/")
    return url2pathname(urlsplit(uri).path) if uri.startswith("file://") else uri


def require_readable(table: "DeltaTable") -> None:
    """Refuse what would be read wrongly."""
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        missing = {"columnMapping"}
    else:
        missing = {*(table.protocol().reader_features or ())} - READ_FEATURES
    if missing:
        raise Refused(
            f"{name_of(table)} cannot be read: it needs {', '.join(sorted(missing))}, which unbayes does not "
            "read; write its rows to Parquet, or give batches of them"
        )


def schema_of(table: "DeltaTable") -> "pyarrow.Schema":
    """Arrow's types of the columns."""
    import pyarrow

    return pyarrow.schema(table.schema())


@dataclasses.dataclass(frozen=True)
class DeltaReader(FileReader):
    """Some files of a version.

    Attributes
    ----------
    kept
        Of files with a deletion vector, by their names: which rows there still are.
    """

    kept: "Mapping[str, pyarrow.BooleanArray]" = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> int | None:
        """From the files' metadata, where all records are wanted."""
        if self.conditions:
            return None
        return sum(
            self.kept[file.name].slice(file.first, file.rows).true_count
            if file.name in self.kept
            else file.rows or 0
            for file in self.files
        )

    def pieces(self, columns, size) -> Iterator[Piece]:
        """File by file, without what is deleted."""
        for piece in super().pieces(columns, size):
            kept = self.kept.get(piece.name)
            if kept is None:
                yield piece
            else:
                yield from _marked(piece, kept)

    def parts(self) -> "Sequence[DeltaReader]":
        """Row groups in bundles of about a million records."""
        found = []
        for files in self.bundles():
            names = {file.name for file in files}
            kept = {name: rows for name, rows in self.kept.items() if name in names}
            found.append(dataclasses.replace(self, files=files, kept=kept))
        return found


def read_delta(
    data: Any,
    conditions: tuple[Condition, ...],
    storage_options: dict[str, Any] | None,
    *,
    without: Collection[str] = (),
) -> DeltaReader:
    """The files of a table, as far as statistics allow records that are wanted; not those in `without`."""
    import pyarrow

    table = open_table(data, storage_options)
    require_readable(table)
    name = name_of(table)
    try:
        reader = _read(table, conditions, without)
        kept = marks_of(table)
    except (Refused, pyarrow.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError):
            raise Refused(
                f"{name}, version {table.version()}: files of it are gone, as they are after VACUUM"
            ) from error
        what = error if isinstance(error, Refused) else "a file is damaged or cannot be reached"
        raise Refused(f"{name}, version {table.version()}: {what}") from error
    files = tuple(each._replace(name=f"{name}/{each.name}") for each in reader.files)
    marks = {f"{name}/{path}": rows for path, rows in kept.items()}
    return DeltaReader(files, reader.schema, conditions, True, marks)


def _read(table: "DeltaTable", conditions: tuple[Condition, ...], without: Collection[str]) -> FileReader:
    """What of the files may hold records that are wanted."""
    from pyarrow import dataset

    schema, filesystem = schema_of(table), _filesystem(table)
    require_columns(conditions, schema.names)
    kind = dataset.ParquetFileFormat()
    plain, views = [], []
    for path, partition in _files(table, conditions, schema):
        if path in without:
            continue
        file = kind.make_fragment(path, filesystem, expression_of(partition, schema))
        (views if has_views(file, conditions) else plain).append(file)
    files = dataset.FileSystemDataset(plain, schema, kind, filesystem)
    reader = FileReader.of_dataset(files, conditions, is_cast=True)
    others = (part for each in views for part in row_groups(each, conditions, schema))
    return dataclasses.replace(reader, files=(*reader.files, *others))


def paths_of(table: "DeltaTable") -> list[str]:
    """Paths of the files, from its folder."""
    import pyarrow

    return [unquote(path) for path in pyarrow.table(table.get_add_actions())["path"].to_pylist()]


def marks_of(table: "DeltaTable") -> "dict[str, pyarrow.BooleanArray]":
    """Of files with a deletion vector, by their paths: which rows there still are."""
    import pyarrow

    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    vectors = pyarrow.table(table.deletion_vectors())
    start = table.table_uri.rstrip("/") + "/"
    return {
        unquote(path.removeprefix(start)): marks.values
        for path, marks in zip(vectors[0].to_pylist(), vectors[1], strict=True)
    }


def _marked(piece: Piece, kept: "pyarrow.BooleanArray") -> Iterator[Piece]:
    """Those records of a piece that are marked, by their rows."""
    import numpy as np
    import pyarrow

    rows = np.arange(piece.first, piece.first + piece.size) if piece.rows is None else piece.rows
    marks = kept.take(pyarrow.array(rows))
    content, rows = piece.content.filter(marks), rows[marks.to_numpy(zero_copy_only=False)]
    if len(rows):
        yield Piece(piece.name, int(rows[0]), content, rows)


def _files(
    table: "DeltaTable", conditions: tuple[Condition, ...], schema: "pyarrow.Schema"
) -> Iterator[tuple[str, list[Condition]]]:
    """Paths of the files that may hold what is wanted, and what their partition says of all their records.

    deltalake's own dataset takes a file for empty whose statistics leave out a column, and cuts time stamps.
    """
    import pyarrow

    actions = pyarrow.table(table.get_add_actions())
    wanted = {name for name, _, _ in conditions}
    ends = [
        (field.name, operator, values.to_pylist())
        for operator, end in ((">=", "min"), ("<=", "max"))
        if end in actions.column_names
        for field, values in zip(actions[end].type, actions[end].flatten(), strict=True)
        if field.name in wanted
    ]
    partitions = actions["partition"].to_pylist() if "partition" in actions.column_names else None
    for row, path in enumerate(actions["path"].to_pylist()):
        partition = [
            (name, "==", value) if value is not None else (name, "in", [None])
            for name, value in (partitions[row] if partitions else {}).items()
        ]
        bounds = [
            (name, operator, _end(values[row], operator))
            for name, operator, values in ends
            if values[row] is not None
        ]
        if may_hold([*partition, *bounds], conditions, schema):
            yield unquote(path), partition


def _end(value: Any, operator: str) -> Any:
    """The end of a range; the log keeps whole milliseconds of times, cut off."""
    is_cut = operator == "<=" and isinstance(value, datetime.datetime)
    return value + datetime.timedelta(milliseconds=1) if is_cut else value


def _filesystem(table: "DeltaTable") -> "pyarrow.fs.FileSystem":
    """Where the table's files are, from its folder."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow import fs

    if table.table_uri.startswith("file://"):
        # The handler would take twice as long.
        return fs.SubTreeFileSystem(name_of(table), fs.LocalFileSystem())
    return fs.PyFileSystem(DeltaStorageHandler(table.table_uri, table._storage_options))
