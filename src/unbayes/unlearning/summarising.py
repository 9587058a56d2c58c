"""The first half of unlearning: sums over erased records, batch by batch."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import PRNGKeyArray

from unbayes._numerics.programs import kept, quickly
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes._numerics.records import CHUNK_ELEMENTS, count, padded
from unbayes._validation import require_ids, require_key, require_positive, require_precision
from unbayes.data.source import AbstractTask, Batch
from unbayes.inference.passes import Passes, encoded, require_untied
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior
from unbayes.trust import TOLERANCE, measure
from unbayes.trust.reach import require_reach
from unbayes.unlearning.base import AbstractMethod
from unbayes.unlearning.provenance import NOTHING_LEFT, Missing, NothingLeft, admit, require_missing
from unbayes.unlearning.statistics import Statistics, digests_of


class Call(NamedTuple):
    """What was asked for, found to fit together; `method` is the one that runs."""

    posterior: AbstractPosterior
    model: AbstractModel
    memory: Memory | None
    key: PRNGKeyArray
    method: AbstractMethod
    choice: str
    tolerance: float

    @property
    def origin(self) -> str:
        """Fingerprint that statistics of this call carry."""
        return self.method.origin(self.posterior, self.model, self.memory, self.key)

    def in_little_time(self, records: int) -> AbstractContextManager[None]:
        """Programs are compiled quickly here where no process keeps them, and a pass takes little time."""
        kept_records = 0 if self.memory is None else self.memory.size
        elements = max(records, kept_records) * QUASI_RANDOM_NODES * self.model.dim
        return quickly(self.model.holds_functions and elements <= CHUNK_ELEMENTS)


def prepare(posterior, model, method, memory: Memory | None, key, tolerance: float = TOLERANCE) -> Call:
    """Refuse what does not fit together, and choose the method."""
    if not isinstance(method, AbstractMethod):
        raise TypeError(f"method must be an unlearning method such as EUBO(), got {method!r}")
    if not isinstance(posterior, AbstractPosterior):
        raise TypeError(f"posterior must be a posterior of unbayes, got {type(posterior).__name__}")
    if not isinstance(model, AbstractModel):
        raise TypeError(f"model must be a model of unbayes, got {type(model).__name__}")
    if not isinstance(memory, Memory | None):
        raise TypeError(f"memory must be what fit kept, trained.memory, got {type(memory).__name__}")
    require_precision(posterior=posterior, model=model)
    if (posterior.dim, posterior.dtype) != (model.dim, model.dtype):
        raise ValueError(
            f"posterior must have {model.dim} parameters of {model.dtype} to fit the model, "
            f"got {posterior.dim} of {posterior.dtype}"
        )
    if not measure.is_finite(posterior):
        raise ValueError("posterior must be finite, got NaN or infinite parameters")
    require_key(key)
    require_positive("tolerance", tolerance)
    if memory is not None:
        memory.require_kin(posterior, model)
    method, choice = method.choose(posterior, model)
    method.check(posterior, model, memory)
    return Call(posterior, model, memory, key, method, choice, tolerance)


def require_additive(method: AbstractMethod) -> None:
    """Refuse a method whose statistics are the rows themselves."""
    if method.keeps_rows:
        raise TypeError(
            f"method {type(method).__name__} reads the erased rows in every iteration, so that batches "
            "cannot be summarised apart; use unlearn, or an additive method such as BankReverseKL"
        )


def summarise_records(call: Call, erased: Any, ids: Iterable[str] | None, missing: Missing) -> Statistics:
    """Of records that are in memory."""
    require_missing(missing)
    evidence = call.model.encode(erased, "erased")
    named = require_ids(ids, count(evidence))
    filled, weights = padded(evidence, call.model.dtype)
    return _summarise(call, erased, filled, weights, named, missing, call.origin)


def summarise_source(call: Call, passes: Passes, ids: Iterable[str] | None, missing: Missing) -> Statistics:
    """Of records that are read in a pass."""
    require_missing(missing)
    require_additive(call.method)
    require_untied(call.model, "erased")
    if ids is not None:
        raise ValueError("ids must be left out where records are read from a source: scan names their column")
    found = passes.total(Erasure(call, missing, call.origin), "summing up")
    if not found:
        raise NothingLeft(NOTHING_LEFT)
    return found[0]


class Erasure(eqx.Module, AbstractTask):
    """What a batch of erased records leaves behind: statistics, in a tuple; none where all are gone."""

    call: Call
    missing: Missing
    origin: str

    def of(self, batch: Batch) -> tuple[Statistics, ...]:
        """Of the batch."""
        call = self.call
        with kept(call.model.holds_functions), batch.named():
            evidence, weights = encoded(call.model, batch, "erased")
            ids = require_ids(batch.ids, batch.size)
            try:
                return (_summarise(call, batch.records, evidence, weights, ids, self.missing, self.origin),)
            except NothingLeft:
                return ()

    def add(self, left: tuple[Statistics, ...], right: tuple[Statistics, ...]) -> tuple[Statistics, ...]:
        """Statistics add up."""
        return (left[0] + right[0],) if left and right else left or right


def _summarise(
    call: Call,
    erased: Any,
    evidence: Any,
    weights: np.ndarray,
    ids: tuple[str, ...] | None,
    missing: Missing,
    origin: str,
) -> Statistics:
    """Of records whose evidence is filled up by some whose weight is zero."""
    posterior, model, method = call.posterior, call.model, call.method
    require_reach(posterior, model, evidence)
    admitted = admit(posterior, model, call.memory, erased, evidence, weights, ids, missing)
    records = int(admitted.weights.sum())
    with call.in_little_time(records):
        value = method.summarise(
            posterior, model, evidence, admitted.weights, memory=call.memory, key=call.key
        )
    site = method.site(value)
    if site is None:
        site = measure.site(posterior, model, evidence, admitted.weights)
    digests = digests_of(admitted.ids, origin)
    return Statistics(value, site, admitted.matches, records, origin, digests, admitted.provenance)
