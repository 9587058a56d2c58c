"""Requests over HTTP: taken in, seen, decided on."""

import datetime
import threading

import httpx
import numpy as np
import pytest

import unbayes as ub
from ledger.setting import START, require_equal
from service.serving import caller, serving
from service.test_tables import as_arrow, as_csv, as_parquet, table
from unbayes.ledger import Ledger, Lookup, ModelSettings, verify_report
from unbayes.ledger.events import EventKind
from unbayes.ledger.merkle import require_consistency, require_inclusion
from unbayes.service import ServiceSettings

ONE, MANY, TABLE = (f"/v1/models/m/requests{end}" for end in ("", "/many", "/table"))
DUE = (START + datetime.timedelta(days=10)).date().isoformat()


def form(setting, *rows, subject="somebody", **more):
    rows = list(rows)
    return {
        "subject": subject,
        "ids": [setting.ids[row] for row in rows],
        "inputs": setting.x[rows].tolist(),
        "targets": setting.y[rows].tolist(),
    } | more


@pytest.fixture
def submitter(address, ledger):
    with caller(address, ledger, "submit", name="shop") as client:
        yield client


@pytest.fixture
def other(address, ledger):
    with caller(address, ledger, "submit", name="bank") as client:
        yield client


@pytest.fixture
def decider(address, ledger):
    with caller(address, ledger, "approve", name="officer") as client:
        yield client


@pytest.fixture
def operator(address, ledger):
    with caller(address, ledger, "operate", "audit", name="operator") as client:
        yield client


def refused(answer, status, *words):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    for word in words:
        assert word in document["detail"]


def test_from_submission_to_a_verified_report(ledger, setting, submitter, decider, operator, tmp_path):
    answer = submitter.post(ONE, json=form(setting, 3, 5, reference="T-1", due=DUE))
    assert answer.status_code == 201
    request = answer.json()
    assert answer.headers["location"] == f"/v1/requests/{request['number']}"
    assert request == request | {
        "model": "m",
        "client": "shop",
        "state": "received",
        "records": 2,
        "reference": "T-1",
        "due": DUE,
        "days_left": 10,
        "overdue": False,
        "verdict": None,
    }
    path = f"/v1/requests/{request['number']}"
    assert decider.post(f"{path}/approve").json()["state"] == "approved"
    before = operator.get("/v1/models/m/current")
    wanted = operator.post("/v1/models/m/apply")
    assert wanted.status_code == 202
    assert wanted.json()["wanted"] == operator.get("/v1/models/m").json()["wanted"]
    # The worker does this.
    assert ledger.is_time("m")
    ledger.apply("m")
    assert operator.get("/v1/models/m").json()["wanted"] is None

    request = submitter.get(path).json()
    assert (request["state"], request["erased"], request["version"]) == ("closed", 2, 2)
    report = submitter.get(f"{path}/report")
    assert report.headers["content-type"] == "application/json"
    assert report.content == ledger.report(request["number"])
    assert verify_report(report.content, ledger.public_key).contents.records.erased == 2
    page = submitter.get(f"{path}/report", params={"format": "html"})
    assert page.headers["content-type"].startswith("text/html")
    assert "sandbox" in page.headers["content-security-policy"]
    assert "<style>" in page.text
    kinds = [each["kind"] for each in submitter.get(f"{path}/events").json()["events"]]
    assert kinds[:2] == [EventKind.REQUEST_RECEIVED, EventKind.REQUEST_APPROVED]
    assert kinds[-1] == EventKind.REQUEST_CLOSED

    # The model that production loads is the one without these records.
    etag = before.headers["etag"]
    after = operator.get("/v1/models/m/current", headers={"If-None-Match": etag})
    assert after.status_code == 200
    assert after.headers["unbayes-version"] == "2"
    (tmp_path / "now").write_bytes(after.content)
    require_equal(ub.load(tmp_path / "now").posterior, setting.without(3, 5))


def test_the_current_file_is_loaded_when_it_is_new_only(operator):
    answer = operator.get("/v1/models/m/current")
    etag = answer.headers["etag"]
    assert etag == '"' + operator.get("/v1/models/m/versions").json()["versions"][0]["digest"] + '"'
    assert answer.headers["cache-control"] == "private, no-cache"
    for shown in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = operator.get("/v1/models/m/current", headers={"If-None-Match": shown})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    assert (
        operator.get("/v1/models/m/current", headers={"If-None-Match": '"other"'}).content == answer.content
    )


# Submitting


def test_the_same_key_is_the_same_request(setting, submitter, other):
    headers = {"Idempotency-Key": "web-1"}
    first = submitter.post(ONE, json=form(setting, 1), headers=headers)
    again = submitter.post(ONE, json=form(setting, 1), headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    refused(submitter.post(ONE, json=form(setting, 2), headers=headers), 409, "idempotency_key")
    # Somebody else's key is another one.
    assert other.post(ONE, json=form(setting, 1), headers=headers).status_code == 201
    # Without one, each is a request.
    assert submitter.post(ONE, json=form(setting, 1)).status_code == 201


def test_the_same_key_at_once_is_one_request(ledger, setting, submitter):
    found = []

    def submit():
        answer = submitter.post(ONE, json=form(setting, 1), headers={"Idempotency-Key": "race"})
        found.append((answer.status_code, answer.json()["number"]))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(status for status, _ in found) == [200] * 7 + [201]
    assert len({number for _, number in found}) == 1
    assert len(ledger.requests()) == 1


def test_many_are_taken_in_all_or_none(ledger, setting, submitter):
    good = [form(setting, row, subject=f"p{row}", idempotency_key=f"k{row}") for row in range(4)]
    bad = form(setting, 9, subject="p9")
    bad["inputs"] = [[1.0]]
    refused(submitter.post(MANY, json={"requests": [*good, bad]}), 422, "columns")
    assert ledger.requests() == []
    answer = submitter.post(MANY, json={"requests": good})
    assert answer.status_code == 201
    numbers = [each["number"] for each in answer.json()["requests"]]
    assert answer.json()["new"] == 4
    assert numbers == sorted(numbers)
    again = submitter.post(MANY, json={"requests": good[::-1]})
    assert again.status_code == 200
    assert [each["number"] for each in again.json()["requests"]] == numbers[::-1]
    assert again.json()["new"] == 0
    mixed = submitter.post(MANY, json={"requests": [good[0], form(setting, 8)]})
    assert (mixed.status_code, mixed.json()["new"]) == (201, 1)
    twice = [form(setting, 20, idempotency_key="x"), form(setting, 21, idempotency_key="x")]
    refused(submitter.post(MANY, json={"requests": twice}), 409, "more than once")


@pytest.mark.parametrize("write", [as_parquet, as_csv, as_arrow])
def test_a_table_of_one_person(ledger, submitter, write):
    data = {"subject": "somebody", "reference": "T-9", "missing": "skip", "due": DUE}
    answer = submitter.post(TABLE, data=data, files={"rows": ("x", write(table()))})
    assert answer.status_code == 201, answer.text
    (request,) = answer.json()["requests"]
    assert request == request | {"records": 7, "reference": "T-9", "missing": "skip", "due": DUE}
    assert ledger.requests(subject="somebody")[0].id == request["number"]


def test_a_table_of_many_people(ledger, submitter):
    post = {"data": {"subject_column": "who"}, "headers": {"Idempotency-Key": "batch"}}
    answer = submitter.post(TABLE, files={"rows": ("x", as_parquet(table()))}, **post)
    assert [each["records"] for each in answer.json()["requests"]] == [3, 2, 2]
    assert len(ledger.requests(subject="person 1")) == 1
    again = submitter.post(TABLE, files={"rows": ("x", as_parquet(table()))}, **post)
    assert (again.status_code, again.json()["new"]) == (200, 0)


def test_the_rows_of_a_person_from_the_data_source(ledger, setting, tmp_path):
    path = tmp_path / "people.parquet"
    path.write_bytes(as_parquet(table()))
    with (
        serving(ledger, ServiceSettings(sources={"m": Lookup(path, "who")})) as address,
        caller(address, ledger, "submit") as client,
    ):
        assert client.get("/v1/models/m").json()["has_source"]
        answer = client.post(ONE, json={"subject": "person 0"})
        assert (answer.status_code, answer.json()["records"]) == (201, 3)
        refused(client.post(ONE, json={"subject": "nobody"}), 404, "no records")
        # Rows that are sent are taken all the same.
        assert client.post(ONE, json=form(setting, 1)).json()["records"] == 1


# Seeing


def test_one_sees_ones_own_requests(setting, submitter, other, decider, operator):
    mine = submitter.post(ONE, json=form(setting, 1, subject="ann")).json()["number"]
    theirs = other.post(ONE, json=form(setting, 2, subject="ann")).json()["number"]
    assert [each["number"] for each in submitter.get("/v1/requests").json()["requests"]] == [mine]
    found = submitter.post("/v1/requests/search", json={"subject": "ann"}).json()["requests"]
    assert [each["number"] for each in found] == [mine]
    for end in ("", "/events", "/report"):
        refused(submitter.get(f"/v1/requests/{theirs}{end}"), 404, f"there is no request {theirs}")
    refused(submitter.post(f"/v1/requests/{theirs}/withdraw"), 404, f"there is no request {theirs}")
    # The same sentence as for one that is not there.
    refused(submitter.get("/v1/requests/999"), 404, "there is no request 999")
    for client in (decider, operator):
        numbers = [each["number"] for each in client.get("/v1/requests").json()["requests"]]
        assert numbers == [theirs, mine]
        found = client.post("/v1/requests/search", json={"subject": "ann"}).json()["requests"]
        assert len(found) == 2
        assert client.get(f"/v1/requests/{mine}").json()["client"] == "shop"
    assert operator.post("/v1/requests/search", json={"subject": "bob"}).json()["requests"] == []


def test_pages_of_a_list(setting, submitter, clock):
    some = [form(setting, row, subject=f"p{row}") for row in range(7)]
    numbers = [each["number"] for each in submitter.post(MANY, json={"requests": some}).json()["requests"]]
    found, after = [], None
    for _ in range(4):
        params = {"limit": 3} | ({} if after is None else {"after": after})
        page = submitter.get("/v1/requests", params=params).json()
        found += [each["number"] for each in page["requests"]]
        after = page["next"]
        if after is None:
            break
    assert found == numbers[::-1]
    submitter.post(f"/v1/requests/{numbers[0]}/withdraw")

    def listed(**params):
        return [each["number"] for each in submitter.get("/v1/requests", params=params).json()["requests"]]

    assert listed(state="withdrawn") == numbers[:1]
    assert sorted(listed(state=["withdrawn", "received"])) == numbers
    assert listed(model="m", state="approved") == []
    assert listed(overdue=True) == []
    clock.now += datetime.timedelta(days=60)
    assert listed(overdue=True) == numbers[:0:-1]
    refused(submitter.get("/v1/requests", params={"model": "nothing"}), 404)


# Deciding


def test_denying_extending_and_withdrawing(setting, submitter, decider):
    numbers = [submitter.post(ONE, json=form(setting, row)).json()["number"] for row in range(3)]
    denied, extended, withdrawn = (f"/v1/requests/{number}" for number in numbers)
    assert decider.post(f"{denied}/deny", json={"ground": "not ours"}).json()["state"] == "denied"
    refused(decider.post(f"{denied}/approve"), 409, "it can become nothing")
    refused(decider.post(f"{denied}/deny", json={}), 422, "ground")
    later = decider.post(f"{extended}/extend", json={"days": 20, "reason": "many of them"}).json()
    assert later["extended"]
    assert later["due"] > later["first_due"]
    refused(decider.post(f"{extended}/extend", json={"days": 1, "reason": "again"}), 409, "before")
    assert submitter.post(f"{withdrawn}/withdraw").json()["state"] == "withdrawn"
    refused(submitter.post(f"{withdrawn}/withdraw"), 409)
    refused(submitter.post(f"{extended}/approve"), 403, "scope approve")
    other = decider.post(f"{extended}/withdraw")
    assert other.json()["state"] == "withdrawn"


def test_who_decides_is_in_the_log(ledger, setting, submitter, decider):
    number = submitter.post(ONE, json=form(setting, 1)).json()["number"]
    decider.post(f"/v1/requests/{number}/approve", json={"missing": "skip"})
    details = [opening.details for opening in ledger.log.openings(number).values()]
    assert any(each.get("by") == "officer" for each in details)
    assert ledger.show(number).missing == "skip"


def test_nobody_decides_on_their_own_request_where_four_eyes_are_asked_for(tmp_path, setting, clock):
    with Ledger.create(tmp_path / "four", clock=clock) as ledger:
        ledger.register("m", setting.file, ids="id", settings=ModelSettings(four_eyes=True))
        with (
            serving(ledger) as address,
            caller(address, ledger, "submit", "approve", name="both") as both,
            caller(address, ledger, "approve", name="officer") as officer,
        ):
            number = both.post(ONE, json=form(setting, 1)).json()["number"]
            path = f"/v1/requests/{number}"
            refused(both.post(f"{path}/approve"), 403, "four eyes")
            refused(both.post(f"{path}/deny", json={"ground": "x"}), 403, "four eyes")
            assert ledger.show(number).state == "received"
            assert officer.post(f"{path}/approve").json()["state"] == "approved"


# The log


def test_proofs_are_checked_by_whoever_has_them(ledger, setting, submitter, operator):
    earlier = operator.get("/v1/log").json()
    submitter.post(ONE, json=form(setting, 1))
    checkpoint = operator.post("/v1/log/checkpoints")
    assert checkpoint.status_code == 201
    assert operator.get("/v1/log/checkpoints").json()["checkpoints"] == [checkpoint.json()]
    state = operator.get("/v1/log").json()
    proof = operator.get("/v1/log/proof", params={"index": 2}).json()
    assert proof["size"] == state["size"]
    raw = [bytes.fromhex(each) for each in proof["proof"]]
    require_inclusion(bytes.fromhex(proof["leaf"]), 2, state["size"], raw, bytes.fromhex(state["root"]))
    same = operator.get("/v1/log/consistency", params={"first": earlier["size"]}).json()
    raw = [bytes.fromhex(each) for each in same["proof"]]
    roots = bytes.fromhex(earlier["root"]), bytes.fromhex(state["root"])
    require_consistency(earlier["size"], roots[0], state["size"], roots[1], raw)
    events = operator.get("/v1/log/events", params={"start": 1, "limit": 2}).json()["events"]
    assert [each["sequence"] for each in events] == [1, 2]
    assert operator.get("/v1/log/events", params={"start": 10**6}).json()["events"] == []
    refused(operator.get("/v1/log/proof", params={"index": 10**6}), 404)
    refused(operator.get("/v1/log/proof", params={"index": 0, "size": 10**6}), 404)
    refused(operator.get("/v1/log/consistency", params={"first": 10**6}), 404)
    assert submitter.get("/v1/log/key").content == ledger.public_key.to_pem()


def test_statistics_are_the_ledgers(setting, submitter, decider, operator):
    number = submitter.post(ONE, json=form(setting, 1)).json()["number"]
    decider.post(f"/v1/requests/{number}/deny", json={"ground": "x"})
    found = operator.get("/v1/statistics", params={"since": "2026-11-01", "until": "2026-11-30"}).json()
    assert (found["received"], found["denied"], found["by_model"]["m"]["denied"]) == (1, 1, 1)
    assert operator.get("/v1/statistics", params={"since": "2027-01-01"}).json()["received"] == 0
    refused(operator.get("/v1/statistics", params={"since": "1"}), 422)
    refused(operator.get("/v1/statistics", params={"since": "2027-01-01", "until": "2026-01-01"}), 422)


def test_whom_training_has_to_leave_out(ledger, setting, submitter, decider, operator):
    number = submitter.post(ONE, json=form(setting, 1)).json()["number"]
    decider.post(f"/v1/requests/{number}/approve")
    found = operator.get("/v1/models/m/suppressed").json()
    assert found["ids"] == "id"
    assert found["note"] == ledger.suppressed("m").note
    assert found["records"] == [{"digest": ledger.suppressed("m").digests[0], "request": number}]
    assert not np.any(ledger.suppressed("m").keep([setting.ids[1]]))
    refused(operator.get("/v1/models/none/suppressed"), 404, "no model 'none'")
    assert operator.get("/v1/models/none").status_code == httpx.codes.NOT_FOUND
