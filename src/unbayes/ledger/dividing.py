"""What each waiting request takes out of a base, and who is held back, and why.

A sentence on a request that is held back is kept in the clear: it repeats neither rows nor identifiers.
"""

import dataclasses
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from unbayes.ledger.entities import Request
from unbayes.ledger.records import Records

if TYPE_CHECKING:
    from unbayes.ledger.solving import Base
    from unbayes.unlearning import Statistics

NOT_OF_THE_MODEL = (
    "the model does not take its rows: their values are not of the kind that it was trained on; submit them "
    "as they were in the training table"
)


class Waiting(NamedTuple):
    """An approved request, its records, and keyed digests of their identifiers."""

    request: Request
    records: Records
    digests: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Share:
    """What one request takes out: its records less those that are gone already or were never there."""

    request: Request
    records: Records | None
    digests: tuple[str, ...]
    already: int
    unknown: int


class Absent(NamedTuple):
    """Records, by their digests, that are not among the training records that are left.

    Attributes
    ----------
    strangers
        Never trained on.
    spent
        Trained on, and taken out under another identifier: rows are known by their digits where training was
        given no identifiers.
    """

    strangers: frozenset[str] = frozenset()
    spent: frozenset[str] = frozenset()


def divide(
    base: "Base", before: "Statistics | None", waiting: Sequence[Waiting], gone: Set[str]
) -> tuple[list[Share], dict[int, str]]:
    """What each request takes out, the first to come first; and who is held back, and why.

    Parameters
    ----------
    base
        What the records are taken out of.
    before
        The sum of the statistics of what was taken out of it already.
    waiting
        Who asks for what.
    gone
        Digests of the records that were taken out of it already.
    """
    waiting, held = _readable(base, waiting)
    absent = _absent(base, before, waiting, gone)
    nowhere = absent.strangers | absent.spent
    shares, taken = [], set(gone)
    for request, records, digests in waiting:
        if nowhere.intersection(digests) and request.missing == "refuse":
            held[request.id] = _why(absent, digests)
            continue
        wanted = [row for row, digest in enumerate(digests) if digest not in taken and digest not in nowhere]
        own = tuple(digests[row] for row in wanted)
        taken.update(own)
        unknown = len(nowhere.intersection(digests))
        already = len(digests) - len(own) - unknown
        shares.append(Share(request, records.at(wanted) if wanted else None, own, already, unknown))
    return shares, held


def _why(absent: Absent, digests: Sequence[str]) -> str:
    found = []
    if strangers := len(absent.strangers.intersection(digests)):
        found.append(
            f"{strangers} of {len(digests)} records are not among those that the model was trained on"
        )
    if spent := len(absent.spent.intersection(digests)):
        found.append(f"{spent} of {len(digests)} records were taken out before, under other identifiers")
    return f"{', and '.join(found)}; approve with missing=skip leaves them out"


def _readable(base: "Base", waiting: Sequence[Waiting]) -> tuple[list[Waiting], dict[int, str]]:
    """Requests whose rows the model takes; and those whose rows it does not, and why."""
    held: dict[int, str] = {}
    try:
        if waiting:
            base.require_rows(Records.together([each.records for each in waiting]))
    except ValueError:
        for each in waiting:
            try:
                base.require_rows(each.records)
            except ValueError:
                held[each.request.id] = NOT_OF_THE_MODEL
    return [each for each in waiting if each.request.id not in held], held


def _absent(base: "Base", before: "Statistics | None", waiting: Sequence[Waiting], gone: Set[str]) -> Absent:
    """Records that are not there to be taken out, as far as the base tells; the first to ask has a record."""
    firsts: dict[str, Records] = {}
    for _, records, digests in waiting:
        for row, digest in enumerate(digests):
            if digest not in gone and digest not in firsts:
                firsts[digest] = records.at([row])
    if not firsts or base.roster is None:
        return Absent()
    rows = Records.together(list(firsts.values()))
    missing = [row for row, is_left in enumerate(base.found(rows, before)) if not is_left]
    if not missing:
        return Absent()
    gone_too = base.found(rows.at(missing))
    named = list(firsts)
    return Absent(
        frozenset(named[row] for row, was_there in zip(missing, gone_too, strict=True) if not was_there),
        frozenset(named[row] for row, was_there in zip(missing, gone_too, strict=True) if was_there),
    )
