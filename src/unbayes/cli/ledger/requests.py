"""Requests: taking them in, listing them, deciding on them."""

import datetime
import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unbayes.cli.ledger.models import Model
from unbayes.cli.ledger.people import People
from unbayes.cli.ledger.shared import DEFAULT, AsJson, Folder, opened, say, table
from unbayes.data.refusal import Refused
from unbayes.ledger.states import WAITING, RequestState

if TYPE_CHECKING:
    from rich.text import Text

    from unbayes.ledger.entities import Request
    from unbayes.ledger.ledger import Ledger

SOME_OVERDUE = 12
CLIENT = "cli"
HEADERS = ("number", "model", "state", "age", "days left", "records", "verdict", "hold")

Number = Annotated[int, typer.Argument(metavar="NUMBER", help="Number of the request.")]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who decides. Needed where a model asks for four eyes."),
]


class Missing(enum.StrEnum):
    """What to do with records that the model was not trained on."""

    REFUSE = "refuse"
    SKIP = "skip"


def request(
    model: Model,
    rows: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The records: CSV or Parquet, with their ids.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Where to look them up: file, folder, pattern, address, table."),
    ] = None,
    subject: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Who asks; may be repeated with --source.")
    ] = None,
    subjects: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who asks, one in a line; - for standard input.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of --rows that says who: a request for each.")
    ] = None,
    person: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of --source that says whose a record is.")
    ] = None,
    found_only: Annotated[
        bool, typer.Option("--found-only", help="Leave out people of whom --source has no records.")
    ] = False,
    due: Annotated[
        datetime.datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Last day for an answer; else by the model's rule."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="WORD", help="What it is called elsewhere; nobody's name.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="WORD", help="Asking again under the same key changes nothing.")
    ] = None,
    missing: Annotated[
        Missing, typer.Option(help="Records that are not in the model: hold the request, or skip them.")
    ] = Missing.REFUSE,
    client: Annotated[str, typer.Option(metavar="NAME", help="Who submits it.")] = CLIENT,
    approved: Annotated[bool, typer.Option("--approve", help="Approve at once.")] = False,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Take in the request of one person, or of many, all or none.

    The records are in a small file (--rows), all of one person (--subject) or of several (--by).
    Or they are looked up where all records are (--source --person), by who asks (--subject, --subjects).

    Rows are kept sealed until they are taken out of the model. Of persons, a keyed digest is kept.
    Exit code 2: it is refused, or nothing is found of somebody, and nothing was taken in.
    """
    with opened(folder) as ledger:
        from unbayes.ledger.intake import Submission

        people = People(rows, by, source, person, tuple(subject or ()), subjects, found_only, key)
        known = ledger.model(model)
        if approved and known.settings.four_eyes:
            raise Refused(f"--approve must be left to somebody else: {model} is decided on by four eyes")
        day = None if due is None else due.date()
        submissions = [
            Submission(each.subject, each.records, reference, day, client, each.key, missing.value)
            for each in people.asking(known.columns)
        ]
        numbers = ledger.request_many(model, submissions)
        found = [ledger.show(number) for number in numbers]
        if approved:
            found = [
                ledger.approve(each.id) if each.state is RequestState.RECEIVED else each for each in found
            ]
        _say(ledger, found, as_json)


def requests(
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Of this model.")] = None,
    state: Annotated[list[RequestState] | None, typer.Option(help="In this state; may be repeated.")] = None,
    overdue: Annotated[bool, typer.Option("--overdue", help="Those that should have been answered.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List requests, the newest first; of records, how many were taken out by each.

    Exit codes:
    0 listed; with --overdue: there is none
    12 with --overdue: there are some
    2 it is refused
    """
    states = state or (WAITING if overdue else None)
    with opened(folder) as ledger:
        if model is not None:
            ledger.model(model)
        found = ledger.requests(model, states=states, overdue=overdue, limit=limit)
        today = ledger.today
    if as_json:
        say([form(each, today) for each in found], [], as_json)
    else:
        table(HEADERS, [_row(each, today) for each in found])
        if len(found) == limit:
            typer.echo(f"the newest {limit}; --limit shows more", err=True)
    raise typer.Exit(SOME_OVERDUE if overdue and found else 0)


def approve(
    numbers: Annotated[list[int], typer.Argument(metavar="NUMBER…", help="Numbers of requests.")],
    missing: Annotated[
        Missing | None, typer.Option(help="Records that are not in the model: hold it, or skip them.")
    ] = None,
    by: By = None,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Let requests be carried out, one after the other; releases those on hold.

    Exit code 2: one is refused, also where four eyes are asked for and NAME submitted it; those before it are
    approved.
    """
    with opened(folder) as ledger:
        skip = missing and missing.value
        _say(ledger, [ledger.approve(number, missing=skip, by=by) for number in numbers], as_json)


def deny(
    number: Number,
    ground: Annotated[str, typer.Option(metavar="WORDS", help="Why; kept for as long as laws ask for it.")],
    by: By = None,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Refuse a request, on a ground; its rows are destroyed.

    Exit code 2: its state, or its model, does not allow that.
    """
    with opened(folder) as ledger:
        _say(ledger, [ledger.deny(number, ground, by=by)], as_json)


def withdraw(number: Number, by: By = None, folder: Folder = DEFAULT, as_json: AsJson = False) -> None:
    """Take a request back for whoever asked; its rows are destroyed.

    Exit code 2: its state, or its model, does not allow that.
    """
    with opened(folder) as ledger:
        _say(ledger, [ledger.withdraw(number, by=by)], as_json)


def extend(
    number: Number,
    days: Annotated[int, typer.Option(min=1, help="Days more.")],
    reason: Annotated[str, typer.Option(metavar="WORDS", help="Why; whoever asked has to be told.")],
    by: By = None,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Put the due date of a request off, once, as far as the model's rule allows.

    Exit code 2: the rule, its state, or its model does not allow that.
    """
    with opened(folder) as ledger:
        _say(ledger, [ledger.extend(number, days=days, reason=reason, by=by)], as_json)


def form(request: "Request", today: datetime.date) -> dict[str, Any]:
    """A request for JSON; nothing in it tells who asked."""
    left = request.days_left(today)
    return {
        "number": request.id,
        "model": request.model,
        "state": str(request.state),
        "received": request.received,
        "age": (today - request.received_date).days,
        "due": request.due,
        "days_left": left,
        "overdue": left is not None and left < 0,
        "reference": request.reference,
        "missing": request.missing,
        "hold": request.hold,
        "records": request.asked,
        "erased": request.erased,
        "already": request.already,
        "unknown": request.unknown,
        "ended": request.ended,
        "version": request.version,
        "verdict": request.verdict,
    }


def _row(request: "Request", today: datetime.date) -> "list[str | Text]":
    from rich.text import Text

    shown = form(request, today)
    left = "" if shown["days_left"] is None else str(shown["days_left"])
    return [
        str(request.id),
        request.model,
        str(request.state),
        str(shown["age"]),
        Text(left, style="bold red") if shown["overdue"] else left,
        str(request.asked) if request.erased is None else f"{request.erased} of {request.asked}",
        request.verdict or "",
        request.hold or "",
    ]


def _say(ledger: "Ledger", found: "list[Request]", as_json: bool) -> None:
    say([form(each, ledger.today) for each in found], [_line(each) for each in found], as_json)


def _line(request: "Request") -> str:
    due = f", due {request.due}" if request.state in WAITING else ""
    return f"request {request.id} on {request.model}: {request.state}{due}, {request.asked} records"
