"""A verdict, with the doubts that led to it and the numbers that they rest on."""

import dataclasses
import enum
from typing import NamedTuple

from unbayes.trust.error import PredictedError, predict
from unbayes.trust.limits import DOUBTED_KHAT
from unbayes.trust.measures import Measures


class RetrainingNeeded(RuntimeError):
    """No usable posterior can be recovered from the trained posterior and the erased records alone."""


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
    def error(self) -> PredictedError | None:
        """How far the result probably is from retraining; None where that cannot be told."""
        return predict(self.measures)

    @property
    def verdict(self) -> Verdict:
        """The worst that any doubt calls for."""
        ranks = list(Verdict)
        return max((doubt.verdict for doubt in self.doubts), key=ranks.index, default=Verdict.TRUSTED)

    def __str__(self) -> str:
        measures = self.measures
        lines = [
            f"  {name:<22} {value}"
            for name, value in (
                ("predicted error", "" if self.error is None else str(self.error)),
                ("doing nothing leaves", "" if self.error is None else f"{self.error.nothing:.2g} nats"),
                ("effective sample size", _number(measures.effective_sample_size, ".1f")),
                ("Pareto k-hat", _number(measures.khat, ".2f", f"  (trusted below {DOUBTED_KHAT})")),
                ("information share", _number(measures.information_share, ".1%")),
                ("precision removed", _number(measures.share_removed, ".0%", " in some direction")),
                ("step taken", _number(measures.step, ".0%")),
                ("sums of order", _order(measures.order)),
                ("second term", _number(measures.second_term, ".3g", " nats")),
                ("found in memory", _found(measures)),
                ("covered by memory", _number(measures.coverage, ".0%")),
                ("memory's uncertainty", _number(measures.uncertainty, ".2g", " nats")),
                ("stationarity of q(θ|D)", _number(measures.stationarity, ".2g", " nats")),
            )
            if value
        ]
        verdict = f"{self.verdict}: nothing speaks against this result" if not self.doubts else self.verdict
        lines.append(f"  {'verdict':<22} {verdict}")
        lines += [f"  {'because':<22} {doubt}" for doubt in self.doubts]
        return "\n".join(lines)


def _order(order: int | None) -> str:
    if order is None:
        return ""
    return str(order) if order > 1 else "none: no sum is to be believed, so this is one step"


def _found(measures: Measures) -> str:
    if measures.found_in_memory is None or measures.expected_in_memory is None:
        return ""
    return f"{measures.found_in_memory:.0f} of about {measures.expected_in_memory:.0f} expected"


def _number(value: float | None, format_spec: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{format_spec}}{unit}"
