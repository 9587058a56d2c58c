"""Too long, too slow, too often, under another name: refused, and nobody else notices."""

import contextlib
import json
import time

import httpx
import pytest

from ledger.setting import Clock
from service.raw import connected, post, read_all, status_of
from service.serving import caller, serving
from unbayes.ledger import Ledger, LedgerError
from unbayes.ledger.tokens import Scope
from unbayes.service import ServiceSettings, protocol
from unbayes.service.limits import Buckets

LIMIT = 2000
SEARCH = "/v1/requests/search"
JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    with Ledger.create(tmp_path_factory.mktemp("limits") / "ledger", clock=Clock()) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def token(ledger):
    return ledger.tokens.create("limited", list(Scope))[1]


@pytest.fixture(scope="module")
def address(ledger):
    settings = ServiceSettings(
        json_limit=LIMIT, body_limit=5 * LIMIT, body_seconds=0.5, hosts=("127.0.0.1", "localhost")
    )
    with serving(ledger, settings) as address:
        yield address


def answer_of(address, data):
    with connected(address) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
        return read_all(connection)


def chunks(data, size=500):
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


# Bodies


def body_of(length):
    body = json.dumps({"subject": "x"}).encode()
    return body + b" " * (length - len(body))


def test_a_body_within_the_limit_is_read(address, token):
    data = post(SEARCH, token, JSON, f"Content-Length: {LIMIT}", "Connection: close", body=body_of(LIMIT))
    assert status_of(answer_of(address, data)) == 200


def test_a_body_that_says_it_is_too_long_is_refused_unread(address, token):
    answer = answer_of(address, post(SEARCH, token, JSON, f"Content-Length: {LIMIT + 1}"))
    assert status_of(answer) == 413
    assert b"application/problem+json" in answer
    assert b"at most 2000 bytes" in answer


@pytest.mark.parametrize("length", ["9" * 30, "9" * 5000, "١٢"])
def test_a_length_that_is_none(address, token, length):
    assert status_of(answer_of(address, post(SEARCH, token, JSON, f"Content-Length: {length}"))) in (400, 413)


def test_a_body_without_a_length_is_counted(address, token):
    fits = post(
        SEARCH, token, JSON, "Transfer-Encoding: chunked", "Connection: close", body=chunks(body_of(LIMIT))
    )
    assert status_of(answer_of(address, fits)) == 200
    long = post(SEARCH, token, JSON, "Transfer-Encoding: chunked", body=chunks(body_of(LIMIT + 1)))
    answer = answer_of(address, long)
    assert status_of(answer) == 413
    assert b"connection: close" in answer.lower()


def test_an_endless_body_is_hung_up_on(address, token):
    with connected(address) as connection:
        connection.sendall(post(SEARCH, token, JSON, "Transfer-Encoding: chunked"))
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 200_000_000:
                connection.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
                sent += 4096
        assert sent < 200_000_000


def test_a_table_may_be_longer_than_other_bodies(address, token):
    data = post("/v1/models/m/requests/table", token, f"Content-Length: {2 * LIMIT}", "Connection: close")
    assert status_of(answer_of(address, data + b"x" * 2 * LIMIT)) == 422
    data = post("/v1/models/m/requests/table", token, f"Content-Length: {5 * LIMIT + 1}")
    assert status_of(answer_of(address, data)) == 413


def test_all_bodies_together_have_a_limit(ledger):
    settings, body = ServiceSettings(bodies_limit=3 * LIMIT), body_of(2 * LIMIT)
    kind = {"content-type": "application/json"}
    with serving(ledger, settings) as address, caller(address, ledger, "submit") as client:
        token = client.headers["authorization"].removeprefix("Bearer ")
        data = post(SEARCH, token, JSON, f"Content-Length: {2 * LIMIT}", body=b" " * (2 * LIMIT - 1))
        with connected(address) as connection:
            connection.sendall(data)
            time.sleep(0.3)
            answer = client.post(
                SEARCH, content=body_of(2 * LIMIT), headers={"content-type": "application/json"}
            )
            assert answer.status_code == 503
            assert "all callers together" in answer.json()["detail"]
            assert answer.headers["retry-after"] == "5"
        time.sleep(0.3)
        answer = client.post(SEARCH, content=body, headers=kind)
        assert answer.status_code == 200


def test_a_body_that_does_not_arrive_in_time_is_refused(address, token):
    start = time.monotonic()
    answer = answer_of(address, post(SEARCH, token, JSON, "Content-Length: 100", body=b'{"subject"'))
    assert status_of(answer) == 408
    assert 0.4 < time.monotonic() - start < 5


def test_a_body_that_drips_is_refused(address, token):
    with connected(address) as connection:
        connection.sendall(post(SEARCH, token, JSON, "Content-Length: 1000"))
        with contextlib.suppress(OSError):
            for _ in range(30):
                connection.sendall(b" ")
                time.sleep(0.05)
        assert status_of(read_all(connection)) == 408


def test_nobody_has_their_body_read(address):
    """It is refused at once, though the body has not come."""
    start = time.monotonic()
    answer = answer_of(address, post(SEARCH, "unbayes_none", JSON, "Content-Length: 1000"))
    assert status_of(answer) == 401
    assert b"connection: close" in answer.lower()
    assert time.monotonic() - start < 0.45


# Heads


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(protocol.PatientProtocol, "head_seconds", 0.3)
    monkeypatch.setattr(protocol.PatientProtocol, "head_limit", 4000)


@pytest.mark.usefixtures("impatient")
def test_a_head_that_drips_is_hung_up_on(address):
    with connected(address) as connection:
        start = time.monotonic()
        with contextlib.suppress(OSError):
            for each in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100:
                connection.sendall(bytes([each]))
                time.sleep(0.02)
        assert time.monotonic() - start < 3
        assert status_of(read_all(connection)) == 408


@pytest.mark.usefixtures("impatient")
def test_the_second_head_of_a_connection_is_hung_up_on_too(address):
    with connected(address) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status_of(connection.recv(65536)) == 200
        connection.sendall(b"GET /hea")
        assert status_of(read_all(connection)) == 408


@pytest.mark.usefixtures("impatient")
def test_a_connection_that_says_nothing_is_hung_up_on(address):
    with connected(address) as connection:
        assert status_of(read_all(connection)) == 408


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("flood", [b"GET /" + b"x" * 9000, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 2000])
def test_a_head_that_is_too_long_is_refused(address, flood):
    assert status_of(answer_of(address, flood)) == 431


@pytest.mark.usefixtures("impatient")
def test_others_are_served_meanwhile(address, monkeypatch):
    monkeypatch.setattr(protocol.PatientProtocol, "head_seconds", 5.0)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connected(address)).sendall(b"GET / HT")
        assert httpx.get(f"{address}/health", timeout=3).status_code == 200


@pytest.mark.parametrize(
    "noise", [b"\x16\x03\x01\x02\x00", b"HELO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 50]
)
def test_what_is_no_http_is_refused(address, noise):
    assert status_of(answer_of(address, noise)) == 400


# How often


def test_a_caller_who_calls_too_often_is_told_when_to_come_again(ledger):
    with (
        serving(ledger, ServiceSettings(rate=1.0, burst=3)) as address,
        caller(address, ledger, "audit", name="one") as one,
        caller(address, ledger, "audit", name="two") as two,
    ):
        assert [one.get("/v1/log").status_code for _ in range(6)].count(200) <= 4
        refused = one.get("/v1/log")
        assert refused.status_code == 429
        assert refused.headers["content-type"] == "application/problem+json"
        assert int(refused.headers["retry-after"]) == 1
        # Another caller, from the same address, is not refused once they are known.
        time.sleep(1.1)
        assert two.get("/v1/log").status_code == 200
        assert [two.get("/v1/log").status_code for _ in range(3)] == [200] * 3
        assert one.get("/v1/log").status_code == 200


def test_guesses_count_under_the_address(ledger):
    with serving(ledger, ServiceSettings(rate=0.1, burst=5)) as address:
        found = [
            httpx.get(f"{address}/v1/log", headers={"Authorization": f"Bearer unbayes_{i}"}).status_code
            for i in range(8)
        ]
    assert found == [401] * 5 + [429] * 3


def test_a_bucket_fills_again():
    buckets = Buckets(rate=2.0, burst=2)
    assert [buckets.take("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.5]
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.5) == 0.0
    assert buckets.take("a", 0.5) == 0.5
    assert [buckets.take("a", 100.0) for _ in range(3)] == [0.0, 0.0, 0.5]


def test_buckets_do_not_grow_without_end():
    buckets = Buckets(rate=1.0, burst=1, most=10)
    for i in range(1000):
        buckets.take(i, 0.0)
    assert len(buckets) == 10
    # Those who called last are remembered.
    assert buckets.take(999, 0.0) > 0


# Names and headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_another_name_is_refused(address, host):
    answer = httpx.get(f"{address}/health", headers={"Host": host})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_its_own_names_are_fine(address):
    port = address.rpartition(":")[2]
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", "LOCALHOST"):
        assert httpx.get(f"{address}/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/v1/log", "/nowhere"])
def test_every_answer_has_the_headers_of_security(address, path):
    headers = httpx.get(address + path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert len(headers["x-request-id"]) == 16
    assert "server" not in headers
    assert "strict-transport-security" not in headers


def test_https_is_asked_for_where_there_is_some(ledger):
    with serving(ledger, ServiceSettings(is_https=True)) as address:
        assert "max-age" in httpx.get(f"{address}/health").headers["strict-transport-security"]


@pytest.mark.parametrize("name", ["body_limit", "json_limit", "rate", "burst", "most_rows", "table_readers"])
def test_limits_are_positive(name):
    with pytest.raises(LedgerError, match=name):
        ServiceSettings(**{name: 0})
