"""Which columns of a table are the inputs and the target of a model."""

import csv
from collections.abc import Sequence
from typing import Any, NamedTuple

from unbayes.data.refusal import Refused


class Chosen(NamedTuple):
    """Names of the input columns, in the model's order, and of the target; no inputs where it takes none."""

    inputs: list[str]
    target: str


def noted_columns(notes: dict[str, Any]) -> tuple[list[str] | None, str | None]:
    """Inputs and target as the notes of a file name them; None where they do not."""
    inputs, target = notes.get("columns"), notes.get("target")
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        inputs = None
    return inputs, target if isinstance(target, str) else None


def parse_names(text: str | None) -> list[str] | None:
    """Names between commas; one that holds a comma itself stands in quotes, as in CSV."""
    if text is None:
        return None
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


def choose_columns(
    names: Sequence[str], taken: int | None, inputs: list[str] | None, target: str | None, place: str
) -> Chosen:
    """The columns that the model takes, or a sentence on what is missing.

    Parameters
    ----------
    names
        Columns of the table, in order.
    taken
        Number of inputs that the model takes; None for a model whose records are one column.
    inputs, target
        As they were named; None for all columns but the target, and for the only column.
    place
        What the sentence calls the table.
    """
    if target is None and taken is None and len(names) == 1:
        target = names[0]
    if target is None:
        raise Refused(f"--target must name the target column of {place}, which has {_list(names)}")
    if taken is None:
        if inputs is not None:
            raise Refused("--inputs must be left out: the model's records are one column, --target")
        inputs = []
    elif inputs is None:
        inputs = [name for name in names if name != target]
        if len(inputs) != taken:
            raise Refused(
                f"{place} must have {taken} columns besides the target {target}, got {len(inputs)} "
                f"({_list(inputs)}); --inputs names those to take"
            )
    elif len(inputs) != taken:
        raise Refused(f"the model takes {taken} inputs, but {len(inputs)} are named: {_list(inputs)}")
    require_found([*inputs, target], names, place)
    return Chosen(inputs, target)


def require_found(wanted: list[str], names: Sequence[str], place: str) -> None:
    """Refuse columns that are not in the table, or not once."""
    if missing := [name for name in wanted if name not in names]:
        raise Refused(f"{place} has no column {_list(missing)}; it has {_list(names)}")
    if twice := [name for name in dict.fromkeys(wanted) if names.count(name) > 1]:
        raise Refused(f"{place} has more than one column {_list(twice)}")
    if twice := [name for name in dict.fromkeys(wanted) if wanted.count(name) > 1]:
        raise Refused(
            f"a column must be named once, among the inputs or as the target; twice: {_list(twice)}"
        )


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
