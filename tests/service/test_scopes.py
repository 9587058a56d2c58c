"""No route is open to somebody who should not be there; they are taken from the OpenAPI document."""

import datetime

import httpx
import pytest

from ledger.setting import Clock
from service.serving import caller, serving
from unbayes.ledger import Ledger
from unbayes.ledger.tokens import Scope
from unbayes.service import create_app
from unbayes.service.authority import GuardedRoute, scopes_of

OPEN = {"/health", "/ready", "/version"}
# What each route takes, in the words of the specification; beside the code on purpose.
WANTED = {
    "GET /openapi.json": "",
    "GET /metrics": "audit operate",
    "GET /v1/models": "operate audit approve submit",
    "GET /v1/models/{name}": "operate audit approve submit",
    "GET /v1/models/{name}/versions": "operate audit approve submit",
    "GET /v1/models/{name}/current": "predict operate",
    "POST /v1/models/{name}/apply": "operate",
    "GET /v1/models/{name}/suppressed": "operate audit",
    "POST /v1/models/{name}/requests": "submit",
    "POST /v1/models/{name}/requests/many": "submit",
    "POST /v1/models/{name}/requests/table": "submit",
    "GET /v1/requests": "approve operate audit submit",
    "POST /v1/requests/search": "approve operate audit submit",
    "GET /v1/requests/{number}": "approve operate audit submit",
    "GET /v1/requests/{number}/events": "approve operate audit submit",
    "GET /v1/requests/{number}/report": "approve operate audit submit",
    "POST /v1/requests/{number}/approve": "approve",
    "POST /v1/requests/{number}/deny": "approve",
    "POST /v1/requests/{number}/extend": "approve",
    "POST /v1/requests/{number}/withdraw": "submit approve",
    "GET /v1/log": "audit",
    "GET /v1/log/events": "audit",
    "GET /v1/log/checkpoints": "audit",
    "POST /v1/log/checkpoints": "audit operate",
    "GET /v1/log/proof": "audit",
    "GET /v1/log/consistency": "audit",
    "GET /v1/log/key": "",
    "GET /v1/statistics": "audit operate",
    "GET /v1/tokens": "admin",
    "POST /v1/tokens": "admin",
    "DELETE /v1/tokens/{number}": "admin",
    "GET /v1/hooks": "admin",
    "POST /v1/hooks": "admin",
    "DELETE /v1/hooks/{number}": "admin",
}


@pytest.fixture(scope="module")
def clock():
    return Clock()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory, clock):
    with Ledger.create(tmp_path_factory.mktemp("scopes") / "ledger", clock=clock) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def address(ledger):
    with serving(ledger) as address:
        yield address


@pytest.fixture(scope="module")
def document(address, ledger):
    with caller(address, ledger, "predict") as client:
        return client.get("/openapi.json").raise_for_status().json()


def calls(document):
    """Each route, as a call that nothing but its scope can refuse before its arguments are read."""
    for path, operations in document["paths"].items():
        if path in OPEN:
            continue
        for method in operations:
            yield f"{method.upper()} {path}", method, path.format(name="m", number=1)


def refuse_all(address, document, token, status):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    number = 0
    with httpx.Client(base_url=address, headers=headers) as client:
        for name, method, path in calls(document):
            answer = client.request(method, path)
            assert answer.status_code == status, name
            assert answer.headers["content-type"] == "application/problem+json", name
            assert answer.json()["status"] == status, name
            assert (status != 401) or answer.headers["www-authenticate"] == "Bearer", name
            number += 1
    assert number == len(WANTED)


def test_the_document_has_the_routes_and_no_others(document):
    assert {name for name, *_ in calls(document)} == set(WANTED)


def test_no_route_without_a_token(address, document):
    refuse_all(address, document, None, 401)


@pytest.mark.parametrize("token", ["nonsense", "unbayes_nonsense", "a.b.c", "unbayes_é"])
def test_a_token_that_is_none(address, token):
    headers = {"Authorization": b"Bearer " + token.encode()}
    assert httpx.get(f"{address}/v1/models", headers=headers).status_code == 401


def test_no_route_with_a_revoked_token(address, document, ledger):
    token, shown = ledger.tokens.create("gone", list(Scope))
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {shown}"}) as client:
        assert client.get("/v1/models").status_code == 200
        ledger.tokens.revoke(token.id)
        assert client.get("/v1/models").status_code == 401
    refuse_all(address, document, shown, 401)


def test_no_route_with_an_expired_token(address, document, ledger, clock):
    _, shown = ledger.tokens.create("late", list(Scope), days=1)
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {shown}"}) as client:
        assert client.get("/v1/models").status_code == 200
        clock.now += datetime.timedelta(days=1)
        assert client.get("/v1/models").status_code == 401
    refuse_all(address, document, shown, 401)


@pytest.mark.parametrize("scope", list(Scope))
def test_a_scope_opens_its_routes_and_no_others(address, document, ledger, scope):
    with caller(address, ledger, scope, name=f"only {scope}") as client:
        for name, method, path in calls(document):
            answer, wanted = client.request(method, path), WANTED[name].split()
            if not wanted or scope in wanted:
                assert answer.status_code not in (401, 403), name
            else:
                assert answer.status_code == 403, name
                assert answer.headers["content-type"] == "application/problem+json", name


def test_every_route_of_the_api_is_guarded(ledger):
    routes = [route for route in create_app(ledger).routes if getattr(route, "include_in_schema", False)]
    assert len(routes) > len(OPEN)
    for route in routes:
        assert isinstance(route, GuardedRoute), route.path
        assert (scopes_of(route) is None) == (route.path in OPEN), route.path
