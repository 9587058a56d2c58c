"""One file on disk: a zip of `manifest.json` and one uncompressed `.npy` entry per array, with checksums.

Checksums tell of damage, not of malice. A file appears whole or not at all.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import jax.numpy as jnp
import numpy as np

from unbayes._replace import replacing
from unbayes._version import __version__

FORMAT, VERSION, MANIFEST = "unbayes", 2, "manifest.json"
READABLE_VERSIONS = (1, 2)
DTYPES = ("bool", "int32", "int64", "float32", "float64")
# At least as much as numpy writes in front of the numbers of an array.
HEADER_BYTES = 4096
# Levels of a description; a model has about five, and Python recurses into a thousand.
DEEPEST = 100


class UnreadableFile(ValueError):
    """A file that is refused: damaged, edited, foreign, too new, or not fit for this session."""


Place = str | os.PathLike[str] | BinaryIO


def write_archive(path: Place, kind: str, contents: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a description and the arrays that it names, in place of what was there, in one step.

    Parameters
    ----------
    path
        File to write or replace; whatever fails, one that was there before stays as it was. Or a stream.
    kind
        What the file holds, such as "model" or "statistics".
    contents
        The description, for JSON.
    arrays
        The arrays by their names.
    """
    if _depth(contents) > DEEPEST:
        raise ValueError(f"what is saved must be nested in at most {DEEPEST} levels, got more")
    entries = {name: _to_npy(array) for name, array in arrays.items()}
    table = {
        name: {"dtype": array.dtype.name, "shape": array.shape, "sha256": _digest(entries[name])}
        for name, array in arrays.items()
    }
    header = {"format": FORMAT, "version": VERSION, "library": __version__, "kind": kind}
    manifest = {**header, **contents, "arrays": table}
    text = json.dumps({**manifest, "sha256": _digest(canonical(manifest))}, indent=1)
    _write(path, {MANIFEST: text.encode(), **{f"{name}.npy": data for name, data in entries.items()}})


def read_archive(path: Place, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Manifest and arrays of a file of that kind, once every checksum is found to hold."""
    with _reading(path) as file:
        manifest, arrays = _read(file)
    if (found := manifest.get("kind", "model")) != kind:
        raise UnreadableFile(f"it holds {found}, not {kind}")
    return manifest, arrays


def canonical(value: Any) -> bytes:
    """JSON in which equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _to_npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def name_of(path: Place) -> str:
    """What messages call a place."""
    return os.fspath(path) if isinstance(path, str | os.PathLike) else "what was given"


def _reading(path: Place) -> contextlib.AbstractContextManager[BinaryIO]:
    if not isinstance(path, str | os.PathLike):
        return contextlib.nullcontext(path)
    if Path(path).is_dir():
        raise UnreadableFile("it is a directory")
    return Path(path).open("rb")


def _writing(path: Place) -> contextlib.AbstractContextManager[BinaryIO]:
    is_file = isinstance(path, str | os.PathLike)
    return replacing(Path(path)) if is_file else contextlib.nullcontext(path)


def _write(path: Place, entries: dict[str, bytes]) -> None:
    """Write a zip without dates, so that equal contents are equal files."""
    with _writing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data)


def _read(file: BinaryIO) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Manifest and arrays, once every checksum is found to hold."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            names = sorted(entry.filename for entry in entries)
            if MANIFEST not in names:
                raise UnreadableFile(f"it was not written by unbayes: there is no {MANIFEST} in it")
            if sum(entry.file_size for entry in entries) > file.seek(0, os.SEEK_END):
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
    if (found := manifest.get("version")) not in READABLE_VERSIONS:
        raise UnreadableFile(f"it has format version {found}; this version of unbayes reads up to {VERSION}")
    if manifest.pop("sha256", None) != _digest(canonical(manifest)):
        raise UnreadableFile("its manifest was edited or damaged: its checksum does not match")
    if _depth(manifest) > DEEPEST + 1:
        raise UnreadableFile(f"its description is nested in more than {DEEPEST} levels")
    if not isinstance(manifest.get("notes"), dict | None):
        raise UnreadableFile("its notes are no dict")
    return manifest


def _depth(value: Any) -> int:
    """Levels of dicts and lists within each other; counted without recursion."""
    depth, level = 0, [value]
    while level := [node for node in level if isinstance(node, dict | list | tuple)]:
        depth += 1
        level = [part for node in level for part in (node.values() if isinstance(node, dict) else node)]
    return depth


def _read_array(archive: zipfile.ZipFile, name: str, dtype: str, shape: list[int], sha256: str) -> np.ndarray:
    """One array; its size is checked before it is read, its kind before it is parsed."""
    if dtype not in DTYPES:
        raise UnreadableFile(f"{name} has the type {dtype}, which unbayes does not write")
    if dtype.endswith("64") and jnp.result_type(float) != jnp.float64:
        raise UnreadableFile(
            f"{name} is {dtype}, which would lose digits where JAX computes in 32 bits; call "
            'jax.config.update("jax_enable_x64", True) first, or set JAX_ENABLE_X64=1 in the environment'
        )
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
