"""Progress of whoever works on a model, written where others see it."""

import contextlib
import json
import time
from collections.abc import Iterator

from unbayes.ledger import schema
from unbayes.ledger.desk import Desk
from unbayes.ledger.entities import Model
from unbayes.ledger.errors import LedgerError
from unbayes.progress import AbstractProgress, Advance, Silent

# Seconds between two times that it is written.
PAUSE = 1.0


def shown_progress(what: str, done: int = 0, total: int | None = 1) -> str:
    """As a row of a model holds it."""
    return json.dumps({"what": what, "done": done, "total": total})


class ShownProgress(AbstractProgress):
    """Writes how far the work on a model is, in transactions of its own, and tells somebody else, too."""

    def __init__(self, desk: Desk, model: Model, epoch: int, other: AbstractProgress | None = None):
        self._desk, self._model, self._epoch = desk, model, epoch
        self._other = other or Silent()
        self._written = time.monotonic()

    @contextlib.contextmanager
    def track(self, description: str, total: int | None) -> Iterator[Advance]:
        """Show a meter while the context is open."""
        done = 0
        with self._other.track(description, total) as tell:

            def advance(steps: int, note: str) -> None:
                nonlocal done
                done += steps
                tell(steps, note)
                self._write(description, done, total)

            self._write(description, done, total)
            yield advance

    def _write(self, what: str, done: int, total: int | None) -> None:
        if time.monotonic() - self._written < PAUSE:
            return
        table = schema.model
        mine = table.update().where(table.c.id == self._model.id, table.c.epoch == self._epoch)
        # The work itself finds out whether the database is gone.
        with contextlib.suppress(LedgerError), self._desk.writing() as store:
            store.run(mine.values(progress=shown_progress(what, done, total)))
        self._written = time.monotonic()
