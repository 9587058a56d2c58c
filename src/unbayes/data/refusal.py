"""Bad input, in a sentence."""


class Refused(ValueError):
    """A sentence on what is wrong with the input, and what is expected. It never quotes a record."""


class BadRow(Refused):
    """A record that no model can take; `row` counts from the first of the table that was looked at."""

    def __init__(self, row: int, what: str):
        super().__init__(f"row {row} (from 0), {what}")
        self.row, self.what = row, what

    def __reduce__(self):
        return type(self), (self.row, self.what)


def told(error: Exception) -> Exception | None:
    """An error as the cause of a refusal: none of those that quote what stands in the data."""
    return error if isinstance(error, OSError) else None


def reason(error: OSError) -> str:
    """What the operating system says, in its words."""
    return (error.strerror or str(error)).lower()
