"""What erased records leave behind once they have been read."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unbayes._storable import Storable
from unbayes._validation import require_positive


class Provenance(Storable):
    """What one pass tells of where records come from: whether they were trained on. Adds up over batches.

    Attributes
    ----------
    members
        Exact marks of the training records that they are, shape (m, 2); None where no roster tells.
    strangers
        How many of them are not among the training records that are left, by the roster.
    retained
        How many of them each input equals that the model itself holds, shape (k,); None where it holds none.
    deviance
        E_q[log p] of them below the most that it could be, in nats; None where that has no bound.
    surprise
        Sums over records of how improbable each is under the belief without it, in nats, and of the mean and
        the variance that this should have; None where the roster knows them all, or it cannot be told.
    improbable
        How many of them are very improbable, each by itself.
    improbable_rows
        Which ones, by their row in a single batch; empty once batches were added.
    """

    members: Int[Array | np.ndarray, "m 2"] | None = None
    strangers: int = eqx.field(static=True, default=0)
    retained: Int[Array | np.ndarray, " k"] | None = None
    deviance: Float[Array, ""] | None = None
    surprise: Float[Array | np.ndarray, "3"] | None = None
    improbable: int = eqx.field(static=True, default=0)
    improbable_rows: tuple[int, ...] = eqx.field(static=True, default=())

    def __add__(self, other: Self) -> Self:
        def both(own: Any, its: Any, add: Callable[[Any, Any], Any] = jnp.add) -> Any:
            return None if own is None or its is None else add(own, its)

        return type(self)(
            members=both(self.members, other.members, lambda own, its: np.concatenate([own, its])),
            strangers=self.strangers + other.strangers,
            retained=both(self.retained, other.retained),
            deviance=both(self.deviance, other.deviance),
            surprise=both(self.surprise, other.surprise),
            improbable=self.improbable + other.improbable,
        )


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
    ids
        Keyed digests of the identifiers that the caller gave; empty where there were none.
    provenance
        What tells whether the records were trained on.
    """

    later_fields: ClassVar[dict[str, Any]] = {"ids": (), "provenance": Provenance()}

    value: Any
    site: Any
    matches: Float[Array, " k"] | None
    records: int = eqx.field(static=True)
    origin: str = eqx.field(static=True)
    ids: tuple[str, ...] = eqx.field(static=True, default=())
    provenance: Provenance = Provenance()

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
        if bool(self.ids) != bool(other.ids):
            raise ValueError(
                "statistics add up only if all of them were given ids, or none: else nobody can tell whether "
                "a record is in both"
            )
        if shared := set(self.ids) & set(other.ids):
            raise ValueError(
                f"statistics must not share records, which would be taken out twice; {len(shared)} ids are "
                "in both"
            )
        value, site, matches = jax.tree.map(
            jnp.add, (self.value, self.site, self.matches), (other.value, other.site, other.matches)
        )
        return type(self)(
            value,
            site,
            matches,
            self.records + other.records,
            self.origin,
            tuple(sorted(self.ids + other.ids)),
            self.provenance + other.provenance,
        )

    def __radd__(self, other: Any) -> Self:
        """Let `sum` start from zero."""
        return self if other == 0 else self + other


def digests_of(ids: Sequence[str] | None, origin: str) -> tuple[str, ...]:
    """Sorted digests of identifiers, which only statistics of that origin share."""
    key = origin.encode()
    return tuple(sorted(hashlib.blake2b(e.encode(), key=key, digest_size=16).hexdigest() for e in ids or ()))
