"""Whom the next training has to leave out: keyed digests of records, and filters for what holds them."""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbayes.data.names import names_of
from unbayes.ledger.desk import Desk
from unbayes.ledger.errors import LedgerError
from unbayes.ledger.keys import Keys
from unbayes.ledger.states import TO_LEAVE_OUT
from unbayes.progress import AbstractProgress, Silent

if TYPE_CHECKING:
    import numpy as np

# Where the notes of a model file say whom its training left out.
NOTE = "left_out"


@dataclasses.dataclass(frozen=True)
class Suppression:
    """The records to leave out of a training.

    Attributes
    ----------
    ledger
        Identifier of the ledger that lists them.
    ids
        The column that names records.
    digests
        Keyed digests of the records, in order.
    requests
        The request of each.
    """

    ledger: str
    ids: str
    digests: tuple[str, ...]
    requests: tuple[int, ...]
    keys: Keys = dataclasses.field(repr=False)

    @property
    def note(self) -> dict[str, Any]:
        """What the notes of a model say that was trained without them, under "left_out"."""
        return {
            "ledger": self.ledger,
            "requests": _ranges(self.requests),
            "digest": self._digest(self.requests),
        }

    def keep(self, ids: Iterable[Any], what: str = "ids") -> "np.ndarray":
        """Which records to train on, shape (n,): those that are not listed.

        Identifiers are words or whole numbers, also where these were read as floats; others are refused, by a
        sentence that calls them `what`.
        """
        import numpy as np

        listed, digest = frozenset(self.digests), self.keys.digest
        return np.array([digest("record", name) not in listed for name in names_of(ids, what)], bool)

    def count(self, ids: Iterable[Any]) -> int:
        """How many of these records are listed."""
        return int((~self.keep(ids)).sum())

    def filter_frame(self, frame: Any, ids: str | None = None) -> Any:
        """A pandas or Polars data frame without the listed records."""
        column = ids or self.ids
        if column not in frame.columns:
            raise LedgerError(f"the table must have a column {column}, which names records")
        keep = self.keep(frame[column].to_list(), f"column {column}")
        return frame[keep] if hasattr(frame, "iloc") else frame.filter(keep)

    def filter_parquet(
        self, source: Path, out: Path, ids: str | None = None, progress: AbstractProgress | None = None
    ) -> int:
        """Write a Parquet file without the listed records, batch by batch; how many were left out."""
        from pyarrow import array, parquet

        from unbayes._replace import replacing

        column, dropped = ids or self.ids, 0
        file = parquet.ParquetFile(source)
        if column not in file.schema_arrow.names:
            raise LedgerError(f"{source} must have a column {column}, which names records")
        with (
            (progress or Silent()).track("filtering", file.metadata.num_rows) as advance,
            replacing(out) as target,
            parquet.ParquetWriter(target, file.schema_arrow) as writer,
        ):
            for batch in file.iter_batches():
                keep = self.keep(batch.column(column).to_pylist(), f"column {column} of {source}")
                dropped += int((~keep).sum())
                writer.write_batch(batch.filter(array(keep)))
                advance(batch.num_rows, f"{dropped} left out")
        return dropped

    def requests_in(self, note: dict[str, Any]) -> set[int]:
        """The requests that a note says were left out; refuses one that was made of another list."""
        try:
            numbers = {n for first, last in note["requests"] for n in range(int(first), int(last) + 1)}
        except (KeyError, TypeError, ValueError):
            raise LedgerError(f"the note {NOTE!r} of the file was not made by suppression.note") from None
        listed = sorted(set(self.requests) & numbers)
        if note.get("digest") != self._digest(listed):
            raise LedgerError(f"the note {NOTE!r} of the file is not of this list: somebody was not left out")
        return set(listed)

    def _digest(self, requests: Iterable[int]) -> str:
        wanted = set(requests)
        listed = [each for each, number in zip(self.digests, self.requests, strict=True) if number in wanted]
        return hashlib.sha256("".join(sorted(set(listed))).encode()).hexdigest()


def suppressed(desk: Desk, name: str) -> Suppression:
    """The records that the next training of a model has to leave out."""
    with desk.reading() as store:
        model = store.model(name)
        pairs = list(store.to_leave_out(model, TO_LEAVE_OUT))
        ledger = store.setting("ledger")
    digests, requests = tuple(each for _, each in pairs), tuple(number for number, _ in pairs)
    return Suppression(ledger, model.columns.ids, digests, requests, desk.keys)


def _ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers as ranges from and to."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
