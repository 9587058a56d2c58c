"""Whether the service is there, and which it is: the only routes without a scope."""

from http import HTTPStatus

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from unbayes._version import __version__
from unbayes.ledger import Ledger
from unbayes.ledger.tokens import Scope
from unbayes.service import metrics as numbers
from unbayes.service.api.replies import HealthAnswer, VersionOfService
from unbayes.service.authority import GuardedRoute, ledger_of, needs

router = APIRouter(tags=["service"], route_class=GuardedRoute)


@router.get("/health")
async def health() -> HealthAnswer:
    """Whether the process answers."""
    return HealthAnswer(status="fine")


@router.get("/ready")
def ready(ledger: Ledger = Depends(ledger_of)) -> HealthAnswer:
    """Whether its database answers, too; 503 where it does not."""
    ledger.log.state()
    return HealthAnswer(status="fine")


@router.get("/version")
async def version() -> VersionOfService:
    """Which version it is."""
    return VersionOfService(version=__version__)


@router.get("/openapi.json", dependencies=[Depends(needs())], response_class=JSONResponse)
async def document(request: Request) -> dict:
    """The OpenAPI document."""
    return request.app.openapi()


@router.get(
    "/metrics",
    dependencies=[Depends(needs(Scope.AUDIT, Scope.OPERATE))],
    response_class=Response,
    responses={
        int(HTTPStatus.OK): {"content": {"text/plain": {"schema": {"type": "string"}}}},
    },
)
def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type=numbers.MEDIA_TYPE)
