"""What somebody sends to the page who means no good."""

import contextlib
import time

import httpx
import pytest

from ledger.setting import ask
from service.raw import connected
from service.serving import serving
from service.test_page import EVERYBODY, OPEN, key, post, quick, submit, text_of, visitor  # noqa: F401
from unbayes.ledger import Lookup
from unbayes.ledger.tokens import Scope
from unbayes.service import ServiceSettings
from unbayes.service.page import models, reports

FORM = "application/x-www-form-urlencoded"
FIELD = '--q\r\nContent-Disposition: form-data; name="token"\r\n\r\n{}\r\n--q--\r\n'


@pytest.mark.parametrize("scope", [Scope.AUDIT, Scope.OPERATE])
def test_whoever_sees_all_requests_withdraws_their_own_only(address, ledger, setting, scope):
    mine = ask(ledger, setting, 0, approve=False, client="dana")
    others = ask(ledger, setting, 1, approve=False, client="somebody")
    client = visitor(address, ledger, Scope.SUBMIT, scope)
    assert client.get(f"/requests/{others.id}").status_code == 200
    assert post(client, f"/requests/{others.id}/withdraw").status_code == 404
    assert ledger.show(others.id).state == "received"
    assert post(client, f"/requests/{mine.id}/withdraw").status_code == 303


def typed(setting, row):
    """A record as one types it in."""
    return f"id,a,b,y\nrecord-{row},{setting.x[row, 0]},{setting.x[row, 1]},{setting.y[row]}\n"


def login(address, content, kind, **headers):
    return httpx.post(f"{address}/login", content=content, headers={"content-type": kind, **headers})


@pytest.mark.parametrize("charset", ["punycode", "unicode_escape", "undefined", "utf-16"])
def test_a_form_is_in_utf_8_whatever_it_says(address, charset):
    answer = login(
        address, FIELD.format("unbayes_\\ud800-a"), f"multipart/form-data; boundary=q; charset={charset}"
    )
    assert answer.status_code == 422
    assert "must be in UTF-8" in answer.text


def test_whoever_has_not_logged_in_sends_a_token_and_no_more(address):
    assert login(address, "token=" + "a" * 17_000, FORM).status_code == 413


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("&".join(f"a{i}=1" for i in range(1000)), FORM),
        ("--qx", "multipart/form-data; boundary=q"),
        ("--q\r\nX: y\r\n\r\nz\r\n--q--\r\n", "multipart/form-data; boundary=q"),
        ("x", "multipart/form-data"),
    ],
)
def test_a_form_that_is_none_is_refused(address, content, kind):
    assert login(address, content, kind).status_code == 422


@pytest.mark.parametrize("origin", ["http://[", "null", "://", "http://localhost", ""])
def test_an_origin_that_is_not_this_one_is_refused(address, origin):
    assert login(address, "token=x", FORM, origin=origin).status_code == 403


@pytest.mark.parametrize("name", ["%00", "a%00/progress", "%1b", "x" * 201])
def test_a_name_that_no_model_has_does_not_reach_the_database(address, ledger, name):
    client = visitor(address, ledger, Scope.OPERATE)
    answer = client.get(f"/models/{name}")
    assert answer.status_code == 404
    assert "There is no such page." in answer.text


# What the API does not take, the page does not take either.


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("due", "2020-01-01", "due must be from"),
        ("due", "9999-12-31", "due must be from"),
        ("reference", "DSR\x1b[31m-1", "reference is too long, or is no text"),
        ("subject", "x" * 1001, "subject is too long, or is no text"),
        ("subject", "a\nb", "subject is too long, or is no text"),
    ],
)
def test_a_field_that_is_wrong(address, ledger, setting, field, value, sentence):
    client = visitor(address, ledger, Scope.SUBMIT)
    answer = submit(client, **{"subject": "p", "typed": typed(setting, 0), field: value})
    assert answer.status_code == 422
    assert sentence in text_of(answer).lower()
    assert not ledger.requests()


def test_a_ground_may_have_lines(address, ledger, setting):
    request = ask(ledger, setting, 0, approve=False)
    client = visitor(address, ledger, Scope.APPROVE)
    path = f"/requests/{request.id}/deny"
    assert post(client, path, ground="a\x07b").status_code == 422
    assert post(client, path, ground="kept by law:\r\n\tart. 17(3)").status_code == 303


def test_by_the_person_alone(ledger, setting, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(f"who,{typed(setting, 3).replace(chr(10), f'{chr(10)}person 3,', 1)}")
    with serving(ledger, ServiceSettings(sources={"m": Lookup(path, "who")})) as address:
        client = visitor(address, ledger, Scope.SUBMIT)
        assert "By the person alone" in client.get("/requests/new").text
        assert submit(client, subject="person 3").status_code == 303
        (request,) = ledger.requests(subject="person 3")
        assert request.asked == 1
        answer = submit(client, subject="person 4")
        assert answer.status_code == 404
        assert "no records of this person" in answer.text
    with serving(ledger) as address:
        client = visitor(address, ledger, Scope.SUBMIT)
        assert "By the person alone" not in client.get("/requests/new").text
        assert "in a file or typed in" in submit(client, subject="person 3").text


def test_a_file_that_is_no_report_by_its_length(address, ledger):
    client = visitor(address, ledger, Scope.AUDIT)
    assert "at most 4 MiB" in client.get("/verify").text
    files = {"report": ("r.json", b" " * (reports.LONGEST_REPORT + 1))}
    answer = client.post("/verify", data={"form_key": key(client)}, files=files)
    assert answer.status_code == 413
    assert "The file was not read. Do not rely on it." in answer.text
    assert "at most 4 MiB, and the file has more" in answer.text


# Streams


@contextlib.contextmanager
def streaming(client, address, most):
    """Streams of the progress of a model, each with what has come of it so far."""
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    head = f"GET /models/m/progress HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connected(address)) for _ in range(most)]
        for connection in connections:
            connection.sendall(head)
        yield [read_until(connection, b"retry: ") for connection in connections]


def read_until(connection, wanted):
    data = b""
    while wanted + b"1" not in data and wanted + b"2" not in data:
        data += connection.recv(4096)
    return data


def test_nobody_takes_up_all_connections_by_streams(address, ledger, monkeypatch):
    monkeypatch.setattr(models, "LOOK_SECONDS", 0.02)
    ledger.want("m")
    client = visitor(address, ledger, Scope.OPERATE)
    for _ in range(2):
        with streaming(client, address, models.MOST_STREAMS + 5) as said:
            assert sum(b"retry: 2000" in each for each in said) == models.MOST_STREAMS
            assert sum(b"retry: 10000" in each for each in said) == 5
        # Those who have left are noticed.
        time.sleep(1)


def test_a_stream_does_not_hold_the_server_up(ledger):
    ledger.want("m")
    with contextlib.ExitStack() as stack:
        with serving(ledger) as address:
            client = visitor(address, ledger, Scope.OPERATE)
            stack.enter_context(streaming(client, address, 1))
            start = time.monotonic()
        assert time.monotonic() - start < 5
