"""Objects as descriptions for JSON and back: trees of storable classes, arrays, numbers and words."""

import dataclasses
import typing
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from unbayes._storable import Storable, find_class, stored_name
from unbayes.storage.archive import DTYPES, UnreadableFile
from unbayes.storage.check import check_object


def describe(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Description of what stands at `path`, for JSON; arrays are put into `arrays`.

    What `rebuild` would refuse is refused here.
    """
    if isinstance(value, bool | int | float | str | None):
        return value
    if type(value) in (tuple, list):
        return {"tuple": [describe(part, f"{path}.{i}", arrays) for i, part in enumerate(value)]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: describe(part, f"{path}.{key}", arrays) for key, part in value.items()}}
    if isinstance(value, jax.Array | np.ndarray):
        if value.dtype.name not in DTYPES:
            raise TypeError(f"{path} must have one of the types {', '.join(DTYPES)}, got {value.dtype}")
        arrays[path] = np.asarray(value, order="C")
        return {"array": path}
    cls = type(value)
    if not isinstance(value, Storable) or find_class(stored_name(cls)) is not cls:
        raise TypeError(f"{path} is a {cls.__module__}.{cls.__qualname__}, which unbayes cannot save")
    fields, functions = {}, _function_fields(cls)
    for name, part in value.stored_fields().items():
        here = f"{path}.{name}"
        fields[name] = {"function": here} if name in functions else describe(part, here, arrays)
    check_object(value, path, ValueError)
    return {"class": stored_name(cls), "fields": fields}


def rebuild(node: Any, path: str, arrays: dict[str, np.ndarray], functions: dict[str, Callable]) -> Any:
    """Inverse of `describe`; what it uses, it takes out of `arrays` and `functions`."""
    match node:
        case bool() | int() | float() | str() | None:
            return node
        case {"tuple": [*parts]}:
            return tuple(rebuild(part, f"{path}.{i}", arrays, functions) for i, part in enumerate(parts))
        case {"dict": {**parts}}:
            return {key: rebuild(part, f"{path}.{key}", arrays, functions) for key, part in parts.items()}
        case {"array": str(name)} if name in arrays:
            return jax.device_put(arrays.pop(name))
        case {"function": str(name)}:
            if not callable(functions.get(name)):
                raise ValueError(f"functions must hold the function {name!r}, which no file can store")
            return functions.pop(name)
        case {"class": str(name), "fields": {**parts}}:
            return _rebuild_object(name, parts, path, arrays, functions)
    raise UnreadableFile(f"{path} is described in a way that this version does not understand")


def _rebuild_object(name: str, parts: dict, path: str, arrays, functions) -> Any:
    if (cls := find_class(name)) is None:
        raise UnreadableFile(f"{path} is of the class {name!r}, which this version does not know")
    if {*cls.later_fields, *parts} != {field.name for field in dataclasses.fields(cls)}:
        raise UnreadableFile(f"{path} has the fields {sorted(parts)}, not those of {name}")
    found = {key: rebuild(part, f"{path}.{key}", arrays, functions) for key, part in parts.items()}
    fields = {**cls.later_fields, **found}
    try:
        found = cls.from_stored(fields)
    except Exception as error:
        raise UnreadableFile(f"{path} cannot be rebuilt as {name}: {error}") from error
    check_object(found, path, UnreadableFile)
    return found


def _function_fields(cls: type) -> set[str]:
    """Names of the fields that hold functions, which no file can store."""
    return {field.name for field in dataclasses.fields(cls) if typing.get_origin(field.type) is Callable}
