"""What a file holds, or is about to hold, is checked against the annotations of its classes.

`Float[Array, "d d"]` says type and shape, and within one object equal names of axes are equal lengths. What
numbers may be, a class says itself, in `require_valid`.
"""

import dataclasses
import types
import typing
from typing import Any

import jax
import numpy as np
from jaxtyping import AnnotationError, jaxtyped

from unbayes._storable import Storable, is_own_class
from unbayes._validation import require_positive
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior


def check_object(value: Storable, path: str, error: type[ValueError]) -> None:
    """Refuse an object whose fields do not fit its class; what stands in them was checked before.

    Of classes from elsewhere, fields count whose annotation is one of jaxtyping's.
    """
    own, arrays = is_own_class(type(value)), {}
    with jaxtyped("context"):
        for field in dataclasses.fields(value):
            part = getattr(value, field.name)
            if (own or _is_array_kind(field.type)) and not _fits(part, field.type):
                beside = "".join(f", beside {name} of {_spell(other)}" for name, other in arrays.items())
                wanted, found = _spell_kind(field.type), _spell(part)
                raise error(f"{path}.{field.name} must be {wanted}, got {found}{beside}")
            if _is_array_kind(field.type) and _is_float(part):
                _require_finite(part, f"{path}.{field.name}", value.infinite_fields, field.name, error)
                arrays[field.name] = part
    if own and len({array.dtype for array in arrays.values()}) > 1:
        kinds = ", ".join(f"{name} of {array.dtype}" for name, array in arrays.items())
        raise error(f"{path} must be of one floating-point type, got {kinds}")
    try:
        for name in value.positive_fields:
            require_positive(name, getattr(value, name))
        value.require_valid()
    except ValueError as wrong:
        raise error(f"{path}.{wrong}") from wrong


def check_fit(
    posterior: AbstractPosterior, model: AbstractModel | None, memory: Memory | None, error: type[ValueError]
) -> None:
    """Refuse a posterior, a model and a memory that cannot belong together."""
    if model is not None and (posterior.dim, posterior.dtype) != (model.dim, model.dtype):
        raise error(
            f"posterior must have {model.dim} parameters of {model.dtype} to fit the model, "
            f"got {posterior.dim} of {posterior.dtype}"
        )
    if memory is None:
        return
    if model is not None:
        try:
            memory.require_kin(posterior, model)
        except ValueError as wrong:
            raise error(str(wrong)) from wrong
    for name, dim in (
        ("curvature", memory.curvature and len(memory.curvature.linear)),
        ("sums", memory.sums and memory.sums.dim),
    ):
        if dim not in (None, posterior.dim):
            raise error(f"memory.{name} must have {posterior.dim} parameters to fit the posterior, got {dim}")
    for name, array in (
        ("curvature.linear", memory.curvature and memory.curvature.linear),
        ("sums.directions", memory.sums and memory.sums.directions),
        ("sums.derivatives.third", memory.sums and memory.sums.derivatives.third),
        ("weights", memory.weights),
    ):
        if array is not None and array.dtype != posterior.dtype:
            raise error(f"memory.{name} must be {posterior.dtype} as the posterior is, got {array.dtype}")
    if model is not None and memory.coreset is not None:
        _require_evidence(model, memory, error)


def _require_evidence(model: AbstractModel, memory: Memory, error: type[ValueError]) -> None:
    """Refuse a coreset that the model cannot read; looks at shapes and types alone."""
    theta = jax.ShapeDtypeStruct((model.dim,), model.dtype)
    try:
        found = jax.eval_shape(model.log_likelihood, theta, memory.coreset)
    except Exception as wrong:  # A model may be anybody's.
        raise error("memory.coreset must hold records of the model, which cannot read them") from wrong
    if found.shape != (memory.size,):
        raise error(
            f"memory.coreset must hold {memory.size} records of the model, which reads shape {found.shape}"
        )


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in parts)
    if origin is typing.Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is tuple and parts[1:] == (...,):
        return isinstance(value, tuple) and all(_fits(part, parts[0]) for part in value)
    if _is_array_kind(kind):
        try:
            return isinstance(value, kind.dtype[Any, kind.dim_str])
        except (AnnotationError, NameError):  # An axis that is computed from what is not known here.
            return True
    if kind is Any or origin is not None or not isinstance(kind, type):
        return True
    if kind is jax.Array:
        return isinstance(value, jax.Array | np.ndarray)
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, kind)


def _is_array_kind(kind: Any) -> bool:
    """Whether an annotation is one of jaxtyping's, or may be one."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(map(_is_array_kind, typing.get_args(kind)))
    return hasattr(kind, "dim_str")


def _is_float(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray) and np.issubdtype(value.dtype, np.floating)


def _require_finite(array, path: str, infinite: tuple[str, ...], name: str, error: type[ValueError]) -> None:
    numbers = np.asarray(array)
    wrong = np.isnan(numbers) if name in infinite else ~np.isfinite(numbers)
    if wrong.any():
        raise error(f"{path} must be finite, got {numbers[wrong][0]}")


def _spell(value: Any) -> str:
    if isinstance(value, jax.Array | np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return repr(value) if isinstance(value, bool | int | float | str | None) else type(value).__name__


def _spell_kind(kind: Any) -> str:
    parts = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(map(_spell_kind, parts))
    if hasattr(kind, "dim_str"):
        name = "any type" if kind.dtype.__name__ == "Shaped" else kind.dtype.__name__.lower()
        return f"{name} of shape ({', '.join(kind.dim_str.split())})"
    if kind is type(None):
        return "None"
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(repr, parts))
    return kind.__name__ if isinstance(kind, type) and not parts else str(kind)
