"""Posteriors and models in files: arrays and a description of them, never code and never training records.

A file is a zip of `manifest.json` and one uncompressed `.npy` entry per array. The manifest describes a tree
of registered classes whose leaves are arrays, numbers and words. Checksums tell of damage, not of malice.
"""

import dataclasses
import hashlib
import io
import json
import math
import os
import secrets
import typing
import zipfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unbayes import memory as memories
from unbayes import models, posteriors

FORMAT, VERSION, MANIFEST = "unbayes", 1, "manifest.json"
LIBRARY = version("unbayes")
DTYPES = ("bool", "int32", "int64", "float32", "float64")
# At least as much as numpy writes in front of the numbers of an array.
HEADER_BYTES = 4096

# All that a file can hold. A new class is one more line.
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        posteriors.AutoregressiveFlow,
        posteriors.Beta,
        posteriors.DiagonalGaussian,
        posteriors.Dirichlet,
        posteriors.FullGaussian,
        posteriors.Gamma,
        posteriors.GaussianNatural,
        posteriors.NormalInverseGamma,
        posteriors.Table,
        models.BernoulliLikelihood,
        models.BetaBernoulli,
        models.CategoricalLikelihood,
        models.DensityModel,
        models.DirichletCategorical,
        models.FunctionFeatures,
        models.GammaPoisson,
        models.GammaShape,
        models.GaussianLikelihood,
        models.InducingInputs,
        models.LinearEvidence,
        models.LinearModel,
        models.Matern,
        models.PoissonLikelihood,
        models.PolynomialFeatures,
        models.ProbitLikelihood,
        models.RawFeatures,
        models.SquaredExponential,
        models.UnknownNoiseRegression,
        models.WhitenedInducingInputs,
        memories.Memory,
    )
}
# Fields that came later: a file without them means these values.
LATER_FIELDS: dict[str, dict[str, Any]] = {"LinearModel": {"offset": None}}


class UnreadableFile(ValueError):
    """A file that `load` refuses: damaged, edited, foreign, too new, or not fit for this session."""


class Saved(NamedTuple):
    """What a file held; `model`, `memory` and `notes` are None where none were saved."""

    posterior: posteriors.AbstractPosterior
    model: models.AbstractModel | None
    memory: memories.Memory | None
    notes: dict[str, Any] | None


def save(
    path: str | os.PathLike[str],
    posterior: posteriors.AbstractPosterior,
    model: models.AbstractModel | None = None,
    *,
    memory: memories.Memory | None = None,
    notes: dict[str, Any] | None = None,
) -> None:
    """Write a posterior, the model that it belongs to, and what training kept besides, to one file.

    The file appears whole or not at all: whatever fails, one that was there before stays as it was. Functions
    (`FunctionFeatures.function`, the two log-densities of a `DensityModel`) are not stored, and neither are
    the weights of a network that is such a function; `load` asks for them.

    Parameters
    ----------
    path
        File to write or replace.
    posterior, model
        Built from the library's own classes; the posterior's parameters must be finite.
    memory
        What unlearning may use, `trained.memory`. A coreset in it is training data, and then so is the file.
    notes
        Whatever JSON can hold: how many records there were, how well training converged.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = {
        "posterior": _describe(posterior, "posterior", arrays),
        "model": _describe(model, "model", arrays),
        "memory": _describe(memory, "memory", arrays),
    }
    _require_roots(posterior, model, memory, arrays, ValueError)
    _require_notes(notes)
    entries = {name: _to_npy(array) for name, array in arrays.items()}
    table = {
        name: {"dtype": array.dtype.name, "shape": array.shape, "sha256": _digest(entries[name])}
        for name, array in arrays.items()
    }
    header = {"format": FORMAT, "version": VERSION, "library": LIBRARY}
    manifest = {**header, **tree, "notes": notes, "arrays": table}
    text = json.dumps({**manifest, "sha256": _digest(_canonical(manifest))}, indent=1)
    _write(Path(path), {MANIFEST: text.encode(), **{f"{name}.npy": data for name, data in entries.items()}})


def load(path: str | os.PathLike[str], *, functions: Mapping[str, Callable] | None = None) -> Saved:
    """Read what `save` wrote, bit for bit; no code is imported or run because a file says so.

    Parameters
    ----------
    path
        File to read; `UnreadableFile` says why, where it cannot be trusted or understood.
    functions
        The model's functions by their place in it, such as ``{"model.features.function": network}``.
    """
    try:
        if Path(path).is_dir():
            raise UnreadableFile("it is a directory")
        with Path(path).open("rb") as file:
            manifest, arrays = _read(file)
        unused, idle = dict(arrays), dict(functions or {})
        posterior = _rebuild(manifest.get("posterior"), "posterior", unused, idle)
        model = _rebuild(manifest.get("model"), "model", unused, idle)
        memory = _rebuild(manifest.get("memory"), "memory", unused, idle)
        if unused:
            raise UnreadableFile(f"it holds arrays that belong nowhere: {', '.join(unused)}")
        _require_roots(posterior, model, memory, arrays, UnreadableFile)
    except UnreadableFile as error:
        raise UnreadableFile(f"{os.fspath(path)} cannot be loaded: {error}") from error.__cause__
    if idle:
        raise ValueError(f"functions must name functions of the saved model, got {', '.join(idle)}")
    return Saved(posterior, model, memory, manifest.get("notes"))


def _describe(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Description of what stands at `path`, for JSON; arrays are put into `arrays`."""
    if isinstance(value, bool | int | float | str | None):
        return value
    if type(value) is tuple:
        return {"tuple": [_describe(part, f"{path}.{i}", arrays) for i, part in enumerate(value)]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: _describe(part, f"{path}.{key}", arrays) for key, part in value.items()}}
    if isinstance(value, jax.Array | np.ndarray):
        if value.dtype.name not in DTYPES:
            raise TypeError(f"{path} must have one of the types {', '.join(DTYPES)}, got {value.dtype}")
        arrays[path] = np.asarray(value, order="C")
        return {"array": path}
    cls = type(value)
    if CLASSES.get(cls.__name__) is not cls:
        raise TypeError(f"{path} is a {cls.__module__}.{cls.__qualname__}, which unbayes cannot save")
    fields = {}
    for name, kind in _fields(cls).items():
        part, here = getattr(value, name), f"{path}.{name}"
        if isinstance(value, posteriors.AutoregressiveFlow):
            part = _flow_part(value, name)
        is_function = typing.get_origin(kind) is Callable
        fields[name] = {"function": here} if is_function else _describe(part, here, arrays)
    return {"class": cls.__name__, "fields": fields}


def _rebuild(node: Any, path: str, arrays: dict[str, np.ndarray], functions: dict[str, Callable]) -> Any:
    """Inverse of `_describe`; what it uses, it takes out of `arrays` and `functions`."""
    match node:
        case bool() | int() | float() | str() | None:
            return node
        case {"tuple": [*parts]}:
            return tuple(_rebuild(part, f"{path}.{i}", arrays, functions) for i, part in enumerate(parts))
        case {"dict": {**parts}}:
            return {key: _rebuild(part, f"{path}.{key}", arrays, functions) for key, part in parts.items()}
        case {"array": str(name)} if name in arrays:
            return jnp.asarray(arrays.pop(name))
        case {"function": str(name)}:
            if not callable(functions.get(name)):
                raise ValueError(f"functions must hold the function {name!r}, which no file can store")
            return functions.pop(name)
        case {"class": str(name), "fields": {**parts}}:
            if (cls := CLASSES.get(name)) is None:
                raise UnreadableFile(f"{path} is of the class {name!r}, which this version does not know")
            parts = {**LATER_FIELDS.get(name, {}), **parts}
            if set(parts) != set(_fields(cls)):
                raise UnreadableFile(f"{path} has the fields {sorted(parts)}, not those of {name}")
            fields = {key: _rebuild(part, f"{path}.{key}", arrays, functions) for key, part in parts.items()}
            if cls is posteriors.AutoregressiveFlow:
                return _build_flow(path, **fields)
            if issubclass(cls, tuple):
                return cls(**fields)
            module = object.__new__(cls)  # No constructor gets to change the fields.
            for key, value in fields.items():
                object.__setattr__(module, key, value)
            return module
    raise UnreadableFile(f"{path} is described in a way that this version does not understand")


def _fields(cls: type) -> dict[str, Any]:
    """Names and types of the fields of a module or a named tuple."""
    if issubclass(cls, tuple):
        return dict(cls.__annotations__)
    return {field.name: field.type for field in dataclasses.fields(cls)}


def _flow_part(flow: posteriors.AutoregressiveFlow, name: str) -> Any:
    """A field of a flow without the classes of other libraries: of the networks, their arrays in order."""
    if name == "bijection":
        return tuple(jax.tree.leaves(eqx.filter(flow.bijection, eqx.is_array)))
    return flow.frame.tree if name == "frame" else getattr(flow, name)


def _build_flow(path: str, bijection, frame, **architecture) -> posteriors.AutoregressiveFlow:
    """Put the stored arrays into a new flow of the same architecture."""

    def skeleton(frame):
        return posteriors.AutoregressiveFlow(frame, key=jax.random.key(0), **architecture)

    def signature(tree):
        return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape")]

    try:
        # Shapes first: an absurd architecture must not get as far as memory.
        fits = architecture["depth"] <= len(bijection)
        if not fits or signature(eqx.filter_eval_shape(skeleton, frame).bijection) != signature(bijection):
            raise ValueError("its arrays do not fit its architecture")
        flow = skeleton(frame)
        arrays, rest = eqx.partition(flow.bijection, eqx.is_array)
        stored = jax.tree.unflatten(jax.tree.structure(arrays), bijection)
        return eqx.tree_at(lambda f: f.bijection, flow, eqx.combine(stored, rest))
    except Exception as error:
        raise UnreadableFile(f"{path} cannot be rebuilt as a flow: {error}") from error


def _require_roots(posterior, model, memory, arrays: dict[str, np.ndarray], error: type[ValueError]) -> None:
    """Refuse what is no posterior, model or memory, and a posterior or memory that is not finite."""
    if not isinstance(posterior, posteriors.AbstractPosterior):
        raise error(f"posterior must be a posterior, got {type(posterior).__name__}")
    if not isinstance(model, models.AbstractModel | None):
        raise error(f"model must be a model or None, got {type(model).__name__}")
    if not isinstance(memory, memories.Memory | None):
        raise error(f"memory must be a memory or None, got {type(memory).__name__}")
    for name, array in arrays.items():
        fine = np.isfinite(array)
        if isinstance(posterior, posteriors.Table) and name == "posterior.natural_log_prob":
            fine |= array == -np.inf  # A value of θ may have probability zero.
        if name.startswith(("posterior.", "memory.")) and not fine.all():
            raise error(f"{name} must be finite, got {array[~fine][0]}")


def _require_notes(notes: Any) -> None:
    try:
        faithful = isinstance(notes, dict | None) and json.loads(_canonical(notes)) == notes
    except (TypeError, ValueError):
        faithful = False
    if not faithful:
        raise TypeError(
            f"notes must be a dict that JSON returns unchanged (no tuples, no NaN), got {notes!r}"
        )


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _to_npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def _write(path: Path, entries: dict[str, bytes]) -> None:
    """Replace the file at `path` in one step; without dates, so that equal contents are equal files."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.unbayes-tmp")
    try:
        with temporary.open("xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, data in entries.items():
                    archive.writestr(zipfile.ZipInfo(name), data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read(file: BinaryIO) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Manifest and arrays, once every checksum is found to hold."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            names = sorted(entry.filename for entry in entries)
            if MANIFEST not in names:
                raise UnreadableFile(f"it was not written by unbayes: there is no {MANIFEST} in it")
            if sum(entry.file_size for entry in entries) > os.fstat(file.fileno()).st_size:
                raise UnreadableFile("its entries claim more room than the file has")
            manifest = _check_manifest(json.loads(archive.read(MANIFEST)))
            if names != sorted([MANIFEST, *(f"{name}.npy" for name in manifest["arrays"])]):
                raise UnreadableFile("its entries are not those that its manifest lists")
            arrays = {n: _read_array(archive, n, **entry) for n, entry in manifest["arrays"].items()}
            return manifest, arrays
    except UnreadableFile:
        raise
    except Exception as error:  # Damaged bytes make zipfile, json and numpy fail in a dozen ways.
        raise UnreadableFile(f"it is damaged, cut short or not a zip file ({error})") from error


def _check_manifest(manifest: Any) -> dict[str, Any]:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UnreadableFile("it was not written by unbayes: its manifest is of another kind")
    if (found := manifest.get("version")) != VERSION:
        raise UnreadableFile(f"it has format version {found}; this version of unbayes reads {VERSION}")
    if manifest.pop("sha256", None) != _digest(_canonical(manifest)):
        raise UnreadableFile("its manifest was edited or damaged: its checksum does not match")
    return manifest


def _read_array(archive: zipfile.ZipFile, name: str, dtype: str, shape: list[int], sha256: str) -> np.ndarray:
    """One array; its size is checked before it is read, its kind before it is parsed."""
    if dtype not in DTYPES:
        raise UnreadableFile(f"{name} has the type {dtype}, which unbayes does not write")
    if dtype.endswith("64") and jnp.result_type(float) != jnp.float64:
        raise UnreadableFile(f"{name} is {dtype} and would lose digits; set jax_enable_x64 first")
    entry, size = archive.getinfo(f"{name}.npy"), math.prod(shape) * np.dtype(dtype).itemsize
    if not size <= entry.file_size <= size + HEADER_BYTES:
        raise UnreadableFile(f"{name} of shape {shape} cannot take {entry.file_size} bytes")
    data = archive.read(entry)
    if _digest(data) != sha256:
        raise UnreadableFile(f"{name} was edited or damaged: its checksum does not match")
    stream = io.BytesIO(data)
    np.lib.format.read_magic(stream)
    found, _, kind = np.lib.format.read_array_header_1_0(stream)
    if (found, kind) != (tuple(shape), np.dtype(dtype)):
        raise UnreadableFile(f"{name} is {kind} of shape {found}, not {dtype} of shape {shape}")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
