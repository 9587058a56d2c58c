"""The commands of the ledger: a thin layer over `unbayes.ledger.ledger.Ledger`.

What the extra `ledger` brings, and JAX, are imported where a command runs and needs them.
"""

import typer

from unbayes.cli.ledger import access, audit, models, requests, upkeep, work

COMMANDS = {
    "init": upkeep.init,
    "register": models.register,
    "request": requests.request,
    "requests": requests.requests,
    "approve": requests.approve,
    "deny": requests.deny,
    "withdraw": requests.withdraw,
    "extend": requests.extend,
    "apply": work.apply,
    "worker": work.worker,
    "refine": models.refine,
    "rebase": models.rebase,
    "serve-model": models.serve_model,
    "versions": models.versions,
    "suppressed": models.suppressed,
    "report": audit.report,
    "verify": audit.verify,
    "export": upkeep.export,
    "gc": upkeep.gc,
    "doctor": upkeep.doctor,
}


def add_ledger(app: typer.Typer) -> None:
    """Add the commands of the ledger."""
    for name, function in COMMANDS.items():
        app.command(name, rich_help_panel="Ledger")(function)
    app.add_typer(audit.log, name="log", rich_help_panel="Ledger")
    app.add_typer(access.token, name="token", rich_help_panel="Ledger")
    app.add_typer(access.hook, name="hook", rich_help_panel="Ledger")
