"""A posterior with two modes, trained as a Gaussian: appendix."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.stats import norm

import unbayes as ub
from unbayes_paper import figures
from unbayes_paper.base import (
    BEST,
    FULL,
    ONE_STEP,
    REVERSE_KL,
    UPPER_BOUND,
    Claim,
    Descent,
    Experiment,
    Figure,
    Findings,
    Measurement,
)
from unbayes_paper.claims import cases, never_worse
from unbayes_paper.compare import keep
from unbayes_paper.lab import Kept, Lab

# Mean and deviation: what the paper reports, and the optima of the objectives by quadrature.
PAPER = {UPPER_BOUND: (0.060, 1.000), REVERSE_KL: (0.062, 1.018)}
OPTIMA = {UPPER_BOUND: (0.0697, 1.0079), REVERSE_KL: (0.0629, 1.0243)}
CHOICES = (
    "The trained belief N(1.004, 1.390²) is the paper's. The reference is the exact posterior N(0, 1).",
    "There is no training set, so our best has no memory.",
)


def problem() -> tuple[ub.DiagonalGaussian, ub.DensityModel, np.ndarray]:
    """The trained belief, the model, and one record, whose likelihood added the second mode."""
    model = ub.DensityModel(
        lambda theta: jnp.zeros(()), lambda theta, record: jnp.logaddexp(0.0, 2 * theta[0] - 2), dim=1
    )
    return ub.DiagonalGaussian(jnp.array([1.004]), jnp.array([1.390])), model, np.zeros(1)


def run(lab: Lab) -> Findings:
    """Unlearn at λ = 0."""
    full, model, erased = problem()
    exact = ub.DiagonalGaussian(jnp.zeros(1), jnp.ones(1))
    descent = lab.descent(Descent(5000, 1000), Descent(30_000, 1000))
    methods = {**descent.methods, ONE_STEP: ub.NaturalGradient(), BEST: ub.Auto()}
    found: dict[tuple[str, int], Kept] = {}
    for seed in lab.repetitions(quick=2, full=5):
        found[FULL, seed] = Kept(full, {})
        for name, method in methods.items():

            def compute(method=method, seed=seed):
                return [
                    keep(
                        ub.unlearn(
                            full, model, erased, method=method, key=jr.key(seed), progress=lab.progress
                        )
                    )
                ]

            found[name, seed] = lab.recall(
                f"bimodal, seed {seed}: {name}", (full, str(method), descent), compute
            )[0]
    measurements = [_measure(name, seed, kept, exact) for (name, seed), kept in found.items()]
    claims = [
        *[_matches(measurements, name) for name in PAPER],
        never_worse(cases(measurements), ("parameters",)),
    ]
    return Findings(measurements, claims, [_picture(found)], CHOICES)


def _measure(name: str, seed: int, kept: Kept, exact: ub.DiagonalGaussian) -> Measurement:
    return Measurement(
        "bimodal",
        name,
        0.0 if name in PAPER else None,
        seed,
        parameter_kl=ub.metrics.parameter_kl(kept.posterior, exact).value,
        seconds=kept.facts.get("seconds"),
        verdict=kept.facts.get("verdict"),
        extra={"mean": float(kept.posterior.mean[0]), "deviation": float(kept.posterior.scale[0])},
    )


def _matches(measurements: list[Measurement], name: str) -> Claim:
    """Within a fiftieth of the optimum, which is what sampling noise of the descent leaves."""
    ours = [(m.extra["mean"], m.extra["deviation"]) for m in measurements if m.method == name]
    (mean, deviation), (best_mean, best_deviation) = PAPER[name], OPTIMA[name]
    return Claim(
        f"{name} at λ = 0 recovers N({mean:.3f}, {deviation:.3f}²), close to N(0, 1)",
        tuple(abs(m - best_mean) < 0.02 and abs(s - best_deviation) < 0.02 for m, s in ours),
        "; ".join(f"N({m:.3f}, {s:.3f}²)" for m, s in ours)
        + f"; optimum by quadrature N({best_mean}, {best_deviation}²)",
    )


def _picture(found: dict[tuple[str, int], Kept]) -> Figure:
    figure, axes = figures.canvas(1, 1, (5.2, 2.9))
    theta = np.linspace(-4, 6, 400)
    axes[0, 0].plot(
        theta, 0.5 * norm.pdf(theta) + 0.5 * norm.pdf(theta, 2), color=figures.INK, ls=":", label="p(θ|D)"
    )
    axes[0, 0].plot(theta, norm.pdf(theta), color=figures.INK, lw=1.8, label="p(θ|D_r), exact")
    for name in (FULL, UPPER_BOUND, REVERSE_KL, BEST):
        q = found[name, 0].posterior
        density = norm.pdf(theta, float(q.mean[0]), float(q.scale[0]))
        axes[0, 0].plot(theta, density, color=figures.COLOURS[name], lw=1.3, label=name)
    axes[0, 0].set_xlabel("θ")
    axes[0, 0].legend(fontsize=7, frameon=False, labelcolor=figures.INK)
    return figures.finish(
        figure, "bimodal", "A Gaussian stands for a mixture of two; unlearning recovers one of them."
    )


BIMODAL = Experiment(
    "bimodal",
    "A posterior with two modes",
    "appendix “Bimodal posterior belief”",
    "The true posterior has two modes, and the erased records are what made the second. Training had only a "
    "Gaussian to offer, one that covers both. Unlearning must find the mode that remains.",
    "none",
    (0.2, 2.0),
    run,
)
