"""Who decides, what is wanted, and how far the work is."""

import datetime
import time

import pytest

import unbayes as ub
from ledger.setting import ask, require_equal
from unbayes.ledger import Forbidden, LedgerError, ModelSettings, RequestState, applying, showing
from unbayes.ledger.lease import leased
from unbayes.ledger.solving import Base


@pytest.fixture
def eyes(ledger, setting):
    """A request of anna's to a model that is decided on by four eyes."""
    ledger.register("eyes", setting.file, ids="id", settings=ModelSettings(four_eyes=True))

    def submit(row):
        return ledger.request("eyes", subject=f"p{row}", rows=setting.records(row), client="anna").id

    return submit


DECISIONS = {
    "approve": lambda ledger, number, by: ledger.approve(number, by=by),
    "deny": lambda ledger, number, by: ledger.deny(number, "a ground", by=by),
    "extend": lambda ledger, number, by: ledger.extend(number, days=3, reason="a reason", by=by),
}


@pytest.mark.parametrize("decide", DECISIONS.values(), ids=DECISIONS)
def test_nobody_decides_on_their_own_request(ledger, eyes, decide):
    number = eyes(0)
    before, events = ledger.show(number), ledger.log.state()
    for by in (None, "anna", " Anna "):
        with pytest.raises(Forbidden, match="four eyes"):
            decide(ledger, number, by)
    assert (ledger.show(number), ledger.log.state()) == (before, events)
    decide(ledger, number, "ben")
    assert ledger.show(number) != before
    assert ledger.log.state().size == events.size + 1


def test_nor_releases_it(ledger, eyes, setting):
    number = eyes(0)
    ledger.approve(number, by="ben")
    with ledger._desk.writing() as store:
        store.update(store.request(number), hold="a reason")
    with pytest.raises(Forbidden):
        ledger.approve(number, by="anna")
    ledger.approve(number, by="ben")
    assert ledger.show(number).hold is None


def test_whoever_asks_may_stop_asking(ledger, eyes):
    number = eyes(0)
    assert ledger.withdraw(number, by="anna").state is RequestState.WITHDRAWN


def test_where_four_eyes_are_not_asked_for(ledger, setting):
    request = ask(ledger, setting, 0, approve=False, client="anna")
    assert ledger.approve(request.id, by="anna").state is RequestState.APPROVED
    assert [each.details for each in ledger.log.openings(request.id).values()][1:] == [{"by": "anna"}]


@pytest.mark.parametrize("by", ["", " ", "a\nb", "x" * 101])
def test_nobody_is_called_that(ledger, setting, by):
    request = ask(ledger, setting, 0, approve=False)
    for decide in (*DECISIONS.values(), lambda ledger, number, by: ledger.withdraw(number, by=by)):
        with pytest.raises(LedgerError, match="by must have 1 to 100 printable characters"):
            decide(ledger, request.id, by)
    assert ledger.show(request.id) == request


def test_requests_of_a_client(ledger, setting):
    mine = [ask(ledger, setting, row, client="anna").id for row in (0, 1)]
    ask(ledger, setting, 2, client="ben")
    assert [each.id for each in ledger.requests(client="anna")] == mine[::-1]
    assert [each.id for each in ledger.requests(client="anna", limit=1, after=mine[1])] == mine[:1]
    assert ledger.requests(client="anna", states=[RequestState.RECEIVED]) == []
    assert ledger.requests(client="carl") == []


def test_what_is_wanted_is_applied_whatever_the_policy_says(ledger, setting):
    ask(ledger, setting, 0)
    assert (ledger.is_time("m"), ledger.model("m").wanted) == (False, None)
    wanted = ledger.want("m")
    assert (ledger.is_time("m"), ledger.model("m").wanted) == (True, wanted)
    assert ledger.apply("m", when="due-in 7d").requests == (1,)
    assert (ledger.is_time("m"), ledger.model("m").wanted) == (False, None)


def test_a_wish_is_over_where_there_is_nothing_to_do(ledger):
    ledger.want("m")
    ledger.apply("m")
    assert ledger.model("m").wanted is None


def test_a_wish_that_comes_while_others_are_granted_is_kept(ledger, setting, monkeypatch):
    ask(ledger, setting, 0)
    ledger.want("m")
    solve, wishes = applying._solve, []

    def meanwhile(*arguments):
        ask(ledger, setting, 1)
        wishes.append(ledger.want("m"))
        return solve(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(applying, "_solve", meanwhile)
        assert ledger.apply("m").requests == (1,)
    assert ledger.model("m").wanted == wishes[0]
    assert ledger.is_time("m")
    assert ledger.apply("m").requests == (2,)
    assert ledger.model("m").wanted is None


def test_a_wish_outlives_whoever_fails(ledger, setting, monkeypatch):
    ask(ledger, setting, 0)
    wanted = ledger.want("m")
    with monkeypatch.context() as patch:
        patch.setattr(Base, "solve", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ledger.apply("m")
    assert (ledger.model("m").wanted, ledger.model("m").progress) == (wanted, None)


def test_the_current_file_is_what_is_served(ledger, setting, tmp_path):
    for expected in (setting.trained.posterior, setting.without(0)):
        version, data = ledger.current_file("m")
        path = tmp_path / "served.unbayes"
        assert ledger.serve_model("m", path) == version == ledger.current("m")
        assert path.read_bytes() == data
        assert ub.load(path).memory is None
        require_equal(ub.load(path).posterior, expected)
        ask(ledger, setting, 0)
        ledger.apply("m")


def test_progress_is_seen_while_somebody_works(ledger, setting, monkeypatch):
    monkeypatch.setattr(showing, "PAUSE", 0.0)
    seen, solve = [], Base.solve

    def slow(base, statistics, progress):
        seen.append(ledger.model("m").progress)
        with progress.track("solving", 4) as advance:
            for steps in (1, 3):
                advance(steps, "")
                seen.append(ledger.model("m").progress)
        return solve(base, statistics, progress)

    monkeypatch.setattr(Base, "solve", slow)
    ask(ledger, setting, 0)
    assert ledger.model("m").progress is None
    ledger.apply("m")
    assert seen == [
        {"what": "taking records out", "done": 0, "total": 1},
        {"what": "solving", "done": 1, "total": 4},
        {"what": "solving", "done": 4, "total": 4},
    ]
    assert ledger.model("m").progress is None
    ledger.verify_log()


def test_it_is_written_once_in_a_while(ledger, monkeypatch):
    monkeypatch.setattr(showing, "PAUSE", 0.2)
    with leased(ledger._desk, "m", "working") as (model, epoch):
        shown, written = showing.ShownProgress(ledger._desk, model, epoch), []
        monkeypatch.setattr(showing, "shown_progress", lambda *what: written.append(what) or "{}")
        with shown.track("a", 1000) as advance:
            for _ in range(50):
                advance(1, "")
                time.sleep(0.01)
    assert 1 <= len(written) <= 4


def test_one_whose_lease_was_taken_over_writes_nothing(ledger, clock, monkeypatch):
    monkeypatch.setattr(showing, "PAUSE", 0.0)
    with leased(ledger._desk, "m", "the first") as (model, epoch):
        first = showing.ShownProgress(ledger._desk, model, epoch)
        with first.track("the first", 2) as advance:
            advance(1, "")
            assert ledger.model("m").progress == {"what": "the first", "done": 1, "total": 2}
            clock.now += datetime.timedelta(hours=1)
            with leased(ledger._desk, "m", "the second"):
                second = {"what": "the second", "done": 0, "total": 1}
                assert ledger.model("m").progress == second
                advance(1, "")
                assert ledger.model("m").progress == second
            assert ledger.model("m").progress is None


def test_who_watches_is_told_too(ledger, monkeypatch):
    from unbayes.progress import Silent

    told = []

    class Watching(Silent):
        def track(self, description, total):
            told.append((description, total))
            return super().track(description, total)

    with leased(ledger._desk, "m", "x") as (model, epoch):
        shown = showing.ShownProgress(ledger._desk, model, epoch, Watching())
        assert not shown.silent
        with shown.track("a", 3) as advance:
            advance(3, "done")
    assert told == [("a", 3)]
