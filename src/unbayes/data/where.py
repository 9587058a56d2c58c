"""Conditions on columns, as people write them: ("customer", "in", ids)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unbayes.data.refusal import Refused

if TYPE_CHECKING:
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
}


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
    return tuple(
        (name, operator, list(value) if operator.endswith("in") else value) for name, operator, value in given
    )


def _is_condition(value: Any) -> bool:
    if not isinstance(value, tuple | list) or len(value) != 3:
        return False
    name, operator, operand = value
    takes_many = operator in ("in", "not in")
    is_many = hasattr(operand, "__iter__") and not isinstance(operand, str | bytes)
    return isinstance(name, str) and operator in _OPERATORS and takes_many == is_many


def expression_of(
    conditions: Sequence[Condition], schema: "pyarrow.Schema"
) -> "pyarrow.dataset.Expression | None":
    """The same for pyarrow, with values of the columns' types, so that parts of files can be passed over."""
    import pyarrow
    from pyarrow import dataset

    found = None
    for name, operator, value in conditions:
        kind = schema.field(name).type
        try:
            operand = pyarrow.array(value, kind) if operator.endswith("in") else pyarrow.scalar(value, kind)
        except (pyarrow.ArrowException, TypeError, OverflowError) as error:
            raise Refused(
                f"where must compare {name} with values of its type, {kind}; it was given others"
            ) from error
        each = _OPERATORS[operator](dataset.field(name), operand)
        found = each if found is None else found & each
    return found
