"""Are errors predicted, and is a bad result ever trusted? `make trust` writes trust.md, .json and .png."""

import argparse
import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

import unbayes as ub
from trust_report import MEMORIES, REFUSED, Row, load, picture, report, store, summary
from unbayes.memory import Memory
from unbayes.metrics import parameter_kl
from unbayes_paper.base import Problem
from unbayes_paper.scenarios import Scenario, held_back_scenarios, scenarios
from workloads import KEY, banknote_records

CORESET = 100
# Inputs of D_e and of D_r at which predictions are compared: the same number always, so that compiled
# programs serve again. Draws of θ behind predictions of several classes.
INPUTS, DRAWS = 128, 500
# Significant digits of stored numbers.
DIGITS = 6
# Scenarios after which compiled functions are thrown away: hundreds of them in one process exhaust the memory
# maps that it may have.
CLEARED_EVERY = 16
DOCS = Path(__file__).parents[1] / "docs"


def remembered(trained: ub.Trained) -> dict[str, Memory]:
    """The kinds of memory to unlearn with; all of them know who was trained on."""
    memory = trained.memory
    assert memory is not None
    return {"none": memory.only(), "coreset": memory.only("coreset"), "sums": memory.only("sums")}


def measure(scenario: Scenario, kinds: Collection[str]) -> list[Row]:
    """Unlearn with each kind of memory, and compare with retraining to convergence."""
    name, problem, family, training, is_held_back = scenario
    model = problem.model
    kept = (ub.Sums(), ub.Coreset(CORESET))
    full = ub.fit(model, problem.full, family=family, method=training, memory=kept, key=KEY)
    reference = ub.fit(model, problem.remaining, family=family, key=KEY)
    retrained = reference.posterior
    shared: dict[str, Any] = {
        "scenario": name,
        "family": family.__name__,
        "records": len(problem.full[1]),
        "erased": len(problem.erased[1]),
        "parameters": model.dim,
        "settled": reference.converged,
        "held_back": is_held_back,
        "nothing": parameter_kl(retrained, full.posterior).value,
        "before": _predictive_kls(retrained, full.posterior, problem),
    }
    rows = []
    for kind, memory in remembered(full).items():
        if kind not in kinds:
            continue
        try:
            result = ub.unlearn(full.posterior, model, problem.erased, memory=memory, key=KEY)
        except ValueError as error:
            found = {"verdict": REFUSED, "reasons": (str(error),)}
        else:
            found = _found(result, retrained, problem)
        rows.append(Row(**_storable({**shared, "memory": kind, **found})))
    return rows


def _found(result: ub.Unlearned, retrained: Any, problem: Problem) -> dict[str, Any]:
    """What there is to say of one result."""
    measures = result.trust.measures._asdict()
    return {
        "error": parameter_kl(retrained, result.posterior).value,
        "after": _predictive_kls(retrained, result.posterior, problem),
        "verdict": str(result.verdict),
        "reasons": result.doubts,
        "measures": {name: value for name, value in measures.items() if value is not None},
        "predicted": result.error and dataclasses.asdict(result.error),
    }


def _predictive_kls(retrained: Any, other: Any, problem: Problem) -> tuple[float, float]:
    """Mean KL[retrained‖other] of predictions at inputs of D_e and of D_r."""

    def mean_kl(x: np.ndarray) -> float:
        # Evenly spaced rows, or all of them and the last one again and again.
        rows = np.linspace(0, len(x) - 1, INPUTS).astype(int)
        if len(x) < INPUTS:
            rows = np.minimum(np.arange(INPUTS), len(x) - 1)
        p, q = (
            problem.model.predictive(posterior, x[rows], key=KEY, draws=DRAWS)
            for posterior in (retrained, other)
        )
        return float(np.asarray(p.kl(q))[: len(x)].mean())

    return mean_kl(problem.erased[0]), mean_kl(problem.remaining[0])


def _storable(value: Any) -> Any:
    """The same of plain Python numbers, rounded."""
    if isinstance(value, dict):
        return {name: _storable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_storable(each) for each in value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _storable(np.asarray(value).tolist())
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def run(chosen: list[Scenario], kinds: Collection[str], rows: list[Row], path: Path) -> list[Row]:
    """Add what is missing, storing it as it comes."""
    done = {row.key for row in rows}
    lacking = [[kind for kind in kinds if (*_label(each), kind) not in done] for each in chosen]
    missing = [(each, lacks) for each, lacks in zip(chosen, lacking, strict=True) if lacks]
    for number, (scenario, lacks) in enumerate(track(missing, "scenarios"), 1):
        rows = rows + measure(scenario, lacks)
        store(rows, path)
        if number % CLEARED_EVERY == 0:
            jax.clear_caches()
    return rows


def _label(scenario: Scenario) -> tuple[str, str]:
    return scenario.name, scenario.family.__name__


def print_summary(rows: list[Row]) -> None:
    """The table at the head of trust.md."""
    grid = Table("", *MEMORIES, box=box.SIMPLE_HEAD, pad_edge=False)
    for line in summary(rows):
        grid.add_row(*line)
    Console().print(grid)


def main() -> None:
    """Run all scenarios, or those whose name or family holds a word; or only write the report again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run has measured")
    parser.add_argument("--only", default="", help="scenarios whose name or family holds this")
    parser.add_argument("--held-back", action="store_true", help="only scenarios that no limit was set on")
    parser.add_argument("--memories", nargs="+", choices=MEMORIES, default=MEMORIES, help="all unless given")
    parser.add_argument("--report", action="store_true", help="run nothing: judge and report what is stored")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the results")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    path = arguments.out / "trust.json"
    rows = [] if arguments.fresh and not arguments.report else load(path)
    if arguments.report:
        store(rows, path)
    else:
        every = [*scenarios(banknote_records()), *held_back_scenarios()]
        if arguments.held_back:
            every = [scenario for scenario in every if scenario.is_held_back]
        chosen = [scenario for scenario in every if arguments.only in " ".join(_label(scenario))]
        rows = run(chosen, arguments.memories, rows, path)
    (arguments.out / "trust.md").write_text(report(rows))
    pictures = [arguments.out / "trust.png"]
    # Results that go elsewhere are trials; those beside this file are the project's.
    if arguments.out == Path(__file__).parent:
        pictures.append(DOCS / "trust-errors.png")
    own, other = ([row for row in rows if row.held_back == held_back] for held_back in (False, True))
    picture(own, pictures)
    print_summary(own)
    if other:
        Console().print("held back")
        print_summary(other)


if __name__ == "__main__":
    main()
