"""Put the report's table and pictures into the README.

Run as `python -m unbayes_paper.readme RESULTS README`.
"""

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

from unbayes_paper.base import BEST, FULL, ONE_STEP, REVERSE_KL, UPPER_BOUND
from unbayes_paper.claims import number

START, END = "<!-- results -->", "<!-- /results -->"
PICTURES = ("moon-surfaces.svg", "sequential.svg")
# Experiment, scenario, and what readers call it; distances over D_e unless θ is named.
ROWS = (
    ("moon", "moon", "moon, 20 points furthest right"),
    ("moon-information", "random", "moon, 20 random points"),
    ("moon-information", "yellow 30", "moon, 30 of one class"),
    ("moon-information", "yellow 40", "moon, 40 of one class"),
    ("moon-information", "yellow 50", "moon, a whole class"),
    ("banknote", "full Gaussian", "banknote, 412 random records"),
    ("banknote", "flow", "banknote, with a flow"),
    ("fashion", "diagonal", "Fashion-MNIST last layer, diagonal"),
    ("fashion", "full covariance", "Fashion-MNIST last layer, full"),
    ("airline", "longest flights", "flights, the longest (KL over θ)"),
    ("linear", "linear", "cubic regression (KL over θ)"),
)


def table(results: dict[str, Any]) -> str:
    """Distance to retraining by method; the paper's at their best λ and at λ = 0."""
    lines = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    for experiment, scenario, title in ROWS:
        found = results["experiments"].get(experiment, {}).get("measurements", [])
        rows = [m for m in found if m["scenario"] == scenario and m["seed"] == 0]
        if rows:
            part = "parameter_kl" if title.endswith("θ)") else "erased"
            cells = [_cell(rows, part, method, lam) for method, lam in COLUMNS]
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


HEAD = (
    "erased",
    "no unlearning",
    "EUBO, best λ",
    "… λ = 0",
    "reverse KL, best λ",
    "… λ = 0",
    "natural gradient",
    "our best",
)
ANY = "any"
COLUMNS = (
    (FULL, None),
    (UPPER_BOUND, ANY),
    (UPPER_BOUND, 0.0),
    (REVERSE_KL, ANY),
    (REVERSE_KL, 0.0),
    (ONE_STEP, None),
    (BEST, None),
)


def _cell(rows: list[dict[str, Any]], part: str, method: str, lam: Any) -> str:
    values = [
        m[part] if part == "parameter_kl" else m[part]["forward"]["mean"]
        for m in rows
        if m["method"] == method and lam in (ANY, m["lam"])
    ]
    # A KL of zero may come out a rounding below it.
    return number(max(min(values), 0.0)) if values else ""


def insert(readme: str, text: str) -> str:
    """The README with `text` between its markers."""
    if START not in readme or END not in readme:
        raise ValueError(f"readme must hold the markers {START} and {END}")
    return re.sub(f"{START}.*?{END}", lambda _: f"{START}\n{text}\n{END}", readme, flags=re.DOTALL)


def main() -> None:
    """Rewrite the README in place, and copy the pictures beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="folder that `unbayes reproduce` wrote")
    parser.add_argument("readme", type=Path)
    arguments = parser.parse_args()
    results = json.loads((arguments.results / "results.json").read_text(encoding="utf-8"))
    text = arguments.readme.read_text(encoding="utf-8")
    arguments.readme.write_text(insert(text, table(results)), encoding="utf-8")
    for name in PICTURES:
        shutil.copy(arguments.results / "figures" / name, arguments.readme.parent / "docs" / name)


if __name__ == "__main__":
    main()
