"""Flights in files: what the processes of `scale.py` do with the paper's airline experiment."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as pq

import unbayes as ub
from scale_work import KEY, peak
from unbayes_paper import airline, data, flights
from unbayes_paper.base import Records

SHARE = 30


def found() -> bool:
    """Whether the files are here."""
    return all(data.find(name) is not None for name in (flights.FLIGHTS_FILE, flights.AIRPORTS_FILE))


def prepare(folder: str, rows: int | None) -> dict[str, Any]:
    """The model, and three files: all flights, those to erase, a thirtieth at random, and the others."""
    place, path = Path(folder), data.find(flights.FLIGHTS_FILE)
    assert path is not None
    table = pq.read_table(path).slice(0, rows)
    is_erased = np.zeros(len(table), bool)
    is_erased[np.random.default_rng(0).choice(len(table), len(table) // SHARE, replace=False)] = True
    for name, chosen in (("all", None), ("erased", is_erased), ("others", ~is_erased)):
        kept = table if chosen is None else table.filter(pyarrow.array(chosen))
        pq.write_table(kept, place / f"{name}.parquet")
    stream = airline.standardised(flights.flights())
    model = airline.sparse_gp(stream, seed=0)
    units = {"centre": stream.centre.tolist(), "scale": stream.scale.tolist()}
    ub.save(place / "model.unbayes", model.prior, model, notes=units)
    return {"flights": len(table), "erased": int(is_erased.sum())}


def train(folder: str, name: str) -> dict[str, Any]:
    """Fit to one of the files."""
    place = Path(folder)
    saved = ub.load(place / "model.unbayes")
    began = time.perf_counter()
    trained = ub.fit(saved.model, _scan(place, name, saved.notes), key=KEY)
    seconds = time.perf_counter() - began
    ub.save(place / f"{name}.unbayes", trained.posterior, saved.model, memory=trained.memory)
    return {"seconds": seconds, "passes": trained.passes, "peak": peak()}


def erase(folder: str) -> dict[str, Any]:
    """Take those of the second file out of what was trained on the first."""
    place = Path(folder)
    notes = ub.load(place / "model.unbayes").notes
    full, others = (ub.load(place / f"{name}.unbayes") for name in ("all", "others"))
    began = time.perf_counter()
    result = ub.unlearn(
        full.posterior, full.model, _scan(place, "erased", notes), memory=full.memory, key=KEY
    )
    return {
        "seconds": time.perf_counter() - began,
        "verdict": str(result.verdict),
        "nats": float(ub.metrics.parameter_kl(result.posterior, others.posterior).value),
        "nats without": float(ub.metrics.parameter_kl(full.posterior, others.posterior).value),
        "peak": peak(),
    }


def _scan(place: Path, name: str, notes: dict[str, Any]) -> ub.Scan:
    return ub.scan(place / f"{name}.parquet", columns=_encoder(notes))


def _encoder(notes: dict[str, Any]) -> Callable[[Any], Records]:
    """Flights in the units of training."""
    airports = data.find(flights.AIRPORTS_FILE)
    assert airports is not None
    encode, centre, scale = flights.encoder(airports), np.array(notes["centre"]), np.array(notes["scale"])

    def standardised(batch):
        x, y = encode(batch)
        return (x - centre[:-1]) / scale[:-1], (y - centre[-1]) / scale[-1]

    return standardised
