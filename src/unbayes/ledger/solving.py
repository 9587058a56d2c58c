"""What the ledger asks of the library: pure work on a base, with nothing of the database in it.

Version k of a model is *defined* as solve(base, sum of the statistics of its requests), never as a step upon
version k - 1, so errors do not pile up and a repetition gives the same again.
"""

import contextlib
import dataclasses
import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from unbayes._fork import require_usable_process
from unbayes.data.refusal import Refused
from unbayes.ledger.entities import Model
from unbayes.ledger.errors import LedgerError
from unbayes.ledger.records import Records
from unbayes.progress import AbstractProgress
from unbayes.storage import Saved, UnreadableFile, load, load_statistics, save, save_statistics
from unbayes.storage.archive import read_archive
from unbayes.training import refine
from unbayes.trust import RetrainingNeeded
from unbayes.trust.reach import require_reach
from unbayes.unlearning import Statistics, Unlearned, solve, summarise

# Where nothing tells a record but what it is called.
NO_ROSTER = (
    "the model was trained without a roster: whether a record was in it, or was taken out before, is told by "
    "its identifier alone"
)


@dataclasses.dataclass(frozen=True)
class Base:
    """A trained model, from which records are taken out."""

    saved: Saved
    key: Any
    tolerance: float

    @property
    def roster(self) -> Any:
        """Marks of the training records, or None."""
        return None if self.saved.memory is None else self.saved.memory.roster

    @property
    def is_named(self) -> bool:
        """Whether training was given identifiers."""
        memory = self.saved.memory
        return memory is not None and memory.marker is not None and memory.marker.is_named

    @property
    def caveats(self) -> tuple[str, ...]:
        """What nobody can check of what is taken out of it, or stays as it was."""
        columns = self.saved.columns
        unknown = () if self.roster is not None else (NO_ROSTER,)
        return unknown if columns is None else (*unknown, *columns.caveats)

    def require_rows(self, records: Records) -> None:
        """Refuse, by ValueError, rows that the model does not take."""
        model = self.saved.model
        assert model is not None
        require_reach(self.saved.posterior, model, model.encode(self.rows(records), "rows"), "rows")

    def found(self, records: Records, before: Statistics | None = None) -> np.ndarray:
        """Which of the records were trained on and are left, shape (n,), by the roster.

        `before` is the sum of the statistics of what was taken out.
        """
        model, memory = self.saved.model, self.saved.memory
        assert model is not None
        assert memory is not None
        assert memory.roster is not None
        if before is not None and before.provenance.members is not None:
            memory = dataclasses.replace(memory, roster=memory.roster.without(before.provenance.members))
        rows = model.rows(self.rows(records), "rows")
        found = memory.sight(rows, records.ids if self.is_named else None).rows
        assert found is not None
        return found

    def rows(self, records: Records) -> Any:
        """Records as the model takes them."""
        numbers = records.numbers
        return (numbers[:, :-1], numbers[:, -1]) if self.inputs is not None else numbers[:, 0]

    @property
    def inputs(self) -> int | None:
        """Number of inputs that the model takes; None where its records are one column."""
        features = getattr(self.saved.model, "features", None)
        return None if features is None else features.inputs

    def summarise(self, records: Records) -> Statistics:
        """What these records leave behind."""
        assert self.saved.model is not None
        return summarise(
            self.saved.posterior,
            self.saved.model,
            self.rows(records),
            memory=self.saved.memory,
            ids=records.ids if self.is_named or self.roster is None else None,
            key=self.key,
        )

    def solve(self, statistics: Statistics, progress: AbstractProgress | None = None) -> Unlearned | str:
        """The model without the records that the statistics sum over; a sentence where there is none."""
        assert self.saved.model is not None
        try:
            return solve(
                self.saved.posterior,
                self.saved.model,
                statistics,
                memory=self.saved.memory,
                tolerance=self.tolerance,
                key=self.key,
                progress=progress,
            )
        except RetrainingNeeded as error:
            return str(error)

    def without(self, result: Unlearned) -> bytes:
        """The file of the recovered belief: belief and model, no memory."""
        return to_bytes(bare(self.saved._replace(posterior=result.posterior)))

    def refined(self, start: Saved, remaining: Records, progress: AbstractProgress | None) -> Saved:
        """The belief of a version, trained on with the remaining records."""
        assert start.model is not None
        rows = self.rows(remaining)
        trained = refine(start.posterior, start.model, rows, key=self.key, progress=progress)  # type: ignore
        return start._replace(posterior=trained.posterior, memory=trained.memory)


@contextlib.contextmanager
def opened(data: bytes, model: Model | None = None) -> Iterator[Base]:
    """A base from the bytes of its file, in whose precision everything within the block is computed."""
    require_usable_process()
    settings = None if model is None else model.settings
    with jax.enable_x64(True):
        manifest, _ = read_archive(io.BytesIO(data), "model")
    has_doubles = any(entry["dtype"].endswith("64") for entry in manifest["arrays"].values())
    with jax.enable_x64(has_doubles):
        seed, tolerance = (0, 1.0) if settings is None else (settings.seed, settings.tolerance)
        yield Base(load(io.BytesIO(data)), jax.random.key(seed), tolerance)


def read_model_file(path: Path) -> bytes:
    """The bytes of a model file that a ledger can work with, or a sentence on why it cannot."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    try:
        with opened(data) as base:
            if base.saved.model is None:
                raise Refused(f"{path} must hold a model, but holds a posterior alone")
            if base.saved.model.holds_functions:
                raise Refused(f"{path} holds a model with functions, which a ledger cannot load")
    except UnreadableFile as error:
        raise Refused(f"{path} cannot be registered: {error}") from error
    return data


def bare(saved: Saved) -> Saved:
    """Belief, model and columns alone, for predictions."""
    return saved._replace(memory=None, notes=None if saved.columns is None else saved.columns.to_json())


def digest(data: bytes) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(data).hexdigest()


def to_bytes(saved: Saved) -> bytes:
    """The file that `save` would write."""
    stream = io.BytesIO()
    save(stream, saved.posterior, saved.model, memory=saved.memory, notes=saved.notes)
    return stream.getvalue()


def statistics_to_bytes(statistics: Statistics) -> bytes:
    """The file that `save_statistics` would write."""
    stream = io.BytesIO()
    save_statistics(stream, statistics)
    return stream.getvalue()


def statistics_from_bytes(data: bytes) -> Statistics:
    """What `statistics_to_bytes` made a file of; refuses what another version of the library wrote."""
    try:
        return load_statistics(io.BytesIO(data))
    except UnreadableFile as error:
        raise LedgerError(
            f"the sum of what was taken out cannot be read by this version of unbayes; train anew: {error}"
        ) from error


def require_same_origin(before: Statistics | None, own: Statistics) -> None:
    """Refuse a sum to which nothing can be added any more, as after the library has changed."""
    if before is not None and before.origin != own.origin:
        raise LedgerError(
            "nothing can be added to the sum of what was taken out, which another version of unbayes made: "
            "train anew, and rebase"
        )


def sum_of(parts: Sequence[Statistics | None]) -> Statistics:
    """Their sum."""
    found = [part for part in parts if part is not None]
    return sum(found[1:], start=found[0])
