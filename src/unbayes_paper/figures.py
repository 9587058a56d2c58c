"""Pictures that experiments share, as SVG whose lines have the colour of the page's text."""

import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np

from unbayes.models import ClassPredictive
from unbayes.posteriors import AbstractPosterior
from unbayes_paper.base import (
    BEST,
    FULL,
    ONE_STEP,
    REVERSE_KL,
    UPPER_BOUND,
    Figure,
    Measurement,
    Problem,
)

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COLOURS = {
    FULL: "#8a8a8a",
    UPPER_BOUND: "#d1603d",
    REVERSE_KL: "#3f7fbf",
    ONE_STEP: "#3c9d62",
    BEST: "#8f5fbf",
}
# Replaced by `currentColor` in the SVG, so that the page sets the colour.
INK = "#012345"
STYLE: Any = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "unbayes",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def canvas(rows: int = 1, columns: int = 1, size: tuple[float, float] = (3.2, 2.6), **options) -> Any:
    """Figure and a grid of axes, each of the given size in inches."""
    with plt.rc_context(STYLE):
        return plt.subplots(
            rows,
            columns,
            figsize=(columns * size[0], rows * size[1]),
            squeeze=False,
            layout="constrained",
            **options,
        )


def finish(figure: Any, name: str, caption: str) -> Figure:
    """Close a figure and keep it as SVG."""
    stream = io.StringIO()
    with plt.rc_context(STYLE):
        figure.savefig(stream, format="svg", dpi=110, metadata={"Date": None})
    close(figure)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    # Several pictures share a page, and so must not share identifiers.
    prefix = re.sub(r"\W+", "-", name)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    svg = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{prefix}-\2"', svg)
    return Figure(name, caption, svg)


def close(figure: Any) -> None:
    """Let go of a figure that has been saved."""
    plt.close(figure)


def against_lambda(axis: Any, measurements: Sequence[Measurement], part: str, title: str) -> None:
    """Predictive KL over D_e or D_r against λ, as in the paper's figures; bands span the seeds."""
    lams = sorted({m.lam for m in measurements if m.lam is not None}, reverse=True)
    places = np.arange(len(lams))
    for method in (UPPER_BOUND, REVERSE_KL):
        values = np.array(
            [
                [getattr(m, part).forward.mean for m in measurements if (m.method, m.lam) == (method, lam)]
                for lam in lams
            ]
        )
        axis.plot(places, values.mean(1), "o-", ms=3.5, lw=1.4, color=COLOURS[method], label=method)
        axis.fill_between(places, values.min(1), values.max(1), color=COLOURS[method], alpha=0.2, lw=0)
    for method in (FULL, ONE_STEP, BEST):
        values = [getattr(m, part).forward.mean for m in measurements if m.method == method]
        if values:
            style = "--" if method == FULL else "-"
            axis.axhline(np.mean(values), color=COLOURS[method], ls=style, lw=1.4, label=method)
            axis.axhspan(min(values), max(values), color=COLOURS[method], alpha=0.15, lw=0)
    axis.set_yscale("log")
    axis.set_xticks(places, [lam_text(lam) for lam in lams])
    axis.set_xlabel("λ")
    axis.set_title(title)


def families_against_lambda(
    measurements: Sequence[Measurement], families: Sequence[str], name: str
) -> Figure:
    """Predictive KL over D_r and D_e against λ, side by side for each family of posteriors."""
    figure, axes = canvas(1, 2 * len(families), (2.9, 2.6), sharey=True)
    panels = [(family, part) for family in families for part in ("remaining", "erased")]
    for axis, (family, part) in zip(axes.flat, panels, strict=True):
        chosen = [m for m in measurements if m.scenario == family]
        against_lambda(axis, chosen, part, f"{family}, {'D_e' if part == 'erased' else 'D_r'}")
    axes[0, 0].set_ylabel("KL[unlearned‖retrained]")
    legend(figure, axes[0, 0])
    return finish(figure, name, "Predictive KL to the retrained posterior against λ.")


def legend(figure: Any, axis: Any, columns: int | None = None) -> None:
    """One legend for all axes, outside of them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns or len(labels),
        frameon=False,
        labelcolor=INK,
        fontsize=8,
    )


def colour_bar(figure: Any, image: Any, axes: Any, label: str) -> None:
    """The scale of an image."""
    with plt.rc_context(STYLE):
        figure.colorbar(image, ax=axes, label=label, shrink=0.7)


def twin(axis: Any) -> Any:
    """A second scale on the right."""
    with plt.rc_context(STYLE):
        return axis.twinx()


def surface(
    axis: Any,
    problem: Problem,
    values: np.ndarray,
    grid: tuple[np.ndarray, np.ndarray],
    **colours: Any,
) -> Any:
    """A function of two inputs, with the records on top: crosses are erased."""
    image = axis.pcolormesh(*grid, values.reshape(grid[0].shape), rasterized=True, **colours)
    for records, marker in ((problem.remaining, "o"), (problem.erased, "X")):
        axis.scatter(
            *records[0].T,
            c=records[1],
            cmap="cividis",
            vmin=0,
            vmax=1,
            s=13,
            marker=marker,
            ec="white",
            lw=0.4,
        )
    axis.set_xticks([])
    axis.set_yticks([])
    return image


def grid_around(inputs: np.ndarray, across: int = 110, up: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """Mesh over the inputs and a little beyond."""
    low, high = inputs.min(0) - 0.4, inputs.max(0) + 0.4
    xs, ys = np.meshgrid(np.linspace(low[0], high[0], across), np.linspace(low[1], high[1], up))
    return xs, ys


def class_surface(axis: Any, problem: Problem, posterior: AbstractPosterior) -> Any:
    """Probability of class 1 over the plane, with its boundary."""
    grid = grid_around(problem.full[0])
    predictive = problem.model.predictive(posterior, np.stack([part.ravel() for part in grid], 1))
    assert isinstance(predictive, ClassPredictive)
    values = np.asarray(predictive.probabilities[:, 1])
    image = surface(axis, problem, values, grid, cmap="cividis", vmin=0, vmax=1)
    axis.contour(*grid, values.reshape(grid[0].shape), levels=[0.5], colors="white", linewidths=1.2)
    return image


def lam_text(lam: float) -> str:
    """λ as people write it."""
    return f"{lam:g}".replace("e-0", "e-")


def hide_unused(axes: Iterable[Any]) -> None:
    """Axes that nothing was drawn on."""
    for axis in axes:
        if not axis.has_data():
            axis.set_axis_off()
