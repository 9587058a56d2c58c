"""The findings of experiments, as one self-contained HTML file and as JSON."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

import unbayes as ub
from unbayes_paper.base import Experiment, Findings, Measurement
from unbayes_paper.claims import number, spread
from unbayes_paper.figures import lam_text


class Section(NamedTuple):
    """An experiment and what it found, or why it was left out."""

    experiment: Experiment
    findings: Findings | None
    seconds: float = 0.0
    missing: str = ""


class Row(NamedTuple):
    """A line of a table: a method at one λ, over all seeds."""

    method: str
    cells: dict[str, str]


def write(sections: Sequence[Section], folder: Path, *, quick: bool) -> Path:
    """Write `report.html`, `results.json` and the pictures; returns the path of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    _replace(
        folder / "results.json", json.dumps(as_json(sections, quick=quick), indent=1, ensure_ascii=False)
    )
    pictures = folder / "figures"
    pictures.mkdir(exist_ok=True)
    for section in sections:
        for figure in section.findings.figures if section.findings else ():
            _replace(pictures / f"{figure.name.replace(' ', '-')}.svg", standalone(figure.svg))
    _replace(folder / "report.html", as_html(sections, quick=quick))
    return folder / "report.html"


def as_html(sections: Sequence[Section], *, quick: bool) -> str:
    """The report."""
    environment = Environment(
        loader=PackageLoader("unbayes_paper"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    outcomes = [
        claim.outcome for s in sections if s.findings for claim in s.findings.claims if not claim.goal
    ]
    goals = [claim.outcome for s in sections if s.findings for claim in s.findings.claims if claim.goal]
    return environment.get_template("report.html").render(
        sections=sections,
        tables={s.experiment.name: table(s.findings) for s in sections if s.findings},
        tallies=[("claims of the paper", _tally(outcomes)), ("goals of ours", _tally(goals))],
        facts=_facts(quick),
    )


def table(findings: Findings) -> tuple[list[str], dict[str, list[Row]]]:
    """Columns that hold anything, and rows by scenario."""
    groups: dict[tuple[str, str, float | None], list[Measurement]] = {}
    for m in findings.measurements:
        groups.setdefault((m.scenario, m.method, m.lam), []).append(m)
    scenarios: dict[str, list[Row]] = {}
    for (scenario, method, lam), each in groups.items():
        cells = dict(_cells(lam, each, findings.published.get((scenario, method, lam))))
        scenarios.setdefault(scenario, []).append(Row(method, cells))
    columns = dict.fromkeys(column for rows in scenarios.values() for row in rows for column in row.cells)
    order = {name: place for place, name in enumerate(COLUMNS)}
    return sorted(columns, key=lambda column: order.get(column, len(order))), scenarios


COLUMNS = (
    "λ",
    "KL on D_e",
    "… reversed",
    "KL on D_r",
    "… reversed ",
    "KL over θ",
    "paper",
    "seconds",
    "verdict",
)


def _cells(lam: float | None, each: list[Measurement], published: float | None) -> Iterator[tuple[str, str]]:
    if lam is not None:
        yield "λ", lam_text(lam)
    for part, names in (("erased", COLUMNS[1:3]), ("remaining", COLUMNS[3:5])):
        found: list[ub.metrics.PredictiveKL] = [
            getattr(m, part) for m in each if getattr(m, part) is not None
        ]
        for name, direction in zip(names, ("forward", "backward"), strict=True):
            if found:
                yield name, _over_seeds([getattr(kl, direction) for kl in found])
    for name, values in (
        ("KL over θ", [m.parameter_kl for m in each if m.parameter_kl is not None]),
        ("seconds", [m.seconds for m in each if m.seconds is not None]),
        *[(key, [m.extra[key] for m in each]) for key in each[0].extra],
    ):
        if values:
            yield name, f"{np.mean(values):.3g}" if name == "seconds" else spread(values)
    if published is not None:
        yield "paper", f"{published:g}"
    verdicts = dict.fromkeys(m.verdict for m in each if m.verdict is not None)
    if verdicts:
        yield "verdict", ", ".join(verdicts)


def _over_seeds(spreads: Sequence[ub.metrics.Spread]) -> str:
    """Mean over seeds ± deviation over inputs, and the range over seeds where there are several."""
    means = [each.mean for each in spreads]
    text = f"{number(float(np.mean(means)))} ± {np.mean([each.std for each in spreads]):.0e}"
    return text if len(means) == 1 else f"{text} [{number(min(means))}, {number(max(means))}]"


def as_json(sections: Sequence[Section], *, quick: bool) -> dict[str, Any]:
    """All numbers, claims and choices."""
    return {
        "facts": _facts(quick),
        "experiments": {
            s.experiment.name: {
                "title": s.experiment.title,
                "seconds": s.seconds,
                "missing": s.missing,
                **(_findings(s.findings) if s.findings else {}),
            }
            for s in sections
        },
    }


def _findings(findings: Findings) -> dict[str, Any]:
    return {
        "claims": [{**claim._asdict(), "outcome": claim.outcome} for claim in findings.claims],
        "measurements": [_plain(m) for m in findings.measurements],
        "choices": list(findings.choices),
        "published": [
            {"scenario": scenario, "method": method, "lam": lam, "parameter_kl": value}
            for (scenario, method, lam), value in findings.published.items()
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Measurement | ub.metrics.PredictiveKL | ub.metrics.Spread):
        return {key: _plain(part) for key, part in value._asdict().items()}
    return dict(value) if isinstance(value, Mapping) else value


def _facts(quick: bool) -> dict[str, str]:
    return {
        "unbayes": ub.__version__,
        "setting": "quick: fewer iterations and seeds" if quick else "full",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "processor": f"{platform.machine()}, {jax.default_backend()}",
    }


def _tally(outcomes: Sequence[str]) -> str:
    counts = [(outcomes.count(word), word) for word in ("holds", "holds in part", "does not hold")]
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def standalone(svg: str) -> str:
    """The picture as a file of its own, in a grey that can be read on light and dark pages."""
    return svg.replace("currentColor", "#7a828c")


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".unfinished-{path.name}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
