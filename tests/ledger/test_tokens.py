"""Tokens: found by what the bearer shows, until they expire or are revoked."""

import datetime

import pytest

from unbayes.ledger import LedgerError, NotFound
from unbayes.ledger.tokens import Scope


def test_a_token_is_found_by_what_its_bearer_shows(ledger):
    token, shown = ledger.tokens.create("portal", ["submit", "audit"], days=30)
    assert token.scopes == {Scope.SUBMIT, Scope.AUDIT}
    assert ledger.tokens.find(shown) == token == ledger.tokens.valid(token.id)
    assert ledger.tokens.all() == [token]


def test_what_is_shown_is_nowhere_in_the_database(ledger, tmp_path):
    _, shown = ledger.tokens.create("portal", ["submit"])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if shown.encode() in path.read_bytes()]
    assert not [path for path in files if shown.removeprefix("unbayes_").encode() in path.read_bytes()]


@pytest.mark.parametrize("shown", ["", "unbayes_", "unbayes_x", "x"])
def test_others_are_not_found(ledger, shown):
    ledger.tokens.create("portal", ["submit"])
    assert ledger.tokens.find(shown) is None
    assert ledger.tokens.valid(99) is None


def test_it_expires(ledger, clock):
    token, shown = ledger.tokens.create("portal", ["submit"], days=2)
    clock.now += datetime.timedelta(days=1)
    assert ledger.tokens.find(shown) == token
    clock.now += datetime.timedelta(days=1)
    assert ledger.tokens.find(shown) is None
    assert ledger.tokens.valid(token.id) is None


def test_it_is_revoked_once(ledger):
    token, shown = ledger.tokens.create("portal", ["submit"])
    revoked = ledger.tokens.revoke(token.id)
    events = ledger.verify_log().events
    assert ledger.tokens.revoke(token.id) == revoked
    assert revoked.revoked is not None
    assert ledger.tokens.find(shown) is None
    assert ledger.verify_log().events == events


@pytest.mark.parametrize(
    ("name", "scopes", "days", "words"),
    [
        ("", ["submit"], None, "name must have"),
        ("a\nb", ["submit"], None, "name must have"),
        ("a", [], None, "scopes must name"),
        ("a", ["root"], None, "scopes must be among"),
        ("a", ["submit"], 0, "days must be at least 1"),
    ],
)
def test_bad_ones_are_refused(ledger, name, scopes, days, words):
    with pytest.raises(LedgerError, match=words):
        ledger.tokens.create(name, scopes, days=days)
    assert ledger.tokens.all() == []


def test_nobody_revokes_what_is_not_there(ledger):
    with pytest.raises(NotFound, match="there is no token 7"):
        ledger.tokens.revoke(7)


def test_a_session_is_as_good_as_its_token(ledger, clock):
    token, shown = ledger.tokens.create("portal", ["submit"])
    session = ledger.tokens.session(token)
    assert shown not in session
    assert ledger.tokens.of_session(session) == token
    assert ledger.tokens.session(token) != session
    ledger.tokens.revoke(token.id)
    assert ledger.tokens.of_session(session) is None


def test_a_session_ends_and_a_token_that_expires_ends_it(ledger, clock):
    lasting, _ = ledger.tokens.create("portal", ["submit"])
    brief, _ = ledger.tokens.create("portal", ["submit"], days=1)
    clock.now += datetime.timedelta(hours=20)
    sessions = [ledger.tokens.session(each) for each in (lasting, brief)]
    clock.now += datetime.timedelta(hours=5)
    assert list(map(ledger.tokens.of_session, sessions)) == [lasting, None]
    clock.now += datetime.timedelta(hours=8)
    assert ledger.tokens.of_session(sessions[0]) is None


def test_a_changed_session_is_none(ledger):
    one, other = (ledger.tokens.create(name, ["submit"])[0] for name in "ab")
    session = ledger.tokens.session(one)
    number, until, nonce, proof = session.split(".")
    changed = [
        ".".join((str(other.id), until, nonce, proof)),
        ".".join((number, "99991231T235959", nonce, proof)),
        ".".join((number, until, nonce + "x", proof)),
        ".".join((number, until, nonce, proof[:-1] + ("0" if proof[-1] != "0" else "1"))),
        ".".join((number, until, nonce, ledger.tokens.form_key(session))),
        *("", ".", "...", "é.é", session + "\n", session[:-1]),
    ]
    assert [ledger.tokens.of_session(each) for each in changed] == [None] * len(changed)
    assert ledger.tokens.of_session(session) == one


def test_forms_of_sessions_have_different_keys(ledger):
    token, _ = ledger.tokens.create("portal", ["submit"])
    one, other = (ledger.tokens.session(token) for _ in range(2))
    assert ledger.tokens.form_key(one) == ledger.tokens.form_key(one) != ledger.tokens.form_key(other)
    assert ledger.tokens.form_key(one) not in one
