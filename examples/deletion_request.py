"""Three patients ask to be forgotten: from the trained model to a report that somebody else can check.

`make demo` runs it. Everything it makes lies in one folder, demo/ unless another is given, which is made anew
each time. It needs `unbayes[ledger]` and matplotlib.
"""

import argparse
import csv
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import jax
import matplotlib
import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import unbayes as ub
from unbayes.ledger import PublicKey, verify_report
from unbayes.ledger.contents import Contents

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D

PATIENTS, VISITS = 20, 10
ASKING, WITHDRAWING = (18, 19, 20), 15
COLUMNS, TARGET, IDS = ["marker_a", "marker_b"], "ill", "visit"
LEDGER = "unbayes-ledger"
BLUE, ORANGE, INK = "#2166ac", "#c8630c", "#22262b"
SHADES = LinearSegmentedColormap.from_list("", ["#8db8dd", "#f6f6f4", "#f3b27a"])


class Clinic(NamedTuple):
    """Visits of patients: two markers (n, 2), whether they were ill (n,), and whose visit it was (n,)."""

    x: np.ndarray
    y: np.ndarray
    patient: np.ndarray

    @property
    def visits(self) -> list[str]:
        """An identifier for each record."""
        return [f"visit-{number:03d}" for number in range(1, len(self.y) + 1)]

    def of(self, *patients: int) -> np.ndarray:
        """Whether each record is of one of these patients."""
        return np.isin(self.patient, patients)

    def write(self, path: Path, patient: int) -> None:
        """A table of one patient's records, as an export of the clinic's database would be."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([IDS, *COLUMNS, TARGET])
            for row in np.flatnonzero(self.of(patient)):
                writer.writerow([self.visits[row], *self.x[row].tolist(), self.y[row]])


def two_moons() -> Clinic:
    """Half of the patients are ill; each has visits along a piece of one of two half-moons."""
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(1, PATIENTS + 1), VISITS)
    half = len(patient) // 2
    y = (np.arange(len(patient)) >= half).astype(int)
    angle = np.pi * np.concatenate([np.sort(rng.random(half)), np.sort(rng.random(half))])
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    x = np.where(y[:, None] == 0, upper, lower) + 0.2 * rng.normal(size=(len(y), 2))
    return Clinic(x, y, patient)


def gaussian_process() -> ub.LinearModel:
    """A sparse Gaussian process classifier whose inducing inputs, a grid, are nobody's records."""
    across, up = np.meshgrid(np.linspace(-1.2, 2.2, 5), np.linspace(-0.8, 1.3, 4))
    kernel = ub.SquaredExponential(4.0, np.array([0.7, 0.7]))
    return ub.sparse_gp(np.stack([across.ravel(), up.ravel()], 1), kernel, ub.BernoulliLikelihood())


class Story:
    """Prints what is typed and what comes of it; commands run in the folder of the demo."""

    def __init__(self, folder: Path, console: Console):
        self.folder, self.console = folder, console

    def tell(self, sentence: str) -> None:
        """Print what happens next."""
        self.console.print(f"\n[bold]{sentence}[/bold]", highlight=False)

    def type(self, command: str) -> None:
        """Run `unbayes …` in a process of its own, and show what it prints."""
        self.console.print(Text(f"$ unbayes {command}", style="cyan"), soft_wrap=True)
        done = subprocess.run(
            [sys.executable, "-m", "unbayes.cli", *shlex.split(command)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"unbayes {command} exited with {done.returncode}: {done.stderr}")
        for line in filter(str.strip, done.stdout.splitlines()):
            self.console.print(Text(self._wrapped(line.rstrip())))

    def _wrapped(self, line: str) -> str:
        """A line that is too long goes on below where its text begins, right of its label."""
        label = re.match(r"(  \S.*?  +)?", line)
        hang = " " * (2 + (label.end() if label else 0))
        return textwrap.fill(line, self.console.width, initial_indent="  ", subsequent_indent=hang)


def train(clinic: Clinic, model: ub.LinearModel, path: Path) -> ub.Trained:
    """Train on everybody, with identifiers and a memory of sums, and save it."""
    memory, ids = "sums", clinic.visits
    trained = ub.fit(model, (clinic.x, clinic.y), memory=memory, ids=ids, key=jax.random.key(0))
    notes = {"columns": COLUMNS, "target": TARGET}
    ub.save(path, trained.posterior, model, memory=trained.memory, notes=notes)
    return trained


def answer(story: Story, clinic: Clinic) -> Contents:
    """The requests, from the first letter to the report on it."""
    folder = story.folder
    story.tell("It becomes version 1 in the ledger, which keeps a sealed copy; the file is deleted.")
    story.type("register clinic model.unbayes --ids visit")
    (folder / "model.unbayes").unlink()

    story.tell(
        "Four patients ask, and one of them asks again. Tables hold their records, and are deleted, too."
    )
    for patient in (*ASKING, WITHDRAWING, ASKING[0]):
        rows = f"patient-{patient}.csv"
        clinic.write(folder / rows, patient)
        story.type(f"request clinic --subject patient-{patient} --rows {rows}")
        (folder / rows).unlink()
    story.tell(f"Patient {WITHDRAWING} has second thoughts; the others are approved.")
    story.type("withdraw 4")
    story.type("approve 1 2 3 5")
    story.type("requests")

    story.tell("One solve for all of them, which needs nobody else's records. Nobody is taken out twice.")
    story.type("apply clinic")
    story.type("requests")
    story.tell("Production gets version 2, whoever asked a signed report.")
    story.type("serve-model clinic --out current.unbayes")
    story.type("report 1 --out report.json")
    story.type("report 1 --out report.html --html")

    story.tell("An auditor has the report and the public key, and not the ledger.")
    audit = folder / "auditor"
    audit.mkdir()
    for file in (folder / "report.json", folder / LEDGER / "keys" / "public.pem"):
        shutil.copy(file, audit)
    story.type("verify auditor/report.json --key auditor/public.pem")
    story.tell("And the log: no event was changed, removed or moved.")
    story.type("log verify")
    key = PublicKey.from_pem((audit / "public.pem").read_bytes())
    return verify_report((audit / "report.json").read_bytes(), key).contents


def compare(story: Story, clinic: Clinic, trained: ub.Trained, report: Contents) -> None:
    """Retrain without them, which nobody has to do, and hold the result and its prediction against that."""
    story.tell("Was the prediction right? Only a demo retrains without them to see.")
    left = ~clinic.of(*ASKING)
    saved = ub.load(story.folder / "current.unbayes")
    assert isinstance(saved.model, ub.LinearModel)
    retrained = ub.fit(saved.model, (clinic.x[left], clinic.y[left]), key=jax.random.key(1)).posterior
    before = ub.metrics.parameter_kl(retrained, trained.posterior).value
    after = ub.metrics.parameter_kl(retrained, saved.posterior).value
    predicted = report.predicted_error
    assert predicted is not None
    likely = f"{predicted.value:.2g} ({predicted.low:.2g} to {predicted.high:.2g})"
    table = Table("KL to retraining, in nats", "predicted", "true", box=None, pad_edge=False)
    table.add_row("version 1, with everybody", f"{predicted.doing_nothing:.2g}", f"{before:.2g}")
    table.add_row(f"version 2, without {(~left).sum()} records", likely, f"{after:.2g}")
    story.console.print(Padding(table, (0, 0, 0, 2)))
    panels = {
        f"Version 1, trained on everybody\n{before:.2g} nats from retraining": trained.posterior,
        f"Version 2, after the requests\n{after:.2g} nats, predicted: {likely}": saved.posterior,
        "Retrained without the crosses\n(nobody has to do this)": retrained,
    }
    draw(clinic, saved.model, panels, story.folder / "demo.png")


def draw(clinic: Clinic, model: ub.LinearModel, panels: dict[str, ub.FullGaussian], path: Path) -> None:
    """Decision surfaces side by side; the last one's boundary is dashed in the others."""
    low, high = clinic.x.min(0) - 0.3, clinic.x.max(0) + 0.3
    grid = np.meshgrid(np.linspace(low[0], high[0], 160), np.linspace(low[1], high[1], 120))
    inputs = np.stack([part.ravel() for part in grid], axis=1)
    surfaces = {
        title: np.asarray(model.predictive(posterior, inputs).probabilities[:, 1]).reshape(grid[0].shape)
        for title, posterior in panels.items()
    }
    last = list(surfaces.values())[-1]
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 4.6), layout="constrained", sharey=True)
    for axis, (title, surface) in zip(axes, surfaces.items(), strict=True):
        image = axis.contourf(*grid, surface, levels=np.linspace(0, 1, 21), cmap=SHADES)
        axis.contour(*grid, surface, levels=[0.5], colors=INK, linewidths=1.6)
        if surface is not last:
            axis.contour(*grid, last, levels=[0.5], colors=INK, linewidths=1.2, linestyles="dashed")
        _scatter(axis, clinic)
        axis.set_title(title, fontsize=10, color=INK)
        axis.set(xticks=[], yticks=[], xlabel="marker a")
    axes[0].set_ylabel("marker b")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=[0, 0.5, 1])
    bar.set_label("probability of being ill")
    figure.legend(handles=_signs(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130, facecolor="white")
    plt.close(figure)


def _scatter(axis, clinic: Clinic) -> None:
    colours = np.where(clinic.y == 1, ORANGE, BLUE)
    erased, stays = clinic.of(*ASKING), clinic.of(WITHDRAWING)
    axis.scatter(*clinic.x[~erased].T, c=colours[~erased], s=16, ec="white", lw=0.5)
    axis.scatter(*clinic.x[stays].T, s=70, fc="none", ec=INK, lw=1)
    axis.scatter(*clinic.x[erased].T, c=colours[erased], s=38, marker="X", ec="white", lw=0.6)


def _signs() -> list[Line2D]:
    dot = {"ls": "", "marker": "o", "mec": "white"}
    return [
        Line2D([], [], color=BLUE, label="a visit, healthy", **dot),
        Line2D([], [], color=ORANGE, label="a visit, ill", **dot),
        Line2D([], [], color=ORANGE, ls="", marker="X", mec="white", ms=8, label="erased"),
        Line2D([], [], ls="", marker="o", mfc="none", mec=INK, ms=9, label="withdrew the request: stays"),
        Line2D([], [], color=INK, ls="dashed", label="where retraining puts the boundary"),
    ]


def main() -> None:
    """Tell the story."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("demo"), help="is made anew")
    folder = parser.parse_args().folder
    if folder.exists():
        if not (folder / LEDGER).is_dir():
            parser.error(f"{folder} must be a folder of an earlier demo, or not there")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    jax.config.update("jax_enable_x64", True)

    story, clinic, model = Story(folder, Console()), two_moons(), gaussian_process()
    story.tell(f"A clinic, {PATIENTS} patients with {VISITS} visits each. It opens a ledger.")
    story.type("init")
    story.tell("It trains a model with the identifiers of the visits, and a memory that holds no record.")
    story.console.print(Text('ub.fit(model, (x, y), memory="sums", ids=visits, key=key)', style="cyan"))
    trained = train(clinic, model, folder / "model.unbayes")
    report = answer(story, clinic)
    compare(story, clinic, trained, report)
    story.tell("Look at")
    for name, what in {
        "demo.png": "the model before, after, and retrained",
        "report.html": "the report",
    }.items():
        story.console.print(f"  {folder / name}  {what}", highlight=False)


if __name__ == "__main__":
    main()
