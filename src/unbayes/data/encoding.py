"""From the columns of a table to what a model takes."""

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unbayes.data.refusal import Refused

if TYPE_CHECKING:
    import numpy as np
    import pyarrow


class BadRow(Refused):
    """A record that no model can take; `row` counts from the first of the table that was looked at."""

    def __init__(self, row: int, what: str):
        super().__init__(f"row {row} (from 0), {what}")
        self.row, self.what = row, what


class AbstractEncoder(abc.ABC):
    """Turns pieces of a table into records."""

    @property
    @abc.abstractmethod
    def columns(self) -> list[str] | None:
        """Names of the columns that it reads; None for all."""

    @abc.abstractmethod
    def encode(self, table: "pyarrow.RecordBatch") -> Any:
        """Records of a piece of the table, a pytree of arrays; raises `BadRow` where there are none."""


@dataclasses.dataclass(frozen=True)
class Numbers(AbstractEncoder):
    """Columns of numbers: a pair (inputs, targets), or one of the two where the other is not named.

    Attributes
    ----------
    inputs
        Names of the inputs, in the model's order; None where records have none.
    target
        Name of the target; None for inputs alone.
    """

    inputs: tuple[str, ...] | None
    target: str | None

    @property
    def columns(self) -> list[str]:
        """Names of the columns that it reads."""
        return [*(self.inputs or ()), *([self.target] if self.target is not None else [])]

    def encode(self, table: "pyarrow.RecordBatch") -> Any:
        """Inputs of shape (n, k), targets of shape (n,), in double precision."""
        import numpy as np

        target = None if self.target is None else numbers_of(table, self.target)
        if self.inputs is None:
            return target
        inputs = np.empty((table.num_rows, len(self.inputs)))
        for place, name in enumerate(self.inputs):
            inputs[:, place] = numbers_of(table, name)
        return inputs if target is None else (inputs, target)


@dataclasses.dataclass(frozen=True)
class Function(AbstractEncoder):
    """A function of a user's, from a piece of a table to records."""

    function: Callable[["pyarrow.RecordBatch"], Any]

    @property
    def columns(self) -> None:
        """All of them: nobody knows which the function looks at."""

    def encode(self, table: "pyarrow.RecordBatch") -> Any:
        """What the function makes of the piece."""
        return require_finite_records(self.function(table))


def numbers_of(table: "pyarrow.RecordBatch", name: str) -> "np.ndarray":
    """One column as float64; refuses what is missing or no finite number."""
    import numpy as np
    import pyarrow
    from pyarrow import types

    column = table.column(name)
    kind = column.type
    if not (
        types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    ):
        raise Refused(f"column {name} must hold numbers, but is of type {kind}")
    if column.null_count:
        raise BadRow(int(np.argmax(column.is_null().to_numpy(False))), f"column {name} is empty")
    try:
        values = column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
    except pyarrow.ArrowException as error:
        raise Refused(f"column {name} must fit into float64: {error}") from error
    # A sum is finite only if all of its terms are, and takes a fraction of the time.
    if not np.isfinite(values.sum()) and not (fine := np.isfinite(values)).all():
        raise BadRow(int(np.argmin(fine)), f"column {name} must be a finite number, but is none")
    return values


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
        if leaf.dtype.kind == "f" and not (fine := np.isfinite(leaf)).all():
            raise BadRow(int(np.argwhere(~fine)[0][0]), "must hold finite numbers, but does not")
    return records
