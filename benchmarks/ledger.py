"""What the ledger costs: beside the disk alone, beside one call of unlearning, and with a long history.

Everything is measured in one run, in a folder of its own beside the working directory.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

import unbayes as ub
from unbayes.ledger import Ledger, Records, RequestState, Submission
from unbayes.ledger.database import Database
from unbayes.ledger.events import EventKind
from unbayes.ledger.log import Happening
from unbayes.ledger.states import WAITING as STATES_WAITING

ROWS, COLUMNS = 20_000, ("a", "b", "c")
WAITING, REPEATS = 1000, 3
NAME = "credit"


@dataclasses.dataclass(frozen=True)
class Setting:
    """A trained model in a file, its records, and where ledgers of it go."""

    folder: Path
    x: np.ndarray
    y: np.ndarray
    ids: list[str]

    @property
    def file(self) -> Path:
        """The trained model."""
        return self.folder / "model.unbayes"

    def ledger(self, name: str) -> Ledger:
        """A new ledger of the model."""
        ledger = Ledger.create(self.folder / name)
        ledger.register(NAME, self.file, ids="id")
        return ledger

    def write_table(self, path: Path, rows: range) -> None:
        """Some records as CSV."""
        lines = [",".join(["id", *COLUMNS, "y"])]
        for row in rows:
            lines.append(",".join([self.ids[row], *map(str, self.x[row].tolist()), str(self.y[row])]))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def submission(self, number: int) -> Submission:
        """The request of somebody with one record."""
        row = number % ROWS
        rows = slice(row, row + 1)
        records = Records.of_arrays(self.x[rows], self.y[rows], self.ids[rows])
        return Submission(f"person {number}", records)


def prepare(folder: Path) -> Setting:
    """Train a logistic regression with a memory of sums."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, len(COLUMNS)))
    y = (x @ [1.5, -1, 0.5] + rng.logistic(size=ROWS) > 0).astype(float)
    setting = Setting(folder, x, y, [f"record {i}" for i in range(ROWS)])
    model = ub.logistic_regression(len(COLUMNS), prior_scale=3.0)
    trained = ub.fit(model, (x, y), memory="sums", ids=setting.ids, key=jax.random.key(0))
    notes = {"columns": list(COLUMNS), "target": "y"}
    ub.save(setting.file, trained.posterior, model, memory=trained.memory, notes=notes)
    return setting


def rate(work: Callable[[int], object], seconds: float = 3.0) -> float:
    """How many calls there are in a second."""
    number, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds:
        work(number)
        number += 1
    return number / taken


def seconds_of(command: Sequence[object]) -> float:
    """How long a command takes in a process of its own."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "unbayes.cli", *map(str, command)], check=True, capture_output=True)
    return time.perf_counter() - start


def submissions(setting: Setting) -> list[str]:
    """Requests a second that are safely on disk, beside what the disk can do."""
    descriptor = os.open(setting.folder / "raw", os.O_CREAT | os.O_WRONLY)

    def sync(_: int) -> None:
        os.pwrite(descriptor, bytes(4096), 0)
        os.fsync(descriptor)

    raw = rate(sync)
    os.close(descriptor)
    smallest = rate(_smallest_transactions(setting.folder))
    with setting.ledger("submissions") as ledger:
        single = rate(lambda number: ledger.request_many(NAME, [setting.submission(number)]))

        def many(number: int) -> None:
            some = range(number * 100, number * 100 + 100)
            ledger.request_many(NAME, [setting.submission(each) for each in some])

        bulk = 100 * rate(many)
    rates = {
        "fsync of 4 KiB": raw,
        "SQLite's smallest transaction, as safe": smallest,
        "requests, one a transaction": single,
        "requests, a hundred a transaction": bulk,
    }
    lines = [
        "| what | a second | of fsync | of the smallest transaction |",
        "| --- | --- | --- | --- |",
    ]
    for name, found in rates.items():
        lines.append(f"| {name} | {found:,.0f} | {found / raw:.2f} | {found / smallest:.2f} |")
    return lines


def _smallest_transactions(folder: Path) -> Callable[[int], object]:
    """One row a transaction, in a database that is opened as the ledger opens its own."""
    engine = Database.open(f"sqlite:///{folder / 'smallest'}").engine
    connection = engine.raw_connection()
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE smallest (id INTEGER PRIMARY KEY, cell BLOB)")

    def write(_: int) -> None:
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("INSERT INTO smallest (cell) VALUES (?)", (bytes(300),))
        connection.commit()

    return write


def listing(setting: Setting, number: int) -> list[str]:
    """Pages of a long list."""
    with setting.ledger("listing") as ledger:
        for start in range(0, number, 1000):
            ledger.request_many(NAME, [setting.submission(start + i) for i in range(1000)])
        pages = {
            "the newest 100": lambda: ledger.requests(),
            "100 from the middle": lambda: ledger.requests(after=number // 2),
            "100 of a model and a state": lambda: ledger.requests(NAME, states=[RequestState.RECEIVED]),
            "100 that wait": lambda: ledger.requests(states=STATES_WAITING),
            "one person's": lambda: ledger.requests(subject="person 7"),
            "how many in each state": ledger.number_by_state,
        }
        lines = [f"| of {number:,} requests | ms |", "| --- | --- |"]
        for name, ask in pages.items():
            ask()
            lines.append(f"| {name} | {1e3 / rate(lambda _, ask=ask: ask(), 1.0):.1f} |")
    return lines


def applying(setting: Setting) -> list[str]:
    """A thousand waiting requests, beside one call of unlearning on all their rows; new processes both."""
    table, out, place = (setting.folder / name for name in ("rows.csv", "out.unbayes", "applying"))
    commands = {
        "unbayes erase, all rows": ["erase", setting.file, table, "--ids", "id", "--out", out],
        f"unbayes apply, {WAITING:,} requests": ["apply", NAME, "--ledger", place],
    }
    times = {name: [] for name in commands}
    with setting.ledger(place.name) as ledger:
        for start in range(0, REPEATS * WAITING, WAITING):
            rows = range(start, start + WAITING)
            numbers = ledger.request_many(NAME, [setting.submission(row) for row in rows])
            with ledger._desk.writing() as store:
                store.change_many(numbers, RequestState.RECEIVED, RequestState.APPROVED)
            setting.write_table(table, rows)
            out.unlink(missing_ok=True)
            for name, command in commands.items():
                times[name].append(seconds_of(command))
    first = float(np.median(times["unbayes erase, all rows"]))
    lines = ["| in a new process | seconds | ratio |", "| --- | --- | --- |"]
    for name, taken in times.items():
        lines.append(f"| {name} | {np.median(taken):.2f} | {np.median(taken) / first:.2f} |")
    return lines


def history(setting: Setting, number: int) -> list[str]:
    """Reading the whole log."""
    with setting.ledger("history") as ledger:
        for start in range(0, number, 10_000):
            with ledger._desk.writing() as store:
                store.note(
                    *(
                        Happening(
                            EventKind.REQUEST_RECEIVED,
                            NAME,
                            start + i,
                            details={"reference": f"T{i}"} if i % 10 == 0 else None,
                        )
                        for i in range(10_000)
                    )
                )
        ledger.checkpoint()
        begin = time.perf_counter()
        state = ledger.verify_log()
        taken = time.perf_counter() - begin
    return ["| events | seconds to verify |", "| --- | --- |", f"| {state.events:,} | {taken:.1f} |"]


def main() -> None:
    """Measure, and write `ledger.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="in the long list")
    parser.add_argument("--events", type=int, default=1_000_000, help="in the long log")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory(dir=".", prefix=".ledger-") as folder:
        setting = prepare(Path(folder))
        parts = {
            "Submitting": submissions(setting),
            "Listing": listing(setting, arguments.requests),
            "Applying": applying(setting),
            "The log": history(setting, arguments.events),
        }
    text = "\n\n".join(f"## {name}\n\n" + "\n".join(lines) for name, lines in parts.items())
    print(text)
    path = Path(__file__).with_suffix(".md")
    path.write_text(f"# What the ledger costs\n\nSQLite, one writer.\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
