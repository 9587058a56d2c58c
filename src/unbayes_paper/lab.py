"""Settings of a run (quick or full, seeds), and the store of what earlier runs computed."""

import dataclasses
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

import unbayes as ub
from unbayes.progress import AbstractProgress, Silent
from unbayes_paper.base import Descent, Optimizer


class Kept(NamedTuple):
    """A posterior, what is known of it (whatever JSON can hold), and its memory."""

    posterior: Any
    facts: dict[str, Any]
    memory: ub.Memory | None = None


@dataclasses.dataclass(frozen=True)
class Lab:
    """What an experiment is given.

    Attributes
    ----------
    folder
        Where results are kept, so that an interrupted run goes on where it was.
    quick
        Fewer iterations and seeds.
    seeds
        How often to repeat; None leaves that to the experiment.
    optimizer
        What the paper's stochastic methods follow; None leaves that to the experiment.
    progress
        Told about long work.
    say
        Told in a sentence what is being done.
    """

    folder: Path
    quick: bool = False
    seeds: int | None = None
    optimizer: Optimizer | None = None
    progress: AbstractProgress = dataclasses.field(default_factory=Silent)
    say: Callable[[str], None] = lambda text: None

    def choose(self, quick: Any, full: Any) -> Any:
        """`quick` in a quick run, else `full`."""
        return quick if self.quick else full

    def descent(self, quick: Descent, full: Descent) -> Descent:
        """The same of how the paper's methods run, by the optimiser of this run if it has one."""
        chosen = self.choose(quick, full)
        return chosen if self.optimizer is None else chosen._replace(optimizer=self.optimizer)

    def repetitions(self, quick: int = 1, full: int = 3) -> range:
        """Seeds to run."""
        return range(self.seeds if self.seeds is not None else self.choose(quick, full))

    def recall(self, what: str, depends_on: Any, compute: Callable[[], Sequence[Kept]]) -> list[Kept]:
        """The result of `compute`, read from the folder where `depends_on` is as it was before."""
        place = self.folder / f"{_file_name(what)}-{fingerprint(what, depends_on)}"
        if place.is_dir():
            files = sorted(place.glob("*.unbayes"), key=lambda file: int(file.stem))
            return [Kept(saved.posterior, saved.notes or {}, saved.memory) for saved in map(ub.load, files)]
        self.say(what)
        found = list(compute())
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=self.folder, prefix=".unfinished-"))
        try:
            for index, (posterior, facts, memory) in enumerate(found):
                ub.save(draft / f"{index}.unbayes", posterior, memory=memory, notes=facts)
            draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return found


def fingerprint(*things: Any) -> str:
    """Digest of arrays and of the text of everything else, leaving out memory addresses."""
    arrays, rest = eqx.partition(things, lambda leaf: eqx.is_array(leaf) or isinstance(leaf, np.ndarray))
    text = re.sub(r" at 0x[0-9a-f]+", "", str(rest))
    digest = hashlib.blake2b(json.dumps([ub.__version__, text]).encode(), digest_size=10)
    for leaf in jax.tree.leaves(arrays):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower())
