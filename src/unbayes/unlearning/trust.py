"""How far a result can be trusted, in numbers and in words."""

import dataclasses
import enum
from typing import NamedTuple

from unbayes.diagnostics import LARGEST_TRUSTED_KHAT

# Second term as a multiple of the step; above the second limit, steps were often seen to do harm.
DOUBTED_SECOND_TERM, REFUSED_SECOND_TERM = 0.2, 5.0
# Largest share of the precision removed, where that is all there is to go by.
DOUBTED_SHARE, REFUSED_SHARE = 0.3, 0.9
DOUBTED_COVERAGE, REFUSED_COVERAGE = 0.5, 0.1
# Nats per parameter that the draw of a coreset may be worth.
DOUBTED_UNCERTAINTY = 0.1


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
    share_removed, least_share_removed
        Largest and least share of the belief's precision, over directions of θ, that the erased records had
        given. Negative where they had made the belief wider, which those of a log-concave model never do.
    step
        Share of a full natural-gradient step that the mean took.
    second_term
        KL, in nats, by which the answer of the remaining records moved the belief beyond one step. Without a
        memory to compute it from: by which the step changed the pull of the erased records themselves.
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
    least_share_removed: float | None = None
    step: float | None = None
    second_term: float | None = None
    coverage: float | None = None
    uncertainty: float | None = None


def doubts_about_step(
    measures: Measures, change: float, dim: int, *, knows_curvature: bool, keeps_width: bool
) -> tuple[Doubt, ...]:
    """Doubts that natural gradients give rise to.

    The limits were set on the scenarios of `unbayes.experiments.scenarios`, so that no result which is worse
    than doing nothing is trusted there; see `benchmarks/trust.md`.

    Parameters
    ----------
    measures
        What was measured.
    change
        KL, in nats, from the trained belief to the recovered one.
    dim
        Number of parameters.
    knows_curvature
        Whether it is known how the parameters depend on each other.
    keeps_width
        Whether only the mean was moved.
    """
    share, least_share = measures.share_removed or 0.0, measures.least_share_removed or 0.0
    if keeps_width and share > REFUSED_SHARE:
        reason = (
            f"the erased records hold {share:.0%} of the belief's precision in some direction, and taking it "
            "away would leave none: only the mean was moved, the belief is as narrow as before; retrain"
        )
        return (Doubt(reason, Verdict.RETRAIN),)
    if keeps_width:
        reason = (
            f"the erased records had made the belief wider in some direction (by {-least_share:.0%} of its "
            "precision): the model is not log-concave there, so only the mean was moved; refine, or retrain"
        )
        return (Doubt(reason),)
    if measures.uncertainty is not None and measures.coverage is not None:
        return _doubts_about_memory(measures.coverage, measures.uncertainty, change, dim)
    doubts = []
    if not knows_curvature:
        reason = (
            "a diagonal posterior hides how parameters depend on each other: the step may fall short; give "
            "a memory, if only one of no records, which keeps the curvature"
        )
        doubts.append(Doubt(reason))
    if measures.second_term is not None:
        ratio = measures.second_term / change if change > 0 else 0.0
        if ratio > DOUBTED_SECOND_TERM:
            reason = (
                f"the erased records pull quite differently after the step (by {ratio:.1f} times the step "
                "itself), and so may the remaining ones, which it does not see; give a memory, or retrain"
            )
            doubts.append(Doubt(reason, Verdict.RETRAIN if ratio > REFUSED_SECOND_TERM else Verdict.DOUBTFUL))
    elif share > DOUBTED_SHARE:
        reason = (
            f"{share:.0%} of the belief's precision in some direction came from the erased records; the "
            "remaining ones may answer in ways that one step does not see"
        )
        doubts.append(Doubt(reason, Verdict.RETRAIN if share > REFUSED_SHARE else Verdict.DOUBTFUL))
    if share > REFUSED_SHARE and measures.second_term is not None:
        reason = f"{share:.0%} of the belief's precision in some direction came from the erased records"
        doubts.append(Doubt(reason, Verdict.RETRAIN))
    return tuple(doubts)


def _doubts_about_memory(coverage: float, uncertainty: float, change: float, dim: int) -> tuple[Doubt, ...]:
    doubts = []
    if coverage < DOUBTED_COVERAGE:
        reason = f"the memory stands for only {coverage:.0%} of what the remaining records know"
        verdict = Verdict.RETRAIN if coverage < REFUSED_COVERAGE else Verdict.DOUBTFUL
        doubts.append(Doubt(reason, verdict))
    if uncertainty > min(DOUBTED_UNCERTAINTY * dim, change):
        reason = (
            f"another draw of the memory would have moved the belief by about {uncertainty:.2g} nats; keep "
            "more records, or retrain"
        )
        verdict = Verdict.RETRAIN if uncertainty > change else Verdict.DOUBTFUL
        doubts.append(Doubt(reason, verdict))
    return tuple(doubts)


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
                ("second term", _number(self.measures.second_term, ".3g", " nats")),
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
