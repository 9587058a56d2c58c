"""What is refused, as a page: wherever the sentence comes from, a route, a limit, or nowhere at all."""

import json
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unbayes.service.page.rendering import show
from unbayes.service.page.visiting import PageRoute
from unbayes.service.problems import MEDIA_TYPE

# What programs call: their refusals stay documents.
PROGRAMS = ("/v1", "/openapi.json", "/metrics", "/health", "/ready", "/version")
# Of a refusal, what is no longer true of the page.
OWN_HEADERS = (
    "content-length",
    "content-type",
    "content-security-policy",
    "cache-control",
    "referrer-policy",
)


class RefusalPages:
    """Turns the documents of refusals into pages, for browsers."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a call through, and look at what comes back."""
        if scope["type"] != "http" or scope["path"].startswith(PROGRAMS):
            return await self.app(scope, receive, send)
        start: Message | None = None
        body = b""

        async def sending(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_refusal(scope, message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _page(scope, start, body)(scope, receive, send)

        return await self.app(scope, receive, sending)


def _is_refusal(scope: Scope, message: Message) -> bool:
    is_page = isinstance(scope.get("route"), PageRoute)
    is_page |= "text/html" in Headers(scope=scope).get("accept", "")
    return is_page and MutableHeaders(scope=message).get("content-type") == MEDIA_TYPE


def _page(scope: Scope, start: Message, body: bytes) -> ASGIApp:
    status, sentence = start["status"], json.loads(body)["detail"]
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        sentence = "this address is for forms; go on from another page"
    kept = MutableHeaders(scope=start)
    for name in OWN_HEADERS:
        del kept[name]
    return show(
        Request(scope), "refusal.html", status, headers=dict(kept), status_code=status, sentence=sentence
    )
