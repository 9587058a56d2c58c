"""All scenarios: every kind of table, erasure, prior and training that verdicts are tested on."""

from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp

import unbayes as ub
from unbayes.posteriors import AbstractGaussian
from unbayes.training import AbstractTraining
from unbayes_paper.base import Problem, Records, split
from unbayes_paper.moon import moon
from unbayes_paper.scenarios.altered import altered_tables
from unbayes_paper.scenarios.erasures import common_erasures, few_erasures, leverage_erasures
from unbayes_paper.scenarios.held_back import held_back_tables
from unbayes_paper.scenarios.tables import Table, common_tables, further_tables

MOON_SCENARIOS = ("moon", "random", "yellow 30", "yellow 40", "yellow 50")
# Dense covariances leave more to test: correlations, third derivatives, sums.
MOON_SEEDS = {ub.FullGaussian: (0, 1, 2, 3, 4), ub.DiagonalGaussian: (0, 1)}
# Of the further tables, what is also tried with a diagonal covariance.
DIAGONAL_ERASURES = ("random tenth", "leverage, top 20%")
# Scales of a prior that hardly lets weights leave zero, and of one that says nothing.
WRONG_PRIORS = {"tight prior": 0.05, "loose prior": 100.0}
# Steps from the mode after which training is stopped.
STEPS = (1, 3)
# Tables on which wrong priors and short training are tried, and what is erased of them.
VARIED_TABLES = ("noisy classes", "counts", "breast cancer", "iris")
VARIED_ERASURES = ("random tenth", "cluster")


class Scenario(NamedTuple):
    """A problem, what it is called, the family of the posterior, and how it is trained.

    Attributes
    ----------
    training
        How the posterior that records are erased from was trained; None is the default, to convergence. What
        it is compared with is always retrained to convergence.
    is_held_back
        Whether no limit was set with this scenario in view.
    """

    name: str
    problem: Problem
    family: type[AbstractGaussian]
    training: AbstractTraining | None = None
    is_held_back: bool = False


def scenarios(banknote: Records | None = None) -> Iterator[Scenario]:
    """All of them; those on the banknote data where these are given, inputs standardised."""
    common = common_tables(banknote)
    for family, seeds in MOON_SEEDS.items():
        for seed in seeds:
            for scenario in MOON_SCENARIOS:
                yield Scenario(f"{scenario}, seed {seed}", moon(scenario, seed), family)
        for data, table in common.items():
            for erasure, rows in common_erasures(table.records).items():
                yield Scenario(f"{data}, {erasure}", split(*table, rows), family)
        for data, table in further_tables().items():
            for erasure, rows in few_erasures(table.records).items():
                if family is ub.FullGaussian or erasure in DIAGONAL_ERASURES:
                    yield Scenario(f"{data}, {erasure}", split(*table, rows), family)
    for data, table in common.items():
        for erasure, rows in leverage_erasures(table.records).items():
            yield Scenario(f"{data}, {erasure}", split(*table, rows), ub.FullGaussian)
    for name, table, rows in altered_tables(common):
        yield Scenario(name, split(*table, rows), ub.FullGaussian)
    for data in VARIED_TABLES:
        yield from _varied(data, common[data])


def held_back_scenarios() -> Iterator[Scenario]:
    """Those on other tables, to check limits on."""
    for data, table in held_back_tables():
        for erasure, rows in few_erasures(table.records).items():
            problem, name = split(*table, rows), f"{data}, {erasure}"
            yield Scenario(name, problem, ub.FullGaussian, is_held_back=True)
            if erasure in DIAGONAL_ERASURES:
                yield Scenario(name, problem, ub.DiagonalGaussian, is_held_back=True)


def _varied(data: str, table: Table) -> Iterator[Scenario]:
    """The same table under wrong priors, and after a training that was stopped early."""
    erasures = common_erasures(table.records)
    for erasure in VARIED_ERASURES:
        rows = erasures[erasure]
        for belief, scale in WRONG_PRIORS.items():
            problem = split(_with_prior(table.model, scale), table.records, rows)
            yield Scenario(f"{data}, {erasure}, {belief}", problem, ub.FullGaussian)
        for steps in STEPS:
            name = f"{data}, {erasure}, {steps} step{'s' * (steps > 1)}"
            training = ub.NaturalGradientVI(iterations=steps)
            yield Scenario(name, split(*table, rows), ub.FullGaussian, training)


def _with_prior(model: ub.LinearModel, scale: float) -> ub.LinearModel:
    """The model with weights N(0, scale²)."""
    prior = ub.DiagonalGaussian(jnp.zeros(model.dim), jnp.full(model.dim, scale))
    return ub.LinearModel(model.features, model.likelihood, prior)
