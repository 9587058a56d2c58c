"""A process that does not outlive the one that started it: it ends when its standard input does.

Whoever starts it holds the other end of a pipe. However that process dies, the system closes the pipe.
"""

import os
import signal
import threading
import time

VARIABLE = "UNBAYES_LEASH"
# Seconds for what is being done, after which the process ends all the same.
GRACE = 10.0


def end_with_parent(grace: float = GRACE) -> None:
    """Send this process SIGTERM once its standard input ends, where a supervisor started it."""
    if os.environ.get(VARIABLE):
        threading.Thread(target=_watch, args=(grace,), name="leash", daemon=True).start()


def _watch(grace: float) -> None:
    # Read by its number: a buffered reader has a lock that would be held while the interpreter ends.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os._exit(1)
