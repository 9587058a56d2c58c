"""What unlearning returns."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from unbayes.memory import Memory
from unbayes.posteriors import AbstractPosterior, GaussianNatural
from unbayes.trust import PredictedError, Trust, Verdict


class Solution(NamedTuple):
    """What a method hands back, before it is timed and judged.

    Attributes
    ----------
    posterior
        The recovered belief.
    trace
        Objective at every iteration, empty where there are none.
    measured
        What the method itself can tell of its result: fields of `Measures`.
    curvature
        Dense natural parameters beside a diagonal posterior, where a memory had them.
    """

    posterior: AbstractPosterior
    trace: np.ndarray = np.empty(0)
    measured: Mapping[str, Any] = MappingProxyType({})
    curvature: GaussianNatural | None = None


@dataclasses.dataclass(frozen=True)
class Unlearned:
    """A posterior from which records have been erased, and how far to trust it.

    Attributes
    ----------
    posterior
        What training on the remaining data would have given, as far as it can be recovered.
    method
        The method and its settings.
    choice
        Why `Auto` chose that method; empty where the caller did.
    records
        Number of erased records.
    trust
        What was measured, the doubts it gives rise to, and a verdict.
    seconds
        Wall-clock time, compilation included; that of all λ together for a sweep.
    trace
        Objective at every iteration, empty where there are none.
    memory
        The memory that was given, without the erased records; None where none was.
    caveats
        What was not unlearned, or could not be checked, in sentences. They have no part in the verdict.
    """

    posterior: AbstractPosterior
    method: Any
    choice: str
    records: int
    trust: Trust
    seconds: float
    trace: np.ndarray
    memory: Memory | None = None
    caveats: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What to do with the result: trusted, doubtful or retrain."""
        return self.trust.verdict

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against the result."""
        return self.verdict is Verdict.TRUSTED

    @property
    def information(self) -> float:
        """I = H(θ|D_r) − H(θ|D) in nats: what the erased records had told the model."""
        return self.trust.measures.information

    @property
    def error(self) -> PredictedError | None:
        """How far the result probably is from retraining; None where that cannot be told."""
        return self.trust.error

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the result may be off, in sentences."""
        return tuple(str(doubt) for doubt in self.trust.doubts)

    @property
    def khat(self) -> float | None:
        """Pareto shape of the weights 1/p(D_e|θ) on draws of q(θ|D); None for methods without draws."""
        return self.trust.measures.khat

    @property
    def effective_sample_size(self) -> float | None:
        """Effective sample size of the same weights; None for methods without draws."""
        return self.trust.measures.effective_sample_size

    def __str__(self) -> str:
        lines = [f"{self.records} records unlearned by {self.method}"]
        if self.choice:
            lines.append(f"  {'chosen because':<22} {self.choice}")
        lines.append(f"  {'information removed':<22} {self.information:.4g} nats")
        if self.trace.size:
            lines.append(f"  {'objective':<22} {self.trace[0]:.5g} → {self.trace[-1]:.5g}")
        lines.append(f"  {'seconds':<22} {self.seconds:.2f}")
        notes = [f"  {'note':<22} {caveat}" for caveat in self.caveats]
        return "\n".join([*lines, str(self.trust), *notes])
