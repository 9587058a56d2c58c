"""The comparison at the heart of most experiments: every method against retraining from scratch."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.random as jr

import unbayes as ub
from unbayes.posteriors import AbstractGaussian
from unbayes.training import AbstractTraining
from unbayes.unlearning import AbstractMethod
from unbayes_paper.base import BEST, FULL, ONE_STEP, RETRAINED, Descent, Measurement, Problem
from unbayes_paper.lab import Kept, Lab

Label = tuple[str, float | None]
# A call is timed again without compilation, unless its first run took this many seconds.
LONG = 30.0


class Plan(NamedTuple):
    """How to train, and what to compare.

    Attributes
    ----------
    lams, descent
        Thresholds, and how long the paper's methods run at each.
    family, training
        As for `fit`.
    memory
        Training records that are kept for our best method, `Auto`; None for none.
    sampled
        Whether the erased records are a random sample of the training set, which serves `Auto` as a memory.
    """

    lams: Sequence[float]
    descent: Descent
    family: Any = ub.FullGaussian
    training: AbstractTraining | None = None
    memory: int | None = None
    sampled: bool = False

    @property
    def ours(self) -> dict[str, AbstractMethod]:
        """Our own methods: one natural-gradient step without a memory (Gaussians only), and `Auto`."""
        best: dict[str, AbstractMethod] = {BEST: ub.Auto()}
        is_gaussian = isinstance(self.family, type) and issubclass(self.family, AbstractGaussian)
        return {ONE_STEP: ub.NaturalGradient(), **best} if is_gaussian else best


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The posteriors of one scenario and seed, by method and λ."""

    scenario: str
    seed: int
    problem: Problem
    posteriors: dict[Label, Kept]

    def __getitem__(self, label: Label | str) -> Any:
        return self.posteriors[(label, None) if isinstance(label, str) else label].posterior


def compare(lab: Lab, problem: Problem, plan: Plan, *, scenario: str, seed: int = 0) -> Comparison:
    """Train on all records and on the remaining ones, and unlearn by every method."""
    full_key, retrain_key = jr.split(jr.key(seed))

    def train(what: str, records: Any, key, memory: int | None) -> Kept:
        def compute():
            trained = ub.fit(
                problem.model,
                records,
                family=plan.family,
                method=plan.training,
                memory=memory,
                key=key,
                progress=lab.progress,
            )
            facts = {"seconds": trained.seconds, "elbo": trained.elbo, "stationarity": trained.stationarity}
            return [Kept(trained.posterior, facts, trained.memory)]

        depends_on = (problem.model, records, plan.family, str(plan.training), memory, seed)
        return lab.recall(f"{scenario}, seed {seed}: {what}", depends_on, compute)[0]

    full = train("training", problem.full, full_key, plan.memory)
    retrained = train("retraining", problem.remaining, retrain_key, None)
    return contest(lab, problem, plan, full, retrained, scenario=scenario, seed=seed)


def contest(
    lab: Lab, problem: Problem, plan: Plan, full: Kept, retrained: Kept, *, scenario: str, seed: int = 0
) -> Comparison:
    """Unlearn by every method, given the posterior of all records and the retrained one."""
    key = jr.key(seed)
    found: dict[Label, Kept] = {(FULL, None): full, (RETRAINED, None): retrained}

    def unlearn(name: str, method: AbstractMethod, compute: Callable[[], list[ub.Unlearned]]) -> list[Kept]:
        settings = (str(method), plan.descent, plan.lams, seed)
        depends_on = (full.posterior, full.memory, problem.model, problem.erased, settings)
        return lab.recall(
            f"{scenario}, seed {seed}: {name}", depends_on, lambda: [keep(each) for each in compute()]
        )

    for name, method in plan.descent.methods.items():
        results = unlearn(
            name,
            method,
            lambda method=method: ub.sweep(
                full.posterior,
                problem.model,
                problem.erased,
                method=method,
                lams=plan.lams,
                key=key,
                progress=lab.progress,
            ),
        )
        found.update({(name, lam): kept for lam, kept in zip(plan.lams, results, strict=True)})
    kept = full.memory
    if plan.sampled and kept is not None:
        kept = kept.with_sample(problem.model, problem.erased, key=key)
    for name, method in plan.ours.items():

        def once(memory=None if name == ONE_STEP else kept, method=method):
            return ub.unlearn(
                full.posterior, problem.model, problem.erased, memory=memory, method=method, key=key
            )

        def timed(once=once):
            # A step takes milliseconds and its compilation seconds, so the second call is reported.
            result = once()
            return [once() if result.seconds < LONG else result]

        found[(name, None)] = unlearn(name, method, timed)[0]
    return Comparison(scenario, seed, problem, found)


def keep(result: ub.Unlearned) -> Kept:
    """The parts of a result that the report needs."""
    facts = {
        "seconds": result.seconds,
        "verdict": str(result.verdict),
        "doubts": list(result.doubts),
        "information": result.information,
    }
    return Kept(result.posterior, facts, result.memory)


def measure(comparison: Comparison, draws: int = 1000, inputs: int | None = None) -> list[Measurement]:
    """How far each posterior of a comparison is from the retrained one.

    Parameters
    ----------
    comparison
        The posteriors.
    draws
        Draws from the posterior, for predictive distributions that are sampled.
    inputs
        Predict at the first so many inputs of D_e and of D_r; None for all.
    """
    model, erased, remaining = comparison.problem
    retrained = comparison[RETRAINED]
    key = jr.key(0)
    measurements = []
    for (method, lam), kept in comparison.posteriors.items():
        is_itself = method == RETRAINED
        divergences = [None, None]
        if isinstance(model, ub.LinearModel) and not is_itself:
            divergences = [
                ub.metrics.predictive_kl(
                    kept.posterior, retrained, model, part[0][:inputs], key=key, draws=draws
                )
                for part in (erased, remaining)
            ]
        gaussian = isinstance(kept.posterior, AbstractGaussian)
        measurements.append(
            Measurement(
                comparison.scenario,
                method,
                lam,
                comparison.seed,
                *divergences,
                parameter_kl=ub.metrics.parameter_kl(kept.posterior, retrained).value
                if gaussian and not is_itself
                else None,
                seconds=kept.facts.get("seconds"),
                verdict=kept.facts.get("verdict"),
            )
        )
    return measurements
