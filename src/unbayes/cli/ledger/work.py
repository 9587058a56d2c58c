"""Applying what waits: on command, or by a worker."""

import contextlib
import dataclasses
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unbayes.cli.ledger.models import Model
from unbayes.cli.ledger.shared import DEFAULT, AsJson, Folder, answering, opened, say, working
from unbayes.cli.refusal import BAD_INPUT, printable
from unbayes.ledger.errors import LedgerError, NoLedger

if TYPE_CHECKING:
    from unbayes.ledger.applying import Applied
    from unbayes.ledger.ledger import Ledger

DOUBTFUL, ON_HOLD, RETRAIN = 10, 11, 20
# Seconds between two looks at whether a signal has come.
LOOK = 0.1
# Seconds between two looks at what is wanted, and at what is to be told.
WATCH = 1.0
# Seconds that the thread which tells hooks has to end.
STOPPING = 10.0


def apply(
    model: Model,
    when: Annotated[
        str, typer.Option(help="Only if it is time to: now, due-in 7d, every 100 requests.")
    ] = "now",
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Take the records of all approved requests out of a model: one solve, a new version.

    Exit codes, the first that fits:
    20 some requests need a model that is trained anew
    11 some are on hold: read why, and approve or deny them
    10 applied, but the new version is doubtful
    0 all were applied, or there was nothing to do
    2 it is refused, and nothing has changed
    """
    with opened(folder) as ledger, working() as bar:
        applied = ledger.apply(model, when=when, progress=bar)
    say(dataclasses.asdict(applied), _lines(applied), as_json)
    raise typer.Exit(exit_code(applied))


def worker(
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Between two rounds.")] = 60,
    once: Annotated[bool, typer.Option("--once", help="One round.")] = False,
    folder: Folder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Apply what waits when a model's policy says so, and finish what is left, until stopped.

    What somebody wants applied at once is noticed within a second, and so are events to be told to hooks.
    SIGTERM and SIGINT end it between two steps. What is refused, or a database that does not answer, is said
    on stderr and tried again, at first after a second.

    Exit codes:
    0 it was stopped; with --once: a round was done
    2 there is no ledger; with --once: something was refused
    """
    from unbayes.service.leash import end_with_parent

    def tell(applied: "Applied") -> None:
        for line in [json.dumps(dataclasses.asdict(applied))] if as_json else _lines(applied):
            typer.echo(line if as_json else printable(line))

    failures = 0
    end_with_parent()
    with answering(), _signals() as is_stopped:
        if once:
            is_fine = _round(folder, is_stopped, tell)
            raise typer.Exit(0 if _tell_hooks(folder, is_stopped) and is_fine else BAD_INPUT)
        with _telling_hooks(folder, every, is_stopped):
            while not is_stopped():
                if _round(folder, is_stopped, tell):
                    failures = 0
                    _wait_until_wanted(folder, every, is_stopped)
                else:
                    failures += 1
                    _wait(_pause(failures, every), is_stopped)


def exit_code(applied: "Applied") -> int:
    """What `apply` exits with."""
    if applied.needs_retrain:
        return RETRAIN
    if applied.held:
        return ON_HOLD
    return DOUBTFUL if applied.verdict == "doubtful" else 0


@contextlib.contextmanager
def _telling_hooks(folder: Path, every: float, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Tell hooks what is to be told, in a thread beside the work of the block."""
    is_over = threading.Event()

    def ends() -> bool:
        return is_stopped() or is_over.is_set()

    def run() -> None:
        failures = 0
        while not ends():
            failures = 0 if _tell_hooks(folder, ends, in_a_row=True) else failures + 1
            _wait(_pause(failures, every), ends)

    thread = threading.Thread(target=run, name="hooks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(STOPPING)


def _tell_hooks(folder: Path, is_stopped: Callable[[], bool], in_a_row: bool = False) -> bool:
    """Tell hooks what is to be told, once or again and again; whether nothing was refused."""
    from unbayes.ledger.ledger import Ledger

    try:
        with Ledger.open(folder) as ledger:
            ledger.hooks.deliver(is_stopped)
            while in_a_row and not is_stopped():
                _wait(WATCH, is_stopped)
                ledger.hooks.deliver(is_stopped)
    except NoLedger:
        # The round says so.
        return False
    except (LedgerError, OSError) as error:
        typer.echo(printable(f"hooks: {error}"), err=True)
        return False
    return True


def _wait_until_wanted(folder: Path, seconds: float, is_stopped: Callable[[], bool]) -> None:
    """Wait, but not once somebody wants something applied."""
    from unbayes.ledger.ledger import Ledger

    end = time.monotonic() + seconds
    # The next round says what is wrong.
    with contextlib.suppress(LedgerError, OSError), Ledger.open(folder) as ledger:
        while not is_stopped() and (left := end - time.monotonic()) > 0:
            if any(model.wanted is not None for model in ledger.models()):
                return
            _wait(min(left, WATCH), is_stopped)
    _wait(end - time.monotonic(), is_stopped)


def _pause(failures: int, every: float) -> float:
    """Seconds until something that failed is tried again."""
    return min(every, 2.0 ** min(failures - 1, 30))


def _round(folder: Path, is_stopped: Callable[[], bool], tell: "Callable[[Applied], None]") -> bool:
    """Look at each model once; whether nothing was refused. One that is refused does not stop the others."""
    from unbayes.ledger.ledger import Ledger

    refused: list[str] = []

    @contextlib.contextmanager
    def trying() -> Iterator[None]:
        try:
            yield
        except NoLedger:
            raise
        except (LedgerError, OSError) as error:
            refused.append(str(error))

    with trying(), Ledger.open(folder) as ledger:
        for model in ledger.models():
            if is_stopped():
                break
            with trying():
                _apply_in_time(ledger, model.name, tell)
        with trying():
            ledger.finish()
    for sentence in refused:
        typer.echo(printable(sentence), err=True)
    return not refused


def _apply_in_time(ledger: "Ledger", name: str, tell: "Callable[[Applied], None]") -> None:
    if ledger.is_time(name):
        with working() as bar:
            applied = ledger.apply(name, progress=bar)
        tell(applied)


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Whether a signal to stop has come; what signals did before is put back."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(seconds: float, is_stopped: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not is_stopped() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, LOOK))


def _lines(applied: "Applied") -> Iterator[str]:
    if applied.requests:
        verdict = "" if applied.verdict is None else f": {applied.verdict}"
        yield (
            f"{applied.model}: version {applied.version} is without {applied.records} records of "
            f"{len(applied.requests)} requests{verdict}"
        )
        yield from (f"  because {doubt}" for doubt in applied.findings.get("doubts", []))
    elif not applied.held and not applied.needs_retrain:
        yield f"{applied.model}: nothing to do; version {applied.version} stays"
    yield from (f"request {number} is on hold: {why}" for number, why in applied.held.items())
    yield from (f"request {number} needs retraining: {why}" for number, why in applied.needs_retrain.items())
