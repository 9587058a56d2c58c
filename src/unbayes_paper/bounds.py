"""EUBO and ELBO while unlearning, and while retraining: figure 1."""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import optax

import unbayes as ub
from unbayes_paper import figures
from unbayes_paper.base import FULL, Claim, Experiment, Figure, Findings, Measurement, Problem, split
from unbayes_paper.claims import number, spread
from unbayes_paper.lab import Lab

RECORDS, ERASED = 100, 20
CHOICES = (
    "The paper does not say on which model figure 1 was drawn. Here it is linear regression with known noise "
    f"on {RECORDS} records, of which {ERASED} are erased: its posterior is known exactly, as proposition 2 "
    "asks. Both bounds are computed in closed form and followed by Adam at 1e-2.",
)


def run(lab: Lab) -> Findings:
    """Follow both bounds down and up."""
    steps = lab.choose(1000, 5000)
    measurements, paths = [], []
    for seed in lab.repetitions(quick=3, full=5):
        problem, full, exact, log_evidence = _problem(seed)
        for name, start, follows in (
            ("unlearning by EUBO", full, "eubo"),
            ("retraining by ELBO", ub.FullGaussian.standard(full.dim, full.dtype), "elbo"),
        ):
            remaining, erased = map(problem.model.encode, (problem.remaining, problem.erased))
            end, lower, upper = _follow(problem.model, remaining, erased, full, start, follows, steps)
            paths.append((name, seed, lower, upper, log_evidence))
            measurements.append(
                Measurement(
                    "bounds", name, None, seed, parameter_kl=ub.metrics.parameter_kl(end, exact).value
                )
            )
        baseline = ub.metrics.parameter_kl(full, exact).value
        measurements.append(Measurement("bounds", FULL, None, seed, parameter_kl=baseline))
    claims = [
        _mirror(paths),
        _rises("minimising EUBO on D_e maximises the ELBO on D_r", paths, "unlearning by EUBO"),
        _rises("maximising the ELBO on D_r minimises EUBO on D_e", paths, "retraining by ELBO"),
    ]
    return Findings(measurements, claims, [_picture(paths)], CHOICES)


def _problem(seed: int) -> tuple[Problem, Any, Any, float]:
    """Problem, p(θ|D), p(θ|D_r) and log p(D)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(RECORDS, 3))
    y = x @ rng.normal(size=3) + 0.3 + 0.5 * rng.normal(size=RECORDS)
    model = ub.linear_regression(3, noise_scale=0.5, prior_scale=2.0)
    problem = split(model, (x, y), np.arange(RECORDS - ERASED, RECORDS))
    full, exact = (ub.fit(model, part, key=jr.key(seed)) for part in (problem.full, problem.remaining))
    return problem, full.posterior, exact.posterior, full.elbo


@eqx.filter_jit
def _follow(
    model: ub.LinearModel,
    remaining,
    erased,
    full: ub.FullGaussian,
    start: Any,
    follows: str,
    steps: int,
):
    """Follow the gradient of one bound; returns the last belief, and both bounds at every step."""
    optimizer: Any = optax.adam(1e-2)

    def bounds(belief):
        return ub.objectives.elbo(belief, model, remaining), ub.objectives.eubo(belief, full, model, erased)

    def step(state, _):
        belief, memory = state
        lower, upper = bounds(belief)
        gradient = jax.grad(lambda q: bounds(q)[1] if follows == "eubo" else -bounds(q)[0])(belief)
        updates, memory = optimizer.update(gradient, memory, belief)
        return (eqx.apply_updates(belief, updates), memory), (lower, upper)

    (end, _), (lower, upper) = jax.lax.scan(step, (start, optimizer.init(start)), length=steps)
    return end, lower, upper


def _mirror(paths: list) -> Claim:
    gaps = [float(np.abs(lower + upper - evidence).max()) for _, _, lower, upper, evidence in paths]
    return Claim(
        "the bounds mirror each other: EUBO + ELBO = log p(D) all the way (propositions 1 and 2)",
        tuple(gap < 1e-6 for gap in gaps),
        f"largest deviation {number(max(gaps))} nats",
    )


def _rises(text: str, paths: list, name: str) -> Claim:
    """Claim that on the named path the ELBO ends above its start and EUBO below."""
    mine = [(lower, upper) for other, _, lower, upper, _ in paths if other == name]
    holds = tuple(bool(lower[-1] > lower[0] and upper[-1] < upper[0]) for lower, upper in mine)
    gained, fallen = ([float(p[i][-1] - p[i][0]) for p in mine] for i in (0, 1))
    return Claim(text, holds, f"ELBO changes by {spread(gained)}, EUBO by {spread(fallen)} nats")


def _picture(paths: list) -> Figure:
    figure, axes = figures.canvas(1, 2, (4.0, 2.7))
    for axis, title, name in (
        (axes[0, 0], "unlearning: minimise EUBO on D_e", "unlearning by EUBO"),
        (axes[0, 1], "retraining: maximise ELBO on D_r", "retraining by ELBO"),
    ):
        lower, upper = next((lo, up) for other, seed, lo, up, _ in paths if (other, seed) == (name, 0))
        axis.plot(upper, color=figures.COLOURS["EUBO"], label="EUBO on D_e")
        axis.set_ylabel("EUBO", color=figures.COLOURS["EUBO"])
        twin = figures.twin(axis)
        twin.plot(lower, color=figures.COLOURS["reverse KL"], ls="--", label="ELBO on D_r")
        twin.set_ylabel("ELBO", color=figures.COLOURS["reverse KL"])
        axis.set_xscale("symlog")
        axis.set_xlabel("iteration")
        axis.set_title(title)
    return figures.finish(figure, "bounds", "Both bounds, whichever of them is followed.")


BOUNDS = Experiment(
    "bounds",
    "Two bounds that mirror each other",
    "section 3.2, figure 1, propositions 1 and 2",
    "Training pushes a lower bound on the evidence (ELBO) up; unlearning pushes an upper bound (EUBO) down. "
    "When the trained posterior is exact, the two are the same thing seen from two sides: going down one is "
    "going up the other, and both end at the posterior of the remaining data.",
    "none",
    (0.2, 0.5),
    run,
)
