"""What callers send that is wrong: refused with a sentence, and nothing is written."""

import pytest

from ledger.setting import Clock
from service.serving import caller, serving
from service.test_api_requests import ONE, TABLE, form, refused
from unbayes.ledger import Ledger


@pytest.fixture(scope="module")
def ledger(tmp_path_factory, setting):
    with Ledger.create(tmp_path_factory.mktemp("refusals") / "ledger", clock=Clock()) as ledger:
        ledger.register("m", setting.file, ids="id")
        yield ledger


@pytest.fixture(scope="module")
def submitter(ledger):
    with serving(ledger) as address, caller(address, ledger, "submit", name="shop") as client:
        yield client


@pytest.mark.parametrize(
    ("data", "content", "word"),
    [
        ({}, b"id,a,b,y\n1,1,1,1\n", "either subject or subject_column"),
        ({"subject": "x", "subject_column": "who"}, b"id,a,b,y\n1,1,1,1\n", "either"),
        ({"subject": "x", "mising": "skip"}, b"id,a,b,y\n1,1,1,1\n", "mising"),
        ({"subject": "x", "due": "1"}, b"id,a,b,y\n1,1,1,1\n", "due"),
        ({"subject": "x" * 20_000}, b"id,a,b,y\n1,1,1,1\n", "form"),
        ({"subject_column": "nobody"}, b"id,a,b,y\n1,1,1,1\n", "nobody"),
        ({"subject": "x"}, b"PAR1\x00", "damaged"),
        ({"subject": "x"}, b"", "empty"),
    ],
)
def test_a_form_that_is_wrong(ledger, submitter, data, content, word):
    refused(submitter.post(TABLE, data=data, files={"rows": ("x", content)}), 422, word)
    assert ledger.requests() == []


def test_an_upload_that_is_no_form(submitter):
    refused(submitter.post(TABLE, content=b"x"), 422, "multipart")
    refused(submitter.post(TABLE, data={"subject": "x"}), 422, "multipart")
    refused(submitter.post(TABLE, files={"other": ("x", b"1")}), 422, "rows")
    files = [("rows", ("x", b"1")), ("rows", ("y", b"2"))]
    refused(submitter.post(TABLE, files=files), 422)
    headers = {"Content-Type": "multipart/form-data"}
    refused(submitter.post(TABLE, content=b"--x\r\n", headers=headers), 422)
    headers = {"Content-Type": "multipart/form-data; boundary=x; charset=nonsense"}
    body = b'--x\r\nContent-Disposition: form-data; name="subject"\r\n\r\n\xff\r\n--x--\r\n'
    refused(submitter.post(TABLE, content=body, headers=headers), 422)


HUGE = 10**400
BAD_BODIES = [
    {"ids": []},
    {"ids": [1]},
    {"ids": ["x" * 1001]},
    {"ids": ["a", "b"]},
    {"targets": [None]},
    {"targets": ["1"]},
    {"targets": [True]},
    {"targets": [HUGE]},
    {"inputs": [[1.0]]},
    {"inputs": [[1.0, "2"]]},
    {"inputs": [[1.0, 2.0], [1.0, 2.0]]},
    {"inputs": [1.0, 2.0]},
    {"inputs": None},
    {"targets": None},
    {"ids": None},
    {"subject": ""},
    {"subject": "x" * 1001},
    {"subject": "a\x00b"},
    {"subject": 7},
    {"subject": None},
    {"reference": "x" * 201},
    {"reference": "a\nb"},
    {"due": "2026-02-30"},
    {"due": 1_800_000_000},
    {"due": "2026-12-01T00:00:00"},
    {"due": "2026-11-17"},
    {"due": "2046-11-17"},
    {"missing": "allow"},
    {"missing": None},
    {"idempotency_key": "in the body of one"},
    {"client": "somebody else"},
    {"state": "closed"},
]


@pytest.mark.parametrize("change", BAD_BODIES, ids=str)
def test_a_body_that_is_wrong(ledger, setting, submitter, change):
    refused(submitter.post(ONE, json=form(setting, 1) | change), 422)
    assert ledger.requests() == []


JSON = {"Content-Type": "application/json"}
BAD_TEXTS = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"\xff",
    b'{"subject": "\\ud800", "ids": ["a"], "inputs": [[1, 2]], "targets": [1]}',
    b'{"subject": "x", "ids": ["a"], "inputs": [[NaN, 2]], "targets": [1]}',
    b'{"subject": "x", "ids": ["a"], "inputs": [[1e999, 2]], "targets": [1]}',
    b'{"subject": "x", "ids": ["a"], "inputs": [[1, 2]], "targets": [' + b"9" * 5000 + b"]}",
    b"[" * 100_000,
    b'{"\\ud800": 1}',
]


@pytest.mark.parametrize("content", BAD_TEXTS, ids=range(len(BAD_TEXTS)))
def test_a_text_that_is_wrong(ledger, submitter, content):
    answer = submitter.post(ONE, content=content, headers=JSON)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert ledger.requests() == []


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb"])
def test_a_key_that_is_wrong(setting, submitter, key):
    refused(submitter.post(ONE, json=form(setting, 1), headers={"Idempotency-Key": key}), 422)


@pytest.mark.parametrize(
    "params",
    [
        {"limit": 0},
        {"limit": 1001},
        {"limit": "x"},
        {"after": 0},
        {"after": 2**31},
        {"state": "done"},
        {"overdue": "perhaps"},
        {"model": "\x00"},
    ],
    ids=str,
)
def test_a_listing_that_is_wrong(submitter, params):
    refused(submitter.get("/v1/requests", params=params), 422)


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", str(2**31), str(2**63), "9" * 400])
def test_a_number_that_is_none(submitter, number):
    refused(submitter.get(f"/v1/requests/{number}"), 422)
