"""Models: their versions, the current file, what waits, whom training has to leave out."""

import dataclasses
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Response

from unbayes.ledger import Ledger, Model
from unbayes.ledger.states import WAITING
from unbayes.ledger.tokens import Scope
from unbayes.service.api.answers import of_version
from unbayes.service.api.replies import (
    ModelAnswer,
    ModelsAnswer,
    SuppressedRecord,
    SuppressionAnswer,
    VersionsAnswer,
    WantedAnswer,
)
from unbayes.service.api.shared import SEE, ModelName, reply
from unbayes.service.authority import GuardedRoute, ledger_of, needs, settings_of
from unbayes.service.document import refusals
from unbayes.service.settings import ServiceSettings

MODEL_FILE = "application/octet-stream"
NO_MODEL = refusals(HTTPStatus.NOT_FOUND)
ETAGS = {
    "ETag": {"schema": {"type": "string"}, "description": "The version's SHA-256."},
    "Unbayes-Version": {"schema": {"type": "string"}, "description": "Its number."},
}

router = APIRouter(prefix="/v1/models", tags=["models"], route_class=GuardedRoute)


@router.get("", response_model=ModelsAnswer, dependencies=[Depends(needs(*SEE))])
def models(ledger: Ledger = Depends(ledger_of), settings: ServiceSettings = Depends(settings_of)) -> Response:
    """All models."""
    return reply(ModelsAnswer(models=[_describe(ledger, settings, model) for model in ledger.models()]))


@router.get("/{name}", response_model=ModelAnswer, responses=NO_MODEL, dependencies=[Depends(needs(*SEE))])
def model(
    name: ModelName, ledger: Ledger = Depends(ledger_of), settings: ServiceSettings = Depends(settings_of)
) -> Response:
    """One model."""
    return reply(_describe(ledger, settings, ledger.model(name)))


@router.get(
    "/{name}/versions",
    response_model=VersionsAnswer,
    responses=NO_MODEL,
    dependencies=[Depends(needs(*SEE))],
)
def versions(name: ModelName, ledger: Ledger = Depends(ledger_of)) -> Response:
    """All versions of a model."""
    head = ledger.model(name).head
    return reply(VersionsAnswer(versions=[of_version(each, head) for each in ledger.versions(name)]))


@router.get(
    "/{name}/current",
    response_class=Response,
    responses={
        int(HTTPStatus.OK): {
            "description": "The file: belief and model, never the base's memory.",
            "content": {MODEL_FILE: {"schema": {"type": "string", "format": "binary"}}},
            "headers": ETAGS,
        },
        int(HTTPStatus.NOT_MODIFIED): {"description": "It is what the caller has.", "headers": ETAGS},
        **NO_MODEL,
    },
    dependencies=[Depends(needs(Scope.PREDICT, Scope.OPERATE))],
)
def current(
    name: ModelName,
    if_none_match: Annotated[str | None, Header(description="The ETag of what the caller has.")] = None,
    ledger: Ledger = Depends(ledger_of),
) -> Response:
    """The version that production should load; ask again with If-None-Match, and load it where it is new."""
    version = ledger.current(name)
    if if_none_match is None or not _names(if_none_match, version.digest):
        version, data = ledger.current_file(name)
    else:
        data = None
    headers = {
        "ETag": f'"{version.digest}"',
        "Unbayes-Version": str(version.number),
        "Cache-Control": "private, no-cache",
    }
    if data is None:
        return Response(None, int(HTTPStatus.NOT_MODIFIED), headers)
    return Response(data, headers=headers, media_type=MODEL_FILE)


@router.post(
    "/{name}/apply",
    status_code=HTTPStatus.ACCEPTED,
    response_model=WantedAnswer,
    responses=NO_MODEL,
    dependencies=[Depends(needs(Scope.OPERATE))],
)
def apply(name: ModelName, ledger: Ledger = Depends(ledger_of)) -> Response:
    """Ask the worker to apply what is approved as soon as it can."""
    return reply(WantedAnswer(wanted=ledger.want(name)), HTTPStatus.ACCEPTED)


@router.get(
    "/{name}/suppressed",
    response_model=SuppressionAnswer,
    responses=NO_MODEL,
    dependencies=[Depends(needs(Scope.OPERATE, Scope.AUDIT))],
)
def suppressed(name: ModelName, ledger: Ledger = Depends(ledger_of)) -> Response:
    """Whom the next training has to leave out, by keyed digests."""
    found = ledger.suppressed(name)
    pairs = zip(found.digests, found.requests, strict=True)
    records = [SuppressedRecord.model_construct(digest=digest, request=number) for digest, number in pairs]
    return reply(SuppressionAnswer.model_construct(ids=found.ids, note=found.note, records=records))


def _describe(ledger: Ledger, settings: ServiceSettings, model: Model) -> ModelAnswer:
    counts = ledger.number_by_state(model.name)
    return ModelAnswer(
        name=model.name,
        registered=model.registered,
        inputs=[each.name for each in model.columns.inputs],
        target=model.columns.columns[-1],
        ids=model.columns.ids,
        settings=dataclasses.asdict(model.settings),
        current=of_version(ledger.current(model.name), model.head),
        wanted=model.wanted,
        progress=model.progress,
        has_source=model.name in settings.sources,
        waiting={state: counts.get(state, 0) for state in WAITING},
    )


def _names(shown: str, digest: str) -> bool:
    """Whether If-None-Match names a version."""
    tags = {each.strip().removeprefix("W/") for each in shown.split(",")}
    return "*" in tags or f'"{digest}"' in tags
