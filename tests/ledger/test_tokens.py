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
