"""Bad input: a sentence on stderr, and an exit code."""

import contextlib
from collections.abc import Iterator

import typer

from unbayes.data.refusal import Refused
from unbayes.ledger.errors import LedgerError

# What typer itself exits with, where a command is called wrongly.
BAD_INPUT = 2


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn what is refused into its sentence and the exit code for bad input."""
    try:
        yield
    except (Refused, LedgerError) as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(BAD_INPUT) from error


def printable(line: str) -> str:
    """A line without what would move the cursor or change colours: words of a file are anybody's."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
