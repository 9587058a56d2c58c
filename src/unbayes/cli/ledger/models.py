"""Models of a ledger: registering, improving, replacing, handing out; whom training has to leave out."""

import dataclasses
import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unbayes.cli.ledger.shared import DEFAULT, AsJson, Folder, opened, say, table, working
from unbayes.data.choosing import parse_names
from unbayes.data.refusal import Refused
from unbayes.trust import TOLERANCE

if TYPE_CHECKING:
    from unbayes.ledger.entities import Version

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")]


class Accept(enum.StrEnum):
    """The worst verdict that a version may have."""

    TRUSTED = "trusted"
    DOUBTFUL = "doubtful"


def register(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the model is called from now on.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The saved model, as it was trained.")],
    ids: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column that names each record in tables of requests.")
    ],
    inputs: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="The input columns, where the file does not name them."),
    ] = None,
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="The target column, likewise.")] = None,
    tolerance: Annotated[
        float, typer.Option(help="Nats per parameter from retraining that are good enough.")
    ] = TOLERANCE,
    accept: Annotated[Accept, typer.Option(help="The worst verdict of a version.")] = Accept.DOUBTFUL,
    when: Annotated[
        str, typer.Option(help="When the worker applies: now, due-in 7d, every 100 requests.")
    ] = "due-in 7d",
    rule: Annotated[
        str, typer.Option(help="Of deadlines: gdpr, california, or days such as 30d+60d.")
    ] = "gdpr",
    rebase_days: Annotated[
        int, typer.Option(metavar="DAYS", help="After which it should be trained anew.")
    ] = 365,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of whatever is random.")] = 0,
    four_eyes: Annotated[
        bool, typer.Option("--four-eyes", help="Whoever submits a request does not decide on it.")
    ] = False,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Make a trained model version 1 of a name.

    FILE is what unbayes.save wrote, with its memory. A sealed copy is kept; delete the file, or protect it.
    Exit code 2: it is refused.
    """
    with opened(folder) as ledger, working() as bar:
        from unbayes.ledger.entities import ModelSettings

        settings = ModelSettings(tolerance, accept.value, when, rule, rebase_days, seed, four_eyes)
        version = ledger.register(
            name,
            file,
            ids=ids,
            inputs=parse_names(inputs),
            target=target,
            settings=settings,
            progress=bar,
        )
    caveats = [f"  but {caveat}" for caveat in version.findings.get("caveats", ())]
    say(form(version), [f"{name}: {file} is version {version.number}", *caveats], as_json)


def versions(model: Model, folder: Folder = DEFAULT, as_json: AsJson = False) -> None:
    """List the versions of a model.

    Exit code 2: there is no such model.
    """
    with opened(folder) as ledger:
        head, found = ledger.model(model).head, ledger.versions(model)
    if as_json:
        say([form(each) | {"current": each.number == head} for each in found], [], as_json)
        return
    rows = [
        [
            f"{each.number}{' ←' if each.number == head else ''}",
            each.kind,
            str(each.base),
            each.created[:19],
            str(each.erased),
            each.verdict or "",
            "kept" if each.is_kept else "destroyed",
            each.digest[:16],
        ]
        for each in found
    ]
    table(["version", "kind", "base", "made (UTC)", "erased", "verdict", "file", "sha256"], rows)


def serve_model(
    model: Model,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")],
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Write the version that production should load: never with the base's memory.

    Exit code 2: nothing was written.
    """
    with opened(folder) as ledger:
        version = ledger.serve_model(model, out)
    say(form(version) | {"out": str(out)}, [f"{model}: version {version.number} in {out}"], as_json)


def refine(
    model: Model,
    remaining: Annotated[
        Path, typer.Option(metavar="FILE", help="All remaining records: CSV or Parquet, with the ids.")
    ],
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Train the current version on with the remaining records: a new base.

    Errors of earlier erasures are gone with it, and the old base is destroyed.
    Exit code 2: it is refused, and nothing has changed.
    """
    with opened(folder) as ledger, working() as bar:
        version = ledger.refine(model, remaining, progress=bar)
    _say_base(model, version, as_json)


def rebase(
    model: Model,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The model, saved after training anew.")],
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Start afresh from a model that was trained anew; destroy the old base.

    The note "left_out" of FILE, which suppressed --json gives, says whom its training left out.
    Exit code 2: it is refused, and nothing has changed.
    """
    with opened(folder) as ledger, working() as bar:
        version = ledger.rebase(model, file, progress=bar)
    _say_base(model, version, as_json)


def suppressed(
    model: Model,
    source: Annotated[
        Path | None, typer.Option("--filter", metavar="SOURCE", help="A Parquet file to filter.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Where what may be trained on goes.")
    ] = None,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List whom the next training has to leave out, by keyed digests; or leave them out of a table.

    Exit code 2: it is refused, and nothing was written.
    """
    with opened(folder) as ledger:
        if (source is None) != (out is None):
            raise Refused("--filter and --out go together")
        found = ledger.suppressed(model)
        dropped = None
        if source is not None and out is not None:
            with working() as bar:
                dropped = found.filter_parquet(source, out, progress=bar)
    value: dict[str, Any] = {"model": model, "ids": found.ids, "note": found.note}
    if dropped is None:
        pairs = zip(found.digests, found.requests, strict=True)
        value["records"] = [{"digest": digest, "request": number} for digest, number in pairs]
        say(value, found.digests, as_json)
    else:
        value |= {"left_out": dropped, "out": str(out)}
        say(value, [f"{dropped} records left out of {out}"], as_json)


def form(version: "Version") -> dict[str, Any]:
    """A version for JSON."""
    found = dataclasses.asdict(version)
    return {name: value for name, value in found.items() if name not in ("id", "model_id", "secret_id")}


def _say_base(model: str, version: "Version", as_json: bool) -> None:
    say(
        form(version),
        [f"{model}: version {version.number} is its new base; the old one is destroyed"],
        as_json,
    )
