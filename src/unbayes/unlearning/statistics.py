"""What erased records leave behind once they have been read."""

from collections.abc import Iterable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unbayes._storable import Storable
from unbayes._validation import require_positive


class Statistics(Storable):
    """What one pass over a batch of erased records leaves behind; sums over batches, in any order.

    Sums and no rows: they can be saved, sent and added in other processes.

    Attributes
    ----------
    value
        Sums over the records that the method needs, a pytree of arrays.
    site
        What the records had added to the natural parameters of the posterior, which `solve` checks was ever
        there; None where that is not known.
    matches
        How often each record of the memory's coreset was among them, shape (k,); None without a coreset.
    records
        Number of records.
    origin
        Fingerprint of posterior, model, memory, method and key: only statistics of one origin add up.
    identifiers
        What the caller calls the records, such as salted digests; empty where that was not given.
    """

    value: Any
    site: Any
    matches: Float[Array, " k"] | None
    records: int = eqx.field(static=True)
    origin: str = eqx.field(static=True)
    identifiers: tuple[str, ...] = eqx.field(static=True, default=())

    def require_valid(self) -> None:
        """Refuse sums over no records, and numbers of matches below zero."""
        require_positive("records", self.records)
        if self.matches is not None:
            require_positive("matches", self.matches, or_zero=True)

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, Statistics):
            raise TypeError(f"statistics add to statistics, got {type(other).__name__}")
        if self.origin != other.origin:
            raise ValueError(
                "statistics add up only if they come from the same posterior, model, memory, method and key; "
                "always summarise at the trained posterior, never at an unlearned one"
            )
        shared = sorted(set(self.identifiers) & set(other.identifiers))
        if shared:
            some = ", ".join(shared[:3]) + (", …" if len(shared) > 3 else "")
            raise ValueError(
                f"statistics must not share records, which would be taken out twice; both hold {some}"
            )
        value, site, matches = jax.tree.map(
            jnp.add, (self.value, self.site, self.matches), (other.value, other.site, other.matches)
        )
        identifiers = tuple(sorted(self.identifiers + other.identifiers))
        records = self.records + other.records
        return type(self)(value, site, matches, records, self.origin, identifiers)

    def __radd__(self, other: Any) -> Self:
        """Let `sum` start from zero."""
        return self if other == 0 else self + other


def require_identifiers(identifiers: Iterable[str] | None, records: int) -> tuple[str, ...]:
    """Sorted identifiers, or a sentence where they are not one word for each record, all different."""
    if identifiers is None:
        return ()
    given = list(identifiers)
    if isinstance(identifiers, str) or not all(isinstance(each, str) for each in given):
        raise TypeError("identifiers must be a list of strings, such as salted digests of the records' keys")
    if len(given) != records:
        raise ValueError(f"identifiers must name each of the {records} erased records, got {len(given)}")
    if len(set(given)) < len(given):
        raise ValueError("identifiers must be different, got one of them twice")
    return tuple(sorted(given))
