"""The command `unbayes erase`: take the rows of a table out of a saved model."""

import contextlib
import dataclasses
import datetime
import enum
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unbayes.cli.files import MODEL, Opened, open_file
from unbayes.cli.records import Asked, is_among, read_records
from unbayes.cli.refusal import refusals
from unbayes.data.choosing import parse_names
from unbayes.data.refusal import Refused, reason
from unbayes.data.where import read_condition
from unbayes.trust import TOLERANCE

if TYPE_CHECKING:
    from unbayes import Unlearned
    from unbayes.models import AbstractModel
    from unbayes.storage import Saved


class Missing(enum.StrEnum):
    """What to do with records that are not among the training records that are left."""

    REFUSE = "refuse"
    SKIP = "skip"
    ALLOW = "allow"


# By verdict; and where there is no posterior to write.
EXIT_CODES = {"trusted": 0, "doubtful": 10, "retrain": 20}
NOTHING_RECOVERED = 21

STACKED = (
    "note: {file} lists earlier erasures ({number}). Errors add up when erasures are stacked; erasing all "
    "rows at once from the file as it was trained is closer."
)


def erase(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The saved model, as it was trained.")],
    rows: Annotated[
        str,
        typer.Argument(
            metavar="ROWS", help="The records to erase: a file, folder, pattern, address or Delta table."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write.")],
    target: Annotated[str | None, typer.Option(help="The target column.", metavar="COLUMN")] = None,
    inputs: Annotated[
        str | None, typer.Option(help="The input columns, in the model's order.", metavar="A,B,…")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help='Of ROWS only these: "customer in 17,35"; may be repeated.'),
    ] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="The CSV has no header: columns are 0, 1, ….")
    ] = False,
    no_memory: Annotated[
        bool, typer.Option("--no-memory", help="Neither use the file's memory nor hand it on.")
    ] = False,
    ids: Annotated[
        str | None,
        typer.Option(help="The column of identifiers, where training was given them.", metavar="COLUMN"),
    ] = None,
    missing: Annotated[
        Missing, typer.Option(help="What to do with records that are not, or no longer, in the model.")
    ] = Missing.REFUSE,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Nats per parameter from retraining that are good enough.")
    ] = TOLERANCE,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of whatever is random.")] = 0,
    progress: Annotated[bool, typer.Option(help="Progress of long work, in a terminal.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Let the new file replace FILE.")] = False,
) -> None:
    """Take the records in ROWS back out of the model in FILE.

    What is left goes to a new file: posterior, model, memory, and a note.

    Records that were erased before or never trained on are refused, as far as
    the file's memory knows them; --missing skips or allows them.

    Columns go by name: those that the notes in FILE name, or those of
    --inputs and --target. Without either, all but the target are inputs.
    Where training encoded its columns, as the notes say, they are encoded
    the same way.

    Exit codes:
    0 the result is trusted
    10 it is doubtful: read why
    20 it was written, but retrain
    21 no posterior was found: nothing was written, retrain
    2 bad input: nothing was written
    """
    with refusals():
        opened = open_file(file, MODEL)
        earlier, saved = opened.erasures, _load(opened)
        _require_writable(out, file, rows, force)
        conditions = [read_condition(each) for each in where or ()]
        asked = Asked(rows, parse_names(inputs), target, ids, conditions, not no_header)
        erased, named = read_records(saved, asked)
        if earlier:
            typer.echo(STACKED.format(file=file, number=len(earlier)), err=True)
        if no_memory:
            saved = saved._replace(memory=None)
        try:
            result = _unlearn(saved, erased, named, missing, tolerance, seed, progress and _is_terminal())
        except ValueError as error:
            raise Refused(f"{rows} cannot be erased: {error}") from error
        if saved.columns is not None:
            result = dataclasses.replace(result, caveats=(*result.caveats, *saved.columns.caveats))
        _save(out, saved, result, earlier)
    typer.echo(json.dumps(_report(result, out), indent=1) if as_json else str(result))
    raise typer.Exit(EXIT_CODES[result.verdict])


def _load(opened: Opened) -> "Saved":
    """Posterior, model and memory; refuses a file from which this command cannot erase."""
    import unbayes as ub

    if opened.manifest.get("model") is None:
        raise Refused(f"{opened.path} must hold a model, but holds a posterior alone")
    if opened.functions:
        raise Refused(
            f"{opened.path} holds a model with functions ({', '.join(opened.functions)}), which no file can "
            "store; use unbayes.load(..., functions=...) and unbayes.unlearn in Python"
        )
    try:
        return ub.load(opened.path)
    except ub.UnreadableFile as error:
        raise Refused(str(error)) from error


def _is_terminal() -> bool:
    return sys.stderr.isatty()


def _unlearn(
    saved: "Saved",
    erased: Any,
    ids: list[str] | None,
    missing: Missing,
    tolerance: float,
    seed: int,
    show_progress: bool,
) -> "Unlearned":
    """The result, or the exit code that says that there is none."""
    import jax

    import unbayes as ub

    bar = ub.ProgressBar() if show_progress else None
    try:
        # The bar goes where standard output goes, and that is for the result.
        with contextlib.redirect_stdout(sys.stderr):
            return ub.unlearn(
                saved.posterior,
                _model(saved),
                erased,
                memory=saved.memory,
                ids=ids,
                missing=missing.value,
                tolerance=tolerance,
                key=jax.random.key(seed),
                progress=bar,
            )
    except ub.RetrainingNeeded as error:
        typer.echo(f"nothing was written, retrain: {error}", err=True)
        raise typer.Exit(NOTHING_RECOVERED) from error


def _model(saved: "Saved") -> "AbstractModel":
    assert saved.model is not None, "a file without a model was let through"
    return saved.model


def _require_writable(out: Path, file: Path, rows: str, force: bool) -> None:
    """Refuse a place where the result cannot or should not go, before any long work."""
    try:
        if out.is_dir():
            raise Refused(f"--out must be a file, but {out} is a directory")
        if out.exists() and out.samefile(file) and not force:
            raise Refused(f"--out must be another file than {file}; --force replaces that")
        if is_among(out, rows):
            raise Refused(f"--out must be another file than {rows}, which holds the records")
        # A link is followed, as it is in writing.
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(out))):
            pass
    except OSError as error:
        raise Refused(f"{out} cannot be written: {reason(error)}") from error


def _save(out: Path, saved: "Saved", result: "Unlearned", earlier: list[dict[str, Any]]) -> None:
    """Write what is left, with a note of what was done; never of the rows."""
    import unbayes as ub

    erasure = {
        "records": result.records,
        "verdict": str(result.verdict),
        "method": str(result.method),
        "doubts": list(result.doubts),
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    notes = {**(saved.notes or {}), "erasures": [*earlier, erasure]}
    try:
        ub.save(out, result.posterior, saved.model, memory=result.memory, notes=notes)
    except OSError as error:
        raise Refused(f"{out} cannot be written: {reason(error)}") from error


def _report(result: "Unlearned", out: Path) -> dict[str, Any]:
    """The result for JSON; numbers that are not finite are null."""
    error = result.error
    measures = {name: _finite(value) for name, value in result.trust.measures._asdict().items()}
    return {
        "records": result.records,
        "method": str(result.method),
        "choice": result.choice,
        "information": _finite(result.information),
        "error": error and {name: _finite(value) for name, value in dataclasses.asdict(error).items()},
        "verdict": str(result.verdict),
        "doubts": list(result.doubts),
        "caveats": list(result.caveats),
        "measures": measures,
        "seconds": result.seconds,
        "out": str(out),
    }


def _finite(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
