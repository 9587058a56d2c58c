"""A form by which somebody submits a request: a person, and their records in a file or typed in."""

import csv
import datetime
import io
import secrets
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from unbayes.data.refusal import Refused
from unbayes.ledger import Ledger, Records
from unbayes.ledger.entities import Model
from unbayes.ledger.errors import LedgerError, NotFound
from unbayes.ledger.intake import Submission
from unbayes.ledger.tokens import Scope
from unbayes.service.due import require_ahead
from unbayes.service.page.rendering import go, show
from unbayes.service.page.visiting import Form, PageRoute, TheLedger, Visitor, posting, visiting
from unbayes.service.problems import Problem, status_of
from unbayes.service.sources import Finder

router = APIRouter(route_class=PageRoute, include_in_schema=False)
# What is shown again where a form is refused; a file cannot be.
FIELDS = ("subject", "reference", "due", "missing", "typed", "once")


@router.get("/requests/new")
def form_page(
    request: Request,
    visitor: Annotated[Visitor, Depends(visiting(Scope.SUBMIT))],
    ledger: TheLedger,
    model: str = "",
) -> Response:
    """The form, with the columns of the model that was chosen."""
    return _form(request, ledger, model, dict.fromkeys(FIELDS, ""))


# Below `/table`, a body may be as long as a table.
@router.post("/requests/new/table")
def submit(
    request: Request,
    form: Annotated[Form, Depends(posting(Scope.SUBMIT))],
    ledger: TheLedger,
) -> Response:
    """Take the request in; sent twice it is taken in once."""
    name = form.text("model")
    try:
        model = ledger.model(name)
        submission = Submission(
            subject=form.text("subject"),
            records=_records(request, form, model),
            reference=form.text("reference") or None,
            due=require_ahead(ledger, _date(form.text("due"))),
            client=form.visitor.caller.name,
            idempotency_key=form.text("once") or None,
            missing="skip" if form.text("missing") else "refuse",
        )
        (number,) = ledger.request_many(name, [submission])
    except (LedgerError, Refused, Problem) as error:
        values = {field: form.words.get(field, "") for field in FIELDS}
        status = error.status if isinstance(error, Problem) else status_of(error)
        return _form(request, ledger, name, values, int(status), wrong=str(error))
    return go(f"/requests/{number}?done=submitted")


def _form(
    request: Request,
    ledger: Ledger,
    name: str,
    values: dict[str, str],
    status: int = 200,
    wrong: str | None = None,
) -> Response:
    models = ledger.models()
    if not models:
        raise NotFound("no model is registered yet; unbayes register makes the first")
    chosen = next((each for each in models if each.name == name), models[0])
    values = values | {"once": values["once"] or f"page-{secrets.token_urlsafe(16)}"}
    return show(
        request,
        "submit.html",
        status,
        models=models,
        chosen=chosen,
        rule=chosen.settings.deadline_rule,
        today=ledger.today,
        has_source=chosen.name in request.app.state.settings.sources,
        wrong=wrong,
        values=values | {"typed": values["typed"] or header(chosen) + "\n"},
    )


def _records(request: Request, form: Form, model: Model) -> Records:
    """The rows: a file, or lines below the one that names the columns; else those of the data source."""
    typed, chosen = form.text("typed"), form.files.get("rows")
    is_typed = typed not in {"", header(model)}
    source = request.app.state.settings.sources.get(model.name)
    if source is not None and not is_typed and chosen is None:
        subject = form.text("subject")
        return Finder(source, model.columns, [subject]).find(subject)
    if is_typed == (chosen is not None):
        raise Refused("their records must be in a file or typed in, one of the two")
    data = typed.encode() if chosen is None else chosen
    ((_, records),) = request.app.state.tables.read(data, model.columns)
    return records


def header(model: Model) -> str:
    """The line that names the columns of a model's tables."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([model.columns.ids, *model.columns.columns])
    return line.getvalue()


def _date(text: str) -> datetime.date | None:
    if not text:
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise LedgerError("due must be a date such as 2026-12-18") from None
