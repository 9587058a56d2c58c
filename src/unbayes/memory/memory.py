"""What training keeps, on request, so that unlearning can tell how the remaining records answer."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unbayes._numerics.fingerprint import fingerprint
from unbayes._numerics.records import count, take
from unbayes._storable import Storable
from unbayes._validation import require_positive
from unbayes.memory.coreset import draw_rows
from unbayes.memory.marks import Marker, Marks, count_equal
from unbayes.memory.sums import KeptSums
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior, GaussianNatural

# Nats by which rounding may have brought a KL of zero below it.
LARGEST_ROUNDING = 1e-3
# Erased records, at most, that stand in for the remaining ones.
LARGEST_STAND_IN = 500


class Sighting(NamedTuple):
    """What a memory knows of records that are to be erased.

    Attributes
    ----------
    rows
        Which of them are among the training records that are left, shape (n,); None where no roster tells.
    members
        Exact marks of these training records, shape (m, 2); None without a roster.
    matches
        How many of them each record of the coreset equals, shape (k,); None without a coreset.
    """

    rows: np.ndarray | None = None
    members: Int[np.ndarray, "m 2"] | None = None
    matches: Float[np.ndarray, " k"] | None = None


class Memory(Storable):
    """What is known of the training set besides the posterior.

    Attributes
    ----------
    records
        Number of training records.
    stationarity
        KL, in nats, from the posterior to its own full natural-gradient step; None where not measured.
    curvature
        For a diagonal posterior, dense natural parameters of the Gaussian that it is nearest to: how the
        parameters depend on each other. None where not kept, or not needed.
    sums
        Sums of higher derivatives over the training records; None where not kept.
    coreset
        Some of the training records, as `model.encode` returned them. These are data: they deserve the same
        protection as the training set, and are dropped when they are erased.
    weights
        How many training records each of them stands for, shape (k,).
    lineage
        Fingerprint of the memory as training made it; what is left of it after erasures keeps it.
    is_stand_in
        Whether the coreset holds erased records that stand in for the remaining ones.
    belongs_to
        Fingerprints of the posterior and the model that it was kept for; empty where not known.
    marker, roster
        Marks of the training records that are left, by which erased ones are known again, and what makes
        such marks. Eight or sixteen bytes a record, no rows. None where not kept.
    coreset_marks, copies
        Marks of the coreset's records, and how many training records equal each of them, shape (k,).
    deviance
        E_q[log p] of all training records, in nats, below the most that it could be; no part of them can
        have more. None where not known.
    """

    later_fields: ClassVar[dict[str, Any]] = {
        "sums": None,
        "lineage": "",
        "is_stand_in": False,
        "belongs_to": ("", ""),
        "marker": None,
        "roster": None,
        "coreset_marks": None,
        "copies": None,
        "deviance": None,
    }

    records: int = eqx.field(static=True)
    stationarity: float | None = eqx.field(static=True, default=None)
    curvature: GaussianNatural | None = None
    coreset: Any = None
    weights: Float[Array, " k"] | None = None
    lineage: str = eqx.field(static=True, default="")
    is_stand_in: bool = eqx.field(static=True, default=False)
    belongs_to: tuple[str, str] = eqx.field(static=True, default=("", ""))
    marker: Marker | None = None
    roster: Marks | None = None
    coreset_marks: Marks | None = None
    copies: Int[Array, " k"] | None = None
    deviance: float | None = eqx.field(static=True, default=None)
    sums: KeptSums | None = None

    def only(self, *kinds: str) -> Self:
        """The same memory with no other kinds of what is kept of the records: "sums", "coreset", "curvature".

        Sums and coresets have the curvature with them. The roster stays in any case.
        """
        if wrong := set(kinds) - {"sums", "coreset", "curvature"}:
            raise ValueError(f"kinds must be sums, coreset or curvature, got {wrong.pop()!r}")
        parts: dict[str, Any] = {} if kinds else {"curvature": None}
        if "sums" not in kinds:
            parts["sums"] = None
        if "coreset" not in kinds:
            parts |= dict.fromkeys(("coreset", "weights", "coreset_marks", "copies")) | {"is_stand_in": False}
        left = dataclasses.replace(self, lineage="", **parts)
        return dataclasses.replace(left, lineage=fingerprint(left))

    def with_sample(self, model: AbstractModel, erased: Any, *, key: PRNGKeyArray) -> Self:
        """The memory with the erased records as its coreset, where these are a random sample of all records.

        Use it for one erasure of exactly these records; what a result hands on holds none of them.

        Parameters
        ----------
        model
            Prior and likelihood.
        erased
            The records D_e, as `model.encode` takes them.
        key
            Key of the draw, where there are more than 500.
        """
        evidence = model.encode(erased, "erased")
        if count(evidence) > self.records:
            raise ValueError(
                f"erased must be among the {self.records} training records, got {count(evidence)}"
            )
        coreset, counts = draw_rows(evidence, LARGEST_STAND_IN, key, model.dtype)
        weights = jnp.asarray(counts * (self.records - count(evidence)) / count(evidence), model.dtype)
        return dataclasses.replace(
            self,
            coreset=coreset,
            weights=weights,
            lineage="",
            is_stand_in=True,
            coreset_marks=None,
            copies=None,
        )

    def require_valid(self) -> None:
        """Refuse numbers below zero, and a coreset whose arrays or weights differ in length."""
        require_positive("records", self.records, or_zero=True)
        if self.stationarity is not None and self.stationarity < -LARGEST_ROUNDING:
            require_positive("stationarity", self.stationarity, or_zero=True)
        if (self.coreset is None) != (self.weights is None):
            raise ValueError("weights must be given for a coreset, and for a coreset alone")
        if self.weights is None:
            return
        require_positive("weights", self.weights, or_zero=True)
        leaves = jax.tree.leaves(self.coreset)
        lengths = sorted({np.shape(leaf)[:1] for leaf in leaves})
        if lengths != [self.weights.shape]:
            found = ", ".join(str(length[0]) if length else "none" for length in lengths)
            raise ValueError(f"coreset must hold {len(self.weights)} records, as weights does, got {found}")

    @property
    def size(self) -> int:
        """Number of records in the coreset."""
        return 0 if self.coreset is None else count(self.coreset)

    @property
    def origin(self) -> str:
        """The lineage or, where training gave none, a fingerprint of what is here."""
        return self.lineage or fingerprint(self)

    def require_kin(self, posterior: AbstractPosterior, model: AbstractModel) -> None:
        """Refuse a posterior or a model that this memory was not kept for."""
        kept_for, given = self.belongs_to, _fingerprints(posterior, model)
        if kept_for[0] and kept_for[0] != given[0]:
            raise ValueError(
                "memory must be what was kept for this posterior, got one that was kept for another; "
                "give the posterior and the memory of the same training"
            )
        if kept_for[1] and kept_for[1] != given[1]:
            raise ValueError(
                "model must be the one that posterior and memory were trained with, got one with another "
                "prior, likelihood, features or scales"
            )

    def kept_for(self, posterior: AbstractPosterior, model: AbstractModel) -> Self:
        """The same memory, for a posterior and a model that it belongs to."""
        return dataclasses.replace(self, belongs_to=_fingerprints(posterior, model))

    def require_ids(self, ids: Sequence[str] | None) -> None:
        """Refuse to look for records without the identifiers that training knew them by."""
        if self.marker is not None and self.marker.is_named and ids is None:
            raise ValueError("ids must be given: training knew its records by identifiers")

    def sight(self, rows: Any, ids: Sequence[str] | None = None) -> Sighting:
        """Look for records, as `model.rows` returned them, or for their identifiers."""
        self.require_ids(ids)
        if self.coreset is not None and self.coreset_marks is None and not self.is_stand_in:
            raise ValueError(
                "memory must know its records by marks, got one of an earlier version, whose erased records "
                "could not be found and dropped; keep a new one, or give none"
            )
        if self.marker is None:
            return Sighting()
        if self.roster is not None:
            found = self.marker.find(rows, ids, self.roster)
            return Sighting(found.rows, found.exact, self._matches(found.exact, found.cells))
        if self.coreset_marks is None or self.is_stand_in:
            return Sighting()
        exact = self.marker.exact(rows, ids)
        elsewhere = np.flatnonzero(count_equal(self.coreset_marks.exact, exact) == 0)
        # What is not in the coreset may be there with more digits.
        cells = [] if self.marker.is_named else self.marker.cells(take(rows, elsewhere))
        return Sighting(matches=self._matches(exact, frozenset().union(*cells)))

    def _matches(
        self, exact: Int[np.ndarray, "m 2"], cells: frozenset[int]
    ) -> Float[np.ndarray, " k"] | None:
        """How many of the records with these marks each one of the coreset equals; adds up over batches.

        Records that were found by their cell alone may be any one in it: all of these go.
        """
        if self.coreset_marks is None or self.weights is None or self.is_stand_in:
            return None
        marks, copies = self.coreset_marks, np.asarray(self.copies)
        counts = count_equal(exact, marks.exact)
        return np.where(marks.lie_in(cells), copies, counts).astype(np.asarray(self.weights).dtype)

    def _left(self, matches: Any) -> Float[np.ndarray, " k"]:
        """Share of the training records equal to each one of the coreset that are left."""
        if matches is None or self.copies is None:
            return np.ones(self.size)
        return np.maximum(1 - np.asarray(matches) / np.asarray(self.copies), 0)

    def remaining_coreset(self, matches: Any) -> tuple[Any, Float[np.ndarray, " k"]] | None:
        """The coreset, and its weights with zero for what was erased; None where nothing remains of it."""
        if self.coreset is None or self.weights is None:
            return None
        weights = np.asarray(self.weights)
        weights = (weights * self._left(matches)).astype(weights.dtype)
        return (self.coreset, weights) if (weights > 0).any() else None

    def without(
        self,
        records: int,
        matches: Any,
        members: Any,
        *,
        curvature: GaussianNatural | None = None,
        sums: KeptSums | None = None,
        deviance: float | None = None,
    ) -> Self:
        """Memory once `records` were erased: those of the coreset that are among them are gone for good.

        Of several equal records, as many stay as were not erased. `curvature` and `sums` are those at the
        posterior which was recovered, `deviance` is that of the erased records. What training left undone
        still is.
        """
        remaining = None if self.is_stand_in else self.remaining_coreset(matches)
        coreset = weights = marks = copies = None
        if remaining is not None:
            share = self._left(matches)
            if self.copies is not None:
                copies = np.rint(np.asarray(self.copies) * share).astype(np.int32)
            parts = (*remaining, self.coreset_marks, copies)
            coreset, weights, marks, copies = take(parts, share > 0)
        if self.deviance is not None and deviance is not None:
            deviance = max(self.deviance - deviance, 0.0)
        return type(self)(
            self.records - records,
            self.stationarity,
            curvature,
            coreset,
            weights,
            marker=self.marker,
            roster=self._roster_without(members),
            coreset_marks=marks,
            copies=copies,
            deviance=None if self.deviance is None else deviance,
            sums=sums,
        )

    def _roster_without(self, members: Any) -> Marks | None:
        return self.roster if self.roster is None or members is None else self.roster.without(members)

    def blanked(self, matches: Any, members: Any) -> Self:
        """Memory with its erased records overwritten by zeros, in the same shape.

        It serves further requests to the same trained posterior, and nothing compiles anew.
        """
        kept = dataclasses.replace(self, roster=self._roster_without(members), lineage=self.origin)
        if matches is None or self.weights is None:
            return kept
        gone = self._left(matches) == 0

        def overwrite(leaf):
            rows = np.array(leaf)
            rows[gone] = 0
            return jnp.asarray(rows)

        coreset, weights, marks = jax.tree.map(overwrite, (self.coreset, self.weights, self.coreset_marks))
        return dataclasses.replace(kept, coreset=coreset, weights=weights, coreset_marks=marks)

    def __str__(self) -> str:
        parts = [f"{self.records} training records"]
        if self.sums is not None:
            parts.append(f"sums of order {self.sums.derivatives.order}")
        parts += [f"a coreset of {self.size}"] if self.size else []
        parts += ["dense curvature"] if self.curvature is not None else []
        return "memory of " + ", ".join(parts)


def _fingerprints(posterior: AbstractPosterior, model: AbstractModel) -> tuple[str, str]:
    return fingerprint(posterior), model.fingerprint
