"""The log of the process: a line of JSON for each call, and nobody's name but the caller's own."""

import logging
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

import structlog

# Lines of a traceback that are kept.
DEEPEST = 12


def json_log(stream: TextIO | None = None) -> Any:
    """A log that writes a line of JSON for each event, with its time, to a stream; standard output."""
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stdout if stream is None else stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.BoundLogger,
    )


def where(error: BaseException) -> list[str]:
    """Where an error comes from: files, lines and functions. Its words may be somebody's data."""
    frames = traceback.extract_tb(error.__traceback__)[-DEEPEST:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


class ServerLog(logging.Handler):
    """What the server itself has to say, such as that it has started, as events of a log."""

    def __init__(self, log: Any):
        super().__init__(logging.INFO)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Hand one on; of an error, its kind and its place."""
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            self._log.error("server", error=type(error).__name__, where=where(error))
        else:
            self._log.info("server", what=record.getMessage().partition("\n")[0])
