"""The records of a person, from the operator's own table."""

from http import HTTPStatus

from unbayes.data.choosing import require_found
from unbayes.data.rows import PARQUET_SUFFIXES
from unbayes.ledger import Records
from unbayes.ledger.records import TableColumns
from unbayes.service.problems import Problem
from unbayes.service.settings import Source
from unbayes.service.table_reader import ArrowRows


class Lookup:
    """The records of people in one table, for one call.

    Of a Parquet file, only the parts are read that may have some. A CSV file is read once, however many
    people are looked for.
    """

    def __init__(self, source: Source, columns: TableColumns):
        self._source, self._columns = source, columns
        self._people: dict[str, Records] | None = None

    def find(self, subject: str) -> Records:
        """The records of a person."""
        is_parquet = self._source.path.suffix.lower() in PARQUET_SUFFIXES
        found = _parquet(self._source, self._columns, subject) if is_parquet else self._csv(subject)
        if found is None:
            raise Problem(HTTPStatus.NOT_FOUND, "the data source has no records of this person")
        return found

    def _csv(self, subject: str) -> Records | None:
        if self._people is None:
            self._people = dict(Records.by_subject(self._source.path, self._columns, self._source.subject))
        return self._people.get(subject)


def _parquet(source: Source, columns: TableColumns, subject: str) -> Records | None:
    import pyarrow
    from pyarrow import compute, dataset, types

    data = dataset.dataset(source.path, format="parquet")
    require_found([*columns.numbers, columns.ids, source.subject], data.schema.names, "the data source")
    kind, person = data.schema.field(source.subject).type, compute.field(source.subject)
    if types.is_integer(kind):
        # Compared as a number, so that parts of the file can be passed over.
        if not subject.isdecimal() or str(int(subject)) != subject:
            return None
        try:
            is_theirs = person == pyarrow.scalar(int(subject), kind)
        except (pyarrow.ArrowInvalid, OverflowError):
            return None
    else:
        is_theirs = person == subject
    table = data.to_table(columns=[*columns.numbers, columns.ids], filter=is_theirs)
    if not table.num_rows:
        return None
    rows = ArrowRows(table)
    return Records(tuple(rows.words(columns.ids)), rows.numbers(columns.numbers))
