"""What `make trust` has measured, in a table, a picture and a few figures that decide whether it is good."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr

import unbayes as ub
from unbayes.trust import Measures, judge
from unbayes_paper import figures

# What unlearning may use: nothing of the records, some of them, or sums over all of them.
MEMORIES = ("none", "coreset", "sums")
REFUSED = "refused"
# Nats of predictive KL that nobody would notice.
NEGLIGIBLE = 1e-6
# Nats of KL over θ per parameter that nobody would notice, and by how much a trusted result may exceed them.
TOLERANCE, FAR = 0.01, 10
# Nats of KL over θ below which errors are not told apart: how well training with several outputs converges.
FLOOR = 1e-6
# The same for gains, which go below: how well training with one output converges.
GAIN_FLOOR = 1e-11
# What counts as a good prediction, and as one that is still of use.
CLOSE, USEFUL = 3, 10
# Sums are expansions about the trained belief: they are made for erasures of up to this share of the records,
# and for so many parameters. How much further than one step a result with sums may be before it counts.
LARGEST_SHARE, LARGEST_DIM, FURTHER = 1 / 3, 40, 1.1
# Colours that people who confuse red and green can tell apart (blue and orange of Okabe and Ito, wine of
# Tol), with markers.
LOOKS = {"trusted": ("#0072B2", "o"), "doubtful": ("#E69F00", "^"), "retrain": ("#882255", "s")}
# Grey that can be read on white and on black pages.
GREY = "#7a828c"


class Row(NamedTuple):
    """One result, beside what doing nothing gives.

    Attributes
    ----------
    scenario, family, records, erased, parameters
        What was unlearned.
    memory
        One of `MEMORIES`.
    settled
        Whether retraining converged; where it did not, what results are compared with is itself uncertain.
    nothing, error
        KL[retrained‖trained] and KL[retrained‖unlearned] over θ.
    before, after
        The same of predictions, on D_e and on D_r.
    verdict, reasons
        As the result has them, or “refused” and why.
    measures
        Those that are known.
    predicted
        The fields of `result.error`; None where it is.
    held_back
        Whether no limit was set with the scenario in view.
    """

    scenario: str
    family: str
    records: int
    erased: int
    parameters: int
    memory: str
    settled: bool
    nothing: float
    before: tuple[float, float]
    verdict: str
    reasons: tuple[str, ...]
    error: float | None = None
    after: tuple[float, float] | None = None
    measures: dict[str, Any] = {}  # noqa: RUF012
    predicted: dict[str, Any] | None = None
    held_back: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from all other rows."""
        return self.scenario, self.family, self.memory

    @property
    def tolerance(self) -> float:
        """Nats that nobody would notice."""
        return TOLERANCE * self.parameters

    @property
    def is_trusted_but_far(self) -> bool:
        """Whether it is trusted and should not be; an error that is not a number counts."""
        is_near = self.error is not None and self.error <= FAR * self.tolerance
        return self.verdict == ub.Verdict.TRUSTED and not is_near

    @property
    def worse(self) -> bool:
        """Whether doing nothing would have predicted better, on either part of the data."""
        if self.after is None:
            return False
        return any(b > a + NEGLIGIBLE for a, b in zip(self.before, self.after, strict=True))

    @property
    def ratio(self) -> float | None:
        """The predicted error as a multiple of the true one, both at least `FLOOR`; None where not known.

        The true one is not known where retraining did not converge.
        """
        if self.error is None or self.predicted is None or not self.settled:
            return None
        return max(self.predicted["nats"], FLOOR) / max(self.error, FLOOR)

    @property
    def is_above_floor(self) -> bool:
        """Whether the true error or the predicted one is large enough to be compared."""
        predicted = self.predicted["nats"] if self.predicted else 0.0
        return max(self.error or 0.0, predicted) > FLOOR


def load(path: Path) -> list[Row]:
    """Rows that an earlier run has stored, judged anew from what it measured."""
    return [judged(Row(**row)) for row in json.loads(path.read_text())] if path.exists() else []


def judged(row: Row) -> Row:
    """The row with the verdict and the prediction that its measures give by today's rules."""
    if row.error is None:
        return row
    trust = judge(Measures(**row.measures))
    predicted = None if trust.error is None else asdict(trust.error)
    reasons = tuple(map(str, trust.doubts))
    return row._replace(verdict=str(trust.verdict), reasons=reasons, predicted=predicted)


def store(rows: Iterable[Row], path: Path) -> None:
    """One row per line."""
    lines = (json.dumps(row._asdict(), ensure_ascii=False, separators=(",", ":")) for row in rows)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def report(rows: Sequence[Row]) -> str:
    """Markdown: what it comes to, and every row."""
    own, other = ([row for row in rows if row.held_back == held_back] for held_back in (False, True))
    head = [
        "# When results are trusted",
        "",
        f"{_counts(own)} Errors are KL[retrained‖unlearned] over θ in nats, "
        f"retrained to convergence; those below {FLOOR:g} count as {FLOOR:g}. The tolerance is {TOLERANCE:g} "
        "nats per parameter.",
        "",
        *_table(["", *MEMORIES], summary(own)),
        "",
        "![Predicted against true errors](trust.png)",
        "",
        "## Held back",
        "",
        f"{_counts(other)} They are on tables that no limit was set on.",
        "",
        *_table(["", *MEMORIES], summary(other)),
        "",
        "## Every result",
        "",
        "“nothing” is KL[retrained‖trained], which is doing nothing; “predicted” what the result says of its "
        "error. On D_e and D_r: predictive KL[retrained‖unlearned] as a multiple of KL[retrained‖trained], "
        f"“–” where both are below {NEGLIGIBLE:g} nats.",
        "",
    ]
    columns = ["scenario", "family", "memory", "nothing", "error", "predicted", "D_e", "D_r", "verdict", ""]
    return "\n".join([*head, *_table(columns, map(_cells, rows))]) + "\n"


def _counts(rows: Sequence[Row]) -> str:
    return f"{len(rows)} results in {len({(row.scenario, row.family) for row in rows})} scenarios."


def summary(rows: Sequence[Row]) -> list[list[str]]:
    """What was asked, and the answer for each kind of memory."""
    kinds = [[row for row in rows if row.memory == kind] for kind in MEMORIES]
    questions: dict[str, Callable[[list[Row]], str]] = {
        "results": lambda own: str(len(own)),
        "compared with a retraining that did not converge": lambda own: str(
            sum(not row.settled for row in own)
        ),
        **{verdict: _counted(verdict) for verdict in (*map(str, ub.Verdict), REFUSED)},
        f"trusted, and further than {FAR} × the tolerance": lambda own: str(
            sum(row.is_trusted_but_far for row in own)
        ),
        "trusted, and worse than doing nothing": lambda own: str(
            sum(row.worse for row in own if row.verdict == ub.Verdict.TRUSTED)
        ),
        f"*retrain*, of those within 1/{FAR} of the tolerance": _needless,
        "rank correlation of predicted and true error": _correlation,
        "furthest *trusted* one, as a multiple of the tolerance": _furthest,
        f"predictions within a factor {CLOSE}": lambda own: _within(own, CLOSE),
        f"… of those where either is above {FLOOR:g}": lambda own: _within(
            [row for row in own if row.is_above_floor], CLOSE
        ),
        f"predictions within a factor {USEFUL}": lambda own: _within(own, USEFUL),
    }
    table = [[question, *map(answer, kinds)] for question, answer in questions.items()]
    blank = [""] * (len(MEMORIES) - 1)
    return table + [[question, *blank, answer] for question, answer in _of_sums(rows)]


def _of_sums(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """What sums are worth, beside one step without a memory."""
    sums = [row for row in rows if row.memory == "sums" and row.error is not None]
    steps = {(row.scenario, row.family): row.error for row in rows if row.memory == "none"}
    small = [row for row in sums if row.erased <= LARGEST_SHARE * row.records]
    pairs = [
        (steps.get((row.scenario, row.family)), row.error)
        for row in sums
        if row.family == ub.FullGaussian.__name__
        and row.parameters <= LARGEST_DIM
        and row.measures.get("order") == 4
    ]
    known = [(step, own) for step, own in pairs if step is not None and own is not None]
    gains = [step / max(own, GAIN_FLOOR) for step, own in known if step > GAIN_FLOOR]
    further = [own > FURTHER * step + FLOOR for step, own in known]
    return [
        (
            "order 4 accepted, where at most a third was erased",
            _share([row.measures.get("order") == 4 for row in small]),
        ),
        (
            f"median gain of these over one step (full covariance, up to {LARGEST_DIM} parameters)",
            f"{median(gains):.2g}" if gains else "–",
        ),
        (f"over {FURTHER - 1:.0%} further than one step (of the same)", _share(further)),
    ]


def _counted(verdict: str) -> Callable[[list[Row]], str]:
    return lambda own: str(sum(row.verdict == verdict for row in own))


def _furthest(rows: list[Row]) -> str:
    trusted = [row for row in rows if row.verdict == ub.Verdict.TRUSTED and row.error is not None]
    return f"{max(row.error / row.tolerance for row in trusted):.2g}" if trusted else "–"


def _needless(rows: list[Row]) -> str:
    near = [row for row in rows if row.error is not None and row.error < row.tolerance / FAR]
    return _share([row.verdict == ub.Verdict.RETRAIN for row in near])


def _correlation(rows: list[Row]) -> str:
    pairs = [
        (max(row.predicted["nats"], FLOOR), max(row.error, FLOOR))
        for row in rows
        if row.settled and row.predicted is not None and row.error is not None
    ]
    if len(pairs) < 3:
        return "–"
    found: Any = spearmanr(np.array(pairs))
    return f"{found.statistic:.2f}"


def _within(rows: list[Row], factor: float) -> str:
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return _share([1 / factor <= ratio <= factor for ratio in ratios])


def _share(cases: Sequence[bool]) -> str:
    return f"{sum(cases) / len(cases):.0%} of {len(cases)}" if cases else "–"


def _cells(row: Row) -> list[str]:
    ratios = ("–", "–")
    if row.after is not None:
        ratios = (_multiple(a, b) for a, b in zip(row.after, row.before, strict=True))
    predicted = row.predicted["nats"] if row.predicted else None
    return [
        f"{row.scenario} ({row.erased} of {row.records})",
        row.family.removesuffix("Gaussian").lower(),
        row.memory,
        *map(_nats, (row.nothing, row.error, predicted)),
        *ratios,
        row.verdict,
        ", ".join(remark for remark, holds in _remarks(row).items() if holds),
    ]


def _remarks(row: Row) -> dict[str, bool]:
    return {
        "worse than nothing": row.worse,
        "trusted but far": row.is_trusted_but_far,
        "retraining did not converge": not row.settled,
        "held back": row.held_back,
    }


def _nats(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _multiple(after: float, before: float) -> str:
    return "–" if max(after, before) < NEGLIGIBLE else f"{after / max(before, 1e-30):.2g}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def picture(rows: Sequence[Row], paths: Iterable[Path]) -> None:
    """Predicted error against true error per parameter, a panel for each kind of memory."""
    known = [row for row in rows if row.predicted is not None and row.error is not None]
    if not known:
        return
    least = FLOOR / LARGEST_DIM
    limits = least, 3 * max(max(*_place(row, least)) for row in known)
    figure, axes = figures.canvas(1, len(MEMORIES), (3.6, 4.1), sharex=True, sharey=True)
    titles = {"none": "no memory", "coreset": "coreset of 100 records", "sums": "sums, no records"}
    for axis, kind in zip(axes.flat, MEMORIES, strict=True):
        own = [row for row in known if row.memory == kind]
        _panel(axis, own, limits)
        axis.set_title(f"{titles[kind]} ({len(own)} results)", fontsize=10)
        axis.set_xlabel("true error, nats per parameter")
    axes[0, 0].set_ylabel("predicted error, nats per parameter")
    figures.legend(figure, axes[0, 0])
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, facecolor="white", bbox_inches="tight", metadata=_undated(path))
    plt.close(figure)


def _panel(axis: Any, rows: Sequence[Row], limits: tuple[float, float]) -> None:
    ends = np.array(limits)
    axis.fill_between(ends, ends / CLOSE, ends * CLOSE, color=GREY, alpha=0.18, lw=0, label=f"factor {CLOSE}")
    axis.plot(ends, ends, color=GREY, lw=1)
    for draw in (axis.axhline, axis.axvline):
        draw(TOLERANCE, color=GREY, lw=0.8, ls=":")
    axis.plot([], [], color=GREY, lw=0.8, ls=":", label=f"tolerance, {TOLERANCE:g} nats")
    for verdict, (colour, marker) in LOOKS.items():
        places = [_place(row, limits[0]) for row in rows if row.verdict == verdict]
        true, predicted = np.reshape(places, (-1, 2)).T
        looks: Any = {"s": 16, "c": colour, "marker": marker, "alpha": 0.7, "lw": 0, "clip_on": False}
        axis.scatter(true, predicted, label=verdict, zorder=3, **looks)
    axis.set(xscale="log", yscale="log", xlim=limits, ylim=limits, box_aspect=1)


def _place(row: Row, least: float) -> tuple[float, float]:
    """True and predicted error per parameter; what is below `least` lies at the edge."""
    assert row.error is not None
    assert row.predicted is not None
    true, predicted = (max(each / row.parameters, least) for each in (row.error, row.predicted["nats"]))
    return true, predicted


def _undated(path: Path) -> dict[str, Any]:
    """Pictures that are equal are equal files."""
    return {"Date": None} if path.suffix == ".svg" else {"Software": None}
