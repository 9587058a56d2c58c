"""Every call gets a number, is counted and logged; what was not foreseen becomes a problem document."""

import secrets
import time
from http import HTTPStatus
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unbayes.service.logs import where
from unbayes.service.metrics import Metrics
from unbayes.service.problems import UNFORESEEN, problem

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
# What stands for the route of a call that has none: an address may be somebody's data.
NOWHERE = "(none)"
# Whoever hung up before the answer, as other servers log it.
GONE = 499


class Observe:
    """Around all but the headers."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: Any = None):
        self.app, self._metrics, self._log = app, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a call through, and write down what came of it."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        number, start, status = secrets.token_hex(8), time.perf_counter(), GONE
        scope.setdefault("state", {})["request_id"] = number

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = number
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except ClientDisconnect:
            pass
        except Exception as error:
            self._say("error", request_id=number, error=type(error).__name__, where=where(error))
            if status == GONE:
                await problem(HTTPStatus.INTERNAL_SERVER_ERROR, UNFORESEEN)(scope, receive, sending)
        finally:
            self._note(scope, number, status, time.perf_counter() - start)

    def _note(self, scope: Scope, number: str, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        route = getattr(scope.get("route"), "path", NOWHERE)
        self._metrics.count(method, route, status, seconds)
        state = scope["state"]
        caller = state.get("caller") or getattr(state.get("visitor"), "caller", None)
        self._say(
            "info",
            request_id=number,
            method=method,
            route=route,
            status=status,
            ms=round(seconds * 1e3, 1),
            caller=None if caller is None else caller.name,
        )

    def _say(self, level: str, **fields: Any) -> None:
        if self._log is not None:
            getattr(self._log, level)("call", **fields)
