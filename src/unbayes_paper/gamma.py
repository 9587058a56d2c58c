"""The shape of a Gamma distribution: figures 2 and 3."""

import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import unbayes as ub
from unbayes_paper import figures
from unbayes_paper.base import (
    BEST,
    FULL,
    RETRAINED,
    REVERSE_KL,
    UPPER_BOUND,
    Claim,
    Descent,
    Experiment,
    Figure,
    Findings,
    Problem,
)
from unbayes_paper.claims import above, below, cases, never_worse, spread
from unbayes_paper.compare import Comparison, Plan, compare, measure
from unbayes_paper.lab import Lab

LAMBDAS = (1.0, 0.1, 1e-3, 1e-5, 1e-20, 0.0)
PARAMETERS = ("parameters",)
CHOICES = (
    "θ is the logarithm of the shape, as in the authors' code (the paper draws the shape itself); true "
    "log-shape and log-rate are 1, the prior of θ is N(0, 1). The draws are our own, one set per seed.",
    "Records have no inputs here, so distances are KL divergences over θ.",
    "Our best keeps 10 of the 20 records as its memory.",
)


def run(lab: Lab) -> Findings:
    """Sweep λ on each set of draws."""
    plan = Plan(
        LAMBDAS, lab.descent(Descent(5000, 100), Descent(30_000, 1000)), family=ub.DiagonalGaussian, memory=10
    )
    comparisons = [
        compare(lab, _problem(seed), plan, scenario="gamma", seed=seed)
        for seed in lab.repetitions(quick=2, full=5)
    ]
    measurements = [m for comparison in comparisons for m in measure(comparison)]
    found = cases(measurements)
    claims = [
        _unchanged(comparisons),
        below(
            "EUBO at λ = 1e-3 is closer to retraining than the baseline",
            found,
            (UPPER_BOUND, 1e-3),
            parts=PARAMETERS,
        ),
        above(
            "as λ falls to 0, EUBO moves away from retraining (λ = 0 against λ = 1e-3)",
            found,
            (UPPER_BOUND, 0.0),
            than=(UPPER_BOUND, 1e-3),
            parts=PARAMETERS,
        ),
        below(
            "reverse KL does not: at λ = 0 it is closer to retraining than EUBO at λ = 0",
            found,
            (REVERSE_KL, 0.0),
            than=(UPPER_BOUND, 0.0),
            parts=PARAMETERS,
        ),
        below(
            "reverse KL at λ = 0 is closer to retraining than the baseline",
            found,
            (REVERSE_KL, 0.0),
            parts=PARAMETERS,
        ),
        never_worse(found, PARAMETERS),
    ]
    return Findings(measurements, claims, [_densities(comparisons[0])], CHOICES)


def _problem(seed: int) -> Problem:
    draws = np.sort(np.random.default_rng(seed).gamma(np.e, 1 / np.e, 20))
    prior = ub.DiagonalGaussian(jnp.zeros(1), jnp.ones(1))
    return Problem(ub.GammaShape(np.e, prior), draws[:5], draws[5:])


def _unchanged(comparisons: list[Comparison]) -> Claim:
    moved = [
        ub.metrics.parameter_kl(c[method, 1.0], c[FULL]).value
        for c in comparisons
        for method in (UPPER_BOUND, REVERSE_KL)
    ]
    return Claim(
        "λ = 1 unlearns nothing", tuple(kl < 1e-12 for kl in moved), f"moved by {spread(moved)} nats"
    )


def _densities(comparison: Comparison) -> Figure:
    figure, axes = figures.canvas(1, 2, (4.4, 2.9), sharey=True, sharex=True)
    full = comparison[FULL]
    theta = np.linspace(float(full.mean[0]) - 1.6, float(full.mean[0]) + 2.0, 400)
    shades = np.linspace(1, 0.25, len(LAMBDAS))
    for axis, method in zip(axes.flat, (UPPER_BOUND, REVERSE_KL), strict=True):
        for lam, shade in zip(LAMBDAS, shades, strict=True):
            label = f"λ = {figures.lam_text(lam)}"
            _density(
                axis, theta, comparison[method, lam], color=figures.COLOURS[method], alpha=shade, label=label
            )
        _density(axis, theta, full, color=figures.COLOURS[FULL], ls="--", label="all records")
        _density(axis, theta, comparison[RETRAINED], color=figures.INK, lw=1.8, label="retrained")
        _density(axis, theta, comparison[BEST], color=figures.COLOURS[BEST], ls=":", lw=2.2, label="our best")
        axis.set_title(method)
        axis.set_xlabel("θ = log shape")
        axis.set_ylim(0, 2.2 * float(norm.pdf(0, scale=float(comparison[RETRAINED].scale[0]))))
        axis.legend(fontsize=7, frameon=False, labelcolor=figures.INK)
    return figures.finish(
        figure, "gamma", "Beliefs about the shape, by EUBO and by reverse KL; fainter is smaller λ (seed 0)."
    )


def _density(axis, theta: np.ndarray, posterior, **style) -> None:
    axis.plot(
        theta, norm.pdf(theta, float(posterior.mean[0]), float(posterior.scale[0])), **{"lw": 1.2, **style}
    )


GAMMA = Experiment(
    "gamma",
    "The shape of a Gamma distribution",
    "section 3.3, figures 2 and 3",
    "Twenty numbers are drawn from a Gamma distribution of known rate; a Gaussian belief about its shape is "
    "learnt from them, and the five smallest are then erased. There is one parameter, so the beliefs can be "
    "drawn. λ says how far out in the tails of the trained belief unlearning may act: 1 nowhere, 0 "
    "everywhere.",
    "none",
    (0.5, 5.0),
    run,
)
