"""The server's side of a connection: whoever is slow, or says too much, is hung up on."""

import asyncio
import json
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from unbayes.service.problems import MEDIA_TYPE

# Within which the first line and the headers of a call have to arrive, and in how many bytes.
HEAD_SECONDS, HEAD_LIMIT = 10.0, 64 * 1024
# Within which the other side has to take something of an answer.
TAKE_SECONDS = 60.0
# In the state of a call whose server stops.
STOPPING = "is_stopping"


class PatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 with limits to patience."""

    head_seconds, head_limit, take_seconds = HEAD_SECONDS, HEAD_LIMIT, TAKE_SECONDS

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._take_timer: asyncio.TimerHandle | None = None
        # Of a head that has not ended; None between two calls, and while a body arrives.
        self._head_bytes: int | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for a head."""
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._end_head()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless the head is too long."""
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self.head_limit:
                self._refuse(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                    f"the first line and the headers must have at most {self.head_limit} bytes",
                )

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        if self._head_timer is None:
            self._begin_head()

    def on_headers_complete(self) -> None:
        """A head has ended."""
        self._end_head()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._end_head()
        self._refuse(HTTPStatus.BAD_REQUEST, "this is not HTTP")

    def shutdown(self) -> None:
        """The server stops: an answer that would go on for long may end."""
        super().shutdown()
        if self.cycle is not None:
            self.cycle.scope.setdefault("state", {})[STOPPING] = True

    def pause_writing(self) -> None:
        """The other side takes nothing."""
        super().pause_writing()
        self._take_timer = self.loop.call_later(self.take_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It takes something."""
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None
        super().resume_writing()

    def _begin_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _end_head(self) -> None:
        self._head_bytes = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # An earlier call of this connection is not answered yet; nothing of the next one is read.
            self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)
            return
        sentence = f"the first line and the headers must arrive within {self.head_seconds:g} seconds"
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, sentence)

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        if self.transport.is_closing():
            return
        document = {"type": "about:blank", "title": status.phrase, "status": status, "detail": sentence}
        body = json.dumps(document).encode()
        head = (
            f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
