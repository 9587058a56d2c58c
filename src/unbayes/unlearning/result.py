"""What unlearning returns."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from unbayes.diagnostics import LARGEST_TRUSTED_KHAT
from unbayes.posteriors import AbstractPosterior


class RetrainingNeeded(RuntimeError):
    """No usable posterior can be recovered from the trained posterior and the erased records alone."""


class Solution(NamedTuple):
    """What a method hands back, before it is timed and judged.

    Attributes
    ----------
    posterior
        The recovered belief.
    trace
        Objective at every iteration, empty where there are none.
    effective_sample_size, khat
        Of the weights 1/p_adj(D_e|θ) on draws of q(θ|D); None for an exact method.
    doubts
        Sentences on why the result may be off.
    """

    posterior: AbstractPosterior
    trace: np.ndarray
    effective_sample_size: float | None = None
    khat: float | None = None
    doubts: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Unlearned:
    """A posterior from which records have been erased, and how far to trust it.

    Attributes
    ----------
    posterior
        What training on the remaining data would have given, as far as it can be recovered.
    method
        The method and its settings.
    records
        Number of erased records.
    information
        I = H(θ|D_r) − H(θ|D) in nats: what the erased records had told the model.
    effective_sample_size, khat
        Of the weights 1/p_adj(D_e|θ) on draws of q(θ|D); None for an exact method.
    seconds
        Wall-clock time, compilation included; that of all λ together for a sweep.
    trace
        Objective at every iteration, empty where there are none.
    doubts
        Why the result may be off, in sentences; empty where nothing speaks against it.
    """

    posterior: AbstractPosterior
    method: Any
    records: int
    information: float
    effective_sample_size: float | None
    khat: float | None
    seconds: float
    trace: np.ndarray
    doubts: tuple[str, ...]

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against the result."""
        return not self.doubts

    def __str__(self) -> str:
        lines = [
            f"{self.records} records unlearned by {self.method}",
            f"  information removed    {self.information:.4g} nats",
        ]
        if self.khat is not None and self.effective_sample_size is not None:
            lines += [
                f"  effective sample size  {self.effective_sample_size:.1f}",
                f"  Pareto k-hat           {self.khat:.2f}  (trusted below {LARGEST_TRUSTED_KHAT})",
            ]
        if self.trace.size:
            lines.append(f"  objective              {self.trace[0]:.5g} → {self.trace[-1]:.5g}")
        lines.append(f"  seconds                {self.seconds:.2f}")
        if self.trusted:
            lines.append("  trust                  nothing speaks against this result")
        lines += [f"  doubt                  {doubt}" for doubt in self.doubts]
        return "\n".join(lines)
