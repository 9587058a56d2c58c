"""The log: how it stands, what was signed of it, and whether it is whole."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from unbayes.ledger import Ledger
from unbayes.ledger.errors import LedgerError, TamperedLog
from unbayes.ledger.tokens import Scope
from unbayes.service.page import words
from unbayes.service.page.rendering import go, show
from unbayes.service.page.visiting import Form, PageRoute, TheLedger, Visitor, posting, visiting
from unbayes.service.problems import status_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)
READERS = (Scope.AUDIT, Scope.OPERATE)
# Events on one page, and checkpoints, the newest first.
LISTED = 50
CHECKPOINTS_LISTED = 20


@router.get("/log")
def log_page(
    request: Request,
    visitor: Annotated[Visitor, Depends(visiting(*READERS))],
    ledger: TheLedger,
    before: int | None = None,
    done: str = "",
) -> Response:
    """The state of the log, its checkpoints, and its events."""
    return _page(request, ledger, before=before, message=words.DONE.get(done))


@router.post("/log/checkpoints")
def sign(form: Annotated[Form, Depends(posting(*READERS))], ledger: TheLedger) -> Response:
    """Sign a statement of the log as it is now."""
    ledger.log.sign()
    return go("/log?done=signed")


@router.post("/log/verify")
def verify(
    request: Request,
    form: Annotated[Form, Depends(posting(*READERS))],
    ledger: TheLedger,
) -> Response:
    """Read the whole log, and say whether anything in it was changed."""
    try:
        found = ledger.verify_log()
    except LedgerError as error:
        return _page(request, ledger, status_of(error), wrong=str(error))
    return _page(request, ledger, found=found)


def _page(
    request: Request, ledger: Ledger, status: int = 200, *, before: int | None = None, **more
) -> Response:
    state = ledger.log.state()
    end = state.size if before is None else max(0, min(before, state.size))
    start = max(0, end - LISTED)
    wrong, events = more.pop("wrong", None), []
    try:
        events = list(reversed(ledger.log.events(start, end - start)))
    except TamperedLog as error:
        status, wrong = status_of(error), wrong or str(error)
    values = {
        "state": state,
        "start": start,
        "end": end,
        "events": events,
        "checkpoints": list(reversed(ledger.log.checkpoints()))[:CHECKPOINTS_LISTED],
        "key_id": ledger.public_key.key_id,
        "message": None,
        "wrong": wrong,
        "found": None,
    }
    return show(request, "log.html", status, **(values | more))
