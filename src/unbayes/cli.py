"""The command line: `unbayes reproduce`."""

import shutil
import time
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.console import Console
from rich.table import Table

from unbayes.experiments import report
from unbayes.experiments.base import Experiment
from unbayes.experiments.catalogue import EXPERIMENTS
from unbayes.experiments.data import DataMissing
from unbayes.experiments.lab import Lab
from unbayes.progress import ProgressBar

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
console = Console()


@app.callback()
def describe() -> None:
    """Take data back out of a trained Bayesian model."""


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, or “all”.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Say what there is, and stop.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer iterations and seeds: minutes, not hours.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Repetitions; each experiment has its own default.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("results"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what earlier runs computed.")] = False,
) -> None:
    """Run experiments of the paper, and write one report.

    What was computed is kept in the folder: after Ctrl-C or a crash, the same command goes on where it was.
    """
    if show or not names:
        console.print(catalogue())
        return
    chosen = _chosen(names)
    # Inducing inputs that nearly coincide leave a kernel matrix that single precision cannot factorise.
    jax.config.update("jax_enable_x64", True)
    kept = output / "kept"
    if fresh:
        shutil.rmtree(kept, ignore_errors=True)
    jax.config.update("jax_compilation_cache_dir", str((kept / "compiled").absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    lab = Lab(kept, quick, seeds, ProgressBar(), lambda text: console.print(f"  {text}", highlight=False))
    try:
        path = _run(chosen, lab, output)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        raise typer.Exit(130) from None
    console.print(f"report: {path}")


def catalogue() -> Table:
    """What there is, what it needs, and how long it takes."""
    table = Table(title="experiments (minutes on two cores, roughly; those of full runs are estimates)")
    for column in ("name", "what", "paper", "data", "quick", "full"):
        table.add_column(column, justify="right" if column in ("quick", "full") else "left")
    for experiment in EXPERIMENTS.values():
        minutes = [f"{value:g}" for value in experiment.minutes]
        table.add_row(experiment.name, experiment.title, experiment.paper, experiment.data, *minutes)
    return table


def _chosen(names: list[str]) -> list[Experiment]:
    unknown = [name for name in names if name != "all" and name not in EXPERIMENTS]
    if unknown:
        known = ", ".join(EXPERIMENTS)
        raise typer.BadParameter(f"no experiment is called {', '.join(unknown)}; there are {known}, and all")
    return [experiment for experiment in EXPERIMENTS.values() if "all" in names or experiment.name in names]


def _run(chosen: list[Experiment], lab: Lab, output: Path) -> Path:
    """One experiment after the other; the report is written anew after each."""
    sections: list[report.Section] = []
    path = output / "report.html"
    for place, experiment in enumerate(chosen, 1):
        console.print(f"[bold]{experiment.name}[/bold] ({place} of {len(chosen)}): {experiment.title}")
        started = time.perf_counter()
        try:
            findings = experiment.run(lab)
        except DataMissing as error:
            if len(chosen) == 1:
                console.print(f"[red]{error}[/red]")
                raise typer.Exit(1) from error
            console.print(f"  left out: {error}")
            sections.append(report.Section(experiment, None, missing=str(error)))
        else:
            sections.append(report.Section(experiment, findings, time.perf_counter() - started))
            for claim in findings.claims:
                console.print(f"  {claim.outcome:<14} {claim.text}", highlight=False)
        path = report.write(sections, output, quick=lab.quick)
        # Compiled programs of one experiment are of no use to the next.
        jax.clear_caches()
    return path


def main() -> None:
    """Entry point."""
    app()
