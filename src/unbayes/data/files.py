"""Records in files, here or in a bucket: Parquet, Feather, CSV, and tables that are made of such files."""

import dataclasses
import functools
import glob
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unbayes.data.readers import AbstractReader, Piece
from unbayes.data.refusal import Refused, reason
from unbayes.data.where import Condition, expression_of

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".feather": "feather", ".arrow": "feather"}
# Records of a part, about: a second's work or less, so that a worker that is lost costs little.
PART_ROWS = 1 << 20
# Pieces that are read ahead: more of them would only take memory.
READ_AHEAD = 2
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
    """

    fragment: Any
    name: str
    first: int
    rows: int | None


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
    """

    files: tuple[FilePart, ...]
    schema: "pyarrow.Schema"
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def open(
        cls,
        place: str | os.PathLike[str] | Sequence[str],
        conditions: tuple[Condition, ...],
        format: str | None,
        storage_options: dict[str, Any] | None,
        words: Collection[str] = (),
    ) -> "FileReader":
        """The files at an address, a pattern or in a folder, or several of these.

        In CSV, the columns `words` are read as they stand there, not as the numbers that they may look like.
        """
        import pyarrow
        from pyarrow import dataset

        places = [place] if isinstance(place, str | os.PathLike) else list(place)
        paths, filesystem = _find([os.fspath(each) for each in places], storage_options)
        kind = format or _format_of(paths)
        try:
            found = dataset.dataset(
                paths[0] if len(paths) == 1 else paths,
                format=_csv(words) if kind == "csv" else kind,
                filesystem=filesystem,
                partitioning="hive",
            )
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise Refused(
                f"{', '.join(map(str, places))} cannot be read as {kind}: {_said(error)}"
            ) from error
        return cls.of_dataset(found, conditions)

    @classmethod
    def of_dataset(cls, data: "pyarrow.dataset.Dataset", conditions: tuple[Condition, ...]) -> "FileReader":
        """The files of a dataset of Arrow's, or those of which some records may be wanted."""
        wanted = [name for name, _, _ in conditions if name not in data.schema.names]
        if wanted:
            raise Refused(f"where must name columns of the data, which have no {wanted[0]}")
        expression = expression_of(conditions, data.schema)
        files = [
            part
            for each in data.get_fragments(filter=expression)
            for part in _split(each, expression, data.schema)
        ]
        return cls(tuple(files), data.schema, conditions)

    @property
    def rows(self) -> int | None:
        """From the files' metadata, where all records are wanted."""
        counts = [each.rows for each in self.files]
        return None if self.conditions or None in counts else sum(each or 0 for each in counts)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    @functools.cached_property
    def _expression(self) -> Any:
        return expression_of(self.conditions, self.schema)

    def pieces(self, columns, size) -> Iterator[Piece]:
        """File by file; of a Parquet file, only row groups that may hold what is wanted."""
        import pyarrow

        for file in self.files:
            row = file.first
            # Which rows of a file meet a condition is not told.
            name = f"{file.name}, of the records wanted" if self.conditions else file.name
            try:
                for batch in file.fragment.to_batches(
                    schema=self.schema,
                    columns=columns,
                    filter=self._expression,
                    batch_size=size,
                    batch_readahead=READ_AHEAD,
                    fragment_readahead=1,
                ):
                    if batch.num_rows:
                        yield Piece(name, row, batch)
                        row += batch.num_rows
            except (pyarrow.ArrowException, OSError) as error:
                raise Refused(f"{file.name} cannot be read beyond row {row}: {_said(error)}") from error

    def parts(self) -> list["FileReader"]:
        """Files and row groups in bundles of about a million records."""
        bundles: list[list[FilePart]] = [[]]
        rows = 0
        for file in self.files:
            if bundles[-1] and rows >= PART_ROWS:
                bundles.append([])
                rows = 0
            bundles[-1].append(file)
            rows += PART_ROWS if file.rows is None else file.rows
        return [dataclasses.replace(self, files=tuple(bundle)) for bundle in bundles]


def _find(places: list[str], storage_options: dict[str, Any] | None) -> tuple[list[str], Any]:
    """Paths of the files that these addresses and patterns name, and their file system (None: here)."""
    if not places:
        raise Refused("data must name at least one file, got none")
    remote = [each for each in places if "://" in each]
    if remote and len(remote) < len(places):
        raise Refused("data must be all here or all at one address, got both")
    filesystem = None
    if remote:
        import fsspec

        filesystem, _ = fsspec.core.url_to_fs(places[0], **(storage_options or {}))
        places = [filesystem._strip_protocol(each) for each in places]
    found = []
    for each in places:
        has_pattern = glob.has_magic(each)
        matches = sorted(filesystem.glob(each) if filesystem else glob.glob(each, recursive=True))
        if has_pattern and not matches:
            raise Refused(f"{each} must match some files, but matches none")
        if not has_pattern and not (filesystem.exists(each) if filesystem else Path(each).exists()):
            raise Refused(f"{each} cannot be read: there is no such file")
        found += matches if has_pattern else [each]
    return found, filesystem


def _csv(words: Collection[str]) -> Any:
    import pyarrow
    from pyarrow import csv, dataset

    types = dict.fromkeys(words, pyarrow.string())
    return dataset.CsvFileFormat(convert_options=csv.ConvertOptions(column_types=types))


def _format_of(paths: list[str]) -> str:
    """By the names of the files; a folder, or files of no known ending, are Parquet."""
    kinds = {FORMATS.get(Path(each).suffix.lower(), "parquet") for each in paths}
    if len(kinds) > 1:
        raise Refused(f"data must be of one format, got {' and '.join(sorted(kinds))}")
    return kinds.pop()


def _split(fragment: Any, expression: Any, schema: "pyarrow.Schema") -> Iterator[FilePart]:
    """A file in row groups of which some records may be wanted, where it has any."""
    import pyarrow

    name = fragment.path
    try:
        if not hasattr(fragment, "row_groups"):
            yield FilePart(fragment, name, 0, None)
            return
        _require_schema(fragment.physical_schema, schema, name)
        firsts, first = {}, 0
        for group in fragment.row_groups:
            firsts[group.id] = first
            first += group.num_rows
        for part in fragment.split_by_row_group(filter=expression):
            group = part.row_groups[0]
            yield FilePart(part, name, firsts[group.id], group.num_rows)
    except (pyarrow.ArrowException, OSError) as error:
        raise Refused(f"{name} cannot be read: {_said(error)}") from error


def _require_schema(own: "pyarrow.Schema", schema: "pyarrow.Schema", name: str) -> None:
    """Refuse a file whose columns are of other types than those of the first."""
    for field in own:
        place = schema.get_field_index(field.name)
        if place >= 0 and schema.field(place).type != field.type:
            wanted = schema.field(place).type
            raise Refused(
                f"column {field.name} of {name} must be {wanted} as in the first file, got {field.type}"
            )


def _said(error: Exception) -> str:
    """What went wrong, without what stands in the file."""
    if isinstance(error, OSError) and error.strerror:
        return reason(error)
    if found := CSV_ROW.search(str(error)):
        return f"row {found[1]} is not of the columns' types, or has another number of cells"
    return "it is damaged, cut short, or of another format"
