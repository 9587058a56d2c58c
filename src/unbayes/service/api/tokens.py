"""Tokens: who may use the service, and for what."""

from http import HTTPStatus

from fastapi import APIRouter, Depends, Response

from unbayes.ledger import Ledger
from unbayes.ledger.tokens import Scope
from unbayes.service.api.answers import of_token
from unbayes.service.api.forms import TokenForm
from unbayes.service.api.replies import NewTokenAnswer, TokenAnswer, TokensAnswer
from unbayes.service.api.shared import RequestNumber, reply
from unbayes.service.authority import GuardedRoute, ledger_of, needs
from unbayes.service.document import refusals

ADMIN = [Depends(needs(Scope.ADMIN))]

router = APIRouter(prefix="/v1/tokens", tags=["tokens"], route_class=GuardedRoute)


@router.get("", response_model=TokensAnswer, dependencies=ADMIN)
def tokens(ledger: Ledger = Depends(ledger_of)) -> Response:
    """All tokens, without what their bearers show."""
    return reply(TokensAnswer(tokens=[TokenAnswer(**of_token(each)) for each in ledger.tokens.all()]))


@router.post("", status_code=HTTPStatus.CREATED, response_model=NewTokenAnswer, dependencies=ADMIN)
def create(form: TokenForm, ledger: Ledger = Depends(ledger_of)) -> Response:
    """A new token; what its bearer shows is in this answer, and nowhere else."""
    token, shown = ledger.tokens.create(form.name, form.scopes, days=form.days)
    return reply(NewTokenAnswer(token=shown, **of_token(token)), HTTPStatus.CREATED)


@router.delete(
    "/{number}",
    response_model=TokenAnswer,
    responses=refusals(HTTPStatus.NOT_FOUND),
    dependencies=ADMIN,
)
def revoke(number: RequestNumber, ledger: Ledger = Depends(ledger_of)) -> Response:
    """Accept a token no longer."""
    return reply(TokenAnswer(**of_token(ledger.tokens.revoke(number))))
