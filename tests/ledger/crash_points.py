"""Dying at a chosen point: at the k-th statement, commit or change of a file."""

import contextlib
import os
import signal

from sqlalchemy import event
from sqlalchemy.engine import Engine

# Changes of files by which the ledger's keys and the served models are replaced.
CHANGES = ("replace", "link", "unlink", "fsync", "fchmod")


@contextlib.contextmanager
def dying_at(point):
    """Kill this process at that point, counted from 1; yields a list that grows by each point passed."""
    passed = []

    def pass_by(name):
        passed.append(name)
        if len(passed) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def before_statement(_connection, _cursor, statement, *_):
        pass_by(statement.split("(")[0][:60])

    def before_commit(_connection):
        pass_by("COMMIT")

    event.listen(Engine, "before_cursor_execute", before_statement)
    event.listen(Engine, "commit", before_commit)
    originals = {name: getattr(os, name) for name in CHANGES}
    for name, original in originals.items():
        setattr(os, name, _around(name, original, pass_by))
    try:
        yield passed
    finally:
        event.remove(Engine, "before_cursor_execute", before_statement)
        event.remove(Engine, "commit", before_commit)
        for name, original in originals.items():
            setattr(os, name, original)


def _around(name, original, pass_by):
    """Points before and after a change."""

    def change(*arguments, **options):
        pass_by(f"before {name}")
        result = original(*arguments, **options)
        pass_by(f"after {name}")
        return result

    return change
