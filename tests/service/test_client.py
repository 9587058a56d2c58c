"""The client against a real server, and against servers that fail."""

import contextlib
import datetime
import hashlib
import http.server
import json
import subprocess
import sys
import threading
import time

import httpx
import pytest

import unbayes as ub
from ledger.setting import ask
from unbayes.ledger import (
    Conflict,
    DatabaseProblem,
    Forbidden,
    LedgerError,
    Locked,
    NotFound,
    PublicKey,
    RequestState,
    verify_report,
)
from unbayes.ledger.checkpoint import read_checkpoint
from unbayes.ledger.merkle import require_consistency, require_inclusion
from unbayes.ledger.tokens import Scope
from unbayes.service.client import answers, calling
from unbayes.service.client.answers import NewRequest
from unbayes.service.client.calling import NoAnswer, ServiceProblem, TooManyCalls

SCOPES = tuple(Scope)


@pytest.fixture
def client(address, ledger):
    _, shown = ledger.tokens.create("app", SCOPES)
    with ub.Client(address, shown) as client:
        yield client


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Pauses are short."""
    monkeypatch.setattr(calling, "FIRST_PAUSE", 0.01)


# On a real server.


def test_a_request_from_submission_to_a_verified_report(client, ledger, setting):
    request = client.request("m", subject="ann", rows=setting.records(3, 4), reference="T-1")
    assert (request.number, request.state, request.records) == (1, RequestState.RECEIVED, 2)
    assert (request.client, request.reference, request.model) == ("app", "T-1", "m")
    assert client.approve(1).state is RequestState.APPROVED
    assert client.apply("m") == client.model("m").wanted
    ledger.apply("m")
    closed = client.wait(1, timeout=5)
    assert (closed.state, closed.erased, closed.version) == (RequestState.CLOSED, 2, 2)
    verified = verify_report(client.report(1), PublicKey.from_pem(client.log.key()))
    assert verified.contents.request.number == 1
    assert [event.kind for event in client.log.of_request(1)] == [
        *("request_received", "request_approved", "request_applied", "report_issued", "request_closed")
    ]


def test_models_and_versions(client, ledger, setting):
    (model,) = client.models()
    assert model == client.model("m")
    assert (model.name, model.inputs, model.target, model.ids) == ("m", ("a", "b"), "y", "id")
    assert model.current == client.versions("m")[0]
    ask(ledger, setting, 1)
    ledger.apply("m")
    assert [(each.number, each.kind, each.is_current) for each in client.versions("m")] == [
        *((1, "base", False), (2, "derived", True))
    ]


def test_decisions(client, ledger, setting):
    for row in range(3):
        ask(ledger, setting, row, approve=False)
    assert client.deny(1, "not ours").state is RequestState.DENIED
    assert client.withdraw(2).state is RequestState.WITHDRAWN
    extended = client.extend(3, days=10, reason="many at once")
    assert extended.extended
    assert extended.due > extended.first_due
    assert client.approve(3, missing="skip").missing == "skip"


def test_many_and_pages_and_finding(client, setting, monkeypatch):
    monkeypatch.setattr("unbayes.service.client.client.PAGE", 2)
    asked = [NewRequest(f"person {i}", setting.records(i), idempotency_key=f"k{i}") for i in range(5)]
    taken = client.request_many("m", asked)
    assert [each.number for each in taken] == [1, 2, 3, 4, 5]
    assert [each.number for each in client.request_many("m", asked)] == [1, 2, 3, 4, 5]
    assert [each.number for each in client.requests("m")] == [5, 4, 3, 2, 1]
    assert [each.number for each in client.requests(limit=3)] == [5, 4, 3]
    client.approve(2)
    approved = client.requests(states=[RequestState.APPROVED, RequestState.DENIED])
    assert [each.number for each in approved] == [2]
    assert list(client.requests(overdue=True)) == []
    assert [each.number for each in client.find("person 3")] == [4]
    assert client.show(4) == client.find("person 3")[0]
    assert client.statistics().received == 5
    assert client.statistics(until=datetime.date(2020, 1, 1)).received == 0
    assert client.statistics().by_model["m"].waiting == 5


def test_tables(client, setting, tmp_path):
    lines = [
        f"{setting.ids[i]},{setting.x[i, 0]},{setting.x[i, 1]},{setting.y[i]},person {i % 2}"
        for i in range(4)
    ]
    table = tmp_path / "rows.csv"
    table.write_text("\n".join(["id,a,b,y,who", *lines]) + "\n")
    one = client.request("m", subject="ann", rows=table, due=datetime.date(2026, 12, 1))
    assert (one.records, one.due) == (4, "2026-12-01")
    many = client.request_table("m", table, subject_column="who", idempotency_key="t")
    assert [(each.number, each.records) for each in many] == [(2, 2), (3, 2)]
    again = client.request_table("m", table, subject_column="who", idempotency_key="t")
    assert [each.number for each in again] == [2, 3]


def test_the_log_can_be_checked(client, ledger, setting):
    first = client.log.state()
    early = client.log.sign()
    ask(ledger, setting, 1)
    late, key = client.log.sign(), PublicKey.from_pem(client.log.key())
    assert client.log.checkpoints() == [early, late]
    old, new = (read_checkpoint(each.text, key) for each in (early, late))
    assert early.size == first.size < late.size
    proof = client.log.consistency(early.size, late.size)
    hashes = [bytes.fromhex(each) for each in proof.proof]
    require_consistency(old.size, old.root, new.size, new.root, hashes)
    inclusion = client.log.inclusion(2)
    path = [bytes.fromhex(each) for each in inclusion.proof]
    require_inclusion(bytes.fromhex(inclusion.leaf), 2, inclusion.size, path, new.root)
    assert [event.sequence for event in client.log.events(1, 2)] == [1, 2]


def test_whom_to_leave_out(client, ledger, setting):
    ask(ledger, setting, 1, 2)
    found, expected = client.suppressed("m"), ledger.suppressed("m")
    assert (found.ids, found.note) == (expected.ids, expected.note)
    assert tuple(each.digest for each in found.records) == expected.digests


def test_tokens(client, ledger):
    new = client.tokens.create("robot", [Scope.SUBMIT], days=3)
    assert ledger.tokens.find(new.token).name == "robot"
    assert new.token not in repr(new)
    assert client.tokens.all()[-1].name == "robot"
    assert client.tokens.revoke(new.id).revoked is not None
    assert client.tokens.revoke(new.id).revoked is not None
    assert ledger.tokens.find(new.token) is None


def test_hooks(client, ledger):
    new = client.hooks.add("https://app.example.org/told", ["request_closed"])
    assert new.secret not in repr(new)
    (hook,) = client.hooks.all()
    assert (hook.id, hook.url, hook.kinds) == (new.id, new.url, ("request_closed",))
    client.hooks.add("https://app.example.org/everything")
    client.hooks.remove(new.id)
    assert [each.url for each in ledger.hooks.all()] == ["https://app.example.org/everything"]
    with pytest.raises(NotFound, match="no hook 1"):
        client.hooks.remove(new.id)


def test_the_current_model_is_loaded_once(client, ledger, setting, tmp_path):
    place = tmp_path / "current.unbayes"
    found = client.current("m")
    assert found.digest == client.model("m").current.digest
    assert client.current("m", found.digest).data == b""
    following = client.follow("m", place, every=0.02)
    assert next(following).version == 1
    assert place.read_bytes() == found.data
    ask(ledger, setting, 1)
    ledger.apply("m")
    second = next(following)
    assert second.version == 2
    assert place.read_bytes() == second.data
    assert ub.load(place).memory is None
    assert hashlib.sha256(second.data).hexdigest() == second.digest
    # Started again, it knows the file that it has.
    assert next(client.follow("m", place)).data == b""


def test_a_file_is_kept_while_the_service_is_away(ledger, setting, tmp_path):
    place, token = tmp_path / "current.unbayes", ledger.tokens.create("p", [Scope.PREDICT])[1]
    with Server() as server, ub.Client(server.url, token, retries=0) as client:
        following = client.follow("m", place, every=0.01)
        headers = {"Unbayes-Version": "1", "ETag": f'"{hashlib.sha256(b"one").hexdigest()}"'}
        server.answers = [(200, headers, b"one"), (503, {}, b""), "hang up", (200, headers, b"two")]
        assert next(following).data == b"one"
        server.answers.append(
            (200, headers | {"ETag": f'"{hashlib.sha256(b"three").hexdigest()}"'}, b"three")
        )
        assert next(following).data == b"three"
        assert place.read_bytes() == b"three"


def test_refusals_are_those_of_the_ledger(client, address, ledger, setting):
    with pytest.raises(NotFound, match="there is no request 7"):
        client.show(7)
    with pytest.raises(NotFound, match="no where"):
        client.model("no where? #1")
    ask(ledger, setting, 1)
    client.deny(1, "no")
    with pytest.raises(Conflict, match="request 1 is denied"):
        client.approve(1)
    ask(ledger, setting, 2)
    with pytest.raises(LedgerError, match="days must be at most") as error:
        client.extend(2, days=3000, reason="long")
    assert type(error.value) is LedgerError
    with pytest.raises(NotFound, match="no report on request 2"):
        client.report(2)
    with pytest.raises(TimeoutError, match="request 2 is still approved"):
        client.wait(2, timeout=0.01)
    with ub.Client(address, "unbayes_nobody") as stranger, pytest.raises(Forbidden, match="not valid"):
        stranger.models()
    auditor = ledger.tokens.create("auditor", [Scope.AUDIT])[1]
    with ub.Client(address, auditor) as auditing, pytest.raises(Forbidden, match="scope approve"):
        auditing.approve(2)


def test_a_submission_is_repeated_with_its_key(address, ledger, setting, monkeypatch):
    token = ledger.tokens.create("app", [Scope.SUBMIT])[1]
    lost = []

    def losing(self, request):
        answer = original(self, request)
        if not lost:
            lost.append(answer.read())
            raise httpx.ReadError("the connection broke", request=request)
        return answer

    original = httpx.HTTPTransport.handle_request
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", losing)
    with ub.Client(address, token) as client:
        request = client.request("m", subject="ann", rows=setting.records(1))
    assert lost
    assert request.number == 1
    assert len(ledger.requests()) == 1


# On servers that fail.


class Server:
    """Answers what it is told to, in order, and counts."""

    def __init__(self):
        self.answers, self.seen = [], []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.seen.append(
                    (
                        self.command,
                        self.path,
                        {name.lower(): value for name, value in self.headers.items()},
                        body,
                        time.monotonic(),
                    )
                )
                answer = outer.answers.pop(0) if outer.answers else (503, {}, b"")
                if answer == "hang up":
                    self.close_connection = True
                    return
                status, extra, data = answer
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def failing():
    with Server() as server:
        yield server


def problem(status, sentence="a sentence", **members):
    document = {"type": "about:blank", "title": "", "status": status, "detail": sentence, **members}
    return status, {"Content-Type": "application/problem+json"}, json.dumps(document).encode()


FINE = (200, {"Content-Type": "application/json"}, b'{"models": []}')


@pytest.mark.parametrize("trouble", ["hang up", problem(502), problem(503), problem(504), problem(429)])
def test_reading_is_repeated(failing, trouble):
    failing.answers = [trouble, trouble, FINE]
    with ub.Client(failing.url, "t") as client:
        assert client.models() == []
    assert len(failing.seen) == 3


@pytest.mark.parametrize("trouble", ["hang up", problem(502), problem(503), problem(504)])
@pytest.mark.parametrize("verb", ["approve", "deny", "withdraw", "extend"])
def test_decisions_are_not(failing, trouble, verb):
    failing.answers = [trouble, FINE]
    arguments = {"deny": {"ground": "g"}, "extend": {"days": 1, "reason": "r"}}
    with ub.Client(failing.url, "t") as client, pytest.raises((NoAnswer, ServiceProblem, DatabaseProblem)):
        getattr(client, verb)(1, **arguments.get(verb, {}))
    assert len(failing.seen) == 1


def test_decisions_are_repeated_where_they_came_too_often(failing):
    failing.answers = [problem(429), problem(409, "it is denied")]
    with ub.Client(failing.url, "t") as client, pytest.raises(Conflict, match="it is denied"):
        client.approve(1)
    assert len(failing.seen) == 2


def test_it_waits_as_long_as_it_is_asked_to(failing):
    status, headers, body = problem(429)
    failing.answers = [(status, headers | {"Retry-After": "1"}, body), FINE]
    with ub.Client(failing.url, "t") as client:
        client.models()
    first, second = (seen[-1] for seen in failing.seen)
    assert second - first >= 1


def test_it_does_not_wait_for_an_hour(failing):
    status, headers, body = problem(429)
    failing.answers = [(status, headers | {"Retry-After": "3600"}, body), FINE]
    with ub.Client(failing.url, "t") as client, pytest.raises(TooManyCalls):
        client.models()
    assert len(failing.seen) == 1


def test_it_gives_up(failing):
    with ub.Client(failing.url, "t", retries=2) as client, pytest.raises(DatabaseProblem):
        client.models()
    assert len(failing.seen) == 3


def test_every_submission_has_a_key_that_its_repetitions_share(failing, setting):
    failing.answers = ["hang up", problem(503), problem(422)]
    with ub.Client(failing.url, "t") as client:
        for _ in range(2):
            with contextlib.suppress(LedgerError):
                client.request("m", subject="ann", rows=setting.records(1))
            failing.answers = [problem(422)]
        with contextlib.suppress(LedgerError):
            client.request_many("m", [NewRequest("ann"), NewRequest("bob")])
    keys = [headers["idempotency-key"] for _, _, headers, *_ in failing.seen[:4]]
    assert [keys.count(key) for key in keys] == [3, 3, 3, 1]
    many = json.loads(failing.seen[4][3])["requests"]
    assert len({each["idempotency_key"] for each in many}) == 2


def test_no_subject_is_in_an_address(failing, setting):
    failing.answers = [problem(422)] * 3
    with ub.Client(failing.url, "t") as client:
        for call in (client.find, lambda who: client.request("m", subject=who, rows=setting.records(1))):
            with contextlib.suppress(LedgerError):
                call("ann")
    assert len(failing.seen) == 2
    for _, path, headers, body, _ in failing.seen:
        assert b"ann" in body
        assert "ann" not in path + json.dumps(headers)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(400), LedgerError),
        (problem(401), Forbidden),
        (problem(403), Forbidden),
        (problem(404), NotFound),
        (problem(409), Conflict),
        (problem(409, kind="Locked"), Locked),
        (problem(413), LedgerError),
        (problem(422, kind="no such kind"), LedgerError),
        (problem(500), ServiceProblem),
        ((302, {"Location": "/elsewhere"}, b""), LedgerError),
        ((500, {"Content-Type": "application/problem+json"}, b"[]"), ServiceProblem),
        ((404, {"Content-Type": "text/html"}, b"<h1>nothing</h1>"), NotFound),
        ((200, {"Content-Type": "text/html"}, b"<h1>another service</h1>"), LedgerError),
        ((200, {"Content-Type": "application/json"}, b'{"models": [{"name": "m"}]}'), LedgerError),
        ((200, {"Content-Type": "application/json"}, b"[1]"), LedgerError),
    ],
)
def test_every_answer_that_is_none_is_an_error_of_the_ledger(failing, answer, kind):
    failing.answers = [answer]
    with ub.Client(failing.url, "t", retries=0) as client, pytest.raises(LedgerError) as error:
        client.models()
    assert type(error.value) is kind


def test_a_file_that_is_none_is_refused(failing):
    failing.answers = [(200, {}, b"bytes")]
    with ub.Client(failing.url, "t") as client, pytest.raises(LedgerError, match="which version"):
        client.current("m")


def test_nobody_there():
    client = ub.Client("http://127.0.0.1:1", "t", retries=1)
    with pytest.raises(NoAnswer, match="cannot be reached"):
        client.approve(1)


# Before anything is sent.


@pytest.mark.parametrize(
    "url", ["http://example.org", "ftp://example.org", "example.org", "https://me:word@example.org", ""]
)
def test_addresses_where_the_token_could_be_read_are_refused(url):
    with pytest.raises(LedgerError, match="url must"):
        ub.Client(url, "t")


@pytest.mark.parametrize("url", ["https://example.org", "http://localhost:8000", "http://[::1]:8000"])
def test_others_are_not(url):
    ub.Client(url, "t").close()
    ub.Client("http://db.internal", "t", insecure=True).close()


def test_the_token_comes_from_the_environment(monkeypatch, failing):
    monkeypatch.delenv("UNBAYES_TOKEN", raising=False)
    with pytest.raises(LedgerError, match="UNBAYES_TOKEN"):
        ub.Client(failing.url)
    monkeypatch.setenv("UNBAYES_TOKEN", "secret-word\n")
    failing.answers = [FINE]
    with ub.Client(failing.url) as client:
        client.models()
        assert "secret-word" not in repr(client)
    assert failing.seen[0][2]["authorization"] == "Bearer secret-word"


def test_without_httpx_there_is_a_sentence():
    program = """
import sys
sys.modules["httpx"] = None
import unbayes
try:
    unbayes.Client("https://example.org", "t")
except ModuleNotFoundError as error:
    print(error)
loaded = {"jax", "sqlalchemy", "fastapi", "pyarrow"} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "the client needs pip install 'unbayes[client]'\n", done.stderr


def test_it_reads_all_that_the_service_says(address, ledger):
    """Fields of the answers are those of the service's document: none is lost, none is made up."""
    token = ledger.tokens.create("reader", [Scope.SUBMIT])[1]
    document = httpx.get(f"{address}/openapi.json", headers={"Authorization": f"Bearer {token}"}).json()
    schemas = document["components"]["schemas"]
    pairs = {
        answers.Request: "RequestAnswer",
        answers.Version: "VersionAnswer",
        answers.Model: "ModelAnswer",
        answers.Event: "EventAnswer",
        answers.LogState: "LogAnswer",
        answers.SignedCheckpoint: "CheckpointAnswer",
        answers.Inclusion: "InclusionAnswer",
        answers.Consistency: "ConsistencyAnswer",
        answers.Statistics: "AllStatisticsAnswer",
        answers.Suppression: "SuppressionAnswer",
        answers.Token: "TokenAnswer",
        answers.NewToken: "NewTokenAnswer",
        answers.Hook: "HookAnswer",
        answers.NewHook: "NewHookAnswer",
    }
    for own, theirs in pairs.items():
        assert set(own.__dataclass_fields__) == set(schemas[theirs]["properties"]), own
