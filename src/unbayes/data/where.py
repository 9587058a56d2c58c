"""Conditions on columns, as people write them: ("customer", "in", ids)."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unbayes.data.names import EXACT_BELOW
from unbayes.data.refusal import Refused

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

Condition = tuple[str, str, Any]
Where = Condition | Sequence[Condition]

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
    "in": lambda column, values: column.isin(values),
    "not in": lambda column, values: ~column.isin(values),
    # By what `names_of` calls the cells: digits of whole numbers, or words.
    "named": lambda column, values: column.isin(values),
}
_TAKES_MANY = ("in", "not in", "named")
# Digits of the largest number that a cell may hold; more need not be looked at.
_LONGEST_NUMBER = 80
_QUOTED = r'"(?:[^"]|"")+"'
_CONDITION = re.compile(
    rf"\s*({_QUOTED}|[^\s\"=!<>]+)(?:\s*(==|!=|<=|>=|<|>)\s*|\s+(in|not\s+in)\s+)(\S.*)", re.DOTALL
)
# A value that begins like a list, a word of SQL or an operator is none that anybody means.
_VALUE = rf"\s*({_QUOTED}|[^\s\",'(\[=!<>][^\",]*)\s*"
_VALUES = re.compile(rf"{_VALUE}(?:,{_VALUE})*")


class Text(str):
    """A value as somebody typed it, which takes the type of the column that it is compared with."""


def read_condition(text: str) -> Condition:
    """A condition as it is typed: ``customer in 17,35``, ``age >= 18``, ``"first name" == "O""Neill, A."``.

    Names and values that hold commas, quotes or operators stand in double quotes. Values take the type of the
    column.
    """
    found = _CONDITION.fullmatch(text)
    values = found and _VALUES.fullmatch(found[4])
    if not found or not values:
        raise Refused(
            "a condition must be like 'customer in 17,35' or 'age >= 18', with one of ==, !=, <, <=, >, >=, "
            f"in, not in, and words that hold commas in double quotes, got {text!r}"
        )
    operator = found[2] or " ".join(found[3].split())
    each = [Text(_unquoted(value)) for value in re.findall(_VALUE, found[4])]
    if operator in _TAKES_MANY:
        return _unquoted(found[1]), operator, each
    if len(each) > 1:
        raise Refused(f"{operator} takes one value, got {len(each)} in {text!r}; use in, or double quotes")
    return _unquoted(found[1]), operator, each[0]


def conditions_of(where: Any) -> tuple[Condition, ...]:
    """The conditions, all of which a record must meet; refuses what is none."""
    if where is None:
        return ()
    given = [where] if isinstance(where, tuple) and where and isinstance(where[0], str) else where
    if not isinstance(given, list | tuple) or not all(_is_condition(each) for each in given):
        raise Refused(
            "where must be a condition such as ('customer', 'in', [1, 2]) or a list of them, with one of "
            f"{', '.join(_OPERATORS)}"
        )
    if unusual := [name for name, operator, value in given if value is None and operator not in _TAKES_MANY]:
        raise Refused(
            f"where must ask for empty cells of {unusual[0]} by in or not in, with None among the values"
        )
    return tuple(
        (name, operator, list(value) if operator in _TAKES_MANY else value) for name, operator, value in given
    )


def require_columns(conditions: Sequence[Condition], names: Sequence[str]) -> None:
    """Refuse conditions on columns that there are not."""
    if missing := [name for name, _, _ in conditions if name not in names]:
        raise Refused(f"where must name columns of the data, which have no {missing[0]}")


def told_by_bounds(conditions: Sequence[Condition]) -> list[Condition]:
    """Those that gaps and what is no number do not meet, of which the bounds of a column tell nothing."""
    return [
        (name, operator, value)
        for name, operator, value in conditions
        if operator not in ("!=", "not in") and not (isinstance(value, list) and None in value)
    ]


def expression_of(
    conditions: Sequence[Condition], schema: "pyarrow.Schema"
) -> "pyarrow.dataset.Expression | None":
    """The same for pyarrow, with values of the columns' types, so that parts of files can be passed over."""
    from pyarrow import dataset

    found = None
    for condition in conditions:
        name, operator, _ = condition
        each = _OPERATORS[operator](dataset.field(name), operand_of(condition, schema))
        found = each if found is None else found & each
    return found


def operand_of(condition: Condition, schema: "pyarrow.Schema") -> Any:
    """What a condition compares a column with, in the column's type: a scalar, or an array of several."""
    from pyarrow import types

    name, operator, value = condition
    kind = schema.field(name).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return _named(name, value, kind) if operator == "named" else _typed(name, value, kind)


def _is_condition(value: Any) -> bool:
    if not isinstance(value, tuple | list) or len(value) != 3:
        return False
    name, operator, operand = value
    is_many = hasattr(operand, "__iter__") and not isinstance(operand, str | bytes)
    return isinstance(name, str) and operator in _OPERATORS and (operator in _TAKES_MANY) == is_many


def _typed(name: str, value: Any, kind: "pyarrow.DataType") -> Any:
    """A value or some of them, in the type of a column."""
    import pyarrow
    from pyarrow import types

    values = value if isinstance(value, list) else [value]
    is_text = bool(values) and all(isinstance(each, Text) for each in values)
    try:
        found = pyarrow.array(values, pyarrow.string()).cast(kind) if is_text else pyarrow.array(values, kind)
        # Arrow cuts what does not fit: 18.5 for whole numbers, an hour for days.
        if not is_text and not types.is_floating(kind) and found.to_pylist() != values:
            raise ValueError
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
        raise Refused(
            f"where must compare {name} with values of its type, {kind}; it was given others"
        ) from None
    return _with_both_zeros(found) if isinstance(value, list) else found[0]


def _with_both_zeros(values: "pyarrow.Array") -> "pyarrow.Array":
    """With 0.0 and -0.0 if it has one of them: they are equal, but not to Arrow where it looks values up."""
    import pyarrow
    from pyarrow import types

    if not types.is_floating(values.type) or 0 not in values.to_pylist():
        return values
    return pyarrow.concat_arrays([values, pyarrow.array([0.0, -0.0], values.type)])


def _named(name: str, names: list[str], kind: "pyarrow.DataType") -> "pyarrow.Array":
    """The cells of a type that have one of these names; what no cell of that type is called is left out."""
    import pyarrow
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind):
        return pyarrow.array(names, kind)
    if types.is_integer(kind):
        is_signed = types.is_signed_integer(kind)
        end = 2 ** (kind.bit_width - is_signed)
        begin = -end if is_signed else 0
    elif types.is_floating(kind):
        end = EXACT_BELOW[kind.bit_width // 8]
        begin = 1 - end
    elif types.is_decimal(kind):
        end = 10 ** (kind.precision - kind.scale)
        begin = 1 - end
    else:
        raise Refused(f"column {name} must hold words or whole numbers to say who, but is of type {kind}")
    numbers = [int(each) for each in names if _is_whole(each)]
    cells = [str(each) for each in numbers if begin <= each < end]
    return _with_both_zeros(pyarrow.array(cells, pyarrow.string()).cast(kind))


def _is_whole(name: str) -> bool:
    """Whether a name is the digits of a whole number, as they are always written."""
    return bool(re.fullmatch(r"0|-?[1-9][0-9]*", name)) and len(name) <= _LONGEST_NUMBER


def _unquoted(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.strip()
