"""Anything in any order: what the ledger says is what a few lines of Python say."""

import datetime
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import unbayes as ub
from ledger.holding import Training, require_equal
from ledger.torture import NAME, Plan
from unbayes.ledger import Conflict, Ledger, LedgerError, Records, RequestState, verify_report

RECORDS = 40
START = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
WAITING = (RequestState.RECEIVED, RequestState.APPROVED)
some_rows = st.lists(st.integers(0, 11), min_size=1, max_size=3, unique=True).map(tuple)


class Clock:
    """A clock that is moved by hand, forwards or back."""

    def __init__(self):
        self.now = START

    def __call__(self):
        self.now += datetime.timedelta(milliseconds=1)
        return self.now


class Expected:
    """What is known of a request."""

    def __init__(self, rows):
        self.rows, self.state, self.is_extended = rows, RequestState.RECEIVED, False


class LedgerMachine(RuleBasedStateMachine):
    training: Training

    @initialize()
    def begin(self):
        self.folder, self.clock = Path(tempfile.mkdtemp(prefix="unbayes-machine-")), Clock()
        self.ledger = Ledger.create(self.folder / "ledger", clock=self.clock)
        self.ledger.register(NAME, self.training.file, ids="id")
        self.requests: dict[int, Expected] = {}
        self.by_key: dict[str, int] = {}
        self.erased: set[int] = set()
        self.version = 1

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledger.close()
            shutil.rmtree(self.folder)

    def submit(self, rows, key=None):
        x, y = self.training.x[list(rows)], self.training.y[list(rows)]
        records = Records.of_arrays(x, y, self.training.plan.ids(rows))
        return self.ledger.request(NAME, subject=f"person {rows}", rows=records, idempotency_key=key).id

    @rule(rows=some_rows)
    def ask(self, rows):
        number = self.submit(rows)
        assert number not in self.requests
        self.requests[number] = Expected(rows)

    @rule(rows=some_rows, key=st.sampled_from("abc"))
    def ask_under_a_key(self, rows, key):
        if key not in self.by_key:
            number = self.submit(rows, key)
            assert number not in self.requests
            self.by_key[key], self.requests[number] = number, Expected(rows)
        elif self.requests[self.by_key[key]].rows == rows:
            assert self.submit(rows, key) == self.by_key[key]
        else:
            with pytest.raises(Conflict):
                self.submit(rows, key)

    @rule(key=st.sampled_from("abc"))
    def ask_again(self, key):
        if key in self.by_key:
            assert self.submit(self.requests[self.by_key[key]].rows, key) == self.by_key[key]

    def change(self, data, do, allowed, after):
        """Try to change a request; it is refused from where the change does not lead on."""
        if not self.requests:
            return
        number = data.draw(st.sampled_from(sorted(self.requests)))
        expected = self.requests[number]
        if expected.state in allowed:
            do(number)
            expected.state = after
        else:
            with pytest.raises(Conflict):
                do(number)

    @rule(data=st.data())
    def approve(self, data):
        self.change(data, self.ledger.approve, [RequestState.RECEIVED], RequestState.APPROVED)

    @rule(data=st.data())
    def deny(self, data):
        self.change(data, lambda n: self.ledger.deny(n, "a ground"), WAITING, RequestState.DENIED)

    @rule(data=st.data())
    def withdraw(self, data):
        self.change(data, self.ledger.withdraw, WAITING, RequestState.WITHDRAWN)

    @rule(data=st.data(), days=st.integers(1, 90))
    def extend(self, data, days):
        if not self.requests:
            return
        number = data.draw(st.sampled_from(sorted(self.requests)))
        expected, before = self.requests[number], self.ledger.show(number)
        latest = before.received_date + datetime.timedelta(days=89)
        due = before.due_date + datetime.timedelta(days=days)
        if expected.state not in WAITING or expected.is_extended:
            with pytest.raises(Conflict):
                self.ledger.extend(number, days=days, reason="much to do")
        elif due <= latest:
            assert self.ledger.extend(number, days=days, reason="much to do").due_date == due
            expected.is_extended = True
        elif due > latest + datetime.timedelta(days=4):  # Three months have 89 to 92 days.
            with pytest.raises(LedgerError, match="days must be at most"):
                self.ledger.extend(number, days=days, reason="much to do")

    @rule()
    def apply(self):
        waiting = [n for n, each in self.requests.items() if each.state is RequestState.APPROVED]
        rows = {row for number in waiting for row in self.requests[number].rows}
        applied = self.ledger.apply(NAME)
        assert sorted(applied.requests) == waiting
        assert applied.records == len(rows - self.erased)
        self.version += bool(rows - self.erased)
        assert applied.version == self.version
        self.erased |= rows
        for number in waiting:
            self.requests[number].state = RequestState.CLOSED
            report = verify_report(self.ledger.report(number), self.ledger.public_key)
            assert report.contents.records.asked == len(self.requests[number].rows)
        self.ledger.serve_model(NAME, self.folder / "served")
        require_equal(ub.load(self.folder / "served").posterior, self.training.without(self.erased))

    @rule()
    def collect(self):
        self.ledger.gc()

    @rule()
    def open_again(self):
        self.ledger.close()
        self.ledger = Ledger.open(self.folder / "ledger", clock=self.clock)

    @rule(days=st.integers(-3, 40))
    def time_passes(self, days):
        self.clock.now += datetime.timedelta(days=days)

    @invariant()
    def all_is_as_expected(self):
        if not hasattr(self, "ledger"):
            return
        found = {each.id: each for each in self.ledger.requests(limit=None)}
        assert {n: each.state for n, each in found.items()} == {n: e.state for n, e in self.requests.items()}
        assert self.ledger.current(NAME).erased == len(self.erased)
        destroyed = self.ledger._desk.keys.is_destroyed
        for number, expected in self.requests.items():
            assert destroyed(found[number].secret_id) == (expected.state not in WAITING)
        self.ledger.verify_log()
        today = self.clock.now.date()
        overdue = [n for n, e in self.requests.items() if e.state in WAITING and found[n].due_date < today]
        assert self.ledger.overdue() == len(overdue)


@pytest.fixture(scope="module", autouse=True)
def training(tmp_path_factory):
    LedgerMachine.training = Training(tmp_path_factory.mktemp("trained"), Plan.draw(1, RECORDS))


def settings(examples, steps):
    return hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def test_anything_in_any_order():
    run_state_machine_as_test(LedgerMachine, settings=settings(6, 20))


@pytest.mark.long
def test_much_in_any_order():
    run_state_machine_as_test(LedgerMachine, settings=settings(100, 40))
