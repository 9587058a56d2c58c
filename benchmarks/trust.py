"""Is a result that is worse than doing nothing ever trusted? `make trust` writes trust.md and trust.json."""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import jax
from rich.progress import track

import unbayes as ub
from unbayes.metrics import predictive_kl
from unbayes_paper.scenarios import Scenario, scenarios
from workloads import KEY, banknote_records

# Nats of predictive KL that nobody would notice.
NEGLIGIBLE = 1e-6
MEMORY = 100
# Rows after which compiled functions are thrown away.
CLEARED_EVERY = 16


class Row(NamedTuple):
    """One result, beside what doing nothing gives: KL[retrained‖…] on D_e and on D_r."""

    scenario: str
    family: str
    records: int
    erased: int
    parameters: int
    memory: int
    before: tuple[float, float]
    after: tuple[float, float]
    verdict: str
    reasons: tuple[str, ...]
    measures: dict[str, float | None]

    @property
    def worse(self) -> bool:
        """Whether doing nothing would have been better, on either part of the data."""
        return any(b > a + NEGLIGIBLE for a, b in zip(self.before, self.after, strict=True))


def measure(scenario: Scenario) -> list[Row]:
    """Unlearn without a memory and with one, and compare with retraining."""
    name, problem, family = scenario
    model = problem.model
    full = ub.fit(model, problem.full, family=family, memory=MEMORY, key=KEY)
    retrained = ub.fit(model, problem.remaining, family=family, key=KEY).posterior

    def distance(posterior) -> tuple[float, float]:
        erased, remaining = (
            predictive_kl(retrained, posterior, model, part[0], key=KEY, draws=500).forward.mean
            for part in (problem.erased, problem.remaining)
        )
        return erased, remaining

    before, rows = distance(full.posterior), []
    for memory in (None, full.memory):
        result = ub.unlearn(full.posterior, model, problem.erased, memory=memory, key=KEY)
        row = Row(
            scenario=name,
            family=family.__name__,
            records=len(problem.full[1]),
            erased=result.records,
            parameters=model.dim,
            memory=0 if memory is None else memory.size,
            before=before,
            after=distance(result.posterior),
            verdict=str(result.verdict),
            reasons=result.doubts,
            measures=result.trust.measures._asdict(),
        )
        rows.append(row)
    return rows


def report(rows: list[Row]) -> str:
    """Markdown: the count of verdicts, and every row."""
    lines = ["# When results are trusted", "", _summary(rows), ""]
    lines += ["| scenario | family | memory | on D_e | on D_r | verdict | |", "| --- " * 7 + "|"]
    for row in rows:
        ratios = (_ratio(a, b) for a, b in zip(row.after, row.before, strict=True))
        kept = str(row.memory) if row.memory else "–"
        family = row.family.removesuffix("Gaussian").lower()
        worse = "worse than nothing" if row.worse else ""
        what = f"{row.scenario} ({row.erased} of {row.records})"
        lines.append(f"| {what} | {family} | {kept} | {' | '.join(ratios)} | {row.verdict} | {worse} |")
    return "\n".join(lines) + "\n"


def _summary(rows: list[Row]) -> str:
    counts = []
    for verdict in ub.Verdict:
        given = [row for row in rows if row.verdict == verdict]
        harmful = sum(row.worse for row in given)
        counts.append(f"{len(given)} {verdict} ({harmful} of them worse than doing nothing)")
    return (
        f"{len(rows)} results in {len(rows) // 2} scenarios: {', '.join(counts)}. On D_e and D_r: "
        "KL[retrained‖unlearned] as a multiple of KL[retrained‖trained], which is doing nothing; “–” where "
        f"both are below {NEGLIGIBLE:g} nats."
    )


def _ratio(after: float, before: float) -> str:
    return "–" if max(after, before) < NEGLIGIBLE else f"{after / max(before, 1e-30):.2g}"


def main() -> None:
    """Run all scenarios, or those whose name or family holds a word."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run has measured")
    parser.add_argument("--only", default="", help="scenarios whose name or family holds this")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the results")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    store = arguments.out / "trust.json"
    rows = (
        [] if arguments.fresh or not store.exists() else [Row(**row) for row in json.loads(store.read_text())]
    )
    done = {(row.scenario, row.family) for row in rows}
    chosen = [s for s in scenarios(banknote_records()) if arguments.only in f"{s.name} {s.family.__name__}"]
    for scenario in track([s for s in chosen if (s.name, s.family.__name__) not in done], "scenarios"):
        rows += measure(scenario)
        store.write_text(json.dumps([row._asdict() for row in rows], indent=1))
        # Hundreds of compiled functions in one process exhaust the memory maps it may have.
        if len(rows) % CLEARED_EVERY == 0:
            jax.clear_caches()
    (arguments.out / "trust.md").write_text(report(rows))
    print(_summary(rows))


if __name__ == "__main__":
    main()
