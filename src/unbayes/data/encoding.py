"""From the columns of a table to what a model takes."""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unbayes.data.names import names_of
from unbayes.data.refusal import BadRow, Refused

if TYPE_CHECKING:
    import numpy as np
    import pyarrow


class Words(NamedTuple):
    """The cells of a column of words.

    Attributes
    ----------
    words
        What they may be, each once.
    cells
        Which of these each cell is, shape (n,).
    """

    words: list[str]
    cells: "np.ndarray"

    @classmethod
    def of(cls, cells: Iterable[str]) -> "Words":
        """Of words, one for each cell."""
        import numpy as np

        places: dict[str, int] = {}
        found = np.array([places.setdefault(word, len(places)) for word in cells], int)
        return cls(list(places), found)


class AbstractEncoder(abc.ABC):
    """Turns pieces of a table into records."""

    @property
    @abc.abstractmethod
    def columns(self) -> list[str] | None:
        """Names of the columns that it reads; None for all."""

    @property
    def types(self) -> "dict[str, pyarrow.DataType]":
        """Types in which columns are read from files that leave them open, such as CSV."""
        return {}

    @abc.abstractmethod
    def encode(self, tables: "Sequence[pyarrow.RecordBatch]") -> Any:
        """Records of some pieces of the table, one after the other: a pytree of arrays.

        Raises `BadRow` where there are none; its row counts over all pieces.
        """


@dataclasses.dataclass(frozen=True)
class Function(AbstractEncoder):
    """A function of a user's, from a piece of a table to records."""

    function: Callable[["pyarrow.RecordBatch"], Any]

    @property
    def columns(self) -> None:
        """All of them: nobody knows which the function looks at."""

    def encode(self, tables: "Sequence[pyarrow.RecordBatch]") -> Any:
        """What the function makes of the pieces."""
        import jax

        found = []
        for table, rows in spans(tables):
            with counted_from(rows.start):
                records = require_finite_records(self.function(table))
                if (count := len(jax.tree.leaves(records)[0])) != table.num_rows:
                    raise Refused(
                        f"columns must be a function to one record for each row, got {count} for "
                        f"{table.num_rows}"
                    )
            found.append(records)
        return joined(found)


def spans(tables: "Sequence[pyarrow.RecordBatch]") -> "Iterator[tuple[pyarrow.RecordBatch, slice]]":
    """The tables, and which rows of all those are theirs."""
    first = 0
    for table in tables:
        yield table, slice(first, first + table.num_rows)
        first += table.num_rows


@contextlib.contextmanager
def counted_from(first: int) -> Iterator[None]:
    """Within this context, rows of a piece that begins with row `first` are counted over all pieces."""
    try:
        yield
    except BadRow as error:
        raise BadRow(first + error.row, error.what) from error
    except Refused as error:
        raise BadRow(first, str(error)) from error


def numbers_of(table: "pyarrow.RecordBatch", name: str) -> "np.ndarray":
    """One column as float64; refuses what is missing or no finite number."""
    import numpy as np
    import pyarrow

    from unbayes._finite import is_finite

    column = table.column(name)
    if kind_of(column.type) not in ("numbers", "true or false", "nothing"):
        raise Refused(f"column {name} must hold numbers, but is of type {column.type}")
    require_full(column, name)
    try:
        values = column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
    except pyarrow.ArrowException as error:
        raise Refused(f"column {name} must fit into float64, but holds numbers of more digits") from error
    if not is_finite(values):
        row = int(np.argmin(np.isfinite(values)))
        raise BadRow(row, f"column {name} must be a finite number, but is none")
    return values


def words_of(table: "pyarrow.RecordBatch", name: str) -> Words:
    """One column as words; refuses what is empty, or neither a word nor a whole number."""
    import numpy as np
    import pyarrow
    from pyarrow import types

    column = table.column(name)
    require_full(column, name)
    if not types.is_dictionary(column.type):
        column = column.dictionary_encode()
    used, cells = np.unique(column.indices.to_numpy(), return_inverse=True)
    try:
        names = names_of(column.dictionary.take(pyarrow.array(used)).to_pylist(), f"column {name}")
    except BadRow as error:
        raise BadRow(int(np.argmax(cells == error.row)), error.what) from error
    # What is written in two ways, such as 7 and 7.0, is called the same.
    words = Words.of(names)
    return Words(words.words, words.cells[cells])


def kind_of(kind: "pyarrow.DataType") -> str:
    """What a column holds, in whatever width or form it does."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "numbers"
    if types.is_boolean(kind):
        return "true or false"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "words"
    return "nothing" if types.is_null(kind) else str(kind)


def require_full(column: "pyarrow.Array", name: str) -> None:
    """Refuse empty cells."""
    import numpy as np

    if column.null_count:
        raise BadRow(int(np.argmax(column.is_null().to_numpy(False))), f"column {name} is empty")


def names_in(tables: "Sequence[pyarrow.RecordBatch]", name: str) -> list[str]:
    """What one column of the tables names."""
    found = []
    for table, rows in spans(tables):
        with counted_from(rows.start):
            found += names_of(table.column(name).to_pylist(), f"column {name}")
    return found


def require_finite_records(records: Any) -> Any:
    """Records as NumPy arrays of one length; `BadRow` for a number that is not finite."""
    import jax
    import numpy as np

    records = jax.tree.map(np.asarray, records)
    leaves = jax.tree.leaves(records)
    lengths = sorted({leaf.shape[:1] for leaf in leaves})
    if len(lengths) != 1 or lengths[0] == ():
        raise Refused(f"records must be arrays that share their leading axis, got lengths {lengths}")
    for leaf in leaves:
        if leaf.dtype.kind not in "fiub":
            raise Refused(f"records must be numeric, got an array of dtype {leaf.dtype}")
        if leaf.dtype.kind == "f" and not (fine := np.isfinite(leaf)).all():
            raise BadRow(int(np.argwhere(~fine)[0][0]), "must hold finite numbers, but does not")
    return records


def shape_of(records: Any) -> Any:
    """Structure, trailing shapes and kinds of records: what batches of one source share."""
    import jax

    return jax.tree.map(
        lambda leaf: f"{leaf.dtype.kind}(n{''.join(f', {k}' for k in leaf.shape[1:])})", records
    )


def require_alike(records: Any, shape: Any) -> Any:
    """The shape of records, which must be that of those before them, if there were any."""
    found = shape_of(records)
    if shape is not None and found != shape:
        raise Refused(f"records must be like those before them, {shape}, but are {found}")
    return found


def joined(pieces: Sequence[Any]) -> Any:
    """Records of some pieces, one after the other."""
    import jax
    import numpy as np

    shape = None
    for piece in pieces:
        shape = require_alike(piece, shape)
    return pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *all: np.concatenate(all), *pieces)
