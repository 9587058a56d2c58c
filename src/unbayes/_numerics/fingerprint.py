"""Fingerprints: equal for equal objects, in any process."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def fingerprint(*parts: Any) -> str:
    """Digest of the classes, settings and arrays that `parts` are made of.

    Functions count by their name alone, and so do objects of other libraries.
    """
    digest = hashlib.blake2b(digest_size=16)
    for piece in _pieces(parts):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: Any) -> Iterator[bytes | memoryview]:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, jax.Array | np.ndarray):
        yield f"{value.dtype}{value.shape}".encode()
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    elif isinstance(value, bool | int | float | str | None):
        yield repr(value).encode()
    elif isinstance(value, tuple | list):
        yield f"({type(value).__name__}{len(value)}".encode()
        for part in value:
            yield from _pieces(part)
    elif isinstance(value, dict):
        yield f"{{{len(value)}".encode()
        for name, part in value.items():
            yield f"{name}:".encode()
            yield from _pieces(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield f"{type(value).__qualname__}<".encode()
        for field in dataclasses.fields(value):
            yield f"{field.name}=".encode()
            yield from _pieces(getattr(value, field.name))
    elif isinstance(value, Callable):
        yield getattr(value, "__qualname__", type(value).__qualname__).encode()
    else:
        yield type(value).__qualname__.encode()
