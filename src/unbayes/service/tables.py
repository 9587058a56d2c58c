"""Tables that somebody has uploaded, read in memory by a process that may die of them."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING

from unbayes.data.refusal import Refused
from unbayes.ledger import Records
from unbayes.ledger.records import TableColumns
from unbayes.service.problems import Problem
from unbayes.service.settings import ServiceSettings
from unbayes.service.table_reader import read_frame, write_frames

if TYPE_CHECKING:
    import numpy as np

# Tables after which a reader makes room for a new one.
TABLES_A_READER = 200
# Calls that wait for a reader; more are sent away.
WAITING = 8
# Bytes of an answer for each byte of memory that a reader may use.
ANSWER_SHARE = 0.5
DIED = "the table cannot be read: reading it took too much time or memory, or it is damaged"
# What the process needs to know of this one.
KEPT_VARIABLES = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
VARIABLES = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


class TableReaders:
    """Processes that read tables, a few at once; one that dies is replaced."""

    def __init__(self, settings: ServiceSettings):
        self._settings = settings
        self._free: queue.LifoQueue[_Reader | None] = queue.LifoQueue()
        for _ in range(settings.table_readers):
            self._free.put(None)
        self._waiting = threading.Semaphore(settings.table_readers + WAITING)

    def read(
        self, data: bytes, columns: TableColumns, subject: str | None = None
    ) -> list[tuple[str | None, Records]]:
        """The records of an uploaded table, by person.

        Parameters
        ----------
        data
            Parquet, an Arrow file or stream, or CSV in UTF-8.
        columns
            Those of the model; others are not read.
        subject
            The column that names the person; None where all records are of one person, whom the caller names.
        """
        import numpy as np

        asked = {
            "columns": columns.to_json(),
            "subject": subject,
            "most_rows": self._settings.most_rows,
        }
        with self._reader() as reader:
            answer, numbers = reader.ask(asked, data, self._settings.table_seconds)
        if "refused" in answer:
            raise Refused(answer["refused"])
        values = np.frombuffer(numbers, "<f8").reshape(len(answer["ids"]), -1)
        everybody = Records(tuple(answer["ids"]), values)
        if answer["subjects"] is None:
            return [(None, everybody)]
        rows_of: dict[str, list[int]] = {}
        for row, person in enumerate(answer["subjects"]):
            rows_of.setdefault(person, []).append(row)
        return [(person, everybody.at(rows)) for person, rows in rows_of.items()]

    def close(self) -> None:
        """End the processes that are free."""
        with contextlib.suppress(queue.Empty):
            while True:
                reader = self._free.get_nowait()
                if reader is not None:
                    reader.end()

    @contextlib.contextmanager
    def _reader(self) -> "Iterator[_Reader]":
        busy = Problem(
            HTTPStatus.SERVICE_UNAVAILABLE, "too many tables are being read; try again", {"Retry-After": "5"}
        )
        if not self._waiting.acquire(blocking=False):
            raise busy
        try:
            reader = self._free.get(timeout=self._settings.table_seconds)
        except queue.Empty:
            self._waiting.release()
            raise busy from None
        try:
            if reader is not None and not reader.is_fresh:
                reader.end()
                reader = None
            reader = reader or _Reader(self._settings.table_memory)
            yield reader
        finally:
            self._free.put(reader)
            self._waiting.release()


class _Reader:
    """One process."""

    def __init__(self, memory: int):
        self._answer = int(memory * ANSWER_SHARE)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "unbayes.service.table_reader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | VARIABLES,
        )
        self._tables = 0
        with contextlib.suppress(OSError):
            limits = json.dumps({"memory": memory, "answer": self._answer})
            self._process.stdin.write(limits.encode() + b"\n")  # pyright: ignore[reportOptionalMemberAccess]

    @property
    def is_fresh(self) -> bool:
        """Whether it is alive, and has not read many tables."""
        return self._process.poll() is None and self._tables < TABLES_A_READER

    def ask(self, asked: dict, data: bytes, seconds: float) -> tuple[dict, "bytes | np.ndarray"]:
        """What it finds in a table; it is ended where it takes longer, or dies."""
        self._tables += 1
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            write_frames(sink, json.dumps(asked).encode(), data)
            line, numbers = read_frame(source, self._answer), read_frame(source, self._answer)
        except OSError:
            line = numbers = None
        finally:
            timer.cancel()
        if line is None or numbers is None:
            self.end()
            raise Refused(DIED)
        return json.loads(line), numbers

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self._process.wait()
