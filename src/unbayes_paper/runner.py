"""Choose experiments, run them one after the other, and write the report."""

import time
from collections.abc import Sequence
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from unbayes_paper import report
from unbayes_paper.base import SETTINGS, Experiment, Findings
from unbayes_paper.catalogue import EXPERIMENTS
from unbayes_paper.data import DataMissing
from unbayes_paper.lab import Lab


def catalogue() -> Table:
    """All experiments: what they need, and how long they take."""
    table = Table(title="experiments (minutes on two cores, roughly; those of full runs are estimates)")
    for column in ("name", "what", "paper", "data", "quick", "full"):
        table.add_column(column, justify="right" if column in ("quick", "full") else "left")
    for experiment in EXPERIMENTS.values():
        minutes = [f"{value:g}" for value in experiment.minutes]
        table.add_row(experiment.name, experiment.title, experiment.paper, experiment.data, *minutes)
    return table


def choose(names: Sequence[str]) -> list[Experiment]:
    """Experiments of the given names, in the order of the catalogue; “all” is every one of them."""
    unknown = [name for name in names if name != "all" and name not in EXPERIMENTS]
    if unknown:
        known = ", ".join(EXPERIMENTS)
        raise ValueError(f"no experiment is called {', '.join(unknown)}; there are {known}, and all")
    return [experiment for experiment in EXPERIMENTS.values() if "all" in names or experiment.name in names]


def run(chosen: Sequence[Experiment], lab: Lab, output: Path, console: Console) -> Path:
    """Run experiments, and return the path of the report, which is written anew after each.

    An experiment whose data are missing is left out of the report; where it is the only one, `DataMissing` is
    raised.
    """
    sections: list[report.Section] = []
    path = output / "report.html"
    for place, experiment in enumerate(chosen, 1):
        console.print(f"[bold]{experiment.name}[/bold] ({place} of {len(chosen)}): {experiment.title}")
        started = time.perf_counter()
        try:
            findings = _with_optimizer(experiment.run(lab), lab)
        except DataMissing as error:
            if len(chosen) == 1:
                raise
            console.print(f"  left out: {error}")
            sections.append(report.Section(experiment, None, missing=str(error)))
        else:
            sections.append(report.Section(experiment, findings, time.perf_counter() - started))
            for claim in findings.claims:
                console.print(f"  {claim.outcome:<14} {claim.text}", highlight=False)
        path = report.write(sections, output, quick=lab.quick)
        # The next experiment uses none of these compiled programs.
        jax.clear_caches()
    return path


def _with_optimizer(findings: Findings, lab: Lab) -> Findings:
    """The findings, with a sentence on the optimiser where the run chose another than the experiment."""
    if lab.optimizer is None:
        return findings
    sentence = f"In this run EUBO and reverse KL follow {SETTINGS[lab.optimizer]}, whatever is said above."
    return findings._replace(choices=[*findings.choices, sentence])
