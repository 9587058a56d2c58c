"""Tokens over HTTP, what the service says of itself, and what it writes down."""

import io
import json
import re

import httpx
import pytest

from ledger.setting import Clock
from service.serving import caller, serving
from service.test_api_requests import ONE, form
from unbayes.ledger import DatabaseProblem, Ledger
from unbayes.service.logs import json_log


@pytest.fixture(scope="module")
def ledger(tmp_path_factory, setting):
    with Ledger.create(tmp_path_factory.mktemp("service") / "ledger", clock=Clock()) as ledger:
        ledger.register("m", setting.file, ids="id")
        yield ledger


@pytest.fixture(scope="module")
def written():
    return io.StringIO()


@pytest.fixture(scope="module")
def address(ledger, written):
    with serving(ledger, log=json_log(written)) as address:
        yield address


def lines(written):
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_tokens_are_made_listed_and_revoked(address, ledger):
    with caller(address, ledger, "admin") as admin:
        made = admin.post("/v1/tokens", json={"name": "shop", "scopes": ["submit", "predict"], "days": 3})
        assert made.status_code == 201
        token = made.json()
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token['token']}"}) as shop:
            assert shop.get("/v1/requests").status_code == 200
            listed = {each["id"]: each for each in admin.get("/v1/tokens").json()["tokens"]}
            assert listed[token["id"]] == {k: v for k, v in token.items() if k != "token"}
            assert token["scopes"] == ["predict", "submit"]
            assert token["expires"] is not None
            assert token["token"] not in admin.get("/v1/tokens").text
            revoked = admin.delete(f"/v1/tokens/{token['id']}")
            assert revoked.json()["revoked"] is not None
            assert shop.get("/v1/requests").status_code == 401
        assert admin.delete(f"/v1/tokens/{token['id']}").json() == revoked.json()
        assert admin.delete("/v1/tokens/999").status_code == 404
        for bad in (
            {"name": "", "scopes": ["submit"]},
            {"name": "x" * 91, "scopes": ["submit"]},
            {"name": "x", "scopes": []},
            {"name": "x", "scopes": ["root"]},
            {"name": "x", "scopes": ["submit"], "days": 0},
            {"name": "x", "scopes": ["submit"], "days": 1.5},
            {"name": "x\u200b", "scopes": ["submit"]},
        ):
            assert admin.post("/v1/tokens", json=bad).status_code == 422, bad


def test_webhooks_are_added_listed_and_removed(address, ledger):
    url = "https://example.com/events?of=unbayes"
    with caller(address, ledger, "admin") as admin:
        made = admin.post("/v1/hooks", json={"url": url, "kinds": ["request_received"]})
        assert made.status_code == 201
        hook = made.json()
        secret = hook.pop("secret")
        listed = admin.get("/v1/hooks")
        assert listed.json()["hooks"] == [hook]
        assert secret not in listed.text
        assert (hook["url"], hook["kinds"], hook["waiting"]) == (url, ["request_received"], 0)
        removed = admin.delete(f"/v1/hooks/{hook['id']}")
        assert (removed.status_code, removed.content) == (204, b"")
        assert admin.get("/v1/hooks").json()["hooks"] == []
        assert admin.delete(f"/v1/hooks/{hook['id']}").status_code == 404
        for bad in (
            {"url": "http://example.com"},
            {"url": "file:///etc/passwd"},
            {"url": "https://name:secret@example.com"},
            {"url": url, "kinds": ["nothing"]},
            {"url": "https://" + "x" * 2000},
            {},
        ):
            assert admin.post("/v1/hooks", json=bad).status_code == 422, bad


def test_it_is_ready_where_its_database_answers(address, ledger, monkeypatch):
    assert httpx.get(f"{address}/ready").json() == {"status": "fine"}

    def broken():
        raise DatabaseProblem("the database does not answer: gone")

    monkeypatch.setattr(ledger.log, "state", broken)
    answer = httpx.get(f"{address}/ready")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "the database does not answer: gone"
    assert httpx.get(f"{address}/health").status_code == 200


def test_another_method_is_told_which_there_are(address):
    for method, path, allowed in (
        ("PUT", "/v1/tokens", "GET, POST"),
        ("POST", "/health", "GET"),
        ("DELETE", "/v1/requests/7", "GET"),
        ("PATCH", "/v1/log/checkpoints", "GET, POST"),
    ):
        answer = httpx.request(method, address + path)
        assert answer.status_code == 405
        assert answer.headers["allow"] == allowed
        assert answer.headers["content-type"] == "application/problem+json"


def test_numbers_for_prometheus(address, ledger, setting):
    with caller(address, ledger, "submit", "audit") as client:
        client.post(ONE, json=form(setting, 1))
        client.get("/v1/requests/1")
        text = client.get("/metrics")
        assert text.headers["content-type"].startswith("text/plain")
    found = dict(re.findall(r"^(\w+(?:\{.*?\})?) (\S+)$", text.text, re.MULTILINE))
    assert float(found['unbayes_requests{state="received"}']) == len(ledger.requests(limit=None))
    assert float(found['unbayes_requests{state="closed"}']) == 0
    assert float(found["unbayes_requests_overdue"]) == 0
    assert 28 <= float(found["unbayes_next_due_days"]) <= 31
    assert float(found['unbayes_model_version{model="m"}']) == 1
    assert float(found['unbayes_model_version_created_seconds{model="m"}']) > 1.7e9
    route = '{method="GET",route="/v1/requests/{number}",status="200"}'
    assert float(found["unbayes_http_requests_total" + route]) >= 1
    assert 'unbayes_http_request_seconds_bucket{le="0.05",route="/v1/requests/{number}"}' in found


def test_the_log_has_a_line_a_call_and_nobody_in_it(address, ledger, setting, written):
    with caller(address, ledger, "submit", "audit", name="shop") as client:
        client.post(ONE, json=form(setting, 5, subject="Ann Other", reference="T-77"))
        client.post("/v1/requests/search", json={"subject": "Ann Other"})
        client.get("/v1/requests/1?model=AnnOther")
        client.get("/AnnOther/nowhere")
        client.get("/v1/models/AnnOther")
        answer = client.get("/v1/log?AnnOther=1")
    line = next(each for each in lines(written) if each["request_id"] == answer.headers["x-request-id"])
    assert line["time"].endswith("Z")
    assert 0 < line["ms"] < 10_000
    assert line == line | {"method": "GET", "route": "/v1/log", "status": 200, "caller": "shop"}
    assert {each["route"] for each in lines(written)} >= {
        "(none)",
        "/v1/models/{name}",
        ONE.replace("m/r", "{name}/r"),
    }
    for word in ("Ann", "T-77", setting.ids[5], "unbayes_"):
        assert word not in written.getvalue()


def test_what_was_not_foreseen_is_a_problem_and_its_words_are_kept_to_itself(
    address, ledger, monkeypatch, written
):
    def broken():
        raise RuntimeError("Ann Other lives at 7 Elm Street")

    monkeypatch.setattr(ledger.log, "state", broken)
    with caller(address, ledger, "audit") as client:
        answer = client.get("/v1/log")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "Ann" not in answer.text
    line = next(each for each in lines(written) if each["level"] == "error")
    assert line["error"] == "RuntimeError"
    assert any("broken" in place for place in line["where"])
    assert "Ann" not in written.getvalue()
