"""The page over HTTP: sessions, forms that are one's own, scopes, and what strangers wrote."""

import datetime
import html
import json
import re
import threading
import time

import httpx
import pytest

from ledger.setting import ask
from service.serving import serving
from unbayes.ledger import Ledger
from unbayes.ledger.tokens import Scope
from unbayes.service import ServiceSettings
from unbayes.service.page import entrance, models
from unbayes.service.page.rendering import files, fingerprint
from unbayes.service.page.visiting import own_address

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(1)>{{ 7*7 }}"""
EVERYBODY = (Scope.SUBMIT, Scope.APPROVE, Scope.OPERATE, Scope.AUDIT)


OPEN = []


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(entrance, "SLOWED_SECONDS", 0.05)
    yield
    while OPEN:
        OPEN.pop().close()


def visitor(address, ledger, *scopes, name="dana"):
    """A client that has logged in with a token of these scopes."""
    _, shown = ledger.tokens.create(name, scopes)
    client = httpx.Client(base_url=address, timeout=30)
    OPEN.append(client)
    answer = client.post("/login", data={"token": shown})
    assert answer.status_code == 303
    assert len(client.cookies) == 1
    return client


def key(client, path="/"):
    """What the forms of a page have in them."""
    return re.search(r'name="form_key" value="([0-9a-f]{64})"', client.get(path).text)[1]


def post(client, path, **data):
    return client.post(path, data={"form_key": key(client), **data})


def text_of(answer):
    return html.unescape(re.sub(r"<[^>]+>", "", answer.text))


# Sessions


def test_whoever_has_no_session_is_shown_where_to_log_in(address):
    for path in (
        "/",
        "/requests",
        "/requests/new",
        "/models/m",
        "/log",
        "/verify",
        "/requests/1/report.json",
    ):
        answer = httpx.get(f"{address}{path}")
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")
    assert httpx.post(f"{address}/models/m/apply").headers["location"] == "/login"
    assert "Token" in httpx.get(f"{address}/login").text


def test_logging_in_and_out(address, ledger):
    client = visitor(address, ledger, *EVERYBODY)
    assert client.get("/").status_code == 200
    assert client.get("/login").headers["location"] == "/"
    assert post(client, "/logout").headers["location"] == "/login"
    assert not client.cookies
    assert client.get("/").headers["location"] == "/login"


def test_the_cookie_is_no_token_and_no_script_reads_it(address, ledger):
    _, shown = ledger.tokens.create("dana", EVERYBODY)
    cookie = httpx.post(f"{address}/login", data={"token": shown}).headers["set-cookie"]
    assert shown.removeprefix("unbayes_") not in cookie
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie


def test_by_https_the_cookie_goes_nowhere_else(ledger):
    _, shown = ledger.tokens.create("dana", EVERYBODY)
    with serving(ledger, ServiceSettings(is_https=True)) as address:
        cookie = httpx.post(f"{address}/login", data={"token": shown}).headers["set-cookie"]
    assert cookie.startswith("__Host-")
    assert "Secure" in cookie.split("; ")


def test_a_wrong_token_is_slow_and_gets_no_session(address, monkeypatch):
    monkeypatch.setattr(entrance, "SLOWED_SECONDS", 0.4)
    start = time.perf_counter()
    answer = httpx.post(f"{address}/login", data={"token": "unbayes_no"})
    assert time.perf_counter() - start >= 0.4
    assert answer.status_code == 403
    assert "not valid" in answer.text
    assert "set-cookie" not in answer.headers


def test_wrong_tokens_are_limited(ledger):
    with serving(ledger, ServiceSettings(rate=0.001, burst=5)) as address:
        answers = [httpx.post(f"{address}/login", data={"token": "unbayes_no"}) for _ in range(8)]
    assert [each.status_code for each in answers] == [403] * 5 + [429] * 3


def test_revoking_the_token_ends_the_session(address, ledger):
    client = visitor(address, ledger, *EVERYBODY)
    form = key(client)
    ledger.tokens.revoke(ledger.tokens.all()[0].id)
    assert client.get("/").headers["location"] == "/login"
    assert client.post("/log/checkpoints", data={"form_key": form}).headers["location"] == "/login"


def test_a_session_ends_by_itself(address, ledger, clock):
    client = visitor(address, ledger, *EVERYBODY)
    clock.now += datetime.timedelta(hours=13)
    assert client.get("/").headers["location"] == "/login"


def test_logging_in_leads_back_and_nowhere_else(address, ledger):
    _, shown = ledger.tokens.create("dana", EVERYBODY)
    back = httpx.get(f"{address}/requests?state=received").headers["location"]
    assert back == "/login?next=%2Frequests%3Fstate%3Dreceived"
    assert 'value="/requests?state=received"' in httpx.get(f"{address}{back}").text
    answer = httpx.post(f"{address}/login", data={"token": shown, "next": "/log"})
    assert answer.headers["location"] == "/log"
    answer = httpx.post(f"{address}/login", data={"token": shown, "next": "//elsewhere.example"})
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize(
    "text", ["", "//x", "/\\x", "https://x", "javascript:1", "/a\nb", "/\\\\x", None, "/a\\b", "x"]
)
def test_only_own_addresses_are_gone_back_to(text):
    assert own_address(text) == "/"
    assert own_address("/requests/1?a=b") == "/requests/1?a=b"


# Forms


def test_a_form_must_be_of_the_session(address, ledger):
    client, other = (visitor(address, ledger, *EVERYBODY) for _ in range(2))
    size = ledger.log.state().size
    for shown in ({}, {"form_key": ""}, {"form_key": "0" * 64}, {"form_key": key(other)}, {"form_key": "é"}):
        answer = client.post("/log/checkpoints", data=shown)
        assert answer.status_code == 403
        assert "not of your session" in answer.text
    assert ledger.log.checkpoints() == []
    assert client.post("/log/checkpoints", headers={"X-Form-Key": key(client)}).status_code == 303
    assert ledger.log.checkpoints()[0].size == size


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_must_come_from_here(address, ledger, headers):
    client = visitor(address, ledger, *EVERYBODY)
    shown = {"form_key": key(client)}
    for path in ("/log/checkpoints", "/login"):
        answer = client.post(path, data=shown, headers=headers)
        assert answer.status_code == 403
        assert "somebody else" in answer.text
    assert client.post("/log/checkpoints", data=shown, headers={"Origin": address}).status_code == 303


def test_every_form_of_every_page_has_the_key(address, ledger, setting):
    request = ask(ledger, setting, 0, approve=False)
    client = visitor(address, ledger, *EVERYBODY)
    found = 0
    for path in (
        "/",
        "/models/m",
        "/requests",
        "/requests/new",
        f"/requests/{request.id}",
        "/log",
        "/verify",
    ):
        for form in re.findall(r'<form[^>]*method="post".*?</form>', client.get(path).text, re.DOTALL):
            assert 'name="form_key"' in form
            found += 1
    assert found > 15


# Who may what

POSTS = {
    "/models/m/apply": {Scope.OPERATE},
    "/requests/1/approve": {Scope.APPROVE},
    "/requests/1/deny": {Scope.APPROVE},
    "/requests/1/extend": {Scope.APPROVE},
    "/requests/1/withdraw": {Scope.APPROVE, Scope.SUBMIT},
    "/requests/1/verify": {Scope.APPROVE, Scope.SUBMIT, Scope.OPERATE, Scope.AUDIT},
    "/requests/search": {Scope.APPROVE, Scope.SUBMIT, Scope.OPERATE, Scope.AUDIT},
    "/requests/new/table": {Scope.SUBMIT},
    "/log/checkpoints": {Scope.AUDIT, Scope.OPERATE},
    "/log/verify": {Scope.AUDIT, Scope.OPERATE},
    "/verify": set(Scope),
}
GETS = {
    "/": set(Scope),
    "/models/m": {Scope.APPROVE, Scope.SUBMIT, Scope.OPERATE, Scope.AUDIT},
    "/models/m/progress": {Scope.APPROVE, Scope.SUBMIT, Scope.OPERATE, Scope.AUDIT},
    "/requests": {Scope.APPROVE, Scope.SUBMIT, Scope.OPERATE, Scope.AUDIT},
    "/requests/1": {Scope.APPROVE, Scope.SUBMIT, Scope.OPERATE, Scope.AUDIT},
    "/requests/1/report": {Scope.APPROVE, Scope.SUBMIT, Scope.OPERATE, Scope.AUDIT},
    "/requests/1/report.json": {Scope.APPROVE, Scope.SUBMIT, Scope.OPERATE, Scope.AUDIT},
    "/requests/1/report.html": {Scope.APPROVE, Scope.SUBMIT, Scope.OPERATE, Scope.AUDIT},
    "/requests/new": {Scope.SUBMIT},
    "/log": {Scope.AUDIT, Scope.OPERATE},
    "/verify": set(Scope),
    "/key.pem": set(Scope),
}


def test_the_tables_above_have_every_route():
    from unbayes.service.page import routers

    patterns = {
        (method, re.sub(r"\{name:path\}", "m", route.path.replace("{number}", "1")))
        for router in routers()
        for route in router.routes
        for method in route.methods
    }
    free = {("GET", "/login"), ("POST", "/login"), ("POST", "/logout"), ("GET", "/static/{name}")}
    assert patterns - free == {("GET", path) for path in GETS} | {("POST", path) for path in POSTS}


@pytest.mark.parametrize("scope", Scope)
def test_scopes(address, ledger, scope):
    client = visitor(address, ledger, scope)
    form = {"form_key": key(client, "/verify")}
    for path, allowed in GETS.items():
        refused = client.get(path).status_code == 403
        assert refused == (scope not in allowed), path
    for path, allowed in POSTS.items():
        answer = client.post(path, data=form)
        assert (answer.status_code == 403) == (scope not in allowed), path
        if answer.status_code == 403:
            assert "this needs a token with the scope" in answer.text.lower()
            assert answer.headers["content-type"].startswith("text/html")


def test_what_is_not_allowed_is_not_shown(address, ledger, setting):
    request = ask(ledger, setting, 0, approve=False)
    shown = {}
    for scope in EVERYBODY:
        client = visitor(address, ledger, scope)
        pages = [client.get(path).text for path in ("/", "/models/m", "/requests", f"/requests/{request.id}")]
        shown[scope] = set(re.findall(r'(?:action|href)="([^"?#]+)', "".join(pages)))
    number = request.id
    assert f"/requests/{number}/approve" in shown[Scope.APPROVE]
    assert "/models/m/apply" in shown[Scope.OPERATE]
    assert "/requests/new" in shown[Scope.SUBMIT]
    for scope, addresses in shown.items():
        for path in addresses:
            path = path.replace(f"/{number}", "/1")
            assert scope in POSTS.get(path, set(Scope)), path
            if path not in POSTS:
                assert scope in GETS.get(path, set(Scope)), path


def test_whoever_submits_sees_their_own_requests_only(address, ledger, setting):
    theirs = ask(ledger, setting, 0, approve=False, client="dana", reference="mine")
    others = ask(ledger, setting, 1, approve=False, client="somebody", reference="not mine")
    client = visitor(address, ledger, Scope.SUBMIT)
    assert client.get(f"/requests/{theirs.id}").status_code == 200
    for path in ("", "/report", "/report.json", "/report.html"):
        assert client.get(f"/requests/{others.id}{path}").status_code == 404
    assert post(client, f"/requests/{others.id}/withdraw").status_code == 404
    pages = [client.get(path).text for path in ("/", "/requests", "/models/m")]
    pages.append(post(client, "/requests/search", subject="person 1").text)
    assert "not mine" not in "".join(pages)
    assert "mine" in pages[0]
    assert post(client, f"/requests/{theirs.id}/withdraw").status_code == 303
    assert ledger.show(theirs.id).state == "withdrawn"
    assert ledger.show(others.id).state == "received"


# Deciding


def test_decisions_are_of_whoever_has_logged_in(address, ledger, setting):
    requests = [ask(ledger, setting, row, approve=False) for row in range(4)]
    numbers = [request.id for request in requests]
    client = visitor(address, ledger, *EVERYBODY)
    post(client, f"/requests/{numbers[0]}/approve", missing="skip")
    post(client, f"/requests/{numbers[1]}/deny", ground="kept by law")
    post(client, f"/requests/{numbers[2]}/extend", days="10", reason="three archives")
    post(client, f"/requests/{numbers[3]}/withdraw")
    found = [ledger.show(number) for number in numbers]
    assert [each.state for each in found] == ["approved", "denied", "received", "withdrawn"]
    assert found[0].missing == "skip"
    assert found[2].due_date - requests[2].due_date == datetime.timedelta(days=10)
    details = [
        {k: v for each in ledger.log.openings(number).values() for k, v in each.details.items()}
        for number in numbers
    ]
    assert [each["by"] for each in details] == ["dana"] * 4
    assert "kept by law" in client.get(f"/requests/{numbers[1]}").text
    assert "three archives" in client.get(f"/requests/{numbers[2]}").text


@pytest.mark.parametrize(
    ("action", "data", "sentence"),
    [
        ("deny", {"ground": " "}, "ground must say why"),
        ("extend", {"days": "0", "reason": "x"}, "days must be at least 1"),
        ("extend", {"days": "9999", "reason": "x"}, "days must be at most"),
        ("extend", {"days": "x", "reason": "x"}, "days must be a whole number"),
        ("approve", {"missing": "other"}, "missing must be refuse or skip"),
        ("deny", {"ground": "x" * 3000}, "ground is too long"),
        ("deny", {"ground": "a\0b"}, "ground is too long, or is no text"),
    ],
)
def test_what_the_ledger_refuses_is_said(address, ledger, setting, action, data, sentence):
    request = ask(ledger, setting, 0, approve=False)
    client = visitor(address, ledger, *EVERYBODY)
    answer = post(client, f"/requests/{request.id}/{action}", **data)
    assert answer.status_code == 422
    assert sentence in text_of(answer).lower()
    assert ledger.show(request.id) == request


def test_what_was_decided_before_is_not_decided_again(address, ledger, setting):
    request = ask(ledger, setting, 0, approve=False)
    client = visitor(address, ledger, *EVERYBODY)
    ledger.withdraw(request.id)
    answer = post(client, f"/requests/{request.id}/approve")
    assert answer.status_code == 409
    assert "is withdrawn" in text_of(answer)


# Submitting


def submit(client, **fields):
    page = client.get("/requests/new").text
    once = re.search(r'name="once" value="([^"]+)"', page)[1]
    files = fields.pop("files", None) or {"rows": ("", b"")}
    data = {"form_key": key(client), "model": "m", "once": once, "subject": "person 7", **fields}
    return client.post("/requests/new/table", data=data, files=files)


def test_rows_are_typed_in(address, ledger, setting):
    client = visitor(address, ledger, *EVERYBODY)
    lines = "\n".join(f"record-{i},{setting.x[i, 0]},{setting.x[i, 1]},{setting.y[i]}" for i in range(2))
    answer = submit(client, typed=f"id,a,b,y\n{lines}\n", reference="T-1", due="2026-12-01", missing="skip")
    assert answer.status_code == 303
    (request,) = ledger.requests()
    assert answer.headers["location"] == f"/requests/{request.id}?done=submitted"
    assert (request.client, request.reference, request.due, request.missing) == (
        "dana",
        "T-1",
        "2026-12-01",
        "skip",
    )
    assert ledger.requests(subject="person 7") == [request]
    assert request.asked == 2
    ledger.approve(request.id)
    assert ledger.apply("m").records == 2


def test_rows_are_in_a_file_and_sent_twice_they_count_once(address, ledger, setting):
    client = visitor(address, ledger, *EVERYBODY)
    table = "id,a,b,y\n" + f"record-3,{setting.x[3, 0]},{setting.x[3, 1]},{setting.y[3]}\n"
    answers = [submit(client, once="page-same", files={"rows": ("rows.csv", table)}) for _ in range(2)]
    assert answers[0].headers["location"] == answers[1].headers["location"]
    assert len(ledger.requests()) == 1


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"typed": ""}, "one of the two"),
        ({"typed": "id,a,b,y\n"}, "one of the two"),
        ({"typed": "id,a,b,y\nr,1,2\n"}, "must have 4 cells"),
        ({"typed": "id,a,b,y\nr,1,2,x\n"}, "must be a finite number"),
        ({"typed": "id,a,b\nr,1,2\n"}, "y"),
        ({"typed": "id,a,b,y\nr,1,2,3\n", "subject": ""}, "subject must be"),
        ({"typed": "id,a,b,y\nr,1,2,3\n", "due": "soon"}, "due must be a date"),
        ({"typed": "id,a,b,y\nr,1,2,3\n", "model": "other"}, "no model 'other'"),
        ({"files": {"rows": ("x.parquet", b"PAR1 no")}}, "table"),
    ],
)
def test_a_form_that_is_refused_keeps_what_was_written(address, ledger, fields, sentence):
    client = visitor(address, ledger, *EVERYBODY)
    answer = submit(client, **{"reference": "kept <here>", **fields})
    assert answer.status_code in (404, 422)
    assert sentence in text_of(answer).lower()
    assert 'value="kept &lt;here&gt;"' in answer.text
    assert ledger.requests() == []


# What strangers wrote


def test_what_strangers_wrote_stays_text(tmp_path, clock, setting):
    name = f"m/{HOSTILE}?#"
    with Ledger.create(tmp_path / "hostile", clock=clock) as ledger:
        ledger.register(name, setting.file, ids="id")
        records = setting.records(1)
        request = ledger.request(name, subject="p", rows=records, reference=HOSTILE, client="<b>c</b>")
        ledger.extend(request.id, days=3, reason=HOSTILE)
        ledger.deny(request.id, HOSTILE, by="<i>d</i>")
        with serving(ledger) as address:
            client = visitor(address, ledger, *EVERYBODY, name="<u>dana</u>")
            (link,) = set(re.findall(r'href="(/models/[^"]+)"', client.get("/").text))
            pages = [
                client.get(path)
                for path in ("/", link, "/requests", f"/requests/{request.id}", "/log", "/requests/new")
            ]
            pages.append(client.get(f"/requests?model={HOSTILE}"))
            pages.append(client.get(f"{link}<script>x</script>"))
            pages.append(httpx.get(f"{address}/login?next=/{HOSTILE}"))
            pages.append(post(client, "/requests/search", subject=HOSTILE))
            pages.append(submit(client, subject=HOSTILE, typed=HOSTILE, reference=HOSTILE, model=name))
    for page in pages[:-5]:
        assert page.status_code == 200
    for page in pages:
        for tag in ("<script>", "<img", "<b>c", "<i>d", "<u>", 'onerror=alert(1)>{{ 7*7 }}"', "49}"):
            assert tag not in page.text
    assert "&lt;script&gt;" in pages[3].text


def test_pages_let_no_script_in(address, ledger, setting):
    request = ask(ledger, setting, 0)
    ledger.apply("m")
    client = visitor(address, ledger, *EVERYBODY)
    for path in ("/", "/models/m", "/requests", f"/requests/{request.id}", "/log", "/verify", "/none"):
        page = client.get(path, headers={"Accept": "text/html"})
        policy = page.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|javascript:|https?://", page.text)
        assert page.headers["cache-control"] == "no-store"
    report = client.get(f"/requests/{request.id}/report")
    assert report.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")


def test_no_person_is_in_an_address_or_a_page(address, ledger, setting):
    client = visitor(address, ledger, *EVERYBODY)
    line = f"record-4,{setting.x[4, 0]},{setting.x[4, 1]},{setting.y[4]}"
    seen = [submit(client, subject="erika.mustermann@example.org", typed=f"id,a,b,y\n{line}\n")]
    number = ledger.requests()[0].id
    seen.append(post(client, "/requests/search", subject="erika.mustermann@example.org"))
    ledger.approve(number)
    ledger.apply("m")
    paths = ("/", "/requests", f"/requests/{number}", "/models/m", "/log", f"/requests/{number}/report.json")
    seen.extend(client.get(path) for path in paths)
    assert "1 request of this person" in text_of(seen[1])
    for answer in seen:
        for person in ("mustermann", "record-4", ledger.show(number).subject):
            assert person not in answer.text
            assert person not in str(answer.url)
            assert person not in answer.headers.get("location", "")


# Reports, the log, and progress


def test_reports_are_read_taken_along_and_checked(address, ledger, setting):
    request = ask(ledger, setting, 0, 1)
    ledger.apply("m")
    client = visitor(address, ledger, Scope.AUDIT)
    page = text_of(client.get(f"/requests/{request.id}"))
    assert "2 records were taken out of the model m" in page
    assert "Erasure report" in client.get(f"/requests/{request.id}/report").text
    kept = client.get(f"/requests/{request.id}/report.html")
    assert kept.headers["content-disposition"] == f'attachment; filename="erasure-report-{request.id}.html"'
    file = client.get(f"/requests/{request.id}/report.json")
    assert file.content == ledger.report(request.id)
    assert client.get("/key.pem").content == ledger.public_key.to_pem()
    assert "is in order" in post(client, f"/requests/{request.id}/verify").text
    data = {"form_key": key(client)}
    good = client.post("/verify", data=data, files={"report": ("r.json", file.content)})
    assert good.status_code == 200
    assert "The file is in order" in good.text
    changed = json.loads(file.content)
    changed["log"]["index"] += 1
    for bad in (json.dumps(changed).encode(), b"no report", b"", b"[" * 100_000):
        answer = client.post("/verify", data=data, files={"report": ("r.json", bad)})
        assert answer.status_code == 422
        assert "is in order" not in answer.text
        assert "Do not rely on it" in answer.text
    assert client.post("/verify", data=data).status_code == 422


def test_a_report_that_is_not_there_is_said_to_be_missing(address, ledger, setting):
    request = ask(ledger, setting, 0)
    client = visitor(address, ledger, Scope.AUDIT)
    for path in ("report", "report.json", "report.html"):
        answer = client.get(f"/requests/{request.id}/{path}")
        assert answer.status_code == 404
        assert "no report" in answer.text


def test_the_log_is_signed_and_verified(address, ledger, setting):
    ask(ledger, setting, 0)
    client = visitor(address, ledger, Scope.AUDIT)
    assert post(client, "/log/checkpoints").headers["location"] == "/log?done=signed"
    assert ledger.log.checkpoints()[-1].text in html.unescape(client.get("/log").text)
    assert "The log is whole." in post(client, "/log/verify").text
    with ledger._desk.writing() as store:
        store.connection.exec_driver_sql("UPDATE event SET body = 'x' WHERE sequence = 0")
    data = {"form_key": key(client)}
    for answer in (client.post("/log/verify", data=data), client.get("/log")):
        assert answer.status_code == 500
        assert "The log is not whole. Event 0 was written by somebody else." in text_of(answer)


def test_the_list_goes_on_where_it_ended(address, ledger, setting):
    ledger.request_many("m", [_submission(setting, row) for row in range(60)])
    client = visitor(address, ledger, Scope.AUDIT)
    first = client.get("/requests?state=received").text
    after = re.search(r'rel="next" href="([^"]+)"', first)[1]
    second = client.get(html.unescape(after)).text
    numbers = [re.findall(r'href="/requests/(\d+)"', page) for page in (first, second)]
    assert [len(each) for each in numbers] == [50, 10]
    assert sorted(map(int, numbers[0] + numbers[1])) == [
        each.id for each in reversed(ledger.requests(limit=60))
    ]
    assert 'rel="next"' not in second
    assert "No request is like that" in client.get("/requests?overdue=yes").text
    assert client.get("/requests?after=x&state=nonsense").status_code == 200


def _submission(setting, row):
    from unbayes.ledger.intake import Submission

    return Submission(f"person {row}", setting.records(row))


def test_progress_is_told_until_the_work_is_done(address, ledger, setting, monkeypatch):
    monkeypatch.setattr(models, "LOOK_SECONDS", 0.02)
    ask(ledger, setting, 0)
    client = visitor(address, ledger, Scope.OPERATE)
    assert post(client, "/models/m/apply").headers["location"] == "/models/m?done=wanted"
    assert ledger.model("m").wanted is not None
    page = client.get("/models/m").text
    assert 'data-progress="/models/m/progress?since=1"' in page
    assert "Apply now" not in page
    events = []
    work = threading.Timer(0.3, lambda: ledger.apply("m"))
    with client.stream("GET", "/models/m/progress?since=1") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        work.start()
        events = [line for line in answer.iter_lines() if line.startswith(("event", "data"))]
    work.join()
    assert events[0] == "event: progress"
    assert "Waiting for the worker" in events[1]
    assert events[-2] == "event: done"
    assert json.loads(events[-1].removeprefix("data: ")) == {
        "sentence": "Finished. Version 2 is the current one."
    }


def test_progress_ends_with_the_session(address, ledger, monkeypatch):
    monkeypatch.setattr(models, "LOOK_SECONDS", 0.02)
    client = visitor(address, ledger, Scope.OPERATE)
    ledger.want("m")
    with client.stream("GET", "/models/m/progress") as answer:
        ledger.tokens.revoke(ledger.tokens.all()[0].id)
        lines = list(answer.iter_lines())
    assert "event: done" not in lines


# Refusals, and files


def test_refusals_are_pages_with_a_sentence(address, ledger):
    client = visitor(address, ledger, *EVERYBODY)
    browser = {"Accept": "text/html"}
    for path, sentence in [
        ("/requests/999", "There is no request 999."),
        ("/models/none", "There is no model 'none'; registered are: m."),
        ("/requests/99999999999999", "There is no such page."),
        ("/requests/x", "There is no such page."),
        ("/nowhere", "Not Found."),
    ]:
        answer = client.get(path, headers=browser)
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/html")
        assert sentence in text_of(answer)
    assert client.get("/logout", headers=browser).status_code == 405
    document = client.get("/v1/nowhere", headers=browser)
    assert document.headers["content-type"] == "application/problem+json"


def test_what_was_not_foreseen_is_a_page_and_tells_nothing(address, ledger, monkeypatch):
    client = visitor(address, ledger, *EVERYBODY)

    def broken(self):
        raise RuntimeError("a secret")

    monkeypatch.setattr(Ledger, "models", broken)
    answer = client.get("/")
    assert answer.status_code == 500
    assert answer.headers["content-type"].startswith("text/html")
    assert "not foreseen" in answer.text
    assert "secret" not in answer.text


def test_files_are_kept_by_their_content(address):
    for name in files():
        answer = httpx.get(f"{address}/static/{name}?v={fingerprint(name)}")
        assert answer.content == files()[name]
        assert "immutable" in answer.headers["cache-control"]
        assert httpx.get(f"{address}/static/{name}").headers["cache-control"] == "no-cache"
    assert {"page.css", "page.js", "htmx.min.js"} <= files().keys()
    for name in ("htmx.LICENSE", "nothing", "..%2Frendering.py", "__init__.py"):
        assert httpx.get(f"{address}/static/{name}").status_code == 404
