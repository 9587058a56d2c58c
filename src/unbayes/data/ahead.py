"""Reading ahead: what comes next is made while what came before is worked on."""

import contextlib
import queue
import threading
from collections.abc import Generator
from typing import Any, TypeVar

Item = TypeVar("Item")


def ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """The same items, made by a thread of their own; one of them waits at most."""
    made: queue.Queue[tuple[Any, bool, BaseException | None]] = queue.Queue(1)
    ended = threading.Event()

    def make() -> None:
        error = None
        try:
            for item in items:
                made.put((item, True, None))
                if ended.is_set():
                    break
        except BaseException as raised:  # It belongs to whoever asks for the next item.
            error = raised
        finally:
            items.close()
            if not ended.is_set():
                made.put((None, False, error))

    maker = threading.Thread(target=make, name="unbayes-ahead", daemon=True)
    maker.start()
    try:
        while True:
            item, is_item, error = made.get()
            if error is not None:
                raise error
            if not is_item:
                return
            yield item
    finally:
        ended.set()
        while maker.is_alive():
            with contextlib.suppress(queue.Empty):
                made.get(timeout=0.01)
        maker.join()
