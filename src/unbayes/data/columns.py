"""`Columns`: how the columns of tables become the numbers that a model takes, the same way every time."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from unbayes.data.encoding import AbstractEncoder, Words, counted_from, numbers_of, spans, words_of
from unbayes.data.refusal import BadRow, Refused

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

# Categories that a message names.
NAMED_CATEGORIES = 5


@dataclasses.dataclass(frozen=True)
class Column:
    """One column, and how its cells become numbers.

    Attributes
    ----------
    name
        What it is called.
    categories
        The words that it may hold, in order; whole numbers stand as their digits. An input becomes as many
        numbers, one of them 1 and the others 0; a target becomes its place, from 0. None for a column of
        numbers.
    mean, scale
        Of numbers: `mean` is taken from each, and what is left divided by `scale`.
    """

    name: str
    categories: tuple[str, ...] | None = None
    mean: float = 0.0
    scale: float = 1.0

    def __post_init__(self):
        if not isinstance(self.name, str) or not self.name:
            raise Refused(f"a column must have a name, got {self.name!r}")
        frame = (self.mean, self.scale)
        if not all(isinstance(each, numbers.Real) and math.isfinite(each) for each in frame):
            raise Refused(f"column {self.name} must have a finite mean and scale, got {frame}")
        object.__setattr__(self, "mean", float(self.mean))
        object.__setattr__(self, "scale", float(self.scale))
        if self.scale <= 0:
            raise Refused(f"column {self.name} must have a positive scale, got {self.scale}")
        if self.categories is not None:
            self._check_categories(self.categories)

    def _check_categories(self, categories: Any) -> None:
        is_list = isinstance(categories, list | tuple) and all(isinstance(each, str) for each in categories)
        if not is_list or not categories or len({*categories}) < len(categories):
            raise Refused(f"column {self.name} must have different words as its categories")
        if (self.mean, self.scale) != (0.0, 1.0):
            raise Refused(f"column {self.name} must have categories or a mean and a scale, got both")
        object.__setattr__(self, "categories", tuple(categories))

    @property
    def is_plain(self) -> bool:
        """Whether its numbers stay as they are."""
        return self == Column(self.name)

    @property
    def width(self) -> int:
        """How many inputs it becomes."""
        return 1 if self.categories is None else len(self.categories)

    @property
    def form(self) -> Any:
        """The same for JSON: its name, or a dict of what it says besides."""
        if self.is_plain:
            return self.name
        if self.categories is not None:
            return {"name": self.name, "categories": list(self.categories)}
        return {"name": self.name, "mean": self.mean, "scale": self.scale}

    @classmethod
    def of_form(cls, form: Any) -> Self:
        """What `form` gave."""
        if isinstance(form, cls):
            return form
        if isinstance(form, str):
            return cls(form)
        fields = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(form, Mapping) or "name" not in form or not {*form} <= fields:
            raise Refused("a column must be a name, or a dict of its name, categories, mean and scale")
        return cls(**form)

    def places(self, words: Words) -> "np.ndarray":
        """Which of the categories each cell is, from 0; refuses others."""
        import numpy as np

        known = {name: place for place, name in enumerate(self.categories or ())}
        places = np.array([known.get(word, -1) for word in words.words], int)[words.cells]
        if (places < 0).any():
            listed = ", ".join([*known][:NAMED_CATEGORIES]) + (", …" if len(known) > NAMED_CATEGORIES else "")
            what = f"column {self.name} must be one of the categories of training ({listed}), but is another"
            raise BadRow(int(np.argmax(places < 0)), what)
        return places


@dataclasses.dataclass(frozen=True)
class Columns(AbstractEncoder):
    """Which columns of a table a model takes, and how training turned them into numbers.

    Give them to `scan` for training and for erasing alike: what was learnt from the training records stays as
    it is, so that a record is always encoded the same way. `save` keeps them beside the model.

    Attributes
    ----------
    inputs
        Names of the inputs, or `Column`s, in the model's order; none where records are a target alone.
    target
        The target; None for inputs alone.
    """

    inputs: tuple[Column, ...] = ()
    target: Column | None = None

    def __init__(self, inputs: "Iterable[str | Column] | None" = (), target: "str | Column | None" = None):
        if isinstance(inputs, str):
            raise Refused("inputs must be a list of names, got one name; give [name]")
        object.__setattr__(self, "inputs", tuple(Column.of_form(each) for each in inputs or ()))
        object.__setattr__(self, "target", None if target is None else Column.of_form(target))
        if not self.inputs and self.target is None:
            raise Refused("columns must name inputs, a target, or both, got neither")

    @classmethod
    def of(
        cls,
        data: Any,
        *,
        target: str | None = None,
        inputs: Sequence[str] | None = None,
        categories: Sequence[str] = (),
        standardise: bool = True,
        **settings: Any,
    ) -> "Columns":
        """What training records tell of their columns, from one pass over them.

        Parameters
        ----------
        data
            The training records, as `scan` takes them.
        target
            Name of the target. Numbers stay as they are, words become classes.
        inputs
            Names of the inputs, by default all but the target, `ids` and those in `where`.
        categories
            Columns of whole numbers that stand for categories. Columns of words do in any case.
        standardise
            Whether inputs that are numbers get a mean of 0 and a standard deviation of 1 over these records.
        settings
            `ids`, `where`, `format`, `storage_options` and `batch_rows`, as for `scan`.
        """
        from unbayes.data.surveying import survey

        return cls(*survey(data, inputs, target, tuple(categories), standardise, settings))

    @property
    def all(self) -> list[Column]:
        """Inputs, then the target."""
        return [*self.inputs, *([] if self.target is None else [self.target])]

    @property
    def columns(self) -> list[str]:
        """Names of the columns that it reads: inputs, then the target."""
        return [each.name for each in self.all]

    @property
    def width(self) -> int:
        """Number of inputs that a model of them takes."""
        return sum(each.width for each in self.inputs)

    @property
    def is_plain(self) -> bool:
        """Whether all numbers stay as they are."""
        return all(each.is_plain for each in self.all)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What erasing records leaves as it was."""
        if self.is_plain:
            return ()
        return ("the means, scales and categories of the columns were learnt with the erased records",)

    def require_width(self, taken: int) -> None:
        """Refuse columns that are not as many inputs as a model takes."""
        if self.width == taken:
            return
        names = ", ".join(each.name for each in self.inputs) or "none"
        if all(each.categories is None for each in self.inputs):
            raise Refused(f"the model takes {taken} inputs, but {self.width} are named: {names}")
        raise Refused(f"the model takes {taken} inputs, but the columns {names} become {self.width}")

    def to_json(self) -> dict[str, Any]:
        """The same as a dict that JSON takes."""
        target = None if self.target is None else self.target.form
        return {"columns": [each.form for each in self.inputs], "target": target}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "Columns":
        """What `to_json` gave."""
        if not isinstance(form, Mapping) or not isinstance(form.get("columns", []), list):
            raise Refused('columns must be a dict such as {"columns": ["age", "dose"], "target": "healed"}')
        return cls(form.get("columns"), form.get("target"))

    @property
    def types(self) -> "dict[str, pyarrow.DataType]":
        """Numbers of double precision; categories as they are written."""
        import pyarrow

        kinds = {True: pyarrow.float64(), False: pyarrow.string()}
        return {each.name: kinds[each.categories is None] for each in self.all}

    def encode(self, tables: "Sequence[pyarrow.RecordBatch]") -> Any:
        """A pair of inputs, shape (n, width), and targets, shape (n,), or one of them; double precision."""
        values = self.matrix(tables)
        # Each column lies together in memory, as it is read, which takes a quarter of the other order's time.
        if not self.inputs:
            return values[:, 0]
        return values if self.target is None else (values[:, :-1], values[:, -1])

    def matrix(self, tables: "Sequence[pyarrow.RecordBatch]") -> "np.ndarray":
        """Inputs and, last, the target, shape (n, width + 1), of some pieces of a table."""
        values = self._empty(sum(table.num_rows for table in tables))
        for table, rows in spans(tables):
            with counted_from(rows.start):
                self._fill(
                    values[:, rows],
                    lambda name, table=table: numbers_of(table, name),
                    lambda name, table=table: words_of(table, name),
                )
        return values.T

    def encode_cells(
        self, records: int, numbers: "Callable[[str], np.ndarray]", words: Callable[[str], Words]
    ) -> "np.ndarray":
        """The same of `records` records, from what reads a column by its name."""
        values = self._empty(records)
        self._fill(values, numbers, words)
        return values.T

    def _empty(self, records: int) -> "np.ndarray":
        import numpy as np

        return np.empty((self.width + (self.target is not None), records))

    def _fill(
        self,
        values: "np.ndarray",
        numbers: "Callable[[str], np.ndarray]",
        words: Callable[[str], Words],
    ) -> None:
        import numpy as np

        place = 0
        for column in self.inputs:
            here = values[place : place + column.width]
            if column.categories is None:
                here[0] = _standardised(numbers(column.name), column)
            else:
                here[:] = np.arange(column.width)[:, None] == column.places(words(column.name))
            place += column.width
        if self.target is not None:
            is_number = self.target.categories is None
            name = self.target.name
            cells = (
                _standardised(numbers(name), self.target) if is_number else self.target.places(words(name))
            )
            values[place] = cells


def _standardised(values: "np.ndarray", column: Column) -> "np.ndarray":
    return values if column.is_plain else (values - column.mean) / column.scale
