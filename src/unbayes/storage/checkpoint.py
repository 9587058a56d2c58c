"""Sums of finished passes in a folder, from which training goes on after it was broken off."""

import os
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np

from unbayes._version import __version__
from unbayes.data.refusal import reason
from unbayes.inference.passes import AbstractCheckpoint
from unbayes.storage.archive import UnreadableFile, read_archive, write_archive
from unbayes.storage.tree import describe, rebuild

KIND = "pass"
# What its files are called, and those that a killed process has left unfinished.
NAME = re.compile(r"unbayes-pass-\d+\.checkpoint|\.unbayes-pass-\d+\.checkpoint\.[0-9a-f]+\.unbayes-tmp")


class Checkpoint(AbstractCheckpoint):
    """A folder in which the sums of finished passes are kept while training lasts.

    The same call with the same records goes on after the last pass that ended, with the same result to the
    last digit. Sums of the pass for the memory may hold a coreset, which is training data, or digests of all
    records: the folder is to be protected as the records are. It is emptied when training has ended, so that
    no erasure has to look there; whoever does not go on with training that was broken off removes it.

    Records are known again by their files' names, sizes and times, or by what arrays and
    tables hold. Whatever a function yields is taken for the same, and so are functions in a model that have
    the same name.

    Parameters
    ----------
    folder
        Where to; it is made if need be, for its owner alone.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"folder must be one that can be made or written to, but {folder}: {reason(error)}"
            ) from error

    def find(self, number: int, origin: str) -> Any | None:
        """The sum of that pass; None where there is none that can be read and belongs to the same work."""
        try:
            # Some sums are NumPy's, which are in 64 bits whatever JAX computes in.
            with jax.enable_x64(True):
                manifest, arrays = read_archive(self._place(number), KIND)
                if manifest["library"] != __version__:
                    return None
                found = rebuild(manifest["sums"], "sums", arrays, {})
        except (FileNotFoundError, UnreadableFile):
            return None
        if manifest["origin"] != origin:
            if number == 1:
                raise ValueError(
                    f"checkpoint must be of the same model, settings and records, but {self.folder} was "
                    "begun with others; give another folder, or empty this one"
                )
            return None
        leaves, structure = jax.tree.flatten(found)
        for place in manifest["numpy"]:
            leaves[place] = np.asarray(leaves[place])
        return jax.tree.unflatten(structure, leaves)

    def keep(self, number: int, origin: str, total: Any) -> None:
        """Write the sum of a pass to a file of its own, which appears whole or not at all."""
        leaves, structure = jax.tree.flatten(total)
        numpy = [place for place, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray | np.generic)]
        for place in numpy:
            leaves[place] = np.asarray(leaves[place])
        if not all(np.isfinite(leaf).all() for leaf in leaves):
            # A step went too far: that pass is taken again.
            return
        arrays: dict[str, np.ndarray] = {}
        sums = describe(jax.tree.unflatten(structure, leaves), "sums", arrays)
        # Its owner's alone, whoever may look into the folder.
        self._place(number).touch(mode=0o600)
        write_archive(self._place(number), KIND, {"origin": origin, "numpy": numpy, "sums": sums}, arrays)

    def clear(self) -> None:
        """Remove the files, and nothing else that is there."""
        for place in self.folder.iterdir() if self.folder.exists() else ():
            if NAME.fullmatch(place.name):
                place.unlink(missing_ok=True)

    def _place(self, number: int) -> Path:
        return self.folder / f"unbayes-pass-{number}.checkpoint"
