"""Webhooks: signed, in order, tried again, and known again by their keys."""

import datetime
import multiprocessing
import threading

import pytest

from ledger.receiving import Receiver, die_after_sending
from ledger.setting import ask
from unbayes.ledger import LedgerError, NotFound, RequestState, hooks, schema, signature_is_valid
from unbayes.ledger.events import EventKind
from unbayes.ledger.merkle import leaf_hash
from unbayes.ledger.store import Store


@pytest.fixture
def receiver():
    with Receiver() as receiver:
        yield receiver


def later(clock, **time):
    clock.now += datetime.timedelta(**time)


def test_events_are_told_signed_and_in_order(ledger, setting, receiver, clock):
    hook, secret = ledger.hooks.add(receiver.url + "/here?a=b")
    request = ask(ledger, setting, 0, 1)
    ledger.apply("m")
    size = ledger.log.state().size
    assert ledger.hooks.due() == [hook.id]
    told = ledger.hooks.deliver()
    assert told == len(receiver.got) == size - 2 > 5
    events = ledger.log.events(start=2, limit=100)
    assert [each.body for each in receiver.got] == [each.body for each in events]
    assert receiver.keys == [f"{hook.id}-{each.sequence}" for each in events]
    assert {each.path for each in receiver.got} == {"/here?a=b"}
    assert events[0].kind is EventKind.HOOK_ADDED
    assert receiver.got[-1].event["request"] == request.id
    now = clock.now.timestamp()
    for each in receiver.got:
        assert each.is_genuine(secret, now)
        assert not each.is_genuine(secret, now + 400)
        assert not each.is_genuine(secret, now - 400)
        assert not each.is_genuine(secret + "x", now)
        assert each.headers["Content-Type"] == "application/json"
    assert (ledger.hooks.due(), ledger.hooks.deliver()) == ([], 0)


def test_what_is_told_can_be_proved(ledger, receiver):
    ledger.hooks.add(receiver.url)
    ledger.hooks.deliver()
    (got,) = receiver.got
    proof = ledger.log.inclusion(got.event["sequence"])
    assert leaf_hash(got.body).hex() == proof.leaf


def test_only_what_a_hook_wants(ledger, setting, receiver):
    hook, _ = ledger.hooks.add(receiver.url, ["request_closed", "request_denied"])
    assert hook.kinds == (EventKind.REQUEST_CLOSED, EventKind.REQUEST_DENIED)
    ask(ledger, setting, 0)
    ledger.apply("m")
    assert ledger.hooks.all()[0].waiting == 1
    assert ledger.hooks.deliver() == 1
    assert receiver.got[0].event["kind"] == "request_closed"


def test_what_fails_is_tried_again_later_and_later(ledger, receiver, clock):
    hook, _ = ledger.hooks.add(receiver.url)
    receiver.answers = [500, 302, 404]
    errors, pauses = [], []
    for _ in range(3):
        assert ledger.hooks.deliver() == 0
        errors.append(ledger.hooks.all()[0].error)
        before = clock.now
        while not ledger.hooks.due():
            later(clock, seconds=0.5)
        pauses.append((clock.now - before).total_seconds())
    assert ledger.hooks.deliver() == 1
    assert errors == ["it answered 500", "it answered 302", "it answered 404"]
    assert receiver.keys == [f"{hook.id}-2"] * 4
    assert {each.path for each in receiver.got} == {"/"}
    for pause, longest in zip(pauses, (5, 10, 20), strict=True):
        assert longest / 2 - 0.6 <= pause <= longest + 0.6
    (hook,) = ledger.hooks.all()
    assert (hook.waiting, hook.given_up, hook.error) == (0, 0, None)


def test_later_events_wait_for_the_first_one_and_other_hooks_do_not(ledger, receiver):
    with Receiver() as broken:
        broken.answers = [503] * 10
        ledger.hooks.add(broken.url)
        ledger.hooks.add(receiver.url)
        assert ledger.hooks.deliver() == 1
        ledger.want("m")
        ledger.tokens.create("a", ["submit"])
        assert ledger.hooks.deliver() == 1
        assert len(broken.got) == 1
    assert [each.waiting for each in ledger.hooks.all()] == [3, 0]


@pytest.mark.parametrize(
    ("answer", "error"), [("drip", "it did not answer in time"), ("nonsense", "its answer is not HTTP")]
)
def test_strange_receivers(ledger, receiver, monkeypatch, answer, error):
    monkeypatch.setattr(hooks, "WHOLE_SECONDS", 0.5)
    receiver.answers = [answer]
    ledger.hooks.add(receiver.url)
    assert ledger.hooks.deliver() == 0
    assert ledger.hooks.all()[0].error == error


def test_nobody_there(ledger, receiver):
    ledger.hooks.add("http://127.0.0.1:1/")
    assert ledger.hooks.deliver() == 0
    assert ledger.hooks.all()[0].error == "it cannot be reached: connection refused"


def test_it_is_given_up_after_days_and_later_events_go_on(ledger, receiver, clock):
    ledger.hooks.add(receiver.url)
    receiver.answers = [500, 500]
    ledger.hooks.deliver()
    later(clock, days=4)
    ledger.tokens.create("a", ["submit"])
    assert ledger.hooks.deliver() == 0
    (hook,) = ledger.hooks.all()
    assert (hook.waiting, hook.given_up) == (1, 1)
    assert ledger.hooks.deliver() == 1
    assert receiver.got[-1].event["kind"] == "token_created"
    with ledger._desk.reading() as store:
        rows = store.run(schema.delivery.select().order_by(schema.delivery.c.sequence)).all()
    assert [(row.attempts, row.error, row.delivered is None) for row in rows] == [
        (2, "it answered 500", True),
        (1, None, False),
    ]


def test_two_who_deliver_do_not_send_the_same_at_once(ledger, receiver):
    ledger.hooks.add(receiver.url)
    for _ in range(5):
        ledger.tokens.create("a", ["submit"])
    receiver.seconds = 0.05
    both = [threading.Thread(target=ledger.hooks.deliver) for _ in range(4)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert len(receiver.got) == len(set(receiver.keys)) == 6
    assert receiver.most_at_once == 1
    assert [each.event["sequence"] for each in receiver.got] == sorted(
        each.event["sequence"] for each in receiver.got
    )


def test_killed_between_sending_and_noting_it(ledger, receiver, clock):
    """It is sent again, under the same key, once nobody can be sending it any more."""
    ledger.hooks.add(receiver.url)
    folder = ledger._desk.keys.folder.parent
    process = multiprocessing.get_context("spawn").Process(target=die_after_sending, args=(folder, clock))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    assert len(receiver.got) == 1
    assert ledger.hooks.deliver() == 0
    later(clock, minutes=5)
    assert ledger.hooks.deliver() == 1
    first, second = receiver.got
    assert (first.key, first.body) == (second.key, second.body)


def test_one_that_is_removed(ledger, setting, receiver, clock):
    hook, _ = ledger.hooks.add(receiver.url)
    with ledger._desk.reading() as store:
        (secret_id,) = store.connection.scalars(
            schema.hook.select().with_only_columns(schema.hook.c.secret_id)
        )
    assert not ledger._desk.keys.is_destroyed(secret_id)
    ledger.hooks.remove(hook.id)
    assert ledger._desk.keys.is_destroyed(secret_id)
    assert (ledger.hooks.all(), ledger.hooks.deliver(), receiver.got) == ([], 0, [])
    assert ledger.log.events(limit=100)[-1].kind is EventKind.HOOK_REMOVED
    with pytest.raises(NotFound, match="there is no hook 1"):
        ledger.hooks.remove(hook.id)
    assert ledger.hooks.add(receiver.url)[0].id == 2


def test_its_secret_is_nowhere_in_the_clear(ledger, receiver, tmp_path):
    _, secret = ledger.hooks.add(receiver.url)
    ledger.hooks.deliver()
    plain = secret.removeprefix("unbayes_hook_").encode()
    assert len(plain) > 40
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(receiver.url.encode() in each for each in files)
    assert not any(plain in each for each in files)


def test_nothing_is_told_of_what_did_not_happen(ledger, setting, receiver, monkeypatch):
    ledger.hooks.add(receiver.url)
    ledger.hooks.deliver()
    request = ask(ledger, setting, 0)
    ledger.hooks.deliver()
    before = len(receiver.got)

    def fail(*_):
        raise OSError("the disk is full")

    note = Store.note
    with monkeypatch.context() as patch:
        patch.setattr(Store, "note", lambda *arguments: (note(*arguments), fail()))
        with pytest.raises(OSError, match="the disk is full"):
            ledger.withdraw(request.id)
    assert ledger.show(request.id).state is RequestState.APPROVED
    assert (ledger.hooks.deliver(), len(receiver.got)) == (0, before)


def test_old_deliveries_are_forgotten(ledger, receiver, clock):
    ledger.hooks.add(receiver.url)
    receiver.answers = [500, 500]
    ledger.hooks.deliver()
    later(clock, days=4)
    ledger.hooks.deliver()
    ledger.tokens.create("a", ["submit"])
    ledger.hooks.deliver()
    assert ledger.gc()["told"] == 0
    later(clock, days=29)
    assert ledger.gc()["told"] == 1
    later(clock, days=2)
    ledger.tokens.create("b", ["submit"])
    assert ledger.gc()["told"] == 1
    assert ledger.hooks.deliver() == 1
    assert ledger.hooks.all()[0].given_up == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://a.example/", "url must be https://HOST/PATH"),
        ("https://", "url must be https://HOST/PATH"),
        ("https://a.example:port/", "url must be https://HOST/PATH"),
        ("https://a.example/ b", "url must be https://HOST/PATH"),
        ("https://a.example/\nb", "url must be https://HOST/PATH"),
        ("https://a.example/" + "x" * 2000, "url must be https://HOST/PATH"),
        ("https://[::1/", "url must be https://HOST/PATH"),
        ("file:///etc/passwd", "url must be https://HOST/PATH"),
        ("https://name:word@a.example/", "no name and no password"),
        ("https://@a.example/", "no name and no password"),
        ("http://a.example/", "url must be https, but for"),
        ("http://10.0.0.1/", "url must be https, but for"),
        ("http://127.0.0.1.a.example/", "url must be https, but for"),
    ],
)
def test_addresses_that_are_refused(ledger, url, words):
    with pytest.raises(LedgerError, match=words):
        ledger.hooks.add(url)
    assert ledger.hooks.all() == []


@pytest.mark.parametrize("url", ["https://a.example:8443/x?y=z", "http://localhost/", "http://[::1]:80/"])
def test_addresses_that_are_fine(ledger, url):
    assert ledger.hooks.add(url)[0].url == url


def test_kinds_that_are_none(ledger):
    with pytest.raises(LedgerError, match="kinds must be among ledger_created"):
        ledger.hooks.add("https://a.example/", ["soon"])


@pytest.mark.parametrize(
    ("timestamp", "signature"),
    [
        ("", ""),
        ("x", "v1="),
        ("-1", "v1=0"),
        ("１", "v1=0"),
        ("9" * 400, "v1=0"),
        ("1000", "v1=é"),
        ("1000", ""),
    ],
)
def test_headers_that_are_no_signature(timestamp, signature):
    assert not signature_is_valid("secret", timestamp, b"{}", signature, now=1000)


def test_a_signature_computed_elsewhere():
    """By openssl: printf '1000.{}' | openssl dgst -sha256 -hmac secret."""
    expected = "v1=026360fb6284f077f1148b1ae7c62679730497810a6a0321574de01e8b009e7a"
    assert signature_is_valid("secret", "1000", b"{}", expected, now=1299)
    assert not signature_is_valid("secret", "1000", b"{ }", expected, now=1299)
    assert not signature_is_valid("secret", "1001", b"{}", expected, now=1299)
