"""Data sets from the folder that UNBAYES_DATA names, from the cache, or by download."""

import hashlib
import os
import warnings
import zlib
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
from sklearn.datasets import fetch_openml

from unbayes_paper.base import Records

BANKNOTE_FILE = "banknote_authentication.csv"
FASHION_FILE = "fashion_mnist.npz"
# Digests of all records, whatever their order.
BANKNOTE_DIGEST = "d66190285ede5c3507174c35d17e82ba"
FASHION_DIGEST = "1407ba87b7ea43c6cf3c2638b13fc74e"


class DataMissing(RuntimeError):
    """A data set was not found, and could not be downloaded or was not the expected one."""


def find(name: str) -> Path | None:
    """A file of the folder that UNBAYES_DATA names, or of the cache; None where it is in neither."""
    for folder in (os.environ.get("UNBAYES_DATA"), cache_folder()):
        if folder and (path := Path(folder) / name).is_file():
            return path
    return None


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unbayes"


def banknote() -> Records:
    """UCI banknote authentication: inputs (1372, 4) and classes 0 and 1."""
    path = find(BANKNOTE_FILE)
    if path is None:
        x, y = _download(1462, "banknote authentication", BANKNOTE_FILE)
        x, y = x.astype(float), y.astype(int) - y.astype(int).min()
        _require_digest("banknote authentication", x, y, BANKNOTE_DIGEST)
        _store(BANKNOTE_FILE, lambda file: np.savetxt(file, np.column_stack([x, y]), "%.10g", ","))
        return x, y
    table = np.loadtxt(path, delimiter=",")
    x, y = table[:, :4], table[:, 4].astype(int)
    _require_digest(str(path), x, y, BANKNOTE_DIGEST)
    return x, y


def fashion() -> tuple[Records, Records]:
    """Fashion-MNIST: 60,000 images of 784 pixels to train on, with classes 0 … 9, and 10,000 to test on."""
    path = find(FASHION_FILE)
    if path is None:
        x, y = _download(40996, "Fashion-MNIST", FASHION_FILE)
        x, y = x.astype(np.uint8), y.astype(np.uint8)
        _require_digest("Fashion-MNIST", x, y, FASHION_DIGEST)
        parts = [(x[:60_000], y[:60_000]), (x[60_000:], y[60_000:])]
        names = [f"{axis}_{part}" for part in ("train", "test") for axis in "xy"]
        arrays = dict(zip(names, (array for part in parts for array in part), strict=True))
        _store(FASHION_FILE, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    else:
        with np.load(path, allow_pickle=False) as file:
            parts = [(file[f"x_{part}"], file[f"y_{part}"]) for part in ("train", "test")]
        x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
        _require_digest(str(path), x, y, FASHION_DIGEST)
    train, test = ((x, y.astype(int)) for x, y in parts)
    return train, test


def digest(x: np.ndarray, y: np.ndarray) -> str:
    """Fingerprint of labelled records that does not depend on their order."""
    rounded = x if x.dtype == np.uint8 else np.round(x * 1e4).astype(np.int64)
    rows = np.column_stack([rounded, y.astype(rounded.dtype)])
    sums = np.sort([zlib.crc32(row.tobytes()) for row in rows])
    return hashlib.sha256(sums.astype(np.int64).tobytes()).hexdigest()[:32]


def _download(number: int, title: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    settings: Any = {"as_frame": False, "parser": "liac-arff", "data_home": cache_folder(), "n_retries": 1}
    try:
        with warnings.catch_warnings():
            # It warns before it tries again.
            warnings.simplefilter("ignore")
            found: Any = fetch_openml(data_id=number, **settings)
    except (URLError, OSError, ValueError) as error:
        raise DataMissing(
            f"{title} is needed: set UNBAYES_DATA to a folder that holds {name}, or go online so that data "
            f"set {number} can be downloaded from OpenML ({error})"
        ) from error
    return found.data, found.target


def _require_digest(what: str, x: np.ndarray, y: np.ndarray, expected: str) -> None:
    if (found := digest(x, y)) != expected:
        raise DataMissing(f"{what} does not hold the expected records: digest {found} instead of {expected}")


def _store(name: str, write) -> None:
    """Put a file into the cache, whole or not at all."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".unfinished-{os.getpid()}-{name}"
    try:
        with draft.open("wb") as file:
            write(file)
        draft.rename(folder / name)
    finally:
        draft.unlink(missing_ok=True)
