"""The command `unbayes reproduce`, a plug-in of `unbayes.cli`."""

import enum
import shutil
from pathlib import Path
from typing import Annotated

import typer


class Optimiser(enum.StrEnum):
    """What EUBO and reverse KL follow: Adam at 1e-3, the authors' choice, or RMSProp at 1e-4, the paper's."""

    ADAM = "Adam"
    RMSPROP = "RMSProp"


# What has to be installed for the command to run.
REQUIREMENT = "unbayes[paper]"


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, or “all”.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the experiments, and stop.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer iterations and seeds: minutes, not hours.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Repetitions; each experiment has its own default.")
    ] = None,
    optimiser: Annotated[
        Optimiser | None,
        typer.Option(
            case_sensitive=False, help="What EUBO and reverse KL follow; each experiment has its own default."
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("results"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what earlier runs computed.")] = False,
) -> None:
    """Run experiments of the paper, and write one report.

    What was computed is kept in the folder: after Ctrl-C or a crash, the same command goes on where it was.
    """
    # Imported here, because every call of `unbayes` imports this module.
    import jax
    from rich.console import Console

    import unbayes as ub
    from unbayes_paper import runner
    from unbayes_paper.data import DataMissing
    from unbayes_paper.lab import Lab

    console = Console()
    if show or not names:
        console.print(runner.catalogue())
        return
    try:
        chosen = runner.choose(names)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    # Inducing inputs that nearly coincide leave a kernel matrix that single precision cannot factorise.
    jax.config.update("jax_enable_x64", True)
    kept = output / "kept"
    if fresh:
        shutil.rmtree(kept, ignore_errors=True)
    jax.config.update("jax_compilation_cache_dir", str((kept / "compiled").absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    lab = Lab(
        kept,
        quick,
        seeds,
        None if optimiser is None else optimiser.value,
        ub.ProgressBar(),
        lambda text: console.print(f"  {text}", highlight=False),
    )
    try:
        path = runner.run(chosen, lab, output, console)
    except DataMissing as error:
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        raise typer.Exit(130) from None
    console.print(f"report: {path}")
