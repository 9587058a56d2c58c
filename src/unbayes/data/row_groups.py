"""Row groups of Parquet files, read in little memory however large they are."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet

# Of each column, so much is read at once; a row group may hold gigabytes.
BUFFER_BYTES = 1 << 20
# From afar, a smaller row group is fetched whole: each single request takes its time.
FETCHED_BYTES = 1 << 28


class RowGroups:
    """Reads row groups of one file.

    Parameters
    ----------
    fragment
        The file, or some of its row groups, as Arrow's datasets have them.
    schema
        Of all columns, to which they are cast.
    """

    def __init__(self, fragment: Any, schema: "pyarrow.Schema"):
        from pyarrow import dataset

        self._fragment, self._schema = fragment, schema
        self._metadata: parquet.FileMetaData = fragment.metadata
        self._own = set(fragment.physical_schema.names)
        self._of_folders = dataset.get_partition_keys(fragment.partition_expression)
        self._is_here = _is_here(fragment.filesystem)

    def batches(
        self, group: int, columns: Sequence[str] | None, size: int
    ) -> "Iterator[pyarrow.RecordBatch]":
        """The records of a row group with these columns (None: all), at most `size` at a time."""
        from pyarrow import parquet

        columns = self._schema.names if columns is None else columns
        is_fetched = not self._is_here and self._metadata.row_group(group).total_byte_size <= FETCHED_BYTES
        with parquet.ParquetFile(
            self._fragment.open(),
            metadata=self._metadata,
            pre_buffer=is_fetched,
            buffer_size=0 if is_fetched else BUFFER_BYTES,
            page_checksum_verification=True,
        ) as file:
            for batch in file.iter_batches(
                batch_size=size,
                row_groups=[group],
                columns=[name for name in columns if name in self._own],
            ):
                yield self._shaped(batch, columns)

    def _shaped(self, batch: "pyarrow.RecordBatch", columns: Sequence[str]) -> "pyarrow.RecordBatch":
        """Columns in order and of the schema's types, with those that the names of folders tell."""
        import pyarrow

        found = []
        for name in columns:
            kind = self._schema.field(name).type
            if name in self._own:
                column = batch.column(name)
                found.append(column if column.type == kind else column.cast(kind))
            else:
                value = pyarrow.scalar(self._of_folders.get(name), kind)
                found.append(pyarrow.repeat(value, batch.num_rows))
        return pyarrow.RecordBatch.from_arrays(found, names=list(columns))


def _is_here(filesystem: Any) -> bool:
    while hasattr(filesystem, "base_fs"):
        filesystem = filesystem.base_fs
    return filesystem is None or filesystem.type_name == "local"
