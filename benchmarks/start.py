"""What a new process takes to erase records, against one that refits: start.md and start.json.

Every figure comes from new processes, one after the other, in one run.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROWS, FEATURES, ERASED, MEMORY = 100_000, 20, 1000, 200
# Processes behind each median, and warm calls in one of them.
REPEATS, WARM_CALLS = 5, 50

TRAIN = f"""
import sys, jax, numpy as np, unbayes as ub
rng = np.random.default_rng(0)
x = rng.normal(size=({ROWS}, {FEATURES})).astype(np.float32)
y = (x @ (0.3 * rng.normal(size={FEATURES})) + rng.logistic(size={ROWS}) > 0).astype(np.int32)
model = ub.logistic_regression({FEATURES}, prior_scale=3.0)
trained = ub.fit(model, (x, y), memory={MEMORY}, key=jax.random.key(0))
ub.save(sys.argv[1] + "/model.unbayes", trained.posterior, model, memory=trained.memory)
np.savez(sys.argv[1] + "/erased.npz", x=x[:{ERASED}], y=y[:{ERASED}])
np.savez(sys.argv[1] + "/remaining.npz", x=x[{ERASED}:], y=y[{ERASED}:])
"""

ERASE = """
import sys, time
started = time.perf_counter()
import jax, unbayes as ub
imported = time.perf_counter()
import numpy as np
folder, with_memory, repeats = sys.argv[1], sys.argv[2] == "memory", int(sys.argv[3])
saved, erased = ub.load(folder + "/model.unbayes"), np.load(folder + "/erased.npz")
records, memory, key = (erased["x"], erased["y"]), saved.memory if with_memory else None, jax.random.key(1)
loaded = time.perf_counter()
erase = lambda: ub.unlearn(saved.posterior, saved.model, records, memory=memory, key=key)
erase()
first = time.perf_counter()
calls = [0.0]
for _ in range(repeats):
    began = time.perf_counter()
    erase()
    calls.append(time.perf_counter() - began)
print(first - imported, sorted(calls)[len(calls) // 2])
"""

REFIT = """
import sys, time
started = time.perf_counter()
from sklearn.linear_model import LogisticRegression
import numpy as np
remaining = np.load(sys.argv[1] + "/remaining.npz")
LogisticRegression(C=9.0).fit(remaining["x"], remaining["y"])
print(time.perf_counter() - started)
"""


def run(code: str, *arguments: str, programs: Path) -> tuple[list[float], float]:
    """What a new process prints, and the seconds that it took from start to end."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment["UNBAYES_CACHE"] = str(programs)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()], time.perf_counter() - began


def medians(rows: list[list[float]]) -> list[float]:
    """Column by column."""
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def measure() -> dict[str, float]:
    """All figures, in seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = folder / "programs"
        run(TRAIN, name, programs=programs)

        def seconds(code: str, *arguments: str, fresh: bool = False, repeats: int = REPEATS) -> list[float]:
            rows = []
            for repeat in range(repeats):
                place = folder / f"programs-{arguments}-{repeat}" if fresh else programs
                numbers, whole = run(code, *arguments, programs=place)
                rows.append([*numbers, whole])
            return medians(rows)

        figures = {}
        (figures["import jax"],) = seconds("import jax")
        (figures["import unbayes"],) = seconds("import jax, unbayes")
        (figures["import all of unbayes"],) = seconds(
            "import unbayes; [getattr(unbayes, n) for n in dir(unbayes)]"
        )
        for kind in ("plain", "memory"):
            first, _, _ = seconds(ERASE, name, kind, "0", fresh=True, repeats=2)
            run(ERASE, name, kind, "0", programs=programs)
            later, _, whole = seconds(ERASE, name, kind, "0")
            _, warm, _ = seconds(ERASE, name, kind, str(WARM_CALLS), repeats=2)
            figures |= {
                f"{kind}: first ever": first,
                f"{kind}: later process": later,
                f"{kind}: warm call": warm,
                f"{kind}: later process, import included": whole,
            }
        _, figures["refit by scikit-learn, import included"] = seconds(REFIT, name)
        return figures


def report(figures: dict[str, float]) -> str:
    """Markdown, with the goals beside what was measured."""
    jax_import = figures["import jax"]
    refit = figures["refit by scikit-learn, import included"]
    goals = {
        "import unbayes": 1.4 * jax_import,
        "plain: first ever": 2.5,
        "plain: later process": 0.7,
        "plain: warm call": 0.003,
        "plain: later process, import included": refit,
        "memory: first ever": 6.0,
        "memory: later process": 1.2,
        "memory: warm call": 0.010,
        "memory: later process, import included": refit,
    }
    lines = [
        "# What a new process feels",
        "",
        f"Logistic regression, {ROWS:,} × {FEATURES} rows in single precision, {ERASED} of them erased, "
        f"memory of {MEMORY}; medians of {REPEATS} new processes on {os.cpu_count()} cores. “First ever” and "
        "“later process” count from the end of `import jax, unbayes`, loading the model included: the first "
        "time on a machine, and a process that finds the programs of an earlier one. The rival is a new "
        "process that fits scikit-learn's LogisticRegression to all remaining rows.",
        "",
        "| | seconds | goal | |",
        "| --- | --- | --- | --- |",
    ]
    for name, value in figures.items():
        goal = goals.get(name)
        verdict = "" if goal is None else "met" if value <= goal else "missed"
        lines.append(f"| {name} | {value:.4g} | {'' if goal is None else f'{goal:.3g}'} | {verdict} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    found = measure()
    (HERE / "start.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "start.md").write_text(report(found))
    print(report(found))
