"""Classes that files can hold: every subclass of `Storable` is known by its name."""

import dataclasses
import inspect
import sys
from typing import Any, ClassVar, Self

import equinox as eqx

_CLASSES: dict[str, type["Storable"]] = {}


class Storable(eqx.Module):
    """An immutable module that `unbayes.save` can write, field by field, and `unbayes.load` read again.

    Fields are arrays, numbers, words, tuples, dicts, functions, and other storable modules. A class that
    holds something else says how to write it, in `stored_fields` and `from_stored`.

    Attributes
    ----------
    later_fields
        Fields that came after the class was first published, and what files without them mean.
    infinite_fields
        Fields whose numbers may be infinite; all others must be finite to be saved.
    positive_fields
        Fields whose numbers must be positive to be saved.
    """

    later_fields: ClassVar[dict[str, Any]] = {}
    infinite_fields: ClassVar[tuple[str, ...]] = ()
    positive_fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        _CLASSES[stored_name(cls)] = cls

    def stored_fields(self) -> dict[str, Any]:
        """What a file holds of this object, by the names of its fields."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def require_valid(self) -> None:
        """Refuse numbers that no such object has, by a ValueError that begins with the field's name.

        Asked before anything is saved, and of what was loaded. Types, shapes and finiteness are checked
        already, as far as annotations tell them.
        """

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> Self:
        """The object with the given fields; no constructor gets to change them."""
        module = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(module, name, value)
        return module


def stored_name(cls: type) -> str:
    """Name of a class in files: short for the library's own, with its module for others."""
    return cls.__name__ if is_own_class(cls) else f"{cls.__module__}:{cls.__qualname__}"


def is_own_class(cls: type) -> bool:
    """Whether a class is one of the library's."""
    return cls.__module__.split(".")[0] == "unbayes"


def find_class(name: str) -> type[Storable] | None:
    """The class of that name: one that the package exports, or one that has been imported."""
    package = sys.modules["unbayes"]
    if name in package.__all__:
        # Public names are imported with their first use; a file can be the first to use one.
        getattr(package, name)
    found = _CLASSES.get(name)
    return None if found is None or inspect.isabstract(found) else found
