"""Where erased records come from: whether the posterior was trained on them, as far as that can be told."""

import dataclasses
from typing import Any, Literal, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from unbayes._numerics.records import count, take
from unbayes.memory import Memory
from unbayes.memory.marks import count_equal
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractPosterior
from unbayes.trust.judge import require_number
from unbayes.trust.limits import IMPROBABLE_RECORD
from unbayes.unlearning.statistics import Provenance, Statistics

Missing = Literal["refuse", "skip", "allow"]
# Rows, at most, that a message names.
NAMED_ROWS = 5
NOTHING_LEFT = "erased holds none of the training records that are left"
# Difference, as a share of the largest magnitude, up to which an input counts as one that the model holds.
SAME_INPUT = 1e-6
# Surprise of a record, in nats, beyond which all are alike: sums stay finite.
LARGEST_SURPRISE = 1e6


class Admitted(NamedTuple):
    """The records that are taken out.

    Attributes
    ----------
    weights
        One for those of the batch that are taken out, else zero, shape (n,).
    ids
        Identifiers of these, where given.
    matches
        How often each record of the memory's coreset is among them; None without a coreset.
    provenance
        What tells whether they were trained on.
    """

    weights: Float[np.ndarray, " n"]
    ids: tuple[str, ...] | None
    matches: Any
    provenance: Provenance


class NothingLeft(ValueError):
    """All the records that were to be erased are gone already."""


def require_missing(missing: Any) -> None:
    """Refuse what is no way to treat records that are not found."""
    if missing not in ("refuse", "skip", "allow"):
        raise ValueError(f"missing must be 'refuse', 'skip' or 'allow', got {missing!r}")


def admit(
    posterior: AbstractPosterior,
    model: AbstractModel,
    memory: Memory | None,
    erased: Any,
    evidence: Any,
    weights: Float[np.ndarray, " n"],
    ids: tuple[str, ...] | None,
    missing: Missing,
) -> Admitted:
    """Look for records in the memory, and refuse, skip or let pass those that are not there.

    `evidence` is that of `erased`, filled up by records whose weight is zero.
    """
    rows = found = members = matches = None
    if (memory is not None and memory.marker is not None) or model.kept_inputs is not None:
        rows = model.rows(erased, "erased")
    if memory is not None:
        if missing != "skip":
            require_number(count(erased), memory.records)
        found, members, matches = memory.sight(rows, ids)
    strangers = 0 if found is None else int((~found).sum())
    if found is not None and strangers and missing == "refuse":
        raise ValueError(_refusal(found, ids))
    if found is not None and strangers and missing == "skip":
        if not found.any():
            raise NothingLeft(NOTHING_LEFT)
        if model.has_tied_records:
            raise ValueError(
                f"erased must be given without those that are not among the training records, {strangers} of "
                f"{len(found)}: missing='skip' cannot leave out what others are tied to"
            )
        kept, strangers = np.flatnonzero(found), 0
        weights = np.zeros_like(weights)
        weights[kept] = 1
        rows = take(rows, kept)
        ids = None if ids is None else tuple(ids[row] for row in kept)
    provenance = Provenance(members, strangers, _retained(model, rows))
    if members is None or strangers:
        wants_deviance = memory is not None and memory.deviance is not None
        provenance = _weighed(provenance, posterior, model, evidence, weights, wants_deviance)
    return Admitted(weights, ids, matches, provenance)


def require_left(memory: Memory | None, statistics: Statistics) -> None:
    """Refuse statistics in which a record is more often than among the training records that are left."""
    members = statistics.provenance.members
    if memory is None or memory.roster is None or members is None:
        return
    wanted, left = count_equal(members, members), count_equal(memory.roster.exact, members)
    if (excess := int((wanted > left).sum())) > 0:
        raise ValueError(
            f"statistics must hold each record once, got {excess} of {statistics.records} that are more "
            "often in them than among the training records that are left: summed twice, or erased before"
        )


def measured(memory: Memory | None, statistics: Statistics) -> dict[str, Any]:
    """What there is to judge by, as fields of `Measures`."""
    found, matches = statistics.provenance, statistics.matches
    expected = None
    if memory is not None and memory.copies is not None and matches is not None:
        matches = float((np.asarray(matches) / np.asarray(memory.copies)).sum())
        expected = statistics.records * memory.size / memory.records
    return {
        "strangers": None if found.members is None else found.strangers,
        "deviance": None if found.deviance is None else float(found.deviance),
        "training_deviance": None if memory is None else memory.deviance,
        "unlikelihood": None if found.surprise is None else _unlikelihood(*map(float, found.surprise)),
        "improbable": found.improbable,
        "improbable_rows": found.improbable_rows,
        "found_in_memory": None if expected is None else matches,
        "expected_in_memory": expected,
    }


def caveats(model: AbstractModel, memory: Memory | None, statistics: Statistics) -> tuple[str, ...]:
    """What was not unlearned, or could not be checked."""
    found: list[str] = []
    retained = statistics.provenance.retained
    found += () if retained is None else inducing_caveats(retained)
    found += model.caveats
    if memory is None:
        found.append(
            "without a memory, nobody checked that this posterior was trained with this model, and until it "
            "converged"
        )
    if (memory is None or memory.roster is None) and not statistics.ids:
        found.append("without a roster in the memory, records that were erased before are not noticed")
    return tuple(found)


def _unlikelihood(total: float, mean: float, variance: float) -> float:
    """Nats below one of the probability of such a sum, by Bernstein's bound for exponential tails."""
    excess = max(total - mean, 0.0)
    return 0.5 * excess**2 / (variance + excess) if excess else 0.0


def _refusal(found: np.ndarray, ids: tuple[str, ...] | None) -> str:
    gone = np.flatnonzero(~found)
    names = [repr(ids[row]) if ids else f"row {row}" for row in gone[:NAMED_ROWS]]
    some = ", ".join(names) + (", …" if len(gone) > NAMED_ROWS else "")
    reason = "" if ids else ", or have lost more than five digits (then give ids to fit and here)"
    return (
        f"erased must be among the training records that are left; {len(gone)} of {len(found)} are not: "
        f"{some}. They were erased before, were never trained on{reason}. missing='skip' leaves them out"
    )


def _retained(model: AbstractModel, rows: Any) -> np.ndarray | None:
    if model.kept_inputs is None or rows is None:
        return None
    return count_inputs(rows[0], model.kept_inputs)


def count_inputs(inputs: Any, held: Any) -> Int[np.ndarray, " m"]:
    """How many inputs, shape (n, k), equal each of those that a model itself holds, shape (m, k)."""
    inputs, held = np.asarray(inputs, np.float64), np.asarray(held, np.float64)
    limit = SAME_INPUT * np.abs(held).max(0, initial=0)
    return np.array([(np.abs(inputs - each) <= limit).all(1).sum() for each in held], np.int32)


def inducing_caveats(counts: Any) -> tuple[str, ...]:
    """A sentence on inducing inputs that are inputs of erased records, by `count_inputs`; or none."""
    if not (held := int((np.asarray(counts) > 0).sum())):
        return ()
    return (f"inducing inputs that are inputs of erased records stay in the model: {held} of {len(counts)}",)


def _weighed(
    provenance: Provenance,
    posterior: AbstractPosterior,
    model: AbstractModel,
    evidence: Any,
    weights: Float[np.ndarray, " n"],
    wants_deviance: bool,
) -> Provenance:
    """With what the records themselves tell, where no roster does."""
    if not isinstance(posterior, AbstractGaussian):
        return provenance
    deviance, surprise = _weigh(posterior, model, evidence, weights, wants_deviance)
    provenance = dataclasses.replace(provenance, deviance=deviance)
    if surprise is None:
        return provenance
    each = np.asarray(surprise)
    each = weights * np.minimum(np.where(np.isnan(each), np.inf, each), LARGEST_SURPRISE)
    rows = np.flatnonzero(each[0] > IMPROBABLE_RECORD)
    return dataclasses.replace(
        provenance,
        surprise=each.sum(1),
        improbable=len(rows),
        improbable_rows=tuple(rows[:NAMED_ROWS].tolist()),
    )


@eqx.filter_jit
def _weigh(gaussian: AbstractGaussian, model: AbstractModel, evidence, weights, wants_deviance: bool):
    nodes = model.nodes()
    deviance = model.deviance(gaussian, evidence, nodes, weights) if wants_deviance else None
    return deviance, model.surprise(gaussian, evidence, nodes)
