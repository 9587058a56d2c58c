"""Tables of records on disk, CSV and Parquet, as numbers."""

import abc
import array
import csv
import math
from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING

from unbayes.data.columns import Columns
from unbayes.data.encoding import Words
from unbayes.data.names import names_of
from unbayes.data.refusal import BadRow, Refused, reason

if TYPE_CHECKING:
    import numpy as np

PARQUET_SUFFIXES, PARQUET_MAGIC = (".parquet", ".pq"), b"PAR1"


class AbstractRows(abc.ABC):
    """A table of records.

    Attributes
    ----------
    path
        Where it is.
    names
        Its columns, in order.
    """

    path: Path
    names: list[str]

    @abc.abstractmethod
    def numbers(self, columns: Sequence[str]) -> "np.ndarray":
        """These columns as float64, shape (n, k); refuses what is missing or no finite number."""

    @abc.abstractmethod
    def words(self, column: str) -> list[str]:
        """One column as words, one for each record, such as identifiers; refuses empty ones."""

    def encoded(self, columns: Columns) -> "np.ndarray":
        """Inputs and, last, the target as a model takes them, shape (n, k), float64."""
        plain = [each.name for each in columns.all if each.categories is None]
        numbers = dict(zip(plain, self.numbers(plain).T, strict=True)) if plain else {}
        words = {name: Words.of(self.words(name)) for name in columns.columns if name not in plain}
        records = {*map(len, numbers.values()), *(len(each.cells) for each in words.values())}
        try:
            return columns.encode_cells(records.pop(), numbers.__getitem__, words.__getitem__)
        except BadRow as error:
            raise Refused(f"row {error.row} (from 0) of {self.path}: {error.what}") from error


def open_rows(path: Path, *, has_header: bool = True) -> AbstractRows:
    """The table in a file: Parquet by its name or its first bytes, otherwise CSV."""
    try:
        with path.open("rb") as file:
            start = file.read(len(PARQUET_MAGIC))
    except OSError as error:
        raise Refused(f"{path} cannot be read: {reason(error)}") from error
    if not start:
        raise Refused(f"{path} must hold records, but is empty")
    if start != PARQUET_MAGIC and path.suffix.lower() not in PARQUET_SUFFIXES:
        return CSVRows(path, has_header)
    if not has_header:
        raise Refused("--no-header is for CSV: the columns of a Parquet file have names")
    return ParquetRows(path)


class CSVRows(AbstractRows):
    """Comma-separated values in UTF-8. Without a header, columns are called by their numbers, from 0."""

    def __init__(self, path: Path, has_header: bool):
        self.path, self.has_header = path, has_header
        _, first = next(self._lines(), (0, []))
        if not first:
            raise Refused(f"{path} must hold records, but its first line is empty")
        if has_header and all(_is_number(cell) for cell in first):
            raise Refused(
                f"the first line of {path} must name the columns, but holds numbers only; "
                "give --no-header if it is a record"
            )
        self.names = [cell.strip() for cell in first] if has_header else [str(i) for i in range(len(first))]

    def numbers(self, columns: Sequence[str]) -> "np.ndarray":
        """These columns as float64, shape (n, k); only their cells need to be numbers."""
        import numpy as np

        places = [self.names.index(name) for name in columns]
        values = array.array("d")
        for line, cells in self._records():
            values.extend(self._number(cells[place], place, line) for place in places)
        self._require_some(values)
        return np.frombuffer(values).reshape(-1, len(places))

    def words(self, column: str) -> list[str]:
        """The cells of one column."""
        place, found = self.names.index(column), []
        for line, cells in self._records():
            if not cells[place].strip():
                raise Refused(f"line {line + 1}, column {column} of {self.path} must be a word, but is empty")
            found.append(cells[place].strip())
        self._require_some(found)
        return found

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Cells of each record, and its line."""
        blank = None
        for line, cells in self._lines():
            if line == 0 and self.has_header:
                continue
            if not cells:  # At the end of a file, empty lines mean nothing.
                blank = blank or line
                continue
            self._require_whole(cells, line, blank)
            yield line, cells

    def _require_some(self, found: Sized) -> None:
        if not len(found):
            raise Refused(f"{self.path} must hold records, but has none below its header")

    def _require_whole(self, cells: list[str], line: int, blank: int | None) -> None:
        if blank is not None:
            raise Refused(f"line {blank + 1} of {self.path} must hold a record, but is empty")
        if len(cells) != len(self.names):
            raise Refused(
                f"line {line + 1} of {self.path} must have {len(self.names)} cells, got {len(cells)}"
            )

    def _number(self, cell: str, place: int, line: int) -> float:
        if _is_number(cell) and math.isfinite(value := float(cell)):
            return value
        what = "is empty" if not cell.strip() else "is none"
        raise Refused(
            f"line {line + 1}, column {self.names[place]} of {self.path} must be a finite number, but {what}"
        )

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Cells of each line, and its number from 0; the last of several, where a cell spans them."""
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file, strict=True)
                first = True
                for cells in reader:
                    yield (0 if first else reader.line_num - 1), cells
                    first = False
        except (csv.Error, UnicodeDecodeError) as error:
            raise Refused(f"{self.path} must be CSV in UTF-8 or Parquet: {error}") from error
        except OSError as error:
            raise Refused(f"{self.path} cannot be read: {reason(error)}") from error


class ParquetRows(AbstractRows):
    """One Parquet file."""

    def __init__(self, path: Path):
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError as error:
            raise Refused("reading Parquet needs pip install 'unbayes[parquet]'") from error

        self.path = path
        try:
            self.file = parquet.ParquetFile(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise Refused(f"{path} cannot be read as Parquet: {error}") from error
        self.names = list(self.file.schema_arrow.names)

    def numbers(self, columns: Sequence[str]) -> "np.ndarray":
        """These columns as float64, shape (n, k)."""
        import numpy as np

        table = self._read(columns)
        return np.stack([self._column(table.column(name), name) for name in columns], axis=1)

    def words(self, column: str) -> list[str]:
        """The cells of one column; of whole numbers, their digits."""
        cells = self._read([column]).column(column).to_pylist()
        return names_of(cells, f"column {column} of {self.path}")

    def _read(self, columns: Sequence[str]):
        import pyarrow

        try:
            table = self.file.read(columns=list(columns))
        except (pyarrow.ArrowException, OSError) as error:
            raise Refused(f"{self.path} cannot be read as Parquet: {error}") from error
        if not table.num_rows:
            raise Refused(f"{self.path} must hold records, but has none")
        return table

    def _column(self, column, name: str) -> "np.ndarray":
        import numpy as np
        import pyarrow
        from pyarrow import types

        kinds = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        if not any(is_kind(column.type) for is_kind in kinds):
            raise Refused(f"column {name} of {self.path} must hold numbers, but is of type {column.type}")
        try:
            values = column.cast(pyarrow.float64()).to_numpy()
        except pyarrow.ArrowException as error:
            raise Refused(f"column {name} of {self.path} must fit into float64: {error}") from error
        if not (fine := np.isfinite(values)).all():
            row = int(np.argmin(fine))
            raise Refused(
                f"row {row} (from 0), column {name} of {self.path} must be a finite number, but is none"
            )
        return values


def _is_number(cell: str) -> bool:
    """Whether the cell is a number; Python's own 1_000 is not."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
