"""Iceberg tables: the records of one snapshot, without those that were taken out."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from unbayes.data.files import PART_ROWS
from unbayes.data.readers import AbstractReader, Piece
from unbayes.data.refusal import Refused
from unbayes.data.where import Condition, operand_of, require_columns

if TYPE_CHECKING:
    import pyarrow
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata


def is_iceberg(data: Any) -> bool:
    """Whether data are a table of pyiceberg's, or a scan of one."""
    kinds = {(each.__module__.split(".")[0], each.__name__) for each in type(data).__mro__}
    return bool(kinds & {("pyiceberg", "Table"), ("pyiceberg", "DataScan")})


@dataclasses.dataclass(frozen=True)
class IcebergReader(AbstractReader):
    """Some data files of a snapshot; of each, the columns that are read are in memory at once.

    Attributes
    ----------
    metadata, io
        The table, and what opens its files.
    schema
        Its columns.
    row_filter
        Which records are wanted.
    tasks
        Data files that may hold them, with what was deleted from each.
    """

    metadata: "TableMetadata"
    io: "FileIO"
    schema: "Schema"
    row_filter: "BooleanExpression"
    tasks: "tuple[FileScanTask, ...]"

    @classmethod
    def open(cls, data: Any, conditions: tuple[Condition, ...]) -> "IcebergReader":
        """The data files of the snapshot at which a table or a scan of one is."""
        scan = data if hasattr(data, "row_filter") else data.scan()
        name = scan.table_metadata.location
        if scan.limit is not None:
            raise Refused(f"{name}: a scan must have no limit, which would choose records by chance")
        schema = scan.projection()
        kinds = schema.as_arrow()
        require_columns(conditions, kinds.names)
        for condition in conditions:
            scan = scan.filter(_filter(condition, kinds))
        try:
            tasks = tuple(scan.plan_files())
        except (ValueError, OSError) as error:
            raise Refused(f"{name} cannot be read: {_fault(error)}") from error
        return cls(scan.table_metadata, scan.io, schema, scan.row_filter, tasks)

    @property
    def rows(self) -> int | None:
        """From the table's metadata, where all records are wanted and none was deleted from a file."""
        from pyiceberg.expressions import AlwaysTrue

        if self.row_filter != AlwaysTrue() or any(each.delete_files for each in self.tasks):
            return None
        return sum(each.file.record_count for each in self.tasks)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.as_arrow().names)

    def signature(self) -> tuple[Any, ...]:
        """The data files, which never change, what was deleted from them, and which records are wanted."""
        files = [each.file_path for task in self.tasks for each in (task.file, *task.delete_files)]
        return sorted(files), str(self.schema), repr(self.row_filter)

    def pieces(self, columns, size) -> Iterator[Piece]:
        """File by file."""
        import pyarrow
        from pyiceberg.io.pyarrow import ArrowScan

        columns = self.names if columns is None else columns
        scan = ArrowScan(self.metadata, self.io, self.schema.select(*columns), self.row_filter)
        for task in self.tasks:
            path, row = task.file.file_path, 0
            is_whole = self.rows is not None
            name = path if is_whole else f"{path}, of the records wanted"
            try:
                for batch in scan.to_record_batches([task]):
                    for first in range(0, batch.num_rows, size):
                        yield Piece(name, row + first, batch.select(columns).slice(first, size))
                    row += batch.num_rows
            except (pyarrow.ArrowException, OSError) as error:
                raise Refused(f"{path} cannot be read: {_fault(error)}") from error

    def parts(self) -> "list[IcebergReader]":
        """Data files in bundles of about a million records."""
        bundles: list[list[FileScanTask]] = [[]]
        rows = 0
        for task in self.tasks:
            if bundles[-1] and rows >= PART_ROWS:
                bundles.append([])
                rows = 0
            bundles[-1].append(task)
            rows += task.file.record_count
        return [dataclasses.replace(self, tasks=tuple(bundle)) for bundle in bundles]


def _filter(condition: Condition, schema: "pyarrow.Schema") -> "BooleanExpression":
    """A condition as Iceberg has them; it is null where the column's cell is, as everywhere else."""
    import pyiceberg.expressions

    expressions: Any = pyiceberg.expressions
    name, operator, _ = condition
    operand = operand_of(condition, schema)
    if operator in ("in", "named", "not in"):
        values = operand.to_pylist()
        known = [each for each in values if each is not None]
        if operator == "not in":
            found = expressions.NotIn(name, known)
            return found if len(known) == len(values) else expressions.And(found, expressions.NotNull(name))
        found = expressions.In(name, known)
        if known:
            # Iceberg compares no more than 200 values with the statistics of a file, but ranges always.
            least = expressions.GreaterThanOrEqual(name, min(known))
            found = expressions.And(found, least, expressions.LessThanOrEqual(name, max(known)))
        return found if len(known) == len(values) else expressions.Or(found, expressions.IsNull(name))
    kind = {
        "==": expressions.EqualTo,
        "!=": expressions.NotEqualTo,
        "<": expressions.LessThan,
        "<=": expressions.LessThanOrEqual,
        ">": expressions.GreaterThan,
        ">=": expressions.GreaterThanOrEqual,
    }[operator]
    return kind(name, operand.as_py())


def _fault(error: Exception) -> str:
    """What went wrong, without what stands in the file."""
    if isinstance(error, FileNotFoundError):
        return "the file is gone, as files are once their snapshots have expired"
    if "equality delete" in str(error).lower():
        return "rows were deleted from it by their values, which pyiceberg does not apply; compact it first"
    return "it is damaged, or of another format"
