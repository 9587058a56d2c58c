"""A model: its versions, how far off they are, what its base still knows; and applying what waits."""

import asyncio
import collections
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from unbayes.ledger import Ledger
from unbayes.ledger.clock import from_text
from unbayes.ledger.entities import Model
from unbayes.ledger.states import WAITING, RequestState
from unbayes.ledger.tokens import Scope
from unbayes.service.page import charts, words
from unbayes.service.page.rendering import HEADERS, go, show
from unbayes.service.page.visiting import (
    SEES_ALL,
    SEES_REQUESTS,
    Form,
    NotLoggedIn,
    PageRoute,
    TheLedger,
    Visitor,
    posting,
    visiting,
    visitor_of,
)
from unbayes.service.protocol import STOPPING

router = APIRouter(route_class=PageRoute, include_in_schema=False)
# No database takes a NUL.
Name = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
# Versions in the table, and waiting requests beside it.
LISTED = 50
WAITING_SHOWN = 8
# Between two looks at what the worker does, and how long one stream lasts; browsers open another.
LOOK_SECONDS = 0.5
STREAM_SECONDS = 600
# Streams that one caller may have open.
MOST_STREAMS = 10


@router.get("/models/{name:path}/progress")
async def progress(
    request: Request,
    name: Name,
    visitor: Annotated[Visitor, Depends(visiting(*SEES_REQUESTS))],
    ledger: TheLedger,
    since: int = 0,
) -> Response:
    """What the worker does with a model, as events, until it is done."""
    await run_in_threadpool(ledger.model, name)
    stream = _events(request, ledger, name, since)
    return StreamingResponse(
        _one_of_few(request.app.state.streams, visitor.caller.name, stream),
        headers={**HEADERS, "X-Accel-Buffering": "no"},
        media_type="text/event-stream",
    )


@router.post("/models/{name:path}/apply")
def apply(
    name: Name,
    form: Annotated[Form, Depends(posting(Scope.OPERATE))],
    ledger: TheLedger,
) -> Response:
    """Ask the worker to apply what waits now."""
    ledger.want(name)
    return go(f"/models/{words.segment(name)}?done=wanted")


@router.get("/models/{name:path}")
def model_page(
    request: Request,
    name: Name,
    visitor: Annotated[Visitor, Depends(visiting(*SEES_REQUESTS))],
    ledger: TheLedger,
    done: str = "",
) -> Response:
    """All about a model."""
    model, versions = ledger.model(name), ledger.versions(name)
    by_number = {each.number: each for each in versions}
    current = by_number[model.head]
    base = by_number[current.base]
    sees_all = visitor.caller.may(*SEES_ALL)
    waiting = ledger.requests(name, states=WAITING, limit=WAITING_SHOWN, by_due=True, client=visitor.client)
    ready = ledger.requests(name, states=[RequestState.APPROVED], by_due=True, limit=LISTED)
    rebase = words.rebase_date(model, base)
    return show(
        request,
        "model.html",
        model=model,
        current=current,
        base=base,
        versions=versions[: -LISTED - 1 : -1],
        number_of_versions=len(versions),
        points=charts.timeline(versions),
        chart=charts.errors(versions),
        waiting=waiting,
        ready=len([each for each in ready if each.hold is None]),
        sees_all=sees_all,
        rebase=rebase,
        rebase_left=(rebase - ledger.today).days,
        age=(ledger.today - from_text(base.created).date()).days,
        residue=words.residue(model, versions),
        today=ledger.today,
        is_working=is_working(model),
        message=words.DONE.get(done),
    )


def is_working(model: Model) -> bool:
    """Whether somebody is at work on a model, or is about to be."""
    return model.wanted is not None or model.progress is not None


def standing(model: Model) -> dict[str, Any]:
    """How far the work is, in words and numbers."""
    work = model.progress
    if work is None:
        sentence = (
            "Waiting for the worker to begin." if model.wanted is not None else "Nothing is being done."
        )
        return {"sentence": sentence, "done": None, "total": None}
    done, total = work.get("done") or 0, work.get("total") or 0
    far = f": {done:,} of {total:,}" if total else ""
    return {
        "sentence": f"{str(work.get('what') or 'at work').capitalize()}{far}",
        "done": done,
        "total": total,
    }


async def _events(request: Request, ledger: Ledger, name: str, since: int) -> AsyncIterator[str]:
    """What has changed, until the work is done, the session ends, or the browser leaves."""
    yield "retry: 2000\n\n"
    before, loop = None, asyncio.get_running_loop()
    until = loop.time() + STREAM_SECONDS
    while loop.time() < until and not await _is_over(request):
        model = await run_in_threadpool(_look, request, ledger, name)
        if model is None:
            return
        if not is_working(model):
            yield _event("done", {"sentence": _ended(model, since)})
            return
        if (now := standing(model)) != before:
            before = now
            yield _event("progress", now)
        await asyncio.sleep(LOOK_SECONDS)


async def _one_of_few(
    streams: collections.Counter[str], caller: str, stream: AsyncIterator[str]
) -> AsyncIterator[str]:
    """A stream, unless its caller has many open already: each takes up a connection."""
    if streams[caller] >= MOST_STREAMS:
        yield "retry: 10000\n\n"
        return
    streams[caller] += 1
    try:
        async for each in stream:
            yield each
    finally:
        streams[caller] -= 1
        # Nobody who has none is remembered.
        streams += collections.Counter()


async def _is_over(request: Request) -> bool:
    return getattr(request.state, STOPPING, False) or await request.is_disconnected()


def _look(request: Request, ledger: Ledger, name: str) -> Model | None:
    try:
        visitor_of(request)
    except NotLoggedIn:
        return None
    return ledger.model(name)


def _ended(model: Model, since: int) -> str:
    if since and model.head == since:
        return f"Finished. Version {model.head} is still the current one."
    return f"Finished. Version {model.head} is the current one."


def _event(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"
