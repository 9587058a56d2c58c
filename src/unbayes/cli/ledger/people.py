"""Whose records a request is about, and where they are."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from unbayes.data.refusal import Refused, reason

if TYPE_CHECKING:
    from unbayes.ledger.records import Records, TableColumns

STANDARD_INPUT = Path("-")
# Places in a list of people that a sentence names.
LISTED = 10


class Asking(NamedTuple):
    """A person who asks, their records, and the key of the request."""

    subject: str
    records: "Records"
    key: str | None


@dataclasses.dataclass(frozen=True)
class People:
    """What the options say of who asks and where their records are; refuses what does not go together.

    Attributes
    ----------
    rows, by
        A file with the records that are meant, and its column that says whose each is.
    source, person
        Where records are looked up, and the column that says whose each is.
    subject, subjects
        Who; or a file that lists them.
    found_only
        Whether those of whom nothing is found are left out.
    key
        Of the request; those of several have a number each.
    """

    rows: Path | None
    by: str | None
    source: str | None
    person: str | None
    subject: tuple[str, ...]
    subjects: Path | None
    found_only: bool
    key: str | None

    def __post_init__(self):
        if (self.rows is None) == (self.source is None):
            raise Refused("where the records are is said by either --rows or --source")
        if self.rows is not None:
            if self.person is not None or self.subjects is not None or self.found_only:
                raise Refused("--person, --subjects and --found-only belong to --source, not to --rows")
            if len(self.subject) + (self.by is not None) != 1:
                raise Refused("who asks is said by either --subject or --by")
        else:
            if self.by is not None:
                raise Refused("--by belongs to --rows; --source has --person, the column that says whose")
            if self.person is None:
                raise Refused("--source needs --person, the column that says whose a record is")
            if bool(self.subject) == (self.subjects is not None):
                raise Refused("whose records are looked up is said by either --subject or --subjects")

    def asking(self, columns: "TableColumns") -> list[Asking]:
        """Everybody who asks, with their records."""
        from unbayes.ledger.records import Records

        if self.rows is None:
            return self._look_up(columns)
        if self.by is not None:
            everybody = enumerate(Records.by_subject(self.rows, columns, self.by), 1)
            return [Asking(who, records, self._key(place)) for place, (who, records) in everybody]
        return [Asking(self.subject[0], Records.of_table(self.rows, columns), self.key)]

    def _look_up(self, columns: "TableColumns") -> list[Asking]:
        from unbayes.ledger.lookup import Lookup

        people = list(dict.fromkeys(self.subject if self.subjects is None else _read(self.subjects)))
        found = Lookup(self.source, self.person or "").find(people, columns)
        self._tell_missing([place for place, who in enumerate(people, 1) if who not in found], len(people))
        if len(people) == 1:
            return [Asking(people[0], found[people[0]], self.key)]
        numbered = enumerate(people, 1)
        return [Asking(who, found[who], self._key(place)) for place, who in numbered if who in found]

    def _tell_missing(self, missing: list[int], number: int) -> None:
        """Refuse, or say, that there are no records of some; by their places, as lists may be shared."""
        if not missing:
            return
        if number == 1:
            raise Refused(f"{self.source} has no records of this person: nothing was taken in")
        places = ", ".join(map(str, missing[:LISTED])) + (", …" if len(missing) > LISTED else "")
        said = f"{self.source} has no records of {len(missing)} of the {number} people (number {places})"
        if not self.found_only or len(missing) == number:
            raise Refused(f"{said}: nothing was taken in")
        typer.echo(f"{said}: they are left out", err=True)

    def _key(self, place: int) -> str | None:
        """A place in the list instead of a name: keys are kept as they are."""
        return None if self.key is None else f"{self.key}/{place}"


def _read(path: Path) -> list[str]:
    """The people that a file lists, one in each line."""
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
        lines = data.decode("utf-8-sig").splitlines()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path} must be text in UTF-8, one person in a line") from error
    people = [line.strip() for line in lines if line.strip()]
    if not people:
        raise Refused(f"{path} must list people, one in a line, but is empty")
    return people
