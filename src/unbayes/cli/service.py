"""The service: one command that serves a ledger over HTTP."""

from typing import TYPE_CHECKING, Annotated

import typer

from unbayes.cli.ledger.shared import DEFAULT, Folder, answering
from unbayes.cli.refusal import printable
from unbayes.data.refusal import Refused

if TYPE_CHECKING:
    from unbayes.ledger.lookup import Lookup
    from unbayes.service.settings import OIDC

MEBIBYTE = 2**20


def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8000,
    expose: Annotated[
        bool, typer.Option("--expose", help="Let other machines reach it; needed for their --host.")
    ] = False,
    hostname: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name it is called by; may be repeated.")
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A proxy whose word on callers' addresses counts.")
    ] = None,
    https: Annotated[bool, typer.Option("--https", help="Browsers reach it by HTTPS, by a proxy.")] = False,
    db: Annotated[
        str | None, typer.Option(metavar="URL", help="The database, where a ledger is made; else SQLite.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0.001, help="Calls a second of one caller.")] = 50,
    body_limit: Annotated[int, typer.Option(min=1, metavar="MIB", help="Of an uploaded table.")] = 32,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=PLACE:COLUMN",
            help="Where a model's records are found by the person, as for request; may be repeated.",
        ),
    ] = None,
    oidc_issuer: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenID Connect issuer whose tokens are accepted.")
    ] = None,
    oidc_audience: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whom they have to be made for.")
    ] = None,
    oidc_roles_claim: Annotated[
        str, typer.Option(metavar="CLAIM", help="Where they list roles, such as unbayes:approve.")
    ] = "roles",
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Apply what waits, in a process beside.")
    ] = True,
    json_logs: Annotated[
        bool, typer.Option("--json-logs/--no-json-logs", help="A line of JSON a call, on standard output.")
    ] = True,
    folder: Folder = DEFAULT,
) -> None:
    """Serve the ledger: an API, a page for people, and a worker beside it.

    Where there is no ledger yet, one is made. Where there are no tokens yet, one is made, and shown once.

    Exit codes:
    0 it was stopped
    2 it cannot listen, or the ledger cannot be opened
    """
    with answering():
        try:
            from unbayes.service.logs import json_log
            from unbayes.service.server import Listening, serve
            from unbayes.service.settings import ServiceSettings
        except ModuleNotFoundError as error:
            if (error.name or "unbayes").partition(".")[0] == "unbayes":
                raise
            raise Refused(
                f"the service needs pip install 'unbayes[service]' (missing: {error.name})"
            ) from error
        settings = ServiceSettings(
            body_limit=body_limit * MEBIBYTE,
            rate=rate,
            burst=max(1, round(4 * rate)),
            is_https=https,
            hosts=tuple(hostname or ()),
            oidc=_oidc(oidc_issuer, oidc_audience, oidc_roles_claim),
            sources=dict(_read_source(each) for each in source or ()),
        )
        serve(
            folder,
            settings,
            Listening(host, port, expose, proxy),
            db=db,
            has_worker=worker,
            log=json_log() if json_logs else None,
            say=lambda line: typer.echo(printable(line), err=True),
        )


def _oidc(issuer: str | None, audience: str | None, claim: str) -> "OIDC | None":
    from unbayes.service.settings import OIDC

    if issuer is None and audience is None:
        return None
    if issuer is None or audience is None:
        raise Refused("--oidc-issuer and --oidc-audience go together")
    return OIDC(issuer, audience, claim)


def _read_source(text: str) -> "tuple[str, Lookup]":
    from unbayes.ledger.lookup import Lookup

    model, _, rest = text.partition("=")
    place, _, column = rest.rpartition(":")
    if not (model and place and column) or column.startswith("//"):
        raise Refused(f"--source must be MODEL=PLACE:COLUMN, got {text!r}")
    return model, Lookup(place, column)
