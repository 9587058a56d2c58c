"""One at a time: whoever works on a model holds a lease in the same database as what the work will change.

A lease saves work, it is not what makes things right: a holder whose lease has ended, or a clock that jumps,
is caught when the head of the model is moved, which compares the epoch.
"""

import contextlib
import datetime
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

from unbayes.ledger.clock import to_text
from unbayes.ledger.desk import Desk
from unbayes.ledger.entities import Model
from unbayes.ledger.errors import DatabaseProblem, Locked
from unbayes.ledger.showing import shown_progress

# Longer than an apply takes, and short enough that a killed worker does not hold up a deadline.
LEASE = datetime.timedelta(minutes=10)


@contextlib.contextmanager
def leased(desk: Desk, name: str, what: str) -> Iterator[tuple[Model, int]]:
    """The model as it is now, and the epoch under which it may be changed within the block.

    `what` says to others what is being done, until `ShownProgress` says more.
    """
    process = os.getpid()
    holder = f"{socket.gethostname()}:{process}:{_start(process)}:{secrets.token_hex(4)}"[-100:]
    with desk.writing() as store:
        model = store.model(name)
        if _is_dead(model.lease_holder):
            store.drop_lease(model, model.epoch)
        until = to_text(desk.clock() + LEASE)
        epoch = store.take_lease(model, holder, until, until, shown_progress(what))
        if epoch is None:
            raise Locked(f"somebody else is at work on {name}, until {model.lease_until} at the latest")
        model = store.model(name)
    try:
        yield model, epoch
    finally:
        # Where the database is gone, the lease ends by itself.
        with contextlib.suppress(DatabaseProblem), desk.writing() as store:
            store.drop_lease(model, epoch)


def _is_dead(holder: str | None) -> bool:
    """Whether the holder was a process of this machine that is no more."""
    host, process, start, *_ = f"{holder or ''}:::".split(":")
    if host != socket.gethostname() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return start.isdigit() and _start(int(process)) != start


def _start(process: int) -> str:
    """When a process began, in ticks, so that another one of its number is told apart; "" if it has ended.

    "" also where the system does not tell.
    """
    try:
        # Behind the name of the program, which may hold anything: its state, and 19 fields on, its start.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
