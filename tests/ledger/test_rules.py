"""Deadlines by rule, and when it is time to apply."""

import datetime

import pytest

from unbayes.ledger.errors import Conflict, LedgerError
from unbayes.ledger.policy import Policy, read_policy
from unbayes.ledger.rules import RULES, read_rule
from unbayes.ledger.states import FOLLOWING, TO_LEAVE_OUT, WAITING, RequestState, require_following

day = datetime.date.fromisoformat


@pytest.mark.parametrize(
    ("rule", "received", "due", "latest"),
    [
        ("gdpr", "2026-11-18", "2026-12-18", "2027-02-18"),
        ("gdpr", "2026-12-05", "2027-01-05", "2027-03-05"),
        # A month that is too short ends on its last day.
        ("gdpr", "2027-01-31", "2027-02-28", "2027-04-30"),
        ("gdpr", "2028-01-31", "2028-02-29", "2028-04-30"),
        ("california", "2026-11-18", "2027-01-02", "2027-02-16"),
        ("30d+60d", "2026-11-18", "2026-12-18", "2027-02-16"),
        ("10d", "2026-11-18", "2026-11-28", "2026-11-28"),
    ],
)
def test_due_dates(rule, received, due, latest):
    found = read_rule(rule)
    assert (found.due(day(received)), found.latest(day(received))) == (day(due), day(latest))


@pytest.mark.parametrize("text", ["", "lgpd", "0d", "30", "30d+", "-3d", "30d+60", "99999d"])
def test_rules_that_are_none(text):
    with pytest.raises(LedgerError, match="rule must be one of gdpr, california"):
        read_rule(text)


def test_rules_are_called_by_their_names():
    assert all(rule.name == name for name, rule in RULES.items())


TODAY = day("2026-11-18")


@pytest.mark.parametrize(
    ("text", "waiting", "due", "is_time"),
    [
        ("now", 0, None, False),
        ("now", 1, "2027-01-01", True),
        ("due-in 7d", 500, "2026-11-26", False),
        ("due-in 7d", 1, "2026-11-25", True),
        ("due-in 0d", 1, "2026-11-19", False),
        ("due-in 0d", 1, "2026-11-18", True),
        ("due-in 7d", 1, "2026-11-01", True),
        ("every 100 requests", 99, "2027-01-01", False),
        ("every 100 requests", 100, "2027-01-01", True),
        # The deadline presses whatever the number.
        ("every 100", 1, "2026-11-20", True),
    ],
)
def test_when_it_is_time(text, waiting, due, is_time):
    assert read_policy(text).is_time(waiting, None if due is None else day(due), TODAY) is is_time


@pytest.mark.parametrize("text", ["", "later", "due-in 7", "every 0", "every", "due-in -1d"])
def test_policies_that_are_none(text):
    with pytest.raises(LedgerError, match="when must be"):
        read_policy(text)
    assert read_policy("now") == Policy()


def test_every_state_has_an_end():
    assert set(FOLLOWING) == set(RequestState)
    ends = {state for state, following in FOLLOWING.items() if not following}
    assert ends == {RequestState.CLOSED, RequestState.DENIED, RequestState.WITHDRAWN}
    for state in RequestState:
        reached, new = {state}, {state}
        while new := {after for before in new for after in FOLLOWING[before]} - reached:
            reached |= new
        assert reached & ends
    assert not ends & set(WAITING)
    assert RequestState.DENIED not in TO_LEAVE_OUT


def test_steps_that_the_states_do_not_have():
    require_following(1, RequestState.RECEIVED, RequestState.APPROVED)
    with pytest.raises(Conflict, match="request 7 is closed; it can become nothing, not approved"):
        require_following(7, RequestState.CLOSED, RequestState.APPROVED)
