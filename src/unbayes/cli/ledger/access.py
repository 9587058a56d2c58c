"""Who may use the service, and who is told of events."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unbayes.cli.ledger.shared import DEFAULT, AsJson, Folder, opened, say, table

if TYPE_CHECKING:
    from unbayes.ledger.hooks import Hook
    from unbayes.ledger.tokens import Token

token = typer.Typer(no_args_is_help=True, help="Make, list and revoke the tokens of the service.")
hook = typer.Typer(no_args_is_help=True, help="Tell events to other services, signed.")

Id = Annotated[int, typer.Argument(metavar="ID", help="Its number.")]


@token.command("create")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; no two should share one.")],
    scope: Annotated[
        list[str],
        typer.Option(help="submit, approve, operate, audit, admin or predict; may be repeated."),
    ],
    days: Annotated[int | None, typer.Option(help="Days until it expires; else it does not.")] = None,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Make a token, and show it this once: what is kept cannot be turned back into it.

    No scope includes another. The last line is the token.
    Exit code 2: it is refused.
    """
    with opened(folder) as ledger:
        made, shown = ledger.tokens.create(name, scope, days=days)
    until = "" if made.expires is None else f", until {made.expires[:19]} UTC"
    what = ", ".join(sorted(made.scopes))
    line = f"token {made.id} of {made.name} for {what}{until}; keep it, it is shown once"
    say(_form_of_token(made) | {"token": shown}, [line, shown], as_json)


@token.command("list")
def list_tokens(folder: Folder = DEFAULT, as_json: AsJson = False) -> None:
    """List all tokens, without what their bearers show.

    Exit code 2: the ledger cannot be opened.
    """
    with opened(folder) as ledger:
        found = ledger.tokens.all()
    if as_json:
        say([_form_of_token(each) for each in found], [], as_json)
        return
    rows = [
        [
            str(each.id),
            each.name,
            " ".join(sorted(each.scopes)),
            each.created[:19],
            (each.expires or "never")[:19],
            (each.revoked or "")[:19],
        ]
        for each in found
    ]
    table(["id", "name", "scopes", "made (UTC)", "expires", "revoked"], rows)


@token.command("revoke")
def revoke_token(number: Id, folder: Folder = DEFAULT, as_json: AsJson = False) -> None:
    """Accept a token no longer, from now on.

    Exit code 2: there is no such token.
    """
    with opened(folder) as ledger:
        revoked = ledger.tokens.revoke(number)
    say(_form_of_token(revoked), [f"token {revoked.id} of {revoked.name} is revoked"], as_json)


@hook.command("add")
def add_hook(
    url: Annotated[str, typer.Argument(metavar="URL", help="https://…; http:// to this machine only.")],
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Of events, such as request_closed; may be repeated. All unless given."),
    ] = None,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Tell events to an address from now on, and show the secret by which it checks them this once.

    The worker tells them. The last line is the secret.
    Exit code 2: it is refused.
    """
    with opened(folder) as ledger:
        made, secret = ledger.hooks.add(url, kind or ())
    what = ", ".join(made.kinds) or "all events"
    line = f"hook {made.id} is told of {what}; keep the secret, it is shown once"
    say(_form_of_hook(made) | {"secret": secret}, [line, secret], as_json)


@hook.command("list")
def list_hooks(folder: Folder = DEFAULT, as_json: AsJson = False) -> None:
    """List who is told of events, what still waits to be told, and why.

    Exit code 2: the ledger cannot be opened.
    """
    with opened(folder) as ledger:
        found = ledger.hooks.all()
    if as_json:
        say([_form_of_hook(each) for each in found], [], as_json)
        return
    rows = [
        [
            str(each.id),
            each.url,
            " ".join(each.kinds) or "all",
            str(each.waiting),
            str(each.given_up),
            each.error or "",
        ]
        for each in found
    ]
    table(["id", "url", "kinds", "waiting", "given up", "error"], rows)


@hook.command("remove")
def remove_hook(number: Id, folder: Folder = DEFAULT, as_json: AsJson = False) -> None:
    """Tell an address nothing more, and destroy its secret.

    Exit code 2: there is no such hook.
    """
    with opened(folder) as ledger:
        ledger.hooks.remove(number)
    say({"id": number}, [f"hook {number} is removed"], as_json)


def _form_of_token(made: "Token") -> dict[str, Any]:
    return dataclasses.asdict(made) | {"scopes": sorted(made.scopes)}


def _form_of_hook(made: "Hook") -> dict[str, Any]:
    return dataclasses.asdict(made) | {"kinds": list(made.kinds)}
