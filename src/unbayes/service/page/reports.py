"""Reports: to read, to take along, and to check."""

import base64
import functools
import hashlib
import re
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, Response

from unbayes.ledger import Ledger
from unbayes.ledger.errors import LedgerError
from unbayes.ledger.report_page import page
from unbayes.ledger.verify import VerifiedReport, verify_report
from unbayes.service.page.rendering import HEADERS, show
from unbayes.service.page.requests import Number, visible
from unbayes.service.page.visiting import (
    SEES_REQUESTS,
    Form,
    PageRoute,
    TheLedger,
    Visitor,
    posting,
    visiting,
)
from unbayes.service.problems import Problem
from unbayes.service.settings import MEBIBYTE

router = APIRouter(route_class=PageRoute, include_in_schema=False)
# With the openings of some ten thousand records.
MOST_MEBIBYTES = 4
LONGEST_REPORT = MOST_MEBIBYTES * MEBIBYTE
STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


@router.get("/requests/{number}/report")
def read(
    number: Number,
    visitor: Annotated[Visitor, Depends(visiting(*SEES_REQUESTS))],
    ledger: TheLedger,
) -> Response:
    """The whole report, as a page of its own that one can print."""
    text = _page(ledger, visitor, number)
    return HTMLResponse(text, headers={**HEADERS, "Content-Security-Policy": _policy(text)})


@router.get("/requests/{number}/report.html")
def download_page(
    number: Number,
    visitor: Annotated[Visitor, Depends(visiting(*SEES_REQUESTS))],
    ledger: TheLedger,
) -> Response:
    """The same, to be kept."""
    text = _page(ledger, visitor, number)
    named = {"Content-Disposition": f'attachment; filename="erasure-report-{number}.html"'}
    return HTMLResponse(text, headers={**HEADERS, **named, "Content-Security-Policy": _policy(text)})


@router.get("/requests/{number}/report.json")
def download(
    number: Number,
    visitor: Annotated[Visitor, Depends(visiting(*SEES_REQUESTS))],
    ledger: TheLedger,
) -> Response:
    """The file of a report, which anybody can check who has the public key."""
    visible(ledger, visitor, number)
    named = {"Content-Disposition": f'attachment; filename="erasure-report-{number}.json"'}
    return Response(ledger.report(number), headers={**HEADERS, **named}, media_type="application/json")


@router.get("/key.pem")
def key(visitor: Annotated[Visitor, Depends(visiting())], ledger: TheLedger) -> Response:
    """The public key of the ledger."""
    named = {"Content-Disposition": 'attachment; filename="public.pem"'}
    pem = ledger.public_key.to_pem()
    return Response(pem, headers={**HEADERS, **named}, media_type="application/x-pem-file")


@router.post("/requests/{number}/verify")
def verify_own(
    request: Request,
    number: Number,
    form: Annotated[Form, Depends(posting(*SEES_REQUESTS))],
    ledger: TheLedger,
) -> Response:
    """Check the report on a request."""
    visible(ledger, form.visitor, number)
    return _checked(request, ledger, ledger.report(number), f"the report on request {number}")


@router.get("/verify")
def verify_page(request: Request, visitor: Annotated[Visitor, Depends(visiting())]) -> Response:
    """The form by which any report is checked."""
    return _show(request)


@router.post("/verify")
def verify(
    request: Request,
    form: Annotated[Form, Depends(posting())],
    ledger: TheLedger,
) -> Response:
    """Check a file that somebody has."""
    if (chosen := form.files.get("report")) is None:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "choose the file of a report, erasure-report-….json")
    if len(chosen) > LONGEST_REPORT:
        wrong = f"a report has at most {MOST_MEBIBYTES} MiB, and the file has more"
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return _show(request, status, wrong=wrong, what="the file was not read")
    return _checked(request, ledger, chosen, "the file")


def _checked(request: Request, ledger: Ledger, data: bytes, what: str) -> Response:
    try:
        report = verify_report(data, ledger.public_key)
    except LedgerError as error:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        return _show(request, status, wrong=str(error), what=what)
    return _show(request, report=report, what=what)


def _show(
    request: Request,
    status: int = 200,
    *,
    report: VerifiedReport | None = None,
    wrong: str | None = None,
    what: str | None = None,
) -> Response:
    values = {"report": report, "wrong": wrong, "what": what, "most": MOST_MEBIBYTES}
    return show(request, "verify.html", status, **values)


def _page(ledger: Ledger, visitor: Visitor, number: int) -> str:
    visible(ledger, visitor, number)
    return page(verify_report(ledger.report(number), ledger.public_key))


def _policy(text: str) -> str:
    """Nothing but the style that the report has in it."""
    (style,) = STYLE.findall(text)
    return f"default-src 'none'; style-src '{_digest(style)}'; base-uri 'none'; frame-ancestors 'none'"


@functools.cache
def _digest(style: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
