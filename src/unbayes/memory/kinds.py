"""What training may keep for later unlearning, by kind: sums, some of the records, or the curvature."""

from typing import Any, Literal, TypeGuard

import equinox as eqx


class Sums(eqx.Module):
    """Sums over all training records of third and fourth derivatives, at the trained belief.

    They hold nobody's record. What the erased records had added is subtracted, so that they forget exactly as
    the posterior does.

    Parameters
    ----------
    order
        Of the highest derivatives, 3 or 4. Fourth ones bring the result much closer.
    directions
        Number k of directions of θ along which they are taken; None for all, as far as those fit in a few
        megabytes, else the leading ones. The size grows with k⁴.
    """

    order: Literal[3, 4] = 4
    directions: int | None = None

    def __check_init__(self):
        if self.order not in (3, 4) or not isinstance(self.order, int):
            raise ValueError(f"order must be 3 or 4, got {self.order!r}")
        if self.directions is not None and not _is_count(self.directions):
            raise ValueError(
                f"directions must be a number of them, at least 1, or None, got {self.directions!r}"
            )


class Coreset(eqx.Module):
    """Some of the training records, which stand for the others.

    They are training data, and to be protected as such; those that are erased are dropped.

    Parameters
    ----------
    size
        Number of records.
    """

    size: int = 100

    def __check_init__(self):
        if not _is_count(self.size):
            raise ValueError(f"size must be a number of records, at least 1, got {self.size!r}")


class Curvature(eqx.Module):
    """The dense curvature alone beside a diagonal posterior, d² numbers; the other kinds keep it too."""


Kind = Sums | Coreset | Curvature
Keep = Kind | int | Literal["sums", "curvature"] | tuple["Keep", ...] | list["Keep"] | None


def kinds_of(memory: Any) -> tuple[Kind, ...]:
    """The kinds that a caller asks for, at most one of each, or a sentence on why they cannot be told.

    Parameters
    ----------
    memory
        A kind, several of them, "sums" for `Sums()`, "curvature" for `Curvature()`, a number of records for
        a `Coreset` of that size, zero for `Curvature()`, or None for nothing.
    """
    if memory is None:
        return ()
    if isinstance(memory, tuple | list):
        kinds = tuple(kind for each in memory for kind in kinds_of(each))
        names = [type(kind).__name__ for kind in kinds]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"memory must hold one {twice}(…) at most, got {memory!r}")
        return kinds
    if isinstance(memory, Kind):
        return (memory,)
    if isinstance(memory, str) and memory in ("sums", "curvature"):
        return (Sums() if memory == "sums" else Curvature(),)
    if _is_count(memory, or_zero=True):
        return (Coreset(memory) if memory else Curvature(),)
    raise ValueError(
        "memory must be 'sums', Sums(…), a number of records to keep, Coreset(…), several of these, or None, "
        f"got {memory!r}"
    )


def _is_count(value: Any, *, or_zero: bool = False) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= (0 if or_zero else 1)
