"""Commands of other packages: the entry points of the group `unbayes.commands`.

An entry point names a function that typer can call. Every call of `unbayes` imports its module, so what is
slow or optional should be imported inside the function. The module's constant `REQUIREMENT`, if there is one,
says what to install for the command to run.
"""

import functools
import importlib
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

GROUP = "unbayes.commands"


def add_plugins(app: typer.Typer, found: Iterable[EntryPoint] | None = None) -> None:
    """Add a command for each entry point, under its name.

    Parameters
    ----------
    app
        Where the commands go.
    found
        Entry points; None for those of all installed packages.
    """
    for entry in entry_points(group=GROUP) if found is None else found:
        app.command(entry.name)(_command(entry))


def _command(entry: EntryPoint) -> Callable[..., Any]:
    """The function of an entry point; where a package is missing, it says so and exits with code 1."""
    try:
        function = entry.load()
    except ModuleNotFoundError as error:
        missing = error

        def explain() -> None:
            """Needs a package that is not installed."""
            _refuse(entry, missing)

        return explain

    @functools.wraps(function)
    def guarded(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except ModuleNotFoundError as error:
            _refuse(entry, error)

    return guarded


def _refuse(entry: EntryPoint, error: ModuleNotFoundError) -> None:
    """Say what to install. A module that the plug-in's own package lacks is a bug and is raised."""
    own = {"unbayes", entry.module.partition(".")[0]}
    if error.name is None or error.name.partition(".")[0] in own:
        raise error
    typer.echo(f"{entry.name} needs pip install '{_requirement(entry)}' (missing: {error.name})", err=True)
    raise typer.Exit(1) from error


def _requirement(entry: EntryPoint) -> str:
    """What the plug-in's module asks for, or else the package that holds it."""
    distribution = entry.dist.name if entry.dist is not None else entry.module.partition(".")[0]
    try:
        module = importlib.import_module(entry.module)
    except ModuleNotFoundError:
        return distribution
    return getattr(module, "REQUIREMENT", distribution)
