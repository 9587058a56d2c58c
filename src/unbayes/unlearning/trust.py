"""How far a result can be trusted, in numbers and in words."""

import dataclasses
import enum
from typing import NamedTuple

from unbayes.diagnostics import LARGEST_TRUSTED_KHAT


class Verdict(enum.StrEnum):
    """What to do with a result, from best to worst."""

    TRUSTED = "trusted"
    DOUBTFUL = "doubtful"
    RETRAIN = "retrain"


class Doubt(NamedTuple):
    """A sentence on why a result may be off, and what it calls for."""

    reason: str
    verdict: Verdict = Verdict.DOUBTFUL

    def __str__(self) -> str:
        return self.reason


class Measures(NamedTuple):
    """What was measured; None where it does not apply or is not known.

    Attributes
    ----------
    effective_sample_size, khat
        Of the weights 1/p(D_e|θ) on draws of q(θ|D), adjusted where the method adjusts them. The natural
        gradient takes p(D_e|θ) to second order, from its sites, so that no further pass is needed.
    information_share
        Information removed, as a share of what all training records told the model.
    stationarity
        Of q(θ|D), as training measured it, in nats.
    share_removed
        Largest share of the belief's precision, over directions of θ, that the erased records had given.
    step
        Share of a full natural-gradient step that was taken.
    second_term
        KL, in nats, by which the answer of the remaining records moved the belief beyond one step.
    coverage
        Share of the remaining records' precision that the coreset stands for.
    uncertainty
        Expected KL, in nats, that comes from having kept this coreset and no other.
    """

    effective_sample_size: float | None = None
    khat: float | None = None
    information_share: float | None = None
    stationarity: float | None = None
    share_removed: float | None = None
    step: float | None = None
    second_term: float | None = None
    coverage: float | None = None
    uncertainty: float | None = None


@dataclasses.dataclass(frozen=True)
class Trust:
    """Verdict on a result, with its reasons.

    Attributes
    ----------
    measures
        The numbers it rests on.
    doubts
        Why the result may be off; empty where nothing speaks against it.
    """

    measures: Measures
    doubts: tuple[Doubt, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst that any doubt calls for."""
        ranks = list(Verdict)
        return max((doubt.verdict for doubt in self.doubts), key=ranks.index, default=Verdict.TRUSTED)

    def __str__(self) -> str:
        lines = [
            f"  {name:<22} {value}"
            for name, value in (
                ("effective sample size", _number(self.measures.effective_sample_size, ".1f")),
                ("Pareto k-hat", _khat(self.measures.khat)),
                ("information share", _number(self.measures.information_share, ".1%")),
                ("precision removed", _number(self.measures.share_removed, ".0%", " in some direction")),
                ("step taken", _number(self.measures.step, ".0%")),
                ("answer of the rest", _number(self.measures.second_term, ".3g", " nats beyond one step")),
                ("covered by memory", _number(self.measures.coverage, ".0%")),
                ("memory's uncertainty", _number(self.measures.uncertainty, ".2g", " nats")),
                ("stationarity of q(θ|D)", _number(self.measures.stationarity, ".2g", " nats")),
            )
            if value
        ]
        verdict = f"{self.verdict}: nothing speaks against this result" if not self.doubts else self.verdict
        lines.append(f"  {'verdict':<22} {verdict}")
        lines += [f"  {'because':<22} {doubt}" for doubt in self.doubts]
        return "\n".join(lines)


def _number(value: float | None, format_spec: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{format_spec}}{unit}"


def _khat(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}  (trusted below {LARGEST_TRUSTED_KHAT})"
