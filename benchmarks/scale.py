"""Where the data are: memory, throughput, engines and streams, as ratios within one run.

Parts that are done are kept in scale.json: without names, those are measured that it does not have. They also
make scale.md and the tables of docs/scale.md.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scale_tables import write

HERE = Path(__file__).parent
# Records of a file, and how many files are read.
FILE_ROWS, FILES = 1_050_000, (1, 10, 96)
# Of those, how many for jobs on workers, to train on as a stream, and in memory.
JOB_FILES, STREAM_FILES, MEMORY_FILES = 24, 10, 2
# To train on and to erase where engines are compared.
TRAINED_FILES, ERASED_FILES = 4, 2
# Rounds in which rivals take turns, by the number of files: the more records, the steadier the times.
ROUNDS = {1: 3, 10: 3}
ROWS_OF_FLIGHTS = (300_000, None)
# What XLA and others take one core by, as a worker of one thread does.
ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1"}
Found = dict[str, Any]


class Bench:
    """Files of records in a folder, and new processes that work on them."""

    def __init__(self, folder: Path, file_rows: int, most: int = FILES[-1]):
        self.folder, self.file_rows = folder, file_rows
        self.sizes = [count for count in FILES if count <= most]

    def files(self, count: int) -> list[str]:
        """So many files of records, written by two processes unless they are there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        paths = {number: self.folder / f"{number:04}.parquet" for number in range(count)}
        missing = [number for number, path in paths.items() if not path.exists()]
        arguments = {"folder": str(self.folder), "rows": self.file_rows}
        writers = [
            self.begin("scale_work.write", numbers=numbers, **arguments)
            for numbers in (missing[::2], missing[1::2])
            if numbers
        ]
        for writer in writers:
            _end(writer)
        return [str(path) for path in paths.values()]

    def run(self, function: str, *, environment: dict[str, str] | None = None, **arguments: Any) -> Found:
        """What a function returns in a new process."""
        return _end(self.begin(function, environment, **arguments))

    def turns(self, rounds: int, calls: dict[str, Callable[[], Found]]) -> dict[str, Found]:
        """Calls take turns; of each, medians."""
        found: dict[str, list[Found]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                found[name].append(call())
        return {
            name: {what: statistics.median(each[what] for each in rows) for what in rows[0]}
            for name, rows in found.items()
        }

    def begin(
        self, function: str, environment: dict[str, str] | None = None, **arguments: Any
    ) -> subprocess.Popen[str]:
        """A new process that will print what a function returns."""
        module, name = function.split(".")
        call = f"{module}.{name}(**json.loads(sys.argv[1]))"
        pin = "import os\nif core := os.environ.get('ONE_CORE'): os.sched_setaffinity(0, {int(core)})\n"
        code = f"{pin}import json, sys, {module}\nif __name__ == '__main__':\n    print(json.dumps({call}))"
        path = {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
        return subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(arguments)],
            env={**os.environ, **path, **(environment or {})},
            stdout=subprocess.PIPE,
            text=True,
        )


def _end(process: subprocess.Popen[str]) -> Found:
    printed, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a part of the benchmark has ended with {process.returncode}")
    return json.loads(printed.splitlines()[-1])


def out_of_core(bench: Bench, model: str) -> Found:
    """Statistics of files of three sizes, beside the rivals."""
    found: Found = {}
    warm = bench.files(1)
    for count in bench.sizes:
        files = bench.files(count)
        calls = {
            "product": lambda files=files: bench.run("scale_work.product", files=files),
            "summarise": lambda files=files: bench.run(
                "scale_work.summarise", files=files, model=model, warm=warm
            ),
            "read": lambda files=files: bench.run("scale_work.read", files=files),
        }
        if model != "linear":
            del calls["read"]
        rows = count * bench.file_rows
        found[str(rows)] = bench.turns(ROUNDS.get(count, 1), calls)
        found[str(rows)]["bytes"] = sum(Path(file).stat().st_size for file in files)
    return found


def dask(bench: Bench) -> Found:
    """A job in this process, on one worker, on two of one thread each, and on two of which one is killed."""
    files, out = bench.files(JOB_FILES), bench.folder / "dask"
    out.mkdir(exist_ok=True)
    job = {"model": "logistic", "files": files}

    def one(name: str, engine: str, workers: int, **settings: Any) -> Found:
        # JAX works on one batch while Python reads another: of this process, one core is one worker's share.
        share = {"ONE_CORE": "0"} if engine == "here" else {}
        # Enough parts that every worker compiles.
        warm = bench.files(4 * workers)
        return bench.run(
            "scale_work.on_engine",
            environment={**ONE_THREAD, **share},
            engine=engine,
            workers=workers,
            warm=warm,
            out=str(out / name),
            **job,
            **settings,
        )

    found = {"here": one("here", "here", 1), "one": one("one", "dask", 1), "two": one("two", "dask", 2)}
    # As fast as two cores of this machine are: each has half of the files to itself, and nobody divides them.
    apart = [
        bench.begin(
            "scale_work.on_engine",
            {**ONE_THREAD, "ONE_CORE": str(core)},
            engine="here",
            workers=1,
            warm=bench.files(4),
            out=str(out / f"apart {core}"),
            model="logistic",
            files=files[core::2],
        )
        for core in (0, 1)
    ]
    found["apart"] = {"seconds": max(_end(each)["seconds"] for each in apart)}
    found["killed"] = one("killed", "dask", 2, kill=found["two"]["seconds"] / 2)
    names = ("here", "one", "two", "killed")
    found["differences"] = bench.run(
        "scale_work.differences", model="logistic", files=[str(out / name) for name in names]
    )
    return found


def engines(bench: Bench) -> Found:
    """The same records on other engines, in other chunks, in another order, on several devices."""
    files, out = bench.files(TRAINED_FILES), bench.folder / "engines"
    out.mkdir(exist_ok=True)
    erased = files[:ERASED_FILES]
    ways: dict[str, tuple[dict[str, Any], dict[str, str] | None]] = {
        "in one process": ({}, None),
        "batches of 10,000": ({"batch_rows": 10_000}, None),
        "batches of 300,000": ({"batch_rows": 300_000}, None),
        "files in reverse": ({"files": erased[::-1]}, None),
        **{f"Dask, {n} workers": ({"engine": "dask", "workers": n}, ONE_THREAD) for n in (1, 2, 8)},
        "Spark, 2 workers": ({"engine": "spark", "workers": 2}, ONE_THREAD),
        **{f"{n} devices": ({}, _devices(n)) for n in (2, 4, 8)},
    }
    found: Found = {}
    for model in ("linear", "logistic"):
        posterior = str(out / f"{model}.unbayes")
        bench.run("scale_work.train", model=model, files=files, out=posterior)
        common = {"engine": "here", "workers": 2, "model": model, "files": erased, "warm": []}
        common["posterior"], outs = posterior, []
        for name, (settings, environment) in ways.items():
            outs.append(str(out / f"{model} {name}"))
            settings = {**common, **settings, "out": outs[-1]}
            bench.run("scale_work.on_engine", environment=environment, **settings)
        found[model] = bench.run("scale_work.differences", model=model, files=outs, posterior=posterior)
    return {"ways": list(ways)[1:], **found}


def _devices(number: int) -> dict[str, str]:
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={number}"}


def fit(bench: Bench) -> Found:
    """Training in passes over files, beside training in memory, and stochastic gradients over the files."""
    many, few = bench.files(STREAM_FILES), bench.files(MEMORY_FILES)
    found = {
        "stream": bench.run("scale_work.fit", files=many, warm=few[:1], streamed=True),
        "memory": bench.run("scale_work.fit", files=few, warm=few[:1], streamed=False),
    }
    found["sgd"] = bench.run("scale_work.descend", files=many, passes=found["stream"]["passes"])
    found |= {"rows": len(many) * bench.file_rows, "rows in memory": len(few) * bench.file_rows}
    return found


def flights(bench: Bench) -> Found:
    """The paper's airline experiment from files: a tenth of the flights, and all of them."""
    found: Found = {}
    for rows in ROWS_OF_FLIGHTS:
        folder = bench.folder / f"flights-{rows}"
        folder.mkdir(parents=True, exist_ok=True)
        sizes = bench.run("scale_flights.prepare", folder=str(folder), rows=rows)
        each = {"train": "all", "retrain": "others"}
        trained = {
            what: bench.run("scale_flights.train", folder=str(folder), name=name)
            for what, name in each.items()
        }
        erased = bench.run("scale_flights.erase", folder=str(folder))
        found[str(sizes["flights"])] = {**sizes, **trained, "erase": erased}
    return found


PARTS: dict[str, Callable[[Bench], Found]] = {
    "linear": lambda bench: out_of_core(bench, "linear"),
    "logistic": lambda bench: out_of_core(bench, "logistic"),
    "dask": dask,
    "engines": engines,
    "fit": fit,
    "flights": flights,
}


def main() -> None:
    """Measure some parts, and write what is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--again", action="store_true", help="forget what was measured before")
    parser.add_argument("--folder", type=Path, default=Path(".scale"), help="for the files of records")
    parser.add_argument("--keep", action="store_true", help="leave that folder for the next time")
    parser.add_argument("--file-rows", type=int, default=FILE_ROWS, help="records of a file")
    parser.add_argument("--most", type=int, default=FILES[-1], help="files that are read at once, at most")
    parser.add_argument("--results", type=Path, default=HERE / "scale.json", help="where results are kept")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - {*PARTS}:
        parser.error(f"PART must be of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    is_known = arguments.results.exists() and not arguments.again
    results = json.loads(arguments.results.read_text()) if is_known else {}
    bench = Bench(arguments.folder.absolute(), arguments.file_rows, arguments.most)
    for name in arguments.parts or [name for name in PARTS if name not in results]:
        results[name] = PARTS[name](bench)
        ordered = {part: results[part] for part in PARTS if part in results}
        arguments.results.write_text(json.dumps(ordered, indent=1) + "\n")
        print(name, json.dumps(results[name]), flush=True)
    if not arguments.keep:
        shutil.rmtree(bench.folder, ignore_errors=True)
    write(arguments.results)


if __name__ == "__main__":
    main()
