"""The command line: `unbayes`.

The commands of this package have one module each. Other packages add theirs as plug-ins (`plugins.py`).
"""

import typer

from unbayes.cli.plugins import add_plugins

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


@app.callback()
def describe() -> None:
    """Take data back out of a trained Bayesian model."""


add_plugins(app)


def main() -> None:
    """Entry point."""
    app()
