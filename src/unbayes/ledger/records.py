"""The records of a request: identifiers, and numbers in the order of the model's columns."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbayes.data.choosing import choose_columns, require_found
from unbayes.data.columns import Column, Columns
from unbayes.data.names import names_of
from unbayes.data.refusal import Refused
from unbayes.data.rows import AbstractRows, open_rows

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True)
class TableColumns(Columns):
    """The columns of a table that holds records of a model.

    Attributes
    ----------
    ids
        The column that names each record, once.
    """

    ids: str = ""

    def __init__(self, inputs: Any, target: Any, ids: str):
        super().__init__(inputs, target)
        object.__setattr__(self, "ids", ids)

    def to_json(self) -> dict[str, Any]:
        """The same as a dict that JSON takes."""
        form = super().to_json()
        return {"inputs": form["columns"], "target": form["target"], "ids": self.ids}


@dataclasses.dataclass(frozen=True)
class Records:
    """Some records of a model.

    Attributes
    ----------
    ids
        One identifier for each, all different.
    numbers
        Inputs and, last, the target, shape (n, k + 1), float64.
    """

    ids: tuple[str, ...]
    numbers: "np.ndarray"

    def __post_init__(self):
        if not self.ids or len(self.ids) != len(self.numbers):
            raise Refused(f"ids must name each of the {len(self.numbers)} records, got {len(self.ids)}")
        if len(set(self.ids)) < len(self.ids):
            raise Refused("ids must name each record once, got one of them more than once")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of_arrays(cls, inputs: Any, targets: Any, ids: Sequence[Any]) -> "Records":
        """Records from arrays of shapes (n, k) and (n,); `inputs` None for a model without any."""
        import numpy as np

        targets = np.asarray(targets, np.float64)
        if targets.ndim != 1 or not len(targets):
            raise Refused(f"targets must have shape (n,) and hold some records, got {targets.shape}")
        inputs = np.empty((len(targets), 0)) if inputs is None else np.asarray(inputs, np.float64)
        if inputs.ndim != 2 or len(inputs) != len(targets):
            raise Refused(f"inputs must have shape ({len(targets)}, k), got {inputs.shape}")
        numbers = np.concatenate([inputs, targets[:, None]], axis=1)
        if not np.isfinite(numbers).all():
            row = int(np.flatnonzero(~np.isfinite(numbers).all(1))[0])
            raise Refused(f"rows must hold finite numbers, but row {row} (from 0) does not")
        return cls(tuple(names_of(ids, "ids")), numbers)

    @classmethod
    def of_table(cls, path: Path, columns: TableColumns) -> "Records":
        """Records from a CSV or Parquet file."""
        table = _open(path, columns)
        return cls(tuple(table.words(columns.ids)), table.encoded(columns))

    @classmethod
    def by_subject(cls, path: Path, columns: TableColumns, subject: str) -> "Iterator[tuple[str, Records]]":
        """The records of each person, named by the column `subject`, in the order of their first row."""
        table = _open(path, columns)
        require_found([subject], table.names, str(path))
        everyone = cls(tuple(table.words(columns.ids)), table.encoded(columns))
        rows_of: dict[str, list[int]] = {}
        for row, person in enumerate(table.words(subject)):
            rows_of.setdefault(person, []).append(row)
        for person, rows in rows_of.items():
            yield person, everyone.at(rows)

    def at(self, rows: Sequence[int]) -> "Records":
        """Some of them."""
        return Records(tuple(self.ids[row] for row in rows), self.numbers[list(rows)])

    def to_bytes(self) -> bytes:
        """A line of JSON with the identifiers, then the numbers."""
        return json.dumps(self.ids).encode() + b"\n" + self.numbers.astype("<f8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Records":
        """What `to_bytes` wrote."""
        import numpy as np

        line, _, numbers = data.partition(b"\n")
        ids = tuple(json.loads(line))
        return cls(ids, np.frombuffer(numbers, "<f8").reshape(len(ids), -1))

    @classmethod
    def together(cls, parts: "Sequence[Records]") -> "Records":
        """All of them, one after the other."""
        import numpy as np

        ids = tuple(name for part in parts for name in part.ids)
        return cls(ids, np.concatenate([part.numbers for part in parts]))


def find_columns(
    inputs: Sequence[str | Column] | None,
    target: str | Column | None,
    ids: str,
    taken: int | None,
    place: str,
) -> TableColumns:
    """The columns of a model's tables; where the inputs are not named, a sentence asks for them."""
    if target is None:
        raise Refused(f"{place} does not say which columns its records have; name them by inputs and target")
    if taken is not None and inputs is None:
        raise Refused(f"{place} does not name the {taken} columns of its inputs; name them by inputs")
    chosen = Columns(() if taken is None else inputs, target)
    if ids in chosen.columns:
        raise Refused(f"ids must be a column of its own, but {ids} is an input or the target")
    choose_columns(chosen.columns, taken, None if taken is None else chosen.inputs, chosen.target, place)
    return TableColumns(chosen.inputs, chosen.target, ids)


def _open(path: Path, columns: TableColumns) -> AbstractRows:
    table = open_rows(path)
    require_found([*columns.columns, columns.ids], table.names, str(path))
    return table
