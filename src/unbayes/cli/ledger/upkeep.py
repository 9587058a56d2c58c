"""Making a ledger, moving it, and looking after it."""

import sys
from typing import Annotated

import typer

from unbayes.cli.ledger.shared import DEFAULT, AsJson, Folder, answering, opened, say

NOT_FINE = 1


def init(
    db: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A database, such as postgresql://USER@HOST/NAME; else SQLite."),
    ] = None,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Make a ledger: keys, database, settings, in an empty folder.

    Exit code 2: there is something in it, or it cannot be written.
    """
    with answering():
        from unbayes.ledger.keys import PUBLIC
        from unbayes.ledger.ledger import KEYS, Ledger

        with Ledger.create(folder, db=db) as ledger:
            name = ledger.public_key.key_id
        public = folder / KEYS / PUBLIC
    lines = [
        f"a new ledger in {folder}",
        f"publish {public} (key {name}): it checks reports",
        f"protect {folder / KEYS}, and keep it out of the backups of the database",
    ]
    say({"ledger": str(folder), "key": name, "public_key": str(public)}, lines, as_json)


def export(
    to: Annotated[str, typer.Option(metavar="URL", help="An empty database: postgresql://… or sqlite:///….")],
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Copy the whole ledger to another database, and use that one from then on.

    Nobody can write meanwhile. The log is checked in its new place. Keys stay in the folder.
    Exit code 2: nothing was moved.
    """
    rows: dict[str, int] = {}

    def note(line: str) -> None:
        name, _, number = line.partition(": ")
        rows[name] = int(number)
        if sys.stderr.isatty():
            typer.echo(line, err=True)

    with opened(folder) as ledger:
        ledger.export(to, progress=note)
    total = sum(rows.values())
    say({"rows": rows}, [f"{total} rows moved; {folder} uses the new database from now on"], as_json)


def gc(folder: Folder = DEFAULT, as_json: AsJson = False) -> None:
    """Finish what was left undone, and forget what no longer has to be kept.

    Keys are destroyed, reports signed, requests closed; details of requests that ended long ago are deleted.
    Exit code 2: it is refused.
    """
    with opened(folder) as ledger:
        done = ledger.gc()
    lines = [
        f"{done['closed']} requests closed",
        f"details of {done['forgotten']} events forgotten",
        f"{done['told']} deliveries forgotten",
    ]
    say(done, lines, as_json)


def doctor(folder: Folder = DEFAULT, as_json: AsJson = False) -> None:
    """Look for what is wrong or needs attention: database, log, keys, models, deadlines.

    Exit codes:
    0 all is fine
    1 something needs attention
    2 the ledger cannot be opened
    """
    with opened(folder) as ledger:
        found = ledger.doctor()
    form = [{"fine": each.is_fine, "what": each.what} for each in found]
    say(form, [f"{'fine' if each.is_fine else 'LOOK'}  {each.what}" for each in found], as_json)
    raise typer.Exit(0 if all(each.is_fine for each in found) else NOT_FINE)
