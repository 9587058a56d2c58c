"""Progress of long work, as an object passed in; silent unless asked for."""

import abc
import contextlib
from collections.abc import Callable, Iterator

Advance = Callable[[int, str], None]


class AbstractProgress(abc.ABC):
    """Something that is told how far a long computation has come."""

    silent: bool = False

    @abc.abstractmethod
    def track(self, description: str, total: int | None) -> contextlib.AbstractContextManager[Advance]:
        """Open a meter of `total` steps; the context's value is called with steps done and a short note.

        None where nobody knows how many there are.
        """


class Silent(AbstractProgress):
    """Progress that nobody watches."""

    silent = True

    @contextlib.contextmanager
    def track(self, description: str, total: int | None) -> Iterator[Advance]:
        """A meter that ignores what it is told."""
        yield lambda steps, note: None


class ProgressBar(AbstractProgress):
    """A bar in the terminal, with the time that is left."""

    @contextlib.contextmanager
    def track(self, description: str, total: int | None) -> Iterator[Advance]:
        """Show a bar while the context is open."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[note]}")) as bar:
            task = bar.add_task(description, total=total, note="")
            yield lambda steps, note: bar.update(task, advance=steps, note=note)
