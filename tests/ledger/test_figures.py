"""The figures that laws ask for, on days that are known."""

import datetime

import pytest

from ledger.setting import START, ask
from unbayes.ledger import LedgerError, ModelSettings
from unbayes.ledger.figures import Statistics

DAY = datetime.timedelta(days=1)
# The clock ticks a little whenever it is looked at.
TICKS = 1e-5


@pytest.fixture
def year(ledger, setting, clock):
    """Five requests on `m`, of which three are answered after 2, 4 and 9 days, and one on another model."""
    ledger.register("other", setting.file, ids="id", settings=ModelSettings(rule="5d"))

    def on(day):
        clock.now = START + day * DAY

    first, second = ask(ledger, setting, 0), ask(ledger, setting, 1)
    on(2)
    ledger.deny(second.id, "a ground")
    on(4)
    ledger.apply("m")
    third = ask(ledger, setting, 2, approve=False)
    fourth = ask(ledger, setting, 3, approve=False, due=(START + 10 * DAY).date())
    fifth = ask(ledger, setting, 4, approve=False)
    ledger.request("other", subject="x", rows=setting.records(5))
    on(7)
    ledger.withdraw(fifth.id)
    on(13)
    ledger.deny(fourth.id, "too late, alas")
    on(14)
    return first, second, third, fourth, fifth


def about(days):
    return pytest.approx(days, abs=TICKS)


@pytest.mark.usefixtures("year")
def test_counts_and_days_by_hand(ledger):
    found = ledger.statistics()
    own = Statistics(
        received=5,
        applied=1,
        denied=2,
        withdrawn=1,
        waiting=1,
        overdue=0,
        answered_in_time=2,
        mean_days=about((2 + 4 + 9) / 3),
        median_days=about(4),
    )
    other = Statistics(1, 0, 0, 0, waiting=1, overdue=1, answered_in_time=0, mean_days=None, median_days=None)
    assert found.by_model == {"m": own, "other": other}
    assert (found.received, found.waiting, found.overdue) == (6, 2, 1)
    assert (found.mean_days, found.median_days) == (about(5), about(4))
    assert found.received == found.applied + found.denied + found.withdrawn + found.waiting


@pytest.mark.usefixtures("year")
def test_of_a_time_both_days_included(ledger):
    early = ledger.statistics(until=START.date())
    assert (early.received, early.mean_days, early.median_days) == (2, about(3), about(3))
    late = ledger.statistics(since=START.date() + DAY)
    assert (late.received, late.mean_days) == (4, about(9))
    assert ledger.statistics(since=(START + 4 * DAY).date(), until=(START + 4 * DAY).date()) == late
    nothing = ledger.statistics(since=datetime.date(2027, 6, 1))
    assert (nothing.received, nothing.mean_days, nothing.by_model) == (0, None, {})
    assert ledger.statistics(until=datetime.date.max - DAY) == ledger.statistics(until=datetime.date.max)


def test_days_the_wrong_way_round(ledger):
    with pytest.raises(LedgerError, match="since must not be later than until"):
        ledger.statistics(since=datetime.date(2026, 2, 1), until=datetime.date(2026, 1, 1))
