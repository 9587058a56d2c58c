"""What a new process takes to erase records from a NumPyro guide, against retraining: numpyro_start.md.

Every figure comes from new processes, one after the other, in one run. Programs are those of the tests.
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
TESTS = HERE.parent / "tests"
PROGRAMS = ("regression", "logistic", "hierarchical", "zero_inflated", "horseshoe")
MEMORIES = {"no memory": None, "coreset of 100": 100, "sums": "sums"}
# Processes behind each median, and warm calls in one of them.
REPEATS, WARM_CALLS = 3, 5

SET_UP = """
import pickle, sys, time
from pathlib import Path
import jax, numpy as np
from numpyro.infer.autoguide import AutoMultivariateNormal as family
from adapters import numpyro_programs as programs
from unbayes.adapters.numpyro import remember, settle, unlearn
folder, name, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
case = getattr(programs, name)()
case = case._replace(erased_rows=case.erased_rows[int(sys.argv[4]):])
"""

TRAIN = (
    SET_UP
    + """
guide, params = programs.train(case, family, "full")
settled = settle(case.program, guide, params, key=programs.KEY, **case.arguments("full"))
(folder / "params").write_bytes(pickle.dumps(jax.tree.map(np.asarray, settled.params)))
for memory, kept in MEMORIES.items():
    if kept is not None:
        arguments = {"memory": kept, "key": programs.KEY, **case.arguments("full")}
        found = remember(case.program, guide, settled.params, **arguments)
        (folder / memory).write_bytes(pickle.dumps(found))
"""
)

ERASE = (
    SET_UP
    + """
guide, _ = programs.set_up(case.program, family, **case.arguments("full"))
params = jax.tree.map(jax.numpy.asarray, pickle.loads((folder / "params").read_bytes()))
memory = pickle.loads((folder / kind).read_bytes()) if (folder / kind).exists() else None
erase = lambda: jax.block_until_ready(
    unlearn(case.program, guide, params, memory=memory, key=programs.KEY, **case.arguments("erased")).params
)
calls = []
for _ in range(1 + int(sys.argv[5])):
    began = time.perf_counter()
    erase()
    calls.append(time.perf_counter() - began)
print(calls[0], min(calls[1:], default=0.0))
"""
)

RETRAIN = (
    SET_UP
    + """
began = time.perf_counter()
jax.block_until_ready(programs.train(case, family, "remaining").params)
print(time.perf_counter() - began)
"""
)


def run(
    code: str, *arguments: str, programs: Path, fewer: int = 0, calls: int = 0, cache: Path | None = None
) -> tuple[list[float], float]:
    """What a new process prints, and the seconds that it took from start to end.

    Parameters
    ----------
    programs, cache
        Where unbayes and, if so, JAX itself keep compiled programs.
    fewer
        How many of the records to erase are left in.
    calls
        How many warm calls follow the first.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"UNBAYES_CACHE": str(programs), "JAX_NUMPY_DTYPE_PROMOTION": "standard"}
    if cache is not None:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), str(TESTS)])
    code = f"MEMORIES = {MEMORIES!r}\n{code}"
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, str(fewer), str(calls)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()], time.perf_counter() - began


def measure(name: str) -> dict[str, float]:
    """All figures of a program, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder) / "programs"
        run(TRAIN, folder, name, "", programs=Path(folder) / "training")
        rows: dict[str, list[float]] = {}

        def note(figure: str, value: float) -> None:
            rows.setdefault(figure, []).append(value)

        for repeat in range(REPEATS):
            (seconds,), whole = run(RETRAIN, folder, name, "", programs=programs)
            note("retraining", seconds)
            note("retraining: whole process", whole)
            for kind in MEMORIES:
                fresh = Path(folder) / f"{kind}-{repeat}"
                (first, _), whole = run(ERASE, folder, name, kind, programs=fresh)
                note(f"{kind}: first ever", first)
                note(f"{kind}: whole process", whole)
                (later, warm), _ = run(ERASE, folder, name, kind, programs=fresh, calls=WARM_CALLS)
                note(f"{kind}: later process", later)
                note(f"{kind}: warm call", warm)
        # Every request erases another number of records.
        kept = {"programs": programs, "cache": Path(folder) / "jax"}
        for fewer in range(1, 2 + REPEATS):
            rivals = {"retraining": (RETRAIN, ""), **{kind: (ERASE, kind) for kind in MEMORIES}}
            for rival, (code, kind) in rivals.items():
                _, whole = run(code, folder, name, kind, fewer=fewer, **kept)
                if fewer > 1:
                    note(f"{rival}: whole process, cached", whole)
        return {figure: statistics.median(values) for figure, values in rows.items()}


def report(figures: dict[str, dict[str, float]]) -> str:
    """Markdown: ratios to retraining, and seconds of warm calls."""
    lines = [
        "# What a new process takes for a NumPyro guide",
        "",
        f"Programs of the tests, full-rank guides in single precision; medians of {REPEATS} new processes on "
        f"{os.cpu_count()} cores. The rival is a new process that retrains by SVI, 1000 steps, on all "
        "remaining records, seconds from the end of its imports. Unlearning is given as a share of that: the "
        "first call ever, the first call of a process that finds what an earlier one could keep (programs "
        "without functions of the user's), and, of the first, the whole processes, imports and setting the "
        "guide up included. So are the whole processes of the last ratio, for which JAX keeps all programs "
        "on disk (`JAX_COMPILATION_CACHE_DIR`), NumPyro's too, from requests that erased other numbers "
        "of records. Below 1 is quicker than retraining. Warm calls are in seconds.",
        "",
        "| program | retraining, s | memory | first ever | later process | whole process | with JAX's cache "
        "| warm call, s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in figures.items():
        for kind in MEMORIES:
            first, later = (
                found[f"{kind}: {each}"] / found["retraining"] for each in ("first ever", "later process")
            )
            whole, cached = (
                found[f"{kind}: {each}"] / found[f"retraining: {each}"]
                for each in ("whole process", "whole process, cached")
            )
            ratios = [f"{each:.2f}" for each in (first, later, whole, cached)]
            cells = [*ratios, f"{found[f'{kind}: warm call']:.3f}"]
            lines.append(f"| {name} | {found['retraining']:.1f} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    found = {name: measure(name) for name in sys.argv[1:] or PROGRAMS}
    (HERE / "numpyro_start.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "numpyro_start.md").write_text(report(found))
    print(report(found))
