"""Between PyTorch and JAX, for the adapters of libraries that stand on PyTorch."""

# pyright: reportMissingImports=false

import hashlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch


def to_array(value: Any) -> Any:
    """A tensor as an array, whatever its device and gradient; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    # NumPy has no bfloat16.
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()


def to_double(tensor: Any) -> np.ndarray:
    """A copy of a tensor in double precision."""
    return np.array(to_array(tensor), np.float64)


def assign(parameter: torch.Tensor, values: Any) -> None:
    """Give a parameter other values, in its own type and on its own device."""
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.array(values)))


# Held while parameters are compared and written, which takes next to no time.
_SWAPPING = threading.Lock()
# Attribute of a module that was changed in place: fingerprint of what was written.
_MARK = "_unlearned_in_place"


class Guard:
    """Sees to it that requests start from parameters as they were trained, and none overwrites another.

    Parameters
    ----------
    module
        What a request reads, and writes where it is answered in place.
    parameters
        Returns the parameters that are written.
    name
        What the caller calls the module.
    """

    def __init__(self, module: Any, parameters: Callable[[], Iterable[torch.Tensor]], name: str):
        self.module, self.parameters, self.name = module, parameters, name
        with _SWAPPING:
            self.before = self._fingerprint()
        if getattr(module, _MARK, None) == self.before:
            raise ValueError(
                f"{name} was already changed in place by an earlier unlearn, and requests start from it as "
                "it was trained: keep that, and give it with all the records erased so far"
            )

    def require_unchanged(self) -> None:
        """Refuse what was computed from parameters that are no longer there."""
        if self._fingerprint() != self.before:
            raise RuntimeError(
                f"{self.name} was changed by another call while this one ran, so this one changed nothing, "
                f"and its records are not erased: give those of both calls to one, from {self.name} as it "
                "was trained"
            )

    def swap(self, write: Callable[[], None]) -> None:
        """Write, unless somebody else did, and leave a mark."""
        with _SWAPPING:
            self.require_unchanged()
            write()
            setattr(self.module, _MARK, self._fingerprint())

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for parameter in self.parameters():
            digest.update(to_double(parameter).tobytes())
        return digest.hexdigest()


def call_back(
    function: Callable[..., tuple[np.ndarray, ...]], shapes: tuple[tuple[int, ...], ...], *arguments: Any
) -> tuple[jax.Array, ...]:
    """Call a function of NumPy arrays from within compiled code.

    As `jax.pure_callback`, which runs in threads that do not know of `jax.enable_x64` and would round doubles
    there: they pass as pairs of 32-bit words.

    Parameters
    ----------
    function
        Returns double-precision arrays; under `vmap`, arguments and results have one more leading axis, of
        length one where an argument is not mapped over.
    shapes
        Of its results, without such axes.
    arguments
        Pytrees of arrays.
    """
    leaves, structure = jax.tree.flatten(arguments)
    dtypes = [np.dtype(leaf.dtype) for leaf in leaves]

    def host(*words):
        arrays = [_from_words(np.asarray(part), dtype) for part, dtype in zip(words, dtypes, strict=True)]
        results = function(*jax.tree.unflatten(structure, arrays))
        return tuple(np.ascontiguousarray(result)[..., None].view(np.uint32) for result in results)

    expected = tuple(jax.ShapeDtypeStruct((*shape, 2), jnp.uint32) for shape in shapes)
    found = jax.pure_callback(host, expected, *map(_to_words, leaves), vmap_method="expand_dims")
    return tuple(jax.lax.bitcast_convert_type(words, jnp.float64) for words in found)


def _to_words(array: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(array, jnp.uint32) if array.dtype.itemsize == 8 else array


def _from_words(words: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.ascontiguousarray(words).view(dtype)[..., 0] if dtype.itemsize == 8 else words
