"""Frozen dataclasses as JSON and back; what does not fit exactly is refused, and its place is named."""

import dataclasses
import enum
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from unbayes.ledger.errors import LedgerError

T = TypeVar("T")


class NotOfThisForm(LedgerError):
    """JSON does not have the fields and types that it should have."""


def read_strict(data: bytes) -> Any:
    """Read JSON; names that stand twice in an object, NaN, infinities and lone surrogates are refused."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant)
        # Half a character has no bytes, so nobody could have signed it.
        json.dumps(value, ensure_ascii=False).encode()
    except NotOfThisForm:
        raise
    except (ValueError, RecursionError) as error:
        raise NotOfThisForm(f"it is not JSON ({error})") from None
    return value


def to_json(value: Any) -> Any:
    """A dataclass as what JSON can hold; names of fields become lowerCamelCase, as in-toto writes them."""
    if dataclasses.is_dataclass(value):
        return {_camel(f.name): to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: to_json(inner) for name, inner in value.items()}
    return [to_json(inner) for inner in value] if isinstance(value, tuple | list) else value


def from_json(kind: type[T], value: Any, where: str) -> T:
    """The inverse of `to_json` for a dataclass.

    Parameters
    ----------
    kind
        The dataclass; its fields may be texts, numbers, booleans, dataclasses, tuples of one type, mappings
        from text, or one of these or None.
    value
        What JSON held.
    where
        What to call it in a refusal.
    """
    return _read(kind, value, where)


def require_fields(value: Any, where: str, needed: set[str], optional: frozenset[str] = frozenset()) -> None:
    """Refuse what is not an object with exactly these names."""
    if not isinstance(value, dict):
        raise NotOfThisForm(f"{where} is not an object")
    if missing := sorted(needed - value.keys()):
        raise NotOfThisForm(f"{where} has no {', '.join(missing)}")
    if unknown := sorted(value.keys() - needed - optional):
        raise NotOfThisForm(f"{where} has unknown fields: {', '.join(unknown)}")


def _read(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, where)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        (kind,) = (a for a in inner if a is not types.NoneType)
        return None if value is None else _read(kind, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise NotOfThisForm(f"{where} is not a list")
        return tuple(_read(inner[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise NotOfThisForm(f"{where} is not an object")
        return {name: _read(inner[1], item, f"{where}.{name}") for name, item in value.items()}
    return _read_scalar(kind, value, where)


def _read_dataclass(kind: Any, value: Any, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    names = {_camel(field.name): field.name for field in dataclasses.fields(kind)}
    require_fields(value, where, set(names))
    return kind(
        **{names[key]: _read(hints[names[key]], item, f"{where}.{key}") for key, item in value.items()}
    )


def _read_scalar(kind: type, value: Any, where: str) -> Any:
    """A number without decimals may stand for a float: RFC 8785 writes 1.0 as 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number:
        try:
            return float(value)
        except OverflowError:
            raise NotOfThisForm(f"{where} is too large") from None
    if type(value) is not kind:
        raise NotOfThisForm(f"{where} is {value!r}, not of type {kind.__name__}")
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotOfThisForm("a name stands twice in an object")
    return found


def _refuse_constant(text: str) -> float:
    raise NotOfThisForm(f"{text} is no number that JSON knows")


def require_finite(where: str, *values: float) -> None:
    """Refuse numbers that JSON cannot hold, and those below zero."""
    for value in values:
        if not math.isfinite(value) or value < 0:
            raise NotOfThisForm(f"{where} is {value}, not a finite number from 0")
