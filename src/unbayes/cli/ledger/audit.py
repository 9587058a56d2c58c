"""What somebody else can check: reports, and the log."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from unbayes.cli.ledger.requests import Number
from unbayes.cli.ledger.shared import DEFAULT, AsJson, Folder, answering, opened, say, working
from unbayes.cli.refusal import printable
from unbayes.ledger.errors import DatabaseProblem, LedgerError, UnverifiableReport

if TYPE_CHECKING:
    from unbayes.ledger.log import LogState

NOT_FINE = 1

log = typer.Typer(no_args_is_help=True, help="Check the log of the ledger, or sign how it stands.")


def report(
    number: Number,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")],
    html: Annotated[bool, typer.Option("--html", help="As a page to read and print.")] = False,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Write the signed report on a request that was applied.

    Exit code 2: there is none yet.
    """
    with opened(folder) as ledger:
        from unbayes._replace import replacing

        data, name = ledger.report(number), ledger.public_key.key_id
        if html:
            from unbayes.ledger.report_page import page
            from unbayes.ledger.verify import verify_report

            data = page(verify_report(data, ledger.public_key)).encode()
        with replacing(out) as file:
            file.write(data)
    line = f"the report on request {number}, signed by the key {name}, is in {out}"
    say({"number": number, "out": str(out), "key": name}, [line], as_json)


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A report.")],
    key: Annotated[
        Path | None, typer.Option(metavar="PEM", help="The public key that the operator published.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a report, offline: the file and a public key are enough.

    Without --key, the key in the file is taken: compare its name with the one that the operator published.

    Exit codes:
    0 it is in order
    1 it is not
    2 FILE or PEM cannot be read
    """
    with answering():
        from unbayes.ledger.signing import PublicKey
        from unbayes.ledger.verify import verify_report

        public = None if key is None else PublicKey.from_pem(key.read_bytes())
        data = file.read_bytes()
        try:
            found = verify_report(data, public)
        except UnverifiableReport as error:
            _refuse(error, as_json)
    contents, error = found.contents, found.contents.predicted_error
    value = {
        "fine": True,
        "key": found.key_id,
        "key_given": found.is_key_known,
        "request": contents.request.number,
        "model": contents.model,
        "from_version": contents.from_version,
        "into_version": contents.into.version,
        "records": dataclasses.asdict(contents.records),
        "method": contents.method,
        "verdict": contents.verdict,
        "predicted_error": error and dataclasses.asdict(error),
        "no_error_because": contents.no_error_because,
        "dates": dataclasses.asdict(contents.dates),
        "remains": [dataclasses.asdict(each) for each in contents.remains],
        "not_claimed": list(contents.not_claimed),
    }
    say(value, _lines(value), as_json)


@log.command("verify")
def verify_log(
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option("--checkpoint", metavar="FILE", help="A signed one kept elsewhere; may be repeated."),
    ] = None,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Read the whole log, and find whatever was changed, removed or moved.

    It must continue each FILE, which "log checkpoint" printed once, and the one that is kept beside the key:
    without any, nobody can tell whether events were taken off its end.

    Exit codes:
    0 it is whole
    1 it is not
    2 the ledger or FILE cannot be opened
    """
    with opened(folder) as ledger, working() as bar:
        texts = [path.read_text(encoding="utf-8") for path in checkpoints or ()]
        try:
            state = ledger.verify_log(texts, progress=bar)
        except DatabaseProblem:
            raise
        except LedgerError as error:
            _refuse(error, as_json)
    line = f"the log is whole: {state.events} events, {state.checkpoints} checkpoints, root {state.root}"
    say({"fine": True} | dataclasses.asdict(state), [line, _compared(state)], as_json)


@log.command("checkpoint")
def checkpoint(folder: Folder = DEFAULT, as_json: AsJson = False) -> None:
    """Sign how the log stands now; give it to somebody, and the log cannot be rewritten unnoticed.

    Exit code 2: the ledger cannot be opened.
    """
    with opened(folder) as ledger:
        text = ledger.checkpoint()
    say({"checkpoint": text}, text.splitlines(), as_json)


def _compared(state: "LogState") -> str:
    """What checkpoints from outside of the database tell, and what nobody can tell."""
    if not state.compared:
        return (
            "  there is no checkpoint outside of the database to compare it with: whoever can write there "
            "may have taken events off the end"
        )
    later = state.events - state.covered
    rest = f"; nothing outside of the database tells of the {later} events after that" if later else ""
    found = f"{state.compared} checkpoints from outside, the newest over {state.covered} events"
    return f"  it continues {found}{rest}"


def _refuse(error: LedgerError, as_json: bool) -> NoReturn:
    """Say that something is not in order, and exit."""
    if as_json:
        say({"fine": False, "why": str(error)}, [], as_json)
    else:
        typer.echo(printable(str(error)), err=True)
    raise typer.Exit(NOT_FINE) from error


def _error(value: dict[str, Any]) -> str:
    error = value["predicted_error"]
    if error is None:
        return value["no_error_because"]
    return (
        f"predicted {error['value']:.2g} nats from retraining ({error['low']:.2g} to {error['high']:.2g}); "
        f"doing nothing: {error['doing_nothing']:.2g}"
    )


def _lines(value: dict[str, Any]) -> list[str]:
    dates, records = value["dates"], value["records"]
    known = (
        "which you gave" if value["key_given"] else "which came with it: compare it with the published one"
    )
    lines = [
        f"the report is in order; it is signed by the key {value['key']}, {known}",
        f"  request        {value['request']}, received {dates['received'][:10]}",
        f"  model          {value['model']}, version {value['from_version']} into {value['into_version']}",
        f"  records        {records['erased']} erased of {records['asked']}, {records['already_erased']} "
        f"before, {records['not_in_model']} were not in the model",
        f"  method         {value['method']}: {value['verdict']}",
        f"  error          {_error(value)}",
        f"  applied        {dates['applied'][:10]}, {'on time' if dates['on_time'] else 'too late'}",
    ]
    lines += [f"  remains        {each['what']} Until: {each['until']}" for each in value["remains"]]
    return lines + [f"  not claimed    {sentence}" for sentence in value["not_claimed"]]
