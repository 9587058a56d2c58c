"""Which columns of a table are the inputs and the target of a model."""

import csv
from collections.abc import Sequence
from typing import Any

from unbayes.data.columns import Column, Columns
from unbayes.data.refusal import Refused


def noted_columns(notes: dict[str, Any]) -> tuple[list[Column] | None, Column | None]:
    """Inputs and target as the notes of a file name them; None where they do not."""
    inputs, target = notes.get("columns"), notes.get("target")
    is_list = isinstance(inputs, list) and all(isinstance(each, str | dict) for each in inputs)
    return (
        [Column.of_form(each) for each in inputs or ()] if is_list else None,
        Column.of_form(target) if isinstance(target, str | dict) else None,
    )


def told_columns(
    notes: dict[str, Any], inputs: Sequence[str | Column] | None, target: str | Column | None
) -> tuple[Sequence[str | Column] | None, str | Column | None]:
    """Inputs and target as they are named, else as the notes do."""
    noted_inputs, noted_target = noted_columns(notes)
    noted = [*(noted_inputs or ()), *([] if noted_target is None else [noted_target])]
    if (inputs, target) != (None, None) and not all(each.is_plain for each in noted):
        raise Refused("inputs and target must be left out: the file says how training encoded its columns")
    return noted_inputs if inputs is None else inputs, noted_target if target is None else target


def parse_names(text: str | None) -> list[str] | None:
    """Names between commas; one that holds a comma itself stands in quotes, as in CSV."""
    if text is None:
        return None
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


def choose_columns(
    names: Sequence[str],
    taken: int | None,
    inputs: Sequence[str | Column] | None,
    target: str | Column | None,
    place: str,
) -> Columns:
    """The columns that the model takes, or a sentence on what is missing.

    Parameters
    ----------
    names
        Columns of the table, in order.
    taken
        Number of inputs that the model takes; None for a model whose records are one column.
    inputs, target
        Names, or columns as training encoded them; None for all columns but the target, and for the only
        column.
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
        name = Column.of_form(target).name
        inputs = [each for each in names if each != name]
        if len(inputs) != taken:
            raise Refused(
                f"{place} must have {taken} columns besides the target {name}, got {len(inputs)} "
                f"({_list(inputs)}); --inputs names those to take"
            )
    chosen = Columns(inputs, target)
    chosen.require_width(taken or 0)
    require_found(chosen.columns, names, place)
    return chosen


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
