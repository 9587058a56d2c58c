"""Posteriors, models, memories and statistics in files: arrays and a description, never code."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from unbayes.data.choosing import noted_columns
from unbayes.data.columns import Columns
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior
from unbayes.storage.archive import Place, UnreadableFile, canonical, name_of, read_archive, write_archive
from unbayes.storage.check import check_fit
from unbayes.storage.tree import describe, rebuild
from unbayes.unlearning.statistics import Statistics


class Saved(NamedTuple):
    """What a file held; `model`, `memory` and `notes` are None where none were saved."""

    posterior: AbstractPosterior
    model: AbstractModel | None
    memory: Memory | None
    notes: dict[str, Any] | None

    @property
    def columns(self) -> Columns | None:
        """The columns of tables of its records, as training encoded them; None where none were noted."""
        inputs, target = noted_columns(self.notes or {})
        return None if inputs is target is None else Columns(inputs, target)


def save(
    path: Place,
    posterior: AbstractPosterior,
    model: AbstractModel | None = None,
    *,
    memory: Memory | None = None,
    columns: Columns | None = None,
    notes: dict[str, Any] | None = None,
) -> None:
    """Write a posterior, the model that it belongs to, and what training kept besides, to one file.

    The file appears whole or not at all: whatever fails, one that was there before stays as it was. Functions
    (`FunctionFeatures.function`, the two log-densities of a `DensityModel`) are not stored, and neither are
    the weights of a network that is such a function; `load` asks for them.

    Parameters
    ----------
    path
        File to write or replace, or a stream to write to.
    posterior, model
        Built from the library's own classes; the posterior's parameters must be finite.
    memory
        What unlearning may use, `trained.memory`. A coreset in it is training data, and then so is the file.
    columns
        The `Columns` of the training records, by which records to erase are found in tables and encoded. They
        are written in the clear, categories too, and go into the notes: names alone can be given there as
        ``{"columns": ["age", "dose"], "target": "healed"}``, the inputs in the model's order.
    notes
        Whatever JSON can hold: how many records there were, how well training converged. The command
        `unbayes erase` adds what it erased under "erasures".
    """
    notes = _with_columns(notes, columns, model)
    arrays: dict[str, np.ndarray] = {}
    tree = {
        "posterior": describe(posterior, "posterior", arrays),
        "model": describe(model, "model", arrays),
        "memory": describe(memory, "memory", arrays),
    }
    _require_roots(posterior, model, memory, arrays, ValueError)
    _require_notes(notes)
    write_archive(path, "model", {**tree, "notes": notes}, arrays)


def load(path: Place, *, functions: Mapping[str, Callable] | None = None) -> Saved:
    """Read what `save` wrote, bit for bit; no code but the library's own is imported because a file says so.

    Parameters
    ----------
    path
        File or stream to read; `UnreadableFile` says why, where it cannot be trusted or understood.
    functions
        The model's functions by their place in it, such as ``{"model.features.function": network}``.
    """
    try:
        manifest, arrays = read_archive(path, "model")
        unused, idle = dict(arrays), dict(functions or {})
        found = {
            name: rebuild(_upgraded(manifest.get(name), arrays), name, unused, idle)
            for name in ("posterior", "model", "memory")
        }
        if unused:
            raise UnreadableFile(f"it holds arrays that belong nowhere: {', '.join(unused)}")
        _require_roots(**found, arrays=arrays, error=UnreadableFile)
    except UnreadableFile as error:
        raise UnreadableFile(f"{name_of(path)} cannot be loaded: {error}") from error.__cause__
    if idle:
        raise ValueError(f"functions must name functions of the saved model, got {', '.join(idle)}")
    return Saved(**found, notes=manifest.get("notes"))


def save_statistics(path: Place, statistics: Statistics) -> None:
    """Write what `summarise` returned, or a sum of it, to one file: sums and digests, no rows.

    The sums still tell of the erased records, above all those of a few records: protect the file as you would
    protect the records, and delete it once it was solved for.
    """
    if not isinstance(statistics, Statistics):
        raise TypeError(f"statistics must be a sum of what summarise returned, got {statistics!r}")
    arrays: dict[str, np.ndarray] = {}
    tree = describe(statistics, "statistics", arrays)
    _require_finite(arrays, ValueError)
    write_archive(path, "statistics", {"statistics": tree}, arrays)


def load_statistics(path: Place) -> Statistics:
    """Read what `save_statistics` wrote, bit for bit, or raise `UnreadableFile` with a reason."""
    try:
        manifest, arrays = read_archive(path, "statistics")
        _require_finite(arrays, UnreadableFile)
        unused = dict(arrays)
        found = rebuild(manifest.get("statistics"), "statistics", unused, {})
        if unused:
            raise UnreadableFile(f"it holds arrays that belong nowhere: {', '.join(unused)}")
        if not isinstance(found, Statistics):
            raise UnreadableFile(f"statistics must be statistics, got {type(found).__name__}")
    except UnreadableFile as error:
        raise UnreadableFile(f"{name_of(path)} cannot be loaded: {error}") from error.__cause__
    return found


def _upgraded(node: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """A description of format 1 in the words of format 2, where a precision has a class."""
    match node:
        case {"class": "GaussianNatural", "fields": {"precision": {"array": str(name)}, **others}}:
            is_dense = name in arrays and len(arrays[name].shape) == 2
            cls = "DensePrecision" if is_dense else "DiagonalPrecision"
            precision = {"class": cls, "fields": {"entries": {"array": name}}}
            return {"class": "GaussianNatural", "fields": {**others, "precision": precision}}
        case {"class": name, "fields": {**parts}}:
            return {"class": name, "fields": {key: _upgraded(part, arrays) for key, part in parts.items()}}
    return node


def _require_finite(arrays: Mapping[str, np.ndarray], error: type[ValueError]) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise error(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")


def _require_roots(posterior, model, memory, arrays: dict[str, np.ndarray], error: type[ValueError]) -> None:
    """Refuse what is no posterior, model or memory, is not finite, or does not belong together."""
    if not isinstance(posterior, AbstractPosterior):
        raise error(f"posterior must be a posterior, got {type(posterior).__name__}")
    if not isinstance(model, AbstractModel | None):
        raise error(f"model must be a model or None, got {type(model).__name__}")
    if not isinstance(memory, Memory | None):
        raise error(f"memory must be a memory or None, got {type(memory).__name__}")
    # Where no annotation tells, as in a coreset or in the networks of a flow.
    infinite = {f"posterior.{name}" for name in posterior.infinite_fields}
    parts = {n: a for n, a in arrays.items() if n.startswith(("posterior.", "memory.")) and n not in infinite}
    _require_finite(parts, error)
    check_fit(posterior, model, memory, error)


def _with_columns(
    notes: dict[str, Any] | None, columns: Columns | None, model: AbstractModel | None
) -> dict[str, Any] | None:
    """The notes, which tell the columns; refuses those that do not fit the model."""
    if columns is None:
        return notes
    if not isinstance(columns, Columns):
        raise TypeError(f"columns must be Columns, got {type(columns).__name__}")
    if not {"columns", "target"}.isdisjoint(notes or {}):
        raise ValueError('notes must not hold "columns" or "target" where columns are given')
    features = getattr(model, "features", None)
    if features is not None:
        columns.require_width(features.inputs)
    return {**(notes or {}), **columns.to_json()}


def _require_notes(notes: Any) -> None:
    try:
        faithful = isinstance(notes, dict | None) and json.loads(canonical(notes)) == notes
    except (TypeError, ValueError):
        faithful = False
    if not faithful:
        raise TypeError(
            f"notes must be a dict that JSON returns unchanged (no tuples, no NaN), got {notes!r}"
        )
