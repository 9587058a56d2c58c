"""Requests come in: one, many, or as a table."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from unbayes.ledger import Ledger, LedgerError, Records, Submission
from unbayes.ledger.tokens import Scope
from unbayes.service.api.answers import of_request
from unbayes.service.api.forms import PLAIN, ManyForm, SubmissionForm, TableForm
from unbayes.service.api.replies import RequestAnswer, SubmittedAnswer
from unbayes.service.api.shared import ModelName, reply
from unbayes.service.authority import Caller, GuardedRoute, ledger_of, needs, settings_of
from unbayes.service.document import refusals
from unbayes.service.due import require_ahead
from unbayes.service.settings import ServiceSettings
from unbayes.service.sources import Finder
from unbayes.service.uploads import read_upload

KNOWN = {
    int(HTTPStatus.OK): {"model": RequestAnswer, "description": "It was submitted before under this key."},
    **refusals(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
}
ALL_KNOWN = {
    int(HTTPStatus.OK): {
        "model": SubmittedAnswer,
        "description": "All were submitted before under their keys.",
    },
    **refusals(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
}

router = APIRouter(prefix="/v1/models/{name}/requests", tags=["requests"], route_class=GuardedRoute)

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern=PLAIN,
        description="Submitting again under the same key changes nothing.",
    ),
]
Submitter = Annotated[Caller, Depends(needs(Scope.SUBMIT))]


@router.post("", status_code=HTTPStatus.CREATED, response_model=RequestAnswer, responses=KNOWN)
def submit(
    name: ModelName,
    form: SubmissionForm,
    caller: Submitter,
    idempotency_key: IdempotencyKey = None,
    ledger: Ledger = Depends(ledger_of),
    settings: ServiceSettings = Depends(settings_of),
) -> Response:
    """Ask for one person's records to be taken out of a model."""
    find = _finder(ledger, settings, name, [form])
    submission = _submission(ledger, find, form, caller, idempotency_key)
    ((number, is_new),) = ledger.take_in(name, [submission])
    status = HTTPStatus.CREATED if is_new else HTTPStatus.OK
    answer = of_request(ledger.show(number), ledger.today)
    return reply(answer, status, {"Location": f"/v1/requests/{number}"})


@router.post("/many", status_code=HTTPStatus.CREATED, response_model=SubmittedAnswer, responses=ALL_KNOWN)
def submit_many(
    name: ModelName,
    form: ManyForm,
    caller: Submitter,
    ledger: Ledger = Depends(ledger_of),
    settings: ServiceSettings = Depends(settings_of),
) -> Response:
    """Submit many requests, all or none."""
    find = _finder(ledger, settings, name, form.requests)
    submissions = [_submission(ledger, find, each, caller, each.idempotency_key) for each in form.requests]
    return _submitted(ledger, caller, ledger.take_in(name, submissions))


@router.post(
    "/table",
    status_code=HTTPStatus.CREATED,
    response_model=SubmittedAnswer,
    responses=ALL_KNOWN,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"multipart/form-data": {"schema": TableForm.model_json_schema()}},
        }
    },
)
async def submit_table(
    request: Request,
    name: ModelName,
    caller: Submitter,
    idempotency_key: IdempotencyKey = None,
    ledger: Ledger = Depends(ledger_of),
    settings: ServiceSettings = Depends(settings_of),
) -> Response:
    """Submit the rows of one person (`subject`), or of many (`subject_column`), as a table.

    The table is CSV in UTF-8, Parquet, or an Arrow file or stream, with the model's columns. Of many, each
    person's request has its place in the table as a part of its idempotency key.
    """
    fields, rows = await read_upload(request, settings.body_limit)
    try:
        form = TableForm.model_validate({**fields, "rows": ""})
    except ValidationError as error:
        raise RequestValidationError(
            [each | {"loc": ("body", *each["loc"])} for each in error.errors()]
        ) from error

    def work() -> Response:
        people = request.app.state.tables.read(rows, ledger.model(name).columns, form.subject_column)
        due = require_ahead(ledger, form.due)
        submissions = [
            Submission(
                person or form.subject or "",
                records,
                form.reference,
                due,
                caller.name,
                _key(idempotency_key, None if person is None else place),
                form.missing,
            )
            for place, (person, records) in enumerate(people, 1)
        ]
        return _submitted(ledger, caller, ledger.take_in(name, submissions))

    return await run_in_threadpool(work)


def _submission(
    ledger: Ledger,
    find: Callable[[str], Records],
    form: SubmissionForm,
    caller: Caller,
    key: str | None,
) -> Submission:
    records = _records(find, form)
    due = require_ahead(ledger, form.due)
    return Submission(form.subject, records, form.reference, due, caller.name, key, form.missing)


def _finder(
    ledger: Ledger, settings: ServiceSettings, name: str, forms: Sequence[SubmissionForm]
) -> Callable[[str], Records]:
    """How the records of those who send none are found in the model's data source, for one call."""
    source = settings.sources.get(name)
    if source is not None:
        people = [form.subject for form in forms if form.ids is None]
        return Finder(source, ledger.model(name).columns, people).find

    def refuse(_: str) -> Records:
        raise LedgerError(f"ids, inputs and targets are needed: {name} has no data source")

    return refuse


def _records(find: Callable[[str], Records], form: SubmissionForm) -> Records:
    """Those that were sent; where there are none, those of the data source."""
    if form.ids is not None and form.targets is not None:
        inputs = form.inputs
        if inputs is not None and len({len(row) for row in inputs}) > 1:
            raise LedgerError("inputs must be lists of one length")
        return Records.of_arrays(inputs or None, form.targets, form.ids)
    if form.ids is not None or form.targets is not None or form.inputs is not None:
        raise LedgerError("ids, inputs and targets go together: give all of them, or none")
    return find(form.subject)


def _key(key: str | None, place: int | None) -> str | None:
    return key if key is None or place is None else f"{key}/{place}"


def _submitted(ledger: Ledger, caller: Caller, taken: Sequence[tuple[int, bool]]) -> Response:
    """The requests, in their order."""
    numbers = [number for number, _ in taken]
    span = max(numbers) - min(numbers) + 1
    listed = ledger.requests(client=caller.name, after=max(numbers) + 1, limit=min(span, 2 * len(numbers)))
    found: dict[int, Any] = {each.id: each for each in listed}
    today = ledger.today
    requests = [of_request(found.get(number) or ledger.show(number), today) for number in numbers]
    new = sum(is_new for _, is_new in taken)
    answer = SubmittedAnswer.model_construct(requests=requests, new=new)
    return reply(answer, HTTPStatus.CREATED if new else HTTPStatus.OK)
