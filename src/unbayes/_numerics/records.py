"""Batches of records: pytrees of arrays that share their leading axis."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unbayes._finite import is_finite

# Elements that one chunk of records × draws may hold: a few tens of megabytes.
CHUNK_ELEMENTS = 1 << 22
# Elements that stay in a processor's cache while they are worked on, which takes half the time.
CACHED_ELEMENTS = 1 << 19
# Records up to which a batch costs next to nothing, so that smaller ones are filled up to it.
SMALLEST_BATCH = 128
# Records beyond which filling up, and copying them for it, would cost more than it saves.
LARGEST_FILLED = 1 << 13


def count(records: Any) -> int:
    """Number of records."""
    return jax.tree.leaves(records)[0].shape[0]


def take(records: Any, rows: np.ndarray | slice) -> Any:
    """Some of the records, as NumPy arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], records)


def accumulate(function: Callable[[Any], Any], records: Any, chunk: int) -> Any:
    """Sum `function(part)` over parts of at most `chunk` records, so that memory stays bounded.

    `function` returns a pytree of sums over the records it is given; the parts go through one `lax.scan`.
    """
    total = count(records)
    if total <= chunk:
        return function(records)
    whole = total // chunk
    parts = jax.tree.map(lambda a: a[: whole * chunk].reshape(whole, chunk, *a.shape[1:]), records)
    start = jax.tree.map(
        lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, jax.tree.map(lambda a: a[0], parts))
    )
    result, _ = jax.lax.scan(lambda sums, part: (_add(sums, function(part)), None), start, parts)
    if whole * chunk < total:
        result = _add(result, function(jax.tree.map(lambda a: a[whole * chunk :], records)))
    return result


def for_each(function: Callable[[Any], Any], records: Any, chunk: int) -> Any:
    """`function(part)` over parts of at most `chunk` records, one after the other.

    `function` returns a pytree of arrays with the records along the leading axis.
    """
    total = count(records)
    if total <= chunk:
        return function(records)
    whole = total // chunk * chunk
    parts = jax.tree.map(lambda a: a[:whole].reshape(-1, chunk, *a.shape[1:]), records)
    found = jax.tree.map(lambda a: a.reshape(whole, *a.shape[2:]), jax.lax.map(function, parts))
    if whole == total:
        return found
    last = function(jax.tree.map(lambda a: a[whole:], records))
    return jax.tree.map(lambda *both: jnp.concatenate(both), found, last)


def cached_chunk(per_record: int, least: int = 1) -> int:
    """Records of a chunk that stays in the cache: a power of two, which full batches are multiples of.

    So many at `least` as make the sum of two matrices of sums cheap beside them, where memory allows.
    """
    wanted = max(CACHED_ELEMENTS // per_record, min(least, CHUNK_ELEMENTS // per_record), 1)
    return 1 << wanted.bit_length() - 1


def weighted_sum(values: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Sum over the leading axis, each record counted `weights` times, or once where that is None."""
    return values.sum(0) if weights is None else jnp.tensordot(weights, values, 1)


def _add(left, right):
    return jax.tree.map(jnp.add, left, right)


def to_float_array(values: Any, name: str, dtype: jnp.dtype, shape: tuple[int | None, ...]) -> jax.Array:
    """Refuse what is not a finite numeric array of the given shape (None: any length), with a sentence.

    Parameters
    ----------
    values
        What the caller gave.
    name
        What the caller calls it, for the message.
    dtype
        Floating-point type to convert to.
    shape
        Expected shape.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be an array, got rows of different lengths") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be numeric, got an array of dtype {array.dtype}")
    fits = array.ndim == len(shape) and all(
        want in (None, got) for want, got in zip(shape, array.shape, strict=True)
    )
    if not fits:
        expected = ", ".join("n" if want is None else str(want) for want in shape)
        raise ValueError(f"{name} must have shape ({expected}), got {array.shape}")
    with np.errstate(over="ignore"):
        # What does not lie in order is copied on its way to the device.
        converted = array.astype(dtype, copy=array.flags.c_contiguous)
    if not is_finite(converted):
        bad = int(np.argwhere(~np.isfinite(converted))[0][0])
        raise ValueError(f"{name} must be finite in {converted.dtype}, got {array[bad]} in row {bad}")
    # Unlike `jnp.asarray`, this compiles nothing.
    return jax.device_put(converted)


def to_arrays(records: Any, name: str, dtype: jnp.dtype) -> Any:
    """Refuse what is not a pytree of finite arrays that share their leading axis, with a sentence.

    Floating-point arrays get the type `dtype`; integers and booleans keep theirs.
    """
    leaves, structure = jax.tree.flatten(records)
    if not leaves:
        raise ValueError(f"{name} must hold at least one array, got {records!r}")
    arrays = []
    for leaf in map(np.asarray, leaves):
        if leaf.ndim == 0:
            raise ValueError(f"{name} must have the records along their leading axis, got a scalar")
        checked = to_float_array(leaf, name, dtype, (None,) * leaf.ndim)
        arrays.append(jax.device_put(leaf) if leaf.dtype.kind in "iub" else checked)
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise ValueError(f"{name} must share their leading axis, got lengths {sorted(lengths)}")
    require_records(lengths.pop(), name)
    return jax.tree.unflatten(structure, arrays)


def require_records(total: int, name: str) -> None:
    """Refuse an empty batch."""
    if total == 0:
        raise ValueError(f"{name} must hold at least one record, got none")


def round_number(total: int) -> int:
    """The number of records up to which a batch of `total` is filled up."""
    size = max(total, SMALLEST_BATCH)
    grain = 1 << (size.bit_length() - 4) if size < LARGEST_FILLED else 1
    return -(-size // grain) * grain


def padded(records: Any, dtype: jnp.dtype) -> tuple[Any, Any]:
    """The records up to a round number, the last one repeated, and weights that count only the given ones.

    Compiled functions then serve many numbers of records: a little work in vain saves seconds of compiling.
    A large number of records stays as it is.
    """
    total = count(records)
    extra = round_number(total) - total
    weights = np.repeat(np.array([1, 0], dtype), [total, extra])
    if not extra:
        return records, weights
    rows = np.minimum(np.arange(total + extra), total - 1)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], records), weights


def minibatch(records: Any, size: int | None, key: PRNGKeyArray) -> Any:
    """Draw `size` records with replacement; all of them, in order, where size is None."""
    if size is None:
        return records
    rows = jax.random.randint(key, (size,), 0, count(records))
    return jax.tree.map(lambda a: a[rows], records)
