"""The command line: `unbayes`.

The commands of this package have one module each, those of the ledger a folder. They import JAX and the
library where they run, so that help is quick. Other packages add theirs as plug-ins (`plugins.py`).
"""

import sys

import typer

from unbayes.cli.erase import erase
from unbayes.cli.ledger import add_ledger
from unbayes.cli.plugins import add_plugins
from unbayes.cli.service import serve
from unbayes.cli.show import show

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


@app.callback()
def describe() -> None:
    """Take data back out of a trained Bayesian model."""


app.command()(show)
app.command()(erase)
add_ledger(app)
app.command(rich_help_panel="Ledger")(serve)
add_plugins(app)


def main() -> None:
    """Run the command line, as the console script `unbayes` does."""
    for stream in (sys.stdout, sys.stderr):
        # A result holds a θ: where the terminal has none, better an escape than no result.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    app()
