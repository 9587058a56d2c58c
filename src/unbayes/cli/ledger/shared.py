"""What the commands of the ledger share: opening it, refusing, and printing."""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unbayes.cli.refusal import printable, refusals
from unbayes.data.refusal import Refused, reason

if TYPE_CHECKING:
    from rich.text import Text

    from unbayes.ledger.ledger import Ledger
    from unbayes.progress import AbstractProgress

DEFAULT = Path("unbayes-ledger")
# Columns where there is no terminal to ask: a table that a program reads is not folded.
WIDTH_OF_A_FILE = 200

Folder = Annotated[
    Path, typer.Option("--ledger", metavar="DIR", envvar="UNBAYES_LEDGER", help="Folder of the ledger.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Turn what the ledger or the system refuses, or an extra that is missing, into a sentence and exit 2."""
    with refusals():
        try:
            yield
        except ModuleNotFoundError as error:
            if (error.name or "unbayes").partition(".")[0] == "unbayes":
                raise
            raise Refused(
                f"the ledger needs pip install 'unbayes[ledger]' (missing: {error.name})"
            ) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
            raise Refused(f"{place}{reason(error)}") from error


@contextlib.contextmanager
def opened(folder: Path) -> Iterator["Ledger"]:
    """The ledger in a folder; what is refused within the block becomes a sentence."""
    with answering():
        from unbayes.ledger.ledger import Ledger

        with Ledger.open(folder) as ledger:
            yield ledger


@contextlib.contextmanager
def working() -> "Iterator[AbstractProgress | None]":
    """A progress bar, on stderr, where that is a terminal."""
    from unbayes.progress import ProgressBar

    # The bar goes where standard output goes, and that is for the result.
    with contextlib.redirect_stdout(sys.stderr):
        yield ProgressBar() if sys.stderr.isatty() else None


def say(value: Any, lines: Iterable[str], as_json: bool) -> None:
    """Print a value as JSON, or lines."""
    if as_json:
        typer.echo(json.dumps(value, indent=1))
    else:
        for line in lines:
            typer.echo(printable(line))


def table(headers: Sequence[str], rows: "Iterable[Sequence[str | Text]]") -> None:
    """Print a table; numbers should come as text."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_OF_A_FILE)
    shown = Table(*headers, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        shown.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    console.print(shown)
