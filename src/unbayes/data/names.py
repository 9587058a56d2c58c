"""What a record is called, whatever type the cell of a table has that names it: always the same word."""

import math
import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from unbayes.data.refusal import BadRow

# Below this number, by the bytes of a float, each whole number has a float of its own: from it on, digits of
# an identifier may be lost.
EXACT_BELOW = {2: 2**8, 4: 2**24, 8: 2**53}


def names_of(cells: Iterable[Any], what: str) -> list[str]:
    """What the cells name, one word each; `what` is what a sentence calls them.

    A whole number is its digits, also where it was read as a float, as pandas reads columns with a gap. What
    names nothing is refused: no value, true or false, fractions.
    """
    found = []
    for row, cell in enumerate(cells):
        name = cell if type(cell) is str else _name(cell)
        if not name:
            raise BadRow(row, f"{what} must be words or whole numbers, but is {_fault(cell)}")
        found.append(name)
    return found


def _name(cell: Any) -> str | None:
    """The word; None where there is none."""
    # NumPy's scalars, and arrays without dimensions; of these, how many digits they hold.
    width = 8
    if getattr(cell, "ndim", None) == 0 and hasattr(cell, "item"):
        width, cell = int(cell.dtype.itemsize), cell.item()
    if isinstance(cell, bool):
        return None
    if isinstance(cell, str | int | uuid.UUID):
        return str(cell)
    if isinstance(cell, float):
        is_exact = math.isfinite(cell) and cell.is_integer() and abs(cell) < EXACT_BELOW.get(width, 0)
        return str(int(cell)) if is_exact else None
    if isinstance(cell, Decimal):
        return str(int(cell)) if cell.is_finite() and cell == cell.to_integral_value() else None
    return None


def _fault(cell: Any) -> str:
    """Why a cell names nothing; what is in it is not repeated."""
    if getattr(cell, "ndim", None) == 0 and hasattr(cell, "item"):
        cell = cell.item()
    if type(cell).__name__ in ("NoneType", "NAType", "NaTType") or cell == "":
        return "empty"
    if isinstance(cell, float | Decimal):
        if math.isnan(cell):
            return "empty"
        is_whole = math.isfinite(cell) and cell == int(cell)
        return "too large for a float to hold every digit" if is_whole else "infinite, or has a fraction"
    return f"of type {type(cell).__name__}"
