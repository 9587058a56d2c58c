"""Templates become pages, with the headers that keep what strangers wrote inert."""

import functools
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from unbayes.service.page import charts, words

# Nothing from elsewhere, no script and no style in the page itself, and nobody frames it.
POLICY = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: a browser would then hide where its forms come from.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@functools.cache
def files() -> dict[str, bytes]:
    """What browsers load besides pages, by name."""
    folder = resources.files("unbayes.service.page") / "static"
    found = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}
    return {name: data for name, data in found.items() if name.rpartition(".")[2] in MEDIA_TYPES}


def fingerprint(name: str) -> str:
    """A few digits of a file's digest: it changes when the file does."""
    return hashlib.sha256(files()[name]).hexdigest()[:16]


@functools.cache
def environment() -> jinja2.Environment:
    """The templates: what they show is escaped, and what they misspell is refused."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("unbayes.service.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= words.FILTERS
    made.globals |= {
        "asset": lambda name: f"/static/{name}?v={fingerprint(name)}",
        "charts": charts,
        "words": words,
    }
    return made


def show(
    request: Request,
    template: str,
    status: int = 200,
    *,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """A page; the visitor is whoever a dependency has found."""
    visitor = getattr(request.state, "visitor", None)
    text = (
        environment()
        .get_template(template)
        .render(
            visitor=visitor,
            caller=None if visitor is None else visitor.caller,
            path=request.url.path,
            **values,
        )
    )
    return HTMLResponse(text, status, {**HEADERS, **(headers or {})})


def go(address: str) -> RedirectResponse:
    """After a form: to a page that may be loaded again."""
    return RedirectResponse(address, 303, HEADERS)
