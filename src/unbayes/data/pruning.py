"""Which files and row groups may hold records that are wanted, by what statistics tell of them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from unbayes.data.files import FilePart
from unbayes.data.where import Condition, expression_of, told_by_bounds

if TYPE_CHECKING:
    import pyarrow


def may_hold(bounds: Sequence[Condition], conditions: Sequence[Condition], schema: "pyarrow.Schema") -> bool:
    """Whether records may meet conditions if all of them that have no gaps are within bounds."""
    from pyarrow import dataset, fs

    kind = dataset.ParquetFileFormat()
    some = kind.make_fragment("", fs.LocalFileSystem(), expression_of(bounds, schema))
    files = dataset.FileSystemDataset([some], schema, kind, some.filesystem)
    return bool(list(files.get_fragments(filter=expression_of(told_by_bounds(conditions), schema))))


def has_views(fragment: Any, conditions: Sequence[Condition]) -> bool:
    """Whether a column in a condition is stored as a string view, as by deltalake: Arrow has no filter."""
    from pyarrow import types

    own = fragment.physical_schema
    places = [own.get_field_index(name) for name, _, _ in conditions]
    return any(place >= 0 and types.is_string_view(own.field(place).type) for place in places)


def row_groups(
    fragment: Any, conditions: Sequence[Condition], schema: "pyarrow.Schema"
) -> Iterator[FilePart]:
    """The row groups of a file that may hold what is wanted, where Arrow itself cannot tell."""
    first = 0
    for group in fragment.row_groups:
        statistics = group.statistics or {}
        bounds = [
            (name, operator, statistics[name][end])
            for name, _, _ in conditions
            for operator, end in ((">=", "min"), ("<=", "max"))
            if statistics.get(name, {}).get(end) is not None
        ]
        if may_hold(bounds, conditions, schema):
            part = fragment.subset(row_group_ids=[group.id])
            yield FilePart(part, fragment.path, first, group.num_rows, group.id)
        first += group.num_rows
