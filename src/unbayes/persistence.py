"""Posteriors and models in files: arrays and a description of them, never code and never training records.

A file is a zip of `manifest.json` and one uncompressed `.npy` entry per array. The manifest describes a tree
of registered classes, whose leaves are arrays, numbers and words; checksums tell of damage, not of malice.
"""

import collections.abc
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
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray

import unbayes
from unbayes import models, posteriors

FORMAT = "unbayes"
VERSION = 1
MANIFEST = "manifest.json"
DTYPES = ("bool", "int32", "int64", "float32", "float64")
SCALARS = (bool, int, float, str, type(None))
# At least as much as numpy writes in front of the numbers of an array.
HEADER_BYTES = 4096


class StoredFlow(eqx.Module):
    """What a file keeps of an `AutoregressiveFlow`: in place of flowjax's objects, their arrays in order."""

    leaves: tuple[jax.Array, ...]
    frame: posteriors.FullGaussian
    architecture: tuple[Any, ...]

    @classmethod
    def of(cls, flow: posteriors.AutoregressiveFlow) -> "StoredFlow":
        """Take a flow apart."""
        leaves = jax.tree.leaves(eqx.filter(flow.bijection, eqx.is_array))
        architecture = (flow.layers, flow.width, flow.depth, flow.inverse, flow.permutation)
        return cls(tuple(leaves), flow.frame.tree, architecture)

    def build(self) -> posteriors.AutoregressiveFlow:
        """Put the arrays into a new flow of the same architecture."""
        names = ("layers", "width", "depth", "inverse", "permutation")
        architecture = dict(zip(names, self.architecture, strict=True))

        def skeleton(frame):
            return posteriors.AutoregressiveFlow(frame, key=jax.random.key(0), **architecture)

        # Shapes first: an absurd architecture must not get as far as memory.
        deep = architecture["depth"] > len(self.leaves)
        shapes = [] if deep else jax.tree.leaves(eqx.filter_eval_shape(skeleton, self.frame).bijection)
        expected = [(leaf.shape, leaf.dtype) for leaf in shapes if isinstance(leaf, jax.ShapeDtypeStruct)]
        if expected != [(leaf.shape, leaf.dtype) for leaf in self.leaves]:
            raise ValueError("its arrays do not fit its architecture")
        flow = skeleton(self.frame)
        arrays, rest = eqx.partition(flow.bijection, eqx.is_array)
        stored = jax.tree.unflatten(jax.tree.structure(arrays), self.leaves)
        return eqx.tree_at(lambda f: f.bijection, flow, eqx.combine(stored, rest))


# All that a file can hold. A new class is one more line.
CLASSES: dict[str, type[eqx.Module]] = {
    "AutoregressiveFlow": StoredFlow,
    "Beta": posteriors.Beta,
    "DiagonalGaussian": posteriors.DiagonalGaussian,
    "Dirichlet": posteriors.Dirichlet,
    "FullGaussian": posteriors.FullGaussian,
    "Gamma": posteriors.Gamma,
    "NormalInverseGamma": posteriors.NormalInverseGamma,
    "Table": posteriors.Table,
    "BernoulliLikelihood": models.BernoulliLikelihood,
    "BetaBernoulli": models.BetaBernoulli,
    "CategoricalLikelihood": models.CategoricalLikelihood,
    "DensityModel": models.DensityModel,
    "DirichletCategorical": models.DirichletCategorical,
    "FunctionFeatures": models.FunctionFeatures,
    "GammaPoisson": models.GammaPoisson,
    "GammaShape": models.GammaShape,
    "GaussianLikelihood": models.GaussianLikelihood,
    "InducingInputs": models.InducingInputs,
    "LinearModel": models.LinearModel,
    "Matern": models.Matern,
    "PoissonLikelihood": models.PoissonLikelihood,
    "PolynomialFeatures": models.PolynomialFeatures,
    "RawFeatures": models.RawFeatures,
    "SquaredExponential": models.SquaredExponential,
    "UnknownNoiseRegression": models.UnknownNoiseRegression,
}
NAMES = {cls: name for name, cls in CLASSES.items()}


class UnreadableFile(ValueError):
    """A file that `load` refuses: damaged, edited, foreign, too new, or not fit for this session."""


class Saved(NamedTuple):
    """What a file held.

    Attributes
    ----------
    posterior
        The belief, bit for bit as it was saved.
    model
        The model, or None where none was saved.
    notes
        The caller's own notes, or None.
    """

    posterior: posteriors.AbstractPosterior
    model: models.AbstractModel | None
    notes: dict[str, Any] | None


def save(
    path: str | os.PathLike[str],
    posterior: posteriors.AbstractPosterior,
    model: models.AbstractModel | None = None,
    *,
    notes: dict[str, Any] | None = None,
) -> None:
    """Write a posterior, and the model that it belongs to, to one file.

    The file appears whole or not at all: whatever fails, one that was there before stays as it was. Functions
    (`FunctionFeatures.function`, the two log-densities of a `DensityModel`) are not stored, and neither are
    the weights of a network that is such a function; `load` asks for them.

    Parameters
    ----------
    path
        File to write or replace.
    posterior
        Belief with finite parameters, of one of the library's own classes.
    model
        Model built from the library's own classes.
    notes
        Whatever JSON can hold: how many records there were, how well training converged.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = {"posterior": _describe(posterior, "posterior", arrays), "model": _describe(model, "model", arrays)}
    _require_roots(posterior, model, arrays, ValueError)
    _require_notes(notes)
    entries = {name: _to_npy(array) for name, array in arrays.items()}
    table = {
        name: {"dtype": array.dtype.name, "shape": array.shape, "sha256": _digest(entries[name])}
        for name, array in arrays.items()
    }
    manifest = {"format": FORMAT, "version": VERSION, "library": unbayes.__version__}
    manifest |= {**tree, "notes": notes, "arrays": table}
    text = json.dumps({**manifest, "sha256": _digest(_canonical(manifest))}, indent=1, allow_nan=False)
    _write(Path(path), {MANIFEST: text.encode(), **{f"{name}.npy": data for name, data in entries.items()}})


def load(path: str | os.PathLike[str], *, functions: Mapping[str, Callable] | None = None) -> Saved:
    """Read what `save` wrote; no code is imported or run because a file says so.

    Parameters
    ----------
    path
        File to read.
    functions
        The functions that the model needs, by their place in it, such as
        ``{"model.features.function": network}``.

    Raises
    ------
    UnreadableFile
        Where the file cannot be trusted or understood, with a sentence that says why.
    """
    try:
        if Path(path).is_dir():
            raise UnreadableFile("it is a directory")
        with Path(path).open("rb") as file:
            manifest, arrays = _read(file)
        unused, idle = dict(arrays), dict(functions or {})
        posterior = _rebuild(manifest.get("posterior"), "posterior", unused, idle)
        model = _rebuild(manifest.get("model"), "model", unused, idle)
        if unused:
            raise UnreadableFile(f"it holds arrays that belong nowhere: {', '.join(unused)}")
        _require_roots(posterior, model, arrays, UnreadableFile)
    except UnreadableFile as error:
        raise UnreadableFile(f"{os.fspath(path)} cannot be loaded: {error}") from error.__cause__
    if idle:
        raise ValueError(f"functions must name functions of the saved model, got {', '.join(idle)}")
    return Saved(posterior, model, manifest.get("notes"))


def _describe(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Description of what stands at `path`, for JSON; arrays are put into `arrays`."""
    if isinstance(value, np.integer | np.bool_):
        value = value.item()
    if isinstance(value, SCALARS):
        return value
    if type(value) is tuple:
        return {"tuple": [_describe(part, f"{path}.{i}", arrays) for i, part in enumerate(value)]}
    if isinstance(value, jax.Array | np.ndarray):
        if value.dtype.name not in DTYPES:
            raise TypeError(f"{path} must have one of the types {', '.join(DTYPES)}, got {value.dtype}")
        arrays[path] = np.asarray(value, order="C")
        return {"array": path}
    stored = StoredFlow.of(value) if type(value) is posteriors.AutoregressiveFlow else value
    cls = type(stored)
    if cls not in NAMES:
        raise TypeError(f"{path} is a {cls.__module__}.{cls.__qualname__}, which unbayes cannot save")
    fields = {}
    for field in dataclasses.fields(cls):
        part, here = getattr(stored, field.name), f"{path}.{field.name}"
        if _is_function(field):
            fields[field.name] = {"function": here}
        else:
            _require_kind(part, field, here, TypeError)
            fields[field.name] = _describe(part, here, arrays)
    return {"class": NAMES[cls], "fields": fields}


def _rebuild(node: Any, path: str, arrays: dict[str, np.ndarray], functions: dict[str, Callable]) -> Any:
    """Inverse of `_describe`; what it uses, it takes out of `arrays` and `functions`."""
    match node:
        case bool() | int() | float() | str() | None:
            return node
        case {"tuple": [*parts]}:
            return tuple(_rebuild(part, f"{path}.{i}", arrays, functions) for i, part in enumerate(parts))
        case {"array": str(name)} if name in arrays:
            return jnp.asarray(arrays.pop(name))
        case {"function": str(name)}:
            if not callable(functions.get(name)):
                raise ValueError(f"functions must hold the function {name!r}, which no file can store")
            return functions.pop(name)
        case {"class": str(name), "fields": {**parts}} if name in CLASSES:
            return _assemble(CLASSES[name], parts, path, arrays, functions)
        case {"class": name, "fields": {}}:
            raise UnreadableFile(f"{path} is of the class {name!r}, which this version does not know")
    raise UnreadableFile(f"{path} is described in a way that this version does not understand")


def _assemble(cls, parts, path: str, arrays, functions):
    """An object with the given fields, as they were: no constructor changes them."""
    fields = dataclasses.fields(cls)
    if {field.name for field in fields} != set(parts):
        raise UnreadableFile(f"{path} has the fields {sorted(parts)}, which are not those of {NAMES[cls]}")
    module = object.__new__(cls)
    for field in fields:
        here = f"{path}.{field.name}"
        value = _rebuild(parts[field.name], here, arrays, functions)
        _require_kind(value, field, here, UnreadableFile)
        object.__setattr__(module, field.name, value)
    if not isinstance(module, StoredFlow):
        return module
    try:
        return module.build()
    except Exception as error:
        raise UnreadableFile(f"the flow at {path} cannot be rebuilt: {error}") from error


def _is_function(field: dataclasses.Field) -> bool:
    return typing.get_origin(field.type) is collections.abc.Callable


def _require_kind(value: Any, field: dataclasses.Field, path: str, error: type[Exception]) -> None:
    """Refuse a module, an array or a scalar where the field's annotation says otherwise."""
    kind: Any = (*SCALARS, np.integer, np.bool_, tuple)
    if isinstance(field.type, type) and issubclass(field.type, AbstractArray):
        kind = (jax.Array, np.ndarray)
    elif isinstance(field.type, type) and issubclass(field.type, eqx.Module):
        kind = field.type
    elif _is_function(field):
        kind = collections.abc.Callable
    if not isinstance(value, kind):
        raise error(f"{path} must be a {getattr(field.type, '__name__', field.type)}, got {type(value)}")


def _require_roots(posterior, model, arrays: dict[str, np.ndarray], error: type[Exception]) -> None:
    """Refuse what is no posterior or no model, and a posterior with parameters that are not finite."""
    if not isinstance(posterior, posteriors.AbstractPosterior):
        raise error(f"posterior must be a posterior, got {type(posterior).__name__}")
    if not isinstance(model, models.AbstractModel | None):
        raise error(f"model must be a model or None, got {type(model).__name__}")
    for name, array in arrays.items():
        fine = np.isfinite(array)
        if isinstance(posterior, posteriors.Table):  # A value of θ may have probability zero.
            fine |= (array == -np.inf) & (name == "posterior.natural_log_prob")
        if name.startswith("posterior.") and not fine.all():
            raise error(f"{name} must be finite, got {array[~fine][0]}")


def _require_notes(notes: Any) -> None:
    try:
        faithful = isinstance(notes, dict | None) and json.loads(_canonical(notes)) == notes
    except (TypeError, ValueError):
        faithful = False
    if not faithful:
        raise TypeError(
            f"notes must be a dict of what JSON keeps as it is (text keys, finite numbers, lists), got {notes!r}"
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
    """Replace the file at `path` in one step; without dates, so that the same content is the same file."""
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
    """Manifest and arrays of a file, once all its checksums are found to hold."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            if MANIFEST not in entries:
                raise UnreadableFile(f"it is a zip file without {MANIFEST}, not written by unbayes")
            size = os.fstat(file.fileno()).st_size
            stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries.values())
            if not stored or sum(entry.file_size for entry in archive.infolist()) > size:
                raise UnreadableFile("its entries would take more room than the file")
            manifest = _check_manifest(json.loads(archive.read(MANIFEST)))
            names = {f"{name}.npy" for name in manifest["arrays"]} | {MANIFEST}
            if names != set(entries) or len(entries) != len(archive.infolist()):
                odd = sorted(names ^ set(entries)) or "some twice"
                raise UnreadableFile(f"its entries are not those of its manifest: {odd}")
            return manifest, {
                name: _read_array(archive, entries[f"{name}.npy"], declared, name)
                for name, declared in manifest["arrays"].items()
            }
    except UnreadableFile:
        raise
    except (zipfile.BadZipFile, EOFError, RuntimeError, OSError, ValueError) as error:
        raise UnreadableFile(f"it is damaged, cut short or no zip file ({error})") from error


def _check_manifest(manifest: Any) -> dict[str, Any]:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UnreadableFile("its manifest was not written by unbayes")
    if (version := manifest.get("version")) != VERSION:
        raise UnreadableFile(f"it has format version {version}, this version of unbayes reads {VERSION}")
    digest = manifest.pop("sha256", None)
    if digest != _digest(_canonical(manifest)):
        raise UnreadableFile("its manifest was edited or damaged: the checksum does not match")
    if not isinstance(manifest.get("arrays"), dict):
        raise UnreadableFile("its manifest lists no arrays")
    return manifest


def _read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, declared: Any, name: str) -> np.ndarray:
    """One array, read only where its size is the one declared."""
    match declared:
        case {"dtype": str(dtype), "shape": [*shape], "sha256": str(digest)} if dtype in DTYPES:
            pass
        case _:
            raise UnreadableFile(f"the array {name} is not of a type that unbayes writes")
    if dtype.endswith("64") and jnp.result_type(float) != jnp.float64:
        raise UnreadableFile(f"{name} is {dtype}, which would lose digits; set jax_enable_x64 to load it")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise UnreadableFile(f"the array {name} has the impossible shape {shape}")
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size <= entry.file_size <= size + HEADER_BYTES:
        raise UnreadableFile(f"the array {name} of shape {shape} cannot be {entry.file_size} bytes long")
    data = archive.read(entry)
    if _digest(data) != digest:
        raise UnreadableFile(f"the array {name} is damaged: its checksum does not match")
    array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    if (array.dtype.name, list(array.shape)) != (dtype, shape):
        raise UnreadableFile(f"the array {name} is {array.dtype} {array.shape}, not as its manifest says")
    return array
