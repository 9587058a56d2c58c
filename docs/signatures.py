"""Signatures of Equinox modules for the reference: as of dataclasses, from fields."""

from typing import Any

import griffe


class ModuleSignatures(griffe.Extension):
    """Give a module without an `__init__` of its own the one that its fields make."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Once all base classes are known."""
        found = [
            cls
            for cls in _classes(pkg)
            if _is_module(cls) and "__init__" not in cls.all_members
        ]
        for cls in found:
            cls.set_member("__init__", _init(cls))


def _classes(parent: griffe.Module | griffe.Class):
    for member in parent.members.values():
        if not member.is_alias and (member.is_module or member.is_class):
            if member.is_class:
                yield member
            yield from _classes(member)


def _is_module(cls: griffe.Class) -> bool:
    bases = {
        str(getattr(base, "canonical_path", base))
        for each in (cls, *cls.mro())
        for base in each.bases
    }
    return "equinox.Module" in bases


def _init(cls: griffe.Class) -> griffe.Function:
    fields: dict[str, griffe.Attribute] = {}
    for each in (*reversed(cls.mro()), cls):
        fields |= {
            name: member for name, member in each.members.items() if _is_field(member)
        }
    parameters = [
        griffe.Parameter(
            name,
            annotation=field.annotation,
            kind=griffe.ParameterKind.positional_or_keyword,
            default=_default(field.value),
        )
        for name, field in fields.items()
    ]
    return griffe.Function(
        "__init__", parameters=griffe.Parameters(*parameters), parent=cls
    )


def _is_field(member: griffe.Object | griffe.Alias) -> bool:
    return (
        member.is_attribute
        and "property" not in member.labels
        and member.annotation is not None
        and "AbstractVar" not in str(member.annotation)
        # Griffe takes ClassVar off annotations: those are the class's alone.
        and "instance-attribute" in member.labels
    )


def _default(value: Any) -> Any:
    """The default itself, where it is wrapped in a description of the field."""
    if not isinstance(value, griffe.ExprCall) or not str(value.function).endswith(
        "field"
    ):
        return value
    keywords = {
        each.name: each.value
        for each in value.arguments
        if isinstance(each, griffe.ExprKeyword)
    }
    return keywords.get("default")
