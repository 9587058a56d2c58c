"""Keeps one process alive beside the server: the worker."""

import contextlib
import logging
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Self

from unbayes.service.leash import VARIABLE

LOG = logging.getLogger(__name__)
# Seconds between two looks at whether the process lives.
LOOK = 0.1
# Seconds before it is started again: at first, and at most; doubled each time that it did not live long.
PAUSE, LONGEST_PAUSE = 0.5, 60.0
# Seconds after which a process that dies is no sign that the next one will.
LONG_LIFE = 60.0
# Seconds from SIGTERM to SIGKILL.
GRACE = 10.0


class Supervisor:
    """Keeps one child process alive: starts it again when it ends, and ends it on `stop`.

    The child's standard input is a pipe that ends with this process, however it dies: `end_with_parent` in
    the child, as `unbayes worker` calls it, ends the child then.

    Parameters
    ----------
    command
        The program and its arguments.
    grace
        Seconds that the child has to end after SIGTERM, before SIGKILL.
    pause, longest_pause
        Seconds before it is started again, at first and at most.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        grace: float = GRACE,
        pause: float = PAUSE,
        longest_pause: float = LONGEST_PAUSE,
    ):
        self.command, self.grace, self.pause, self.longest_pause = list(command), grace, pause, longest_pause
        self._restarts = 0
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Number of the process that runs now; None while there is none."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return self._restarts

    def start(self) -> None:
        """Start the process, and watch it from a thread."""
        if self._thread is not None:
            return
        self._stopping.clear()
        self._process = self._launch()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process: SIGTERM and, after the grace period, SIGKILL."""
        if self._thread is None:
            return
        self._stopping.set()
        self._thread.join()
        self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _watch(self) -> None:
        short_lives, started = 0, time.monotonic()
        while not self._stopping.is_set():
            process = self._process
            if process is not None and process.poll() is None:
                self._stopping.wait(LOOK)
                continue
            short_lives = 0 if time.monotonic() - started > LONG_LIFE else short_lives + 1
            pause = min(self.longest_pause, self.pause * 2.0 ** min(max(short_lives - 1, 0), 30))
            code = None if process is None else process.returncode
            LOG.warning("the worker ended with code %s; it is started again in %.1f s", code, pause)
            self._forget()
            if not self._stopping.wait(pause):
                self._start_again()
                started = time.monotonic()
        self._end()

    def _start_again(self) -> None:
        try:
            self._process = self._launch()
        except OSError as error:
            LOG.error("the worker cannot be started: %s", error.strerror)
            return
        self._restarts += 1
        LOG.info("the worker is process %s", self._process.pid)

    def _launch(self) -> subprocess.Popen[bytes]:
        # A session of its own: what is typed at a terminal reaches the server, which stops the worker.
        environment = os.environ | {VARIABLE: "1"}
        return subprocess.Popen(
            self.command, stdin=subprocess.PIPE, env=environment, start_new_session=os.name == "posix"
        )

    def _end(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(self.grace)
            except subprocess.TimeoutExpired:
                LOG.warning("the worker did not end in %.0f s and is killed", self.grace)
                process.kill()
                process.wait()
        self._forget()

    def _forget(self) -> None:
        """Let go of the pipe to a process that has ended."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
