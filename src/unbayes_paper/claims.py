"""Sentences of the paper, held against measurements."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from unbayes_paper.base import BEST, FULL, Claim, Measurement
from unbayes_paper.compare import Label

Part = Literal["erased", "remaining", "parameters"]
Case = dict[Label, Measurement]

BASELINE: Label = (FULL, None)
OURS: Label = (BEST, None)
PREDICTIVE: tuple[Part, ...] = ("erased", "remaining")
SYMBOLS = {"erased": "D_e", "remaining": "D_r", "parameters": "θ"}
# Nats of KL that do not count as a difference: sampled predictions vary by as much.
NEGLIGIBLE = 1e-6


def cases(measurements: Sequence[Measurement], *scenarios: str) -> list[Case]:
    """Measurements by method and λ, once for every scenario (all, unless named) and seed."""
    found: dict[tuple[str, int], Case] = {}
    for m in measurements:
        if not scenarios or m.scenario in scenarios:
            found.setdefault((m.scenario, m.seed), {})[m.method, m.lam] = m
    return list(found.values())


def distance(case: Case, label: Label, part: Part) -> float:
    """KL[unlearned‖retrained]: mean predictive KL over D_e or D_r, or KL over θ."""
    m = case[label]
    value = m.parameter_kl if part == "parameters" else getattr(m, part).forward.mean
    assert value is not None
    return value


def below(
    text: str,
    repetitions: Sequence[Case],
    label: Label,
    *,
    share: float = 1.0,
    than: Label = BASELINE,
    parts: Sequence[Part] = PREDICTIVE,
    goal: bool = False,
) -> Claim:
    """Claim that a method is closer to retraining than `share` times another is, on all `parts`."""
    return _claim(text, repetitions, label, than, parts, lambda one, other: one <= share * other, goal)


def above(
    text: str,
    repetitions: Sequence[Case],
    label: Label,
    *,
    than: Label = BASELINE,
    parts: Sequence[Part] = PREDICTIVE,
) -> Claim:
    """Claim that a method is further from retraining than another."""
    return _claim(text, repetitions, label, than, parts, lambda one, other: one > other, False)


def never_worse(repetitions: Sequence[Case], parts: Sequence[Part] = PREDICTIVE) -> Claim:
    """Claim that our best method is never worse than doing nothing, a goal for every experiment."""
    where = " and ".join(SYMBOLS[part] for part in parts)
    return _claim(
        f"our best is never further from retraining than no unlearning is, on {where}",
        repetitions,
        OURS,
        BASELINE,
        parts,
        lambda one, other: one <= other + NEGLIGIBLE,
        True,
    )


def best_over_lambda(case: Case, method: str, part: Part) -> float:
    """Smallest distance that a method reaches at any λ."""
    return min(distance(case, label, part) for label in case if label[0] == method)


def number(value: float) -> str:
    """A number with three digits."""
    return f"{value:.2e}" if abs(value) < 1e-2 or abs(value) >= 1e4 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """Mean, and the range where there are several."""
    mean = number(float(np.mean(values)))
    return mean if len(values) == 1 else f"{mean} [{number(min(values))}, {number(max(values))}]"


def _claim(
    text: str,
    repetitions: Sequence[Case],
    label: Label,
    than: Label,
    parts: Sequence[Part],
    holds: Callable[[float, float], bool],
    goal: bool,
) -> Claim:
    pairs = {
        part: [(distance(case, label, part), distance(case, than, part)) for case in repetitions]
        for part in parts
    }
    numbers = "; ".join(
        f"{SYMBOLS[part]}: {spread([one for one, _ in each])} against {spread([other for _, other in each])}"
        for part, each in pairs.items()
    )
    verdicts = tuple(all(holds(*pairs[part][i]) for part in parts) for i in range(len(repetitions)))
    return Claim(text, verdicts, numbers, goal)
