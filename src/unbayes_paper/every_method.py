"""Train on the moon data, unlearn 20 points with every method, and compare with retraining.

Run as `python -m unbayes_paper.every_method`: it prints one table and writes one picture.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import jax
from rich import box
from rich.console import Console
from rich.table import Table

import unbayes as ub
from unbayes.posteriors import AbstractPosterior
from unbayes_paper import figures
from unbayes_paper.base import Problem
from unbayes_paper.moon import moon

# Our method, and those of the paper at the λ that its text discusses.
METHODS = {
    "natural gradient": ub.NaturalGradient(),
    "… with a memory": ub.NaturalGradient(),
    "EUBO, λ=1e-9": ub.EUBO(lam=1e-9),
    "EUBO, λ=0": ub.EUBO(lam=0.0),
    "reverse KL, λ=0": ub.ReverseKL(lam=0.0),
    "bank, λ=0": ub.BankReverseKL(lam=0.0, draws=100_000),
}


# How many of the 100 training records the memory keeps.
MEMORY = 50


class Comparison(NamedTuple):
    """The posteriors that are compared."""

    problem: Problem
    full: AbstractPosterior
    retrained: AbstractPosterior
    unlearned: dict[str, ub.Unlearned]


def compare(*, seed: int, progress: ub.ProgressBar | None) -> Comparison:
    """Train on all of the moon data, erase the last 20 points by every method, and retrain from scratch."""
    problem = moon("moon")
    train_key, retrain_key, unlearn_key = jax.random.split(jax.random.key(seed), 3)
    trained = ub.fit(problem.model, problem.full, memory=MEMORY, key=train_key)
    full = trained.posterior
    retrained = ub.fit(problem.model, problem.remaining, key=retrain_key).posterior
    unlearned = {
        name: ub.unlearn(
            full,
            problem.model,
            problem.erased,
            memory=trained.memory if "memory" in name else None,
            method=method,
            key=unlearn_key,
            progress=progress,
        )
        for name, method in METHODS.items()
    }
    return Comparison(problem, full, retrained, unlearned)


def table(comparison: Comparison) -> Table:
    """KL to the retrained posterior's predictions, before and after unlearning."""
    grid = Table(
        title="predictive KL to the retrained posterior, mean ± deviation over inputs",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    grid.add_column("method", no_wrap=True)
    for column in ("on D_e", "on D_r", "s", "k-hat", "trust"):
        grid.add_column(column, justify="right", no_wrap=True)
    grid.add_row("no unlearning", *_divergences(comparison, comparison.full), "", "", "")
    for name, result in comparison.unlearned.items():
        grid.add_row(
            name,
            *_divergences(comparison, result.posterior),
            f"{result.seconds:.1f}",
            "" if result.khat is None else f"{result.khat:.2f}",
            str(result.verdict),
        )
    return grid


def picture(comparison: Comparison, path: Path) -> None:
    """Decision surfaces: full, retrained, and unlearned by each method."""
    surfaces = {
        "trained on all data": comparison.full,
        "retrained without the crosses": comparison.retrained,
        **{name: result.posterior for name, result in comparison.unlearned.items()},
    }
    columns = 4
    figure, axes = figures.canvas(-(-len(surfaces) // columns), columns, (3.25, 3), sharex=True, sharey=True)
    images = []
    for axis, (title, posterior) in zip(axes.flat, surfaces.items(), strict=False):
        images.append(figures.class_surface(axis, comparison.problem, posterior))
        axis.set_title(title)
    figures.hide_unused(axes.flat)
    figures.colour_bar(figure, images[0], axes, "probability of the yellow class")
    figure.savefig(path, dpi=130, facecolor="white")
    figures.close(figure)


def _divergences(comparison: Comparison, posterior: AbstractPosterior) -> list[str]:
    """KL[posterior‖retrained] over the inputs of D_e and of D_r."""
    model, erased, remaining = comparison.problem
    cells = []
    for inputs, _ in (erased, remaining):
        spread = ub.metrics.predictive_kl(posterior, comparison.retrained, model, inputs).forward
        cells.append(f"{spread.mean:.1e} ± {spread.std:.0e}")
    return cells


def main() -> None:
    """Print the table, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path("moon.png"), help="where the picture goes")
    parser.add_argument("--seed", type=int, default=0, help="seed of whatever is random")
    arguments = parser.parse_args()
    # Inducing inputs that nearly coincide leave a kernel matrix that single precision cannot factorise.
    jax.config.update("jax_enable_x64", True)
    console = Console()
    comparison = compare(seed=arguments.seed, progress=ub.ProgressBar())
    console.print(table(comparison))
    picture(comparison, arguments.picture)
    console.print(f"decision surfaces: {arguments.picture}")


if __name__ == "__main__":
    main()
