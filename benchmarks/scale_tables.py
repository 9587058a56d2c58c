"""What `scale.py` found, as tables: all of it, what the documentation shows, and what more rows take."""

import json
import math
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs" / "figures"
# What the documentation reckons with.
ROWS, CORES, ERASED = 10**11, 1000, 10**6
# Of unbayes.data.files and unbayes.distributed.dask: records of a part, about, and sums added at once.
PART_ROWS, FAN_IN = 1 << 20, 16
Found = dict[str, Any]
Table = list[list[str]]


def write(results: Path) -> None:
    """The page beside the results; of the project's own results, the tables of the documentation, too."""
    found = json.loads(results.read_text())
    results.with_suffix(".md").write_text(report(found), encoding="utf-8")
    if results.resolve().parent == Path(__file__).resolve().parent:
        for name, text in documentation(found).items():
            (DOCS / name).write_text(text, encoding="utf-8")


def documentation(found: Found) -> dict[str, str]:
    """Tables by the names of their files."""
    tables = {"scale-goals.md": goals, "scale-paper.md": paper}
    return {name: _markdown(table(found)) + "\n" for name, table in tables.items()}


def report(found: Found) -> str:
    """Everything."""
    parts = ["# Where the data are", INTRODUCTION, "## Goals", _markdown(goals(found))]
    for name, (title, text, table) in SECTIONS.items():
        if name in found:
            parts += [f"## {title}", text, _markdown(table(found[name]))]
    return "\n\n".join(parts) + "\n"


def goals(found: Found) -> Table:
    """What was asked for, and what is."""
    rows = [["", "goal", "measured", ""]]

    def add(what: str, goal: str, value: str, is_met: bool) -> None:
        rows.append([what, goal, value, "met" if is_met else "missed"])

    for model in ("linear", "logistic"):
        if model in found:
            sizes = found[model]
            largest = max(sizes, key=int)
            peaks = [each["summarise"]["peak"] for each in sizes.values()]
            share = sizes[largest]["product"]["seconds"] / sizes[largest]["summarise"]["seconds"]
            name = f"{int(largest):,} × 20, {model}"
            add(f"{name}: peak memory", "≤ 1.5 GiB", f"{max(peaks):.2f} GiB", max(peaks) <= 1.5)
            add(f"{name}: speed against NumPy's product", "≥ 60%", f"{share:.0%}", share >= 0.6)
    if "dask" in found:
        job = found["dask"]
        over = job["one"]["seconds"] / job["here"]["seconds"] - 1
        gain = job["one"]["seconds"] / job["two"]["seconds"]
        add("Dask, one worker: overhead", "≤ 15%", f"{over:.0%}", over <= 0.15)
        add("Dask, two workers against one", "≥ 1.7", f"{gain:.2f}", gain >= 1.7)
        away = job["differences"]["statistics"][-1]
        add("a worker killed in the middle: difference", "≤ 1e-12", _share(away), away <= 1e-12)
    if "engines" in found:
        away = max(max(found["engines"][model]["statistics"]) for model in ("linear", "logistic"))
        add("engines, chunks, orders, devices: difference", "≤ 1e-12", _share(away), away <= 1e-12)
    if "fit" in found:
        ratio = found["fit"]["stream"]["per row and pass"] / found["fit"]["memory"]["per row and pass"]
        add("fit of a stream against memory, per row and pass", "≤ 1.3", f"{ratio:.2f}", ratio <= 1.3)
    if "flights" in found:
        few, many = (each["train"]["peak"] for each in found["flights"].values())
        value = f"{few:.2f} → {many:.2f} GiB"
        add("flights: peak memory of ten times as many", "flat", value, many <= 1.2 * few)
    return rows


def _share(difference: float) -> str:
    return f"{difference:.0e}" if difference else "none"


def _of_sizes(sizes: Found) -> Table:
    rows = [["rows", "GB in files", "peak memory, GiB", "million rows/s", "NumPy's product", "share"]]
    for count, each in sizes.items():
        own, rival = (int(count) / each[name]["seconds"] / 1e6 for name in ("summarise", "product"))
        rows.append(
            [
                f"{int(count):,}",
                f"{each['bytes'] / 1e9:.2f}",
                f"{each['summarise']['peak']:.2f}",
                f"{own:.2f}",
                f"{rival:.2f}",
                f"{own / rival:.0%}",
            ]
        )
    return rows


def _of_dask(job: Found) -> Table:
    names = {
        "here": "this process, on one core",
        "one": "one worker",
        "two": "two workers",
        "killed": "two workers, one of them killed",
    }
    rows = [["", "seconds", "times as fast as one worker", "statistics differ by"]]
    away = [0.0, *job["differences"]["statistics"]]
    for (name, text), difference in zip(names.items(), away, strict=True):
        seconds = job[name]["seconds"]
        rows.append([text, f"{seconds:.1f}", f"{job['one']['seconds'] / seconds:.2f}", _share(difference)])
    if "apart" in job:
        seconds = job["apart"]["seconds"]
        gain = f"{job['one']['seconds'] / seconds:.2f}"
        rows.append(["two processes that share nothing, half of the files each", f"{seconds:.1f}", gain, ""])
    return rows


def _of_engines(found: Found) -> Table:
    rows = [["", "linear: statistics", "posterior", "logistic: statistics", "posterior"]]
    columns = [found[model][what] for model in ("linear", "logistic") for what in ("statistics", "posterior")]
    for name, *values in zip(found["ways"], *columns, strict=True):
        rows.append([name, *(_share(value) for value in values)])
    verdicts = [", ".join(found[model]["verdicts"]) for model in ("linear", "logistic")]
    return [*rows, ["verdicts, all of them", verdicts[0], "", verdicts[1], ""]]


def _of_fit(found: Found) -> Table:
    head = ["rows", "passes", "seconds", "ns per row and pass", "peak, GiB", "held-out log-likelihood"]
    rows = [["", *head]]
    for name, text, count in (
        ("stream", "`fit` of files", found["rows"]),
        ("memory", "`fit` in memory", found["rows in memory"]),
    ):
        each = found[name]
        nanoseconds = 1e9 * each["per row and pass"]
        rows.append(
            [
                text,
                f"{count:,}",
                str(each["passes"]),
                f"{each['seconds']:.1f}",
                f"{nanoseconds:.0f}",
                f"{each['peak']:.2f}",
                f"{each['log-likelihood']:.6f}",
            ]
        )
    sgd = found["sgd"]
    for passes in sorted({1, len(sgd["seconds"])}):
        seconds = sum(sgd["seconds"][:passes])
        rows.append(
            [
                "`SGDClassifier.partial_fit`",
                f"{found['rows']:,}",
                str(passes),
                f"{seconds:.1f}",
                f"{1e9 * seconds / passes / found['rows']:.0f}",
                f"{sgd['peak']:.2f}",
                f"{sgd['log-likelihood'][passes - 1]:.6f}",
            ]
        )
    return rows


def _of_flights(found: Found) -> Table:
    head = ["flights", "erased", "train, s", "peak, GiB", "erase, s", "peak, GiB", "verdict"]
    rows = [[*head, "nats from retraining", "… when not erased"]]
    for count, each in found.items():
        erase = each["erase"]
        rows.append(
            [
                f"{int(count):,}",
                f"{each['erased']:,}",
                f"{each['train']['seconds']:.1f}",
                f"{each['train']['peak']:.2f}",
                f"{erase['seconds']:.2f}",
                f"{erase['peak']:.2f}",
                erase["verdict"],
                f"{erase['nats']:.1e}",
                f"{erase['nats without']:.2g}",
            ]
        )
    return rows


def paper(found: Found) -> Table:
    """What a hundred billion rows would take, from what was measured."""
    sizes, job, training = found["linear"], found["dask"], found["fit"]["stream"]
    largest = max(sizes, key=int)
    per_row = sizes[largest]["bytes"] / int(largest)
    summing = job["one"]["seconds"] / job["one"]["records"]
    # Two cores were at work.
    fitting, passes = 2 * training["per row and pass"], training["passes"]
    parts = math.ceil(ROWS / PART_ROWS)
    depth = math.ceil(math.log(parts, FAN_IN))
    hours, sent = passes * ROWS * fitting / CORES / 3600, job["one"]["bytes"]
    erasing = f"{ERASED * summing:.1f} core-seconds, {ERASED * per_row / 1e6:.0f} MB"
    return [
        ["", "measured", "10¹¹ rows"],
        ["files", f"{per_row:.0f} bytes a row", f"{per_row * ROWS / 1e12:.1f} TB"],
        ["parts", f"{PART_ROWS:,} rows each", f"{parts:,}"],
        ["a pass of training", f"{1e6 * fitting:.2f} µs a row", f"{ROWS * fitting / 3600:.0f} core-hours"],
        ["passes of training", str(passes), str(passes)],
        [f"training on {CORES:,} cores", "", f"{hours:.1f} hours"],
        ["… reading", "", f"{CORES / fitting * per_row / 1e9:.0f} GB/s"],
        ["levels of the tree of sums", f"{FAN_IN} sums at once", str(depth)],
        ["sums of an erasure", f"{sent:,} bytes a part", f"{parts * sent / 1e9:.1f} GB, if of all rows"],
        ["a roster of all rows", "16 bytes a row", f"{16 * ROWS / 1e12:.1f} TB"],
        [f"erasing {ERASED:,} rows", f"{1e6 * summing:.2f} µs a row", erasing],
    ]


INTRODUCTION = (
    "Twenty features in single precision, computed with in double; files on a local disk, in the system's "
    "cache where they fit. Two cores. Ratios are within one run; seconds and rows a second are those of this "
    "machine. Compiling is left out. Every figure comes from a process of its own."
)
SECTIONS = {
    "linear": (
        "Sums over files, Gaussian noise",
        "`summarise` of all rows. “NumPy's product” reads the same columns with pyarrow, and multiplies them "
        "with one vector, in double precision.",
        _of_sizes,
    ),
    "logistic": (
        "Sums over files, logistic regression",
        "The same. For each row there are integrals over the log-odds, third derivatives in 21 parameters, "
        "and how improbable the row is: work that no reading is.",
        _of_sizes,
    ),
    "dask": (
        "Workers",
        "One job of `summarise`, logistic regression. Every process has one thread.",
        _of_dask,
    ),
    "engines": (
        "The same sums everywhere",
        "Largest difference from one process with batches of 65,536, as a share of the largest entry of each "
        "array.",
        _of_engines,
    ),
    "fit": (
        "Training on a stream",
        "Logistic regression, `roster=False`. Stochastic gradients have the same prior and the same stream; "
        "their result is a point, without a posterior.",
        _of_fit,
    ),
    "flights": (
        "Flights",
        "The paper's airline experiment: 50 inducing inputs, a thirtieth erased at random.",
        _of_flights,
    ),
}


def _markdown(table: Table) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    lines.insert(1, "| --- " * len(table[0]) + "|")
    return "\n".join(lines)
