"""Records to erase, wherever the command line says they are, as a model takes them."""

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unbayes.data.choosing import choose_columns, require_found, told_columns
from unbayes.data.columns import Columns
from unbayes.data.finding import PACKED
from unbayes.data.refusal import Refused
from unbayes.data.rows import open_rows
from unbayes.data.scan import others_of, reader_of, scan_of
from unbayes.data.where import Condition

if TYPE_CHECKING:
    from unbayes.storage import Saved


class Asked(NamedTuple):
    """Which records are meant, as the options say it."""

    rows: str
    inputs: list[str] | None
    target: str | None
    ids: str | None
    where: list[Condition]
    has_header: bool

    @property
    def is_one_file(self) -> bool:
        """Whether they are all records of one file of CSV or Parquet; CSV needs no extra."""
        place = Path(self.rows)
        is_packed = place.suffix.lower() in (".feather", ".arrow", *PACKED)
        is_else = place.is_dir() or "://" in self.rows or is_packed
        is_pattern = glob.has_magic(self.rows) and not place.exists()
        return not (self.where or is_else or is_pattern)


def read_records(saved: "Saved", asked: Asked) -> tuple[Any, list[str] | None]:
    """The records, a pair (inputs, targets) or the target alone, and identifiers; or a source of all that."""
    if asked.is_one_file:
        table = open_rows(Path(asked.rows), has_header=asked.has_header)
        columns = _columns(saved, asked, table.names)
        numbers = table.encoded(columns)
        erased = (numbers[:, :-1], numbers[:, -1]) if columns.inputs else numbers[:, 0]
        return erased, None if asked.ids is None else table.words(asked.ids)
    if not asked.has_header:
        raise Refused("--no-header is for one CSV file, without --where")
    try:
        reader = reader_of(asked.rows, asked.where, None, None, asked.ids)
    except ModuleNotFoundError as error:
        raise Refused(f"{asked.rows} needs pip install 'unbayes[data]': {error}") from error
    columns = _columns(saved, asked, reader.names or [])
    return scan_of(reader, columns, None, asked.ids, asked.where), None


def _columns(saved: "Saved", asked: Asked, names: list[str]) -> Columns:
    """Of columns with these names, those that the model takes, as training encoded them."""
    # None for a model whose records are one column of outcomes.
    features = getattr(saved.model, "features", None)
    taken = None if features is None else features.inputs
    inputs, target = asked.inputs, asked.target
    if asked.has_header:
        told, target = told_columns(saved.notes or {}, inputs, target)
        inputs = inputs if taken is None else told
    elif saved.columns is not None and not saved.columns.is_plain:
        raise Refused("--no-header must be left out: the file says which columns are encoded, by their names")
    require_found([asked.ids] if asked.ids else [], names, asked.rows)
    others = others_of(names, None, asked.ids, asked.where if inputs is None else None)
    return choose_columns(others, taken, inputs, target, asked.rows)


def is_among(out: Path, rows: str) -> bool:
    """Whether a file is one of those that hold the records."""
    places = [Path(each) for each in (rows, *glob.glob(rows, recursive=True))]
    return any(
        out.resolve().is_relative_to(each.resolve()) if each.is_dir() else out.exists() and out.samefile(each)
        for each in places
        if each.exists()
    )
