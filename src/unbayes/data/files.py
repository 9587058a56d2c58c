"""Records in files, here or in a bucket: Parquet, Feather, CSV, and tables that are made of such files."""

import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unbayes.data.choosing import require_found
from unbayes.data.encoding import kind_of
from unbayes.data.finding import IN_DELTA, delta_table_around, find, format_of
from unbayes.data.readers import AbstractReader, Piece, chosen
from unbayes.data.refusal import Refused, reason, told
from unbayes.data.row_groups import RowGroups
from unbayes.data.where import Condition, expression_of, require_columns, told_by_bounds

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

# Records of a part, about: a second's work or less, so that a worker that is lost costs little.
PART_ROWS = 1 << 20
# Pieces that are read ahead: more of them would only take memory.
READ_AHEAD = 2
# Records from which a thread that reads ahead saves more than it costs.
LEAST_AHEAD = 1 << 16
# How Arrow says where a line of CSV is wrong; what it says besides quotes the line.
CSV_ROW = re.compile(r"Row #(\d+)")


class FilePart(NamedTuple):
    """A file, or some row groups of one.

    Attributes
    ----------
    fragment
        What reads it.
    name
        Of the file.
    first
        Row of the file with which it begins.
    rows
        Number of rows, all of them counted; None where not known.
    group
        Which row group of a Parquet file it is; None for whatever the fragment reads by itself.
    """

    fragment: Any
    name: str
    first: int
    rows: int | None
    group: int | None = None


@dataclasses.dataclass(frozen=True)
class FileReader(AbstractReader):
    """Some files of one schema.

    Attributes
    ----------
    files
        The files, or row groups of them.
    schema
        Of all columns.
    conditions
        Which records are wanted.
    is_cast
        Whether columns of other types, or none, are cast to those of the schema; otherwise they are refused.
    """

    files: tuple[FilePart, ...]
    schema: "pyarrow.Schema"
    conditions: tuple[Condition, ...] = ()
    is_cast: bool = False

    @classmethod
    def open(
        cls,
        place: str | os.PathLike[str] | Sequence[str],
        conditions: tuple[Condition, ...],
        format: Any,
        storage_options: dict[str, Any] | None,
        words: Collection[str] = (),
    ) -> "FileReader":
        """The files at an address, a pattern or in a folder, or several of these.

        In CSV, the columns `words` are read as they stand there, not as the numbers that they may look like.
        """
        import pyarrow
        from pyarrow import dataset

        places = [os.fspath(each) for each in ([place] if isinstance(place, str | os.PathLike) else place)]
        files = find(places, storage_options)
        if format is None and (table := delta_table_around(files)):
            raise Refused(f"{table} {IN_DELTA}")
        paths, filesystem, folder = files
        kind = format or format_of(paths)
        _require_plain_folders(paths, words)
        try:
            found = dataset.dataset(
                paths,
                format=_csv(words) if kind == "csv" else kind,
                filesystem=filesystem,
                partitioning="hive",
                partition_base_dir=folder,
            )
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            # Arrow has looked at the first file for the columns.
            raise Refused(f"{paths[0]} cannot be read as {kind}: {_said(error)}") from told(error)
        if kind == "csv":
            _require_no_order(conditions, found.schema)
        return cls.of_dataset(found, conditions)

    @classmethod
    def of_dataset(
        cls, data: "pyarrow.dataset.Dataset", conditions: tuple[Condition, ...], *, is_cast: bool = False
    ) -> "FileReader":
        """The files of a dataset of Arrow's, or those of which some records may be wanted.

        Where its schema does not come from the first file, columns of other types may be cast to its types.
        """
        require_columns(conditions, data.schema.names)
        expression = expression_of(told_by_bounds(conditions), data.schema)
        files = [
            part
            for each in data.get_fragments(filter=expression)
            for part in _split(each, conditions, data.schema)
        ]
        return cls(tuple(files), data.schema, conditions, is_cast)

    @property
    def rows(self) -> int | None:
        """From the files' metadata, where all records are wanted."""
        counts = [each.rows for each in self.files]
        return None if self.conditions or None in counts else sum(each or 0 for each in counts)

    @property
    def goes_ahead(self) -> bool:
        """Where Arrow may use more than one thread, and there is more than a moment's work."""
        import pyarrow

        return pyarrow.cpu_count() > 1 and (self.rows is None or self.rows > LEAST_AHEAD)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def signature(self) -> tuple[Any, ...]:
        """The files' names, sizes and times of their last change, and which records of them are wanted."""
        fragments = [file.fragment for file in self.files if hasattr(file.fragment, "path")]
        places = {each.path: each.filesystem for each in fragments}
        found = [filesystem.get_file_info(path) for path, filesystem in places.items()]
        files = [(each.path, each.size, each.mtime_ns) for each in found]
        groups = [(file.name, file.first, file.rows) for file in self.files]
        return files, groups, str(self.schema), repr(self.conditions)

    @functools.cached_property
    def _expression(self) -> Any:
        return expression_of(self.conditions, self.schema)

    def prepared(self, columns, types) -> "FileReader":
        """The same, once every file is found to have these columns, of types like those of the first."""
        require_found(columns or [], self.names, "the data")
        schema = self.schema
        if any(_is_csv(file.fragment) for file in self.files):
            for name, kind in types.items():
                place = schema.get_field_index(name)
                # What is true or false becomes a number, but not in Arrow's reader.
                if kind_of(schema.field(place).type) != "true or false" or kind_of(kind) != "numbers":
                    schema = schema.set(place, schema.field(place).with_type(kind))
            _require_no_order(self.conditions, schema)
        wanted = {*self.names} if columns is None else {*columns, *(name for name, _, _ in self.conditions)}
        if not self.is_cast:
            for name, files in itertools.groupby(self.files, lambda file: file.name):
                first = next(files)
                _require_schema(first.fragment, schema, wanted, name)
                if first.group is not None:
                    schema = _widened(schema, first.fragment.physical_schema, wanted)
        return dataclasses.replace(self, schema=schema)

    def pieces(self, columns, size) -> Iterator[Piece]:
        """File by file; of a Parquet file, only row groups that may hold what is wanted."""
        import pyarrow

        read = columns and list(dict.fromkeys([*columns, *(name for name, _, _ in self.conditions)]))
        for _, files in itertools.groupby(self.files, lambda file: file.name):
            groups = None
            for file in files:
                row = file.first
                try:
                    if file.group is None:
                        batches = self._batches(file, read, size)
                    else:
                        groups = groups or RowGroups(file.fragment, self.schema)
                        batches = groups.batches(file.group, read, size)
                    for batch in batches:
                        yield from chosen(Piece(file.name, row, batch), columns, self._expression)
                        row += batch.num_rows
                except (pyarrow.ArrowException, OSError) as error:
                    what = f"{file.name} cannot be read beyond row {row}: {_said(error)}"
                    raise Refused(what) from told(error)

    def _batches(
        self, file: FilePart, columns: list[str] | None, size: int
    ) -> "Iterator[pyarrow.RecordBatch]":
        return file.fragment.to_batches(
            schema=self.schema,
            columns=columns,
            filter=None,
            batch_size=size,
            batch_readahead=READ_AHEAD,
            fragment_readahead=1,
        )

    def parts(self) -> "Sequence[FileReader]":
        """Files and row groups in bundles of about a million records."""
        return [dataclasses.replace(self, files=files) for files in self.bundles()]

    def bundles(self) -> list[tuple[FilePart, ...]]:
        """The files of each part."""
        bundles: list[list[FilePart]] = [[]]
        rows = 0
        for file in self.files:
            if bundles[-1] and rows >= PART_ROWS:
                bundles.append([])
                rows = 0
            bundles[-1].append(file)
            rows += PART_ROWS if file.rows is None else file.rows
        return [tuple(bundle) for bundle in bundles]


def _require_plain_folders(paths: Sequence[str], words: Collection[str]) -> None:
    """Refuse folders such as customer=007, which Arrow takes for customer=7."""
    for path in paths:
        for step in Path(path).parts[:-1]:
            name, is_told, cell = step.partition("=")
            if is_told and name in words and re.fullmatch(r"[+-]?\d+", cell) and str(int(cell)) != cell:
                raise Refused(
                    f"{path}: the folder {name}=… must hold words, or whole numbers without zeros or signs "
                    "before them; keep others in a column of the files"
                )


def _require_no_order(conditions: Sequence[Condition], schema: "pyarrow.Schema") -> None:
    """Refuse to compare words of CSV, which may be meant as numbers."""
    for name, operator, _ in conditions:
        if operator in ("<", "<=", ">", ">=") and kind_of(schema.field(name).type) == "words":
            raise Refused(
                f"where must compare {name} by ==, !=, in or not in: names and categories are words in CSV"
            )


def _csv(words: Collection[str]) -> Any:
    """CSV in which an empty cell is none, whatever the column."""
    import pyarrow
    from pyarrow import csv, dataset

    types = dict.fromkeys(words, pyarrow.string())
    options = csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
    return dataset.CsvFileFormat(convert_options=options)


def _split(fragment: Any, conditions: tuple[Condition, ...], schema: "pyarrow.Schema") -> Iterator[FilePart]:
    """A file in row groups of which some records may be wanted, where it has any."""
    import pyarrow
    from pyarrow import dataset

    name = getattr(fragment, "path", "the table")
    if not isinstance(fragment, dataset.ParquetFileFragment):
        yield FilePart(fragment, name, 0, None)
        return
    try:
        firsts, first = {}, 0
        for group in fragment.row_groups:
            firsts[group.id] = first
            first += group.num_rows
        own = fragment.physical_schema
        # Of a column of another type, its bounds cannot be compared.
        comparable = [
            each
            for each in told_by_bounds(conditions)
            if each[0] not in own.names or own.field(each[0]).type == schema.field(each[0]).type
        ]
        for part in fragment.split_by_row_group(filter=expression_of(comparable, schema), schema=schema):
            group = part.row_groups[0]
            yield FilePart(part, name, firsts[group.id], group.num_rows, group.id)
    except (pyarrow.ArrowException, OSError) as error:
        raise Refused(f"{name} cannot be read: {_said(error)}") from told(error)


def _require_schema(fragment: Any, schema: "pyarrow.Schema", wanted: set[str], name: str) -> None:
    """Refuse a file that lacks one of these columns, or has it of another kind than the first file."""
    import pyarrow
    from pyarrow import dataset

    try:
        own = fragment.physical_schema
    except (pyarrow.ArrowException, OSError) as error:
        raise Refused(f"{name} cannot be read: {_said(error)}") from told(error)
    in_folders = dataset.get_partition_keys(fragment.partition_expression)
    require_found(sorted(wanted - {*in_folders}), own.names, name)
    if _is_csv(fragment):
        return
    for field in own:
        first = schema.field(field.name).type if field.name in wanted else field.type
        if kind_of(first) != kind_of(field.type):
            raise Refused(
                f"column {field.name} of {name} must be {first} as in the first file, got {field.type}"
            )


def _widened(schema: "pyarrow.Schema", own: "pyarrow.Schema", wanted: set[str]) -> "pyarrow.Schema":
    """The schema with such types of numbers as hold those of this file, too."""
    import pyarrow
    from pyarrow import types

    for field in own:
        place = schema.get_field_index(field.name)
        if field.name not in wanted or kind_of(field.type) != "numbers":
            continue
        both = (schema.field(place).type, field.type)
        if both[0] != both[1]:
            fits = all(types.is_integer(kind) and kind != pyarrow.uint64() for kind in both)
            wider = pyarrow.int64() if fits else pyarrow.float64()
            schema = schema.set(place, schema.field(place).with_type(wider))
    return schema


def _is_csv(fragment: Any) -> bool:
    return getattr(getattr(fragment, "format", None), "default_extname", None) == "csv"


def _said(error: Exception) -> str:
    """What went wrong, without what stands in the file."""
    if isinstance(error, OSError) and error.strerror:
        return reason(error)
    if found := CSV_ROW.search(str(error)):
        return f"line {found[1]} is not of the columns' types, or has another number of cells"
    return "it is damaged, cut short, or of another format"
