"""The contract of unlearning methods: summarise a batch → add → solve."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.fingerprint import fingerprint
from unbayes._validation import require_settings
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior
from unbayes.progress import AbstractProgress
from unbayes.unlearning.result import Solution
from unbayes.unlearning.statistics import Statistics


class AbstractMethod(eqx.Module):
    """A way to take records back out of a posterior: settings, and nothing else.

    Attributes
    ----------
    keeps_rows
        Whether what `summarise` returns are the rows themselves, because what the method computes from them
        moves with q̃. Batches can then not be summarised and thrown away.
    measures_evidence
        Whether `solve` is quick and measures the `evidence_left` itself; else that is done before it.
    """

    keeps_rows: ClassVar[bool] = False
    measures_evidence: ClassVar[bool] = False

    def __check_init__(self):
        require_settings(self)

    def check(self, posterior: AbstractPosterior, model: AbstractModel, memory: Memory | None) -> None:
        """Refuse a posterior, a model or a memory that the method cannot work with."""

    def choose(self, posterior: AbstractPosterior, model: AbstractModel) -> "tuple[AbstractMethod, str]":
        """The method that runs, and why where that was a choice."""
        return self, ""

    def is_exact(self, posterior: AbstractPosterior, model: AbstractModel) -> bool:
        """Whether the result is the retrained posterior itself."""
        return False

    @property
    def summary_settings(self) -> tuple:
        """Settings of the method that its statistics depend on."""
        return ()

    def origin(
        self,
        posterior: AbstractPosterior,
        model: AbstractModel,
        memory: Memory | None,
        key: PRNGKeyArray,
    ) -> str:
        """Fingerprint of everything that statistics depend on besides the records."""
        kept = None if memory is None else memory.origin
        return fingerprint(type(self).__name__, self.summary_settings, kept, posterior, model, key)

    @abc.abstractmethod
    def summarise(
        self,
        posterior: AbstractPosterior,
        model: AbstractModel,
        erased: Any,
        weights: Float[Array | np.ndarray, " n"],
        *,
        memory: Memory | None,
        key: PRNGKeyArray,
    ) -> Any:
        """Sums over a batch of records, as `model.encode` returned them, at the trained posterior.

        Batches are filled up, so that few programs serve all sizes: records whose weight is zero do not
        count. The memory, where there is one, is the same for every batch: it may tell which sums are needed.
        """

    def site(self, value: Any) -> Any | None:
        """What the records behind `value` had added to the natural parameters, where it tells that."""
        return None

    @abc.abstractmethod
    def solve(
        self,
        posterior: AbstractPosterior,
        model: AbstractModel,
        statistics: Statistics,
        *,
        memory: Memory | None,
        key: PRNGKeyArray,
        progress: AbstractProgress | None = None,
    ) -> Solution:
        """The posterior without the records that `statistics` sum over; `key` as for `summarise`."""


class AbstractAdjustedMethod(AbstractMethod):
    """A method with an adjusted likelihood, equation (6), whose threshold λ is `lam`."""

    lam: eqx.AbstractVar[float]

    @abc.abstractmethod
    def solve_each(
        self,
        posterior: AbstractPosterior,
        model: AbstractModel,
        statistics: Statistics,
        lams: Sequence[float],
        *,
        key: PRNGKeyArray,
        progress: AbstractProgress | None = None,
    ) -> list[Solution]:
        """Unlearn once for every λ in `lams`, in one compiled call."""

    def solve(self, posterior, model, statistics, *, memory, key, progress=None) -> Solution:
        """Unlearn at the method's own λ."""
        return self.solve_each(posterior, model, statistics, (self.lam,), key=key, progress=progress)[0]
