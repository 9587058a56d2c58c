"""What training records tell of their columns: means, standard deviations, categories, in one pass."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unbayes.data.columns import Column
from unbayes.data.encoding import AbstractEncoder, counted_from, kind_of, numbers_of, spans, words_of
from unbayes.data.readers import AbstractReader, Piece
from unbayes.data.refusal import Refused
from unbayes.data.scan import others_of, reader_of, scan
from unbayes.data.source import BATCH_ROWS, AbstractTask, Batch

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

# More are hardly categories, but what names records; they would go into the model's file.
MOST_CATEGORIES = 1000
# Of `scan`, what says which records there are.
SETTINGS = ("where", "format", "storage_options", "ids")


def survey(
    data: Any,
    inputs: Sequence[str] | None,
    target: str | None,
    categories: Sequence[str],
    standardise: bool,
    settings: Mapping[str, Any],
) -> tuple[list[Column], Column | None]:
    """The inputs and the target, as `Columns.of` takes its arguments."""
    if isinstance(inputs, str) or isinstance(categories, str):
        raise Refused("inputs and categories must be lists of names, got one name; give [name]")
    if unknown := {*settings} - {*SETTINGS, "batch_rows"}:
        raise TypeError(f"Columns.of takes what scan takes, but not {', '.join(sorted(unknown))}")
    asked = {name: settings.get(name) for name in SETTINGS}
    reader = reader_of(data, **asked)
    if reader.is_once:
        raise Refused("data must be read again for training, which an iterator cannot; give a function")
    first = _first_piece(reader)
    if inputs is None:
        inputs = others_of(first.content.schema.names, target, asked["ids"], asked["where"])
    names = [*inputs, *([] if target is None else [target])]
    if not names:
        raise Refused("data must have columns besides ids and those in where, but have none")
    if unnamed := [name for name in categories if name not in names]:
        raise Refused(f"categories must be among the inputs and the target, but {unnamed[0]} is not")
    kinds = {name: _kind(first.content, name, name in categories) for name in names}
    source = scan(data, columns=_Cells(kinds), **settings)
    found = source.total(_Survey())
    return [_column(name, found[name], standardise) for name in inputs], (
        None if target is None else _column(target, found[target], False)
    )


def _first_piece(reader: AbstractReader) -> Piece:
    """A piece, which tells the types; refuses what is empty, or no table."""
    first = next((piece for piece in reader.pieces(None, BATCH_ROWS) if piece.size), None)
    if first is None:
        raise Refused("data must hold at least one record, got none")
    if not first.is_table:
        raise Refused(f"data must be tables, whose columns have names, but {first.name} is none")
    return first


def _kind(table: "pyarrow.RecordBatch", name: str, is_category: bool) -> str:
    if name not in table.schema.names:
        raise Refused(f"the data has no column {name}; it has {', '.join(table.schema.names)}")
    kind = kind_of(table.schema.field(name).type)
    return "words" if is_category else kind


@dataclasses.dataclass(frozen=True)
class _Cells(AbstractEncoder):
    """Cells as they are: numbers, or words, by what each column holds."""

    kinds: dict[str, str]

    @property
    def columns(self) -> list[str]:
        """Names of the columns that it reads."""
        return list(self.kinds)

    @property
    def types(self) -> "dict[str, pyarrow.DataType]":
        """Numbers of double precision; words as they are written."""
        import pyarrow

        types = {"numbers": pyarrow.float64(), "words": pyarrow.string()}
        return {name: types[kind] for name, kind in self.kinds.items() if kind in types}

    def encode(self, tables: "Sequence[pyarrow.RecordBatch]") -> "dict[str, np.ndarray]":
        """The cells of each column, shape (n,)."""
        import numpy as np

        found: dict[str, list[np.ndarray]] = {name: [] for name in self.kinds}
        for table, rows in spans(tables):
            with counted_from(rows.start):
                for name, kind in self.kinds.items():
                    if kind == "words":
                        words = words_of(table, name)
                        found[name].append(np.array(words.words, object)[words.cells])
                    else:
                        found[name].append(numbers_of(table, name))
        return {name: np.concatenate(pieces) for name, pieces in found.items()}


class _Spread(NamedTuple):
    """Number of some numbers, their mean, the sum of squares of what is left without it, and the ends."""

    records: int
    mean: float
    squares: float
    least: float
    most: float


class _Survey(AbstractTask):
    """Of each column: how its numbers spread, or the words that it holds."""

    def of(self, batch: Batch) -> dict[str, Any]:
        """Of a batch."""
        return {
            name: _few(name, {*cells.tolist()}) if cells.dtype.kind == "O" else _spread(cells)
            for name, cells in batch.records.items()
        }

    def add(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        """Of two, by the rule of Chan, Golub and LeVeque, which loses no digits."""
        return {name: _added(name, left[name], right[name]) for name in left}


def _spread(cells: "np.ndarray") -> _Spread:
    import numpy as np

    # Numbers that are too large for that are refused in the end, by the name of their column.
    with np.errstate(over="ignore", invalid="ignore"):
        mean = cells.mean()
        squares = ((cells - mean) ** 2).sum()
    return _Spread(len(cells), float(mean), float(squares), float(cells.min()), float(cells.max()))


def _added(name: str, left: Any, right: Any) -> Any:
    if not isinstance(left, _Spread):
        return _few(name, {*left, *right})
    count, apart = left.records + right.records, right.mean - left.mean
    mean = left.mean + apart * right.records / count
    squares = left.squares + right.squares + apart * apart * (left.records * right.records / count)
    return _Spread(count, mean, squares, min(left.least, right.least), max(left.most, right.most))


def _few(name: str, words: set[str]) -> tuple[str, ...]:
    if len(words) > MOST_CATEGORIES:
        raise Refused(
            f"column {name} must have at most {MOST_CATEGORIES} categories, but holds more words; leave it "
            "out of inputs, or make numbers of it"
        )
    return tuple(sorted(words))


def _column(name: str, found: Any, standardise: bool) -> Column:
    if not isinstance(found, _Spread):
        return Column(name, tuple(sorted(found, key=_by_digits)))
    if not standardise:
        return Column(name)
    if found.least == found.most:
        return Column(name, None, found.least)
    return Column(name, None, found.mean, (found.squares / found.records) ** 0.5)


def _by_digits(word: str) -> tuple[bool, int, str]:
    """Whole numbers in their order, then words in theirs."""
    return not word.isdigit(), len(word) if word.isdigit() else 0, word
