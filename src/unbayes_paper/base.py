"""What experiments are made of: a problem, what was measured on it, and what the paper says about it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import optax

import unbayes as ub
from unbayes.models import AbstractModel

Optimizer = Literal["Adam", "RMSProp"]
Outcome = Literal["holds", "holds in part", "does not hold"]
Records = tuple[np.ndarray, np.ndarray]

# Labels of the rows that every comparison has.
FULL, RETRAINED = "no unlearning", "retrained"
UPPER_BOUND, REVERSE_KL = "EUBO", "reverse KL"
ONE_STEP, BEST = "natural gradient", "Auto"


# Adam is what the authors' code uses, RMSProp what their paper says.
OPTIMIZERS = {"Adam": optax.adam(1e-3), "RMSProp": optax.rmsprop(1e-4)}
SETTINGS = {
    "Adam": "Adam at 1e-3, as the authors' code does",
    "RMSProp": "RMSProp at 1e-4, as the paper says",
}


class Problem(NamedTuple):
    """A model, and the two parts of its training data."""

    model: Any
    erased: Any
    remaining: Any

    @property
    def full(self) -> Any:
        """All records, remaining first."""
        if isinstance(self.erased, np.ndarray):
            return np.concatenate([self.remaining, self.erased])
        return tuple(np.concatenate(pair) for pair in zip(self.remaining, self.erased, strict=True))


def split(model: AbstractModel, records: Records, erased: np.ndarray) -> Problem:
    """Problem in which the given rows are erased."""
    x, y = records
    kept = np.setdiff1d(np.arange(len(y)), erased)
    return Problem(model, (x[erased], y[erased]), (x[kept], y[kept]))


class Descent(NamedTuple):
    """How long the paper's stochastic methods run."""

    iterations: int
    draws: int
    batch_size: int | None = None
    optimizer: Optimizer = "Adam"

    @property
    def methods(self) -> dict[str, ub.EUBO | ub.ReverseKL]:
        """Both methods by their label. As in the authors' code, mean and scale are not whitened."""
        settings: dict[str, Any] = {
            "iterations": self.iterations,
            "draws": self.draws,
            "whiten": False,
            "optimizer": OPTIMIZERS[self.optimizer],
        }
        return {
            UPPER_BOUND: ub.EUBO(batch_size=self.batch_size, **settings),
            REVERSE_KL: ub.ReverseKL(**settings),
        }


class Measurement(NamedTuple):
    """How far one posterior is from the retrained one.

    Attributes
    ----------
    scenario, method, lam, seed
        What was erased, how it was unlearned (λ where the method has one), and on which seed.
    erased, remaining
        Predictive KL over the inputs of D_e and of D_r, the unlearned posterior first.
    parameter_kl
        KL[unlearned‖retrained] over θ.
    seconds
        How long the call took.
    verdict
        Trusted, doubtful or retrain.
    extra
        Whatever else the experiment measured.
    """

    scenario: str
    method: str
    lam: float | None
    seed: int
    erased: ub.metrics.PredictiveKL | None = None
    remaining: ub.metrics.PredictiveKL | None = None
    parameter_kl: float | None = None
    seconds: float | None = None
    verdict: str | None = None
    extra: Mapping[str, float] = MappingProxyType({})


class Claim(NamedTuple):
    """A sentence that each repetition bears out or not.

    Attributes
    ----------
    text
        What is claimed.
    cases
        Whether it holds, once for every seed or scenario.
    numbers
        What was measured.
    goal
        Whether it is a goal of this project rather than a claim of the paper.
    """

    text: str
    cases: tuple[bool, ...]
    numbers: str
    goal: bool = False

    @property
    def outcome(self) -> Outcome:
        """“holds” if all cases do, “holds in part” if some do, else “does not hold”."""
        if all(self.cases):
            return "holds"
        return "holds in part" if any(self.cases) else "does not hold"


class Figure(NamedTuple):
    """A picture as SVG, in the colour of the text around it."""

    name: str
    caption: str
    svg: str


class Findings(NamedTuple):
    """What came out of an experiment.

    Attributes
    ----------
    measurements, claims, figures
        In the order in which they are shown.
    choices
        What the paper leaves open, and what was chosen.
    published
        The paper's own figures for the KL over θ, by scenario, method and λ.
    """

    measurements: Sequence[Measurement]
    claims: Sequence[Claim]
    figures: Sequence[Figure]
    choices: Sequence[str] = ()
    published: Mapping[tuple[str, str, float | None], float] = MappingProxyType({})


class Experiment(NamedTuple):
    """An experiment of the paper.

    Attributes
    ----------
    name, title
        For the command line, and for people.
    paper
        Where it stands in the paper.
    summary
        A paragraph for someone who has not read the paper.
    data
        Files that it needs, or “none”.
    minutes
        Roughly how long it takes on two cores, quick and in full.
    run
        The experiment itself; takes a `Lab`.
    """

    name: str
    title: str
    paper: str
    summary: str
    data: str
    minutes: tuple[float, float]
    run: Callable[[Any], Findings]
