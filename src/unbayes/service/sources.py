"""The records of people, from the operator's own data."""

from collections.abc import Sequence
from http import HTTPStatus

from unbayes.data.refusal import Refused
from unbayes.ledger import Lookup, Records
from unbayes.ledger.records import TableColumns
from unbayes.service.problems import Problem

# Callers are not told where the data are, or how they look.
UNREADABLE = "the data source of this model cannot be read; unbayes request --source tells its operator why"


class Finder:
    """The records of some people, for one call: all are looked up at once, when the first is asked for.

    Parameters
    ----------
    lookup
        Where.
    columns
        Of the model.
    people
        Who.
    """

    def __init__(self, lookup: Lookup, columns: TableColumns, people: Sequence[str]):
        self._lookup, self._columns, self._people = lookup, columns, people
        self._found: dict[str, Records] | None = None

    def find(self, subject: str) -> Records:
        """The records of one of these people."""
        if self._found is None:
            try:
                self._found = self._lookup.find(self._people, self._columns)
            except Refused as error:
                raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, UNREADABLE) from error
        if subject not in self._found:
            raise Problem(HTTPStatus.NOT_FOUND, "the data source has no records of this person")
        return self._found[subject]
