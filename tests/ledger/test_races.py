"""Two at work at once, in the worst order: something happens between what one reads and what it writes."""

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import unbayes as ub
from ledger.holding import Training, require_equal
from ledger.torture import NAME, Plan
from unbayes.ledger import Conflict, Ledger, LedgerError, Records, RequestState, lease
from unbayes.ledger.desk import Desk

RECORDS = 120


@dataclasses.dataclass(frozen=True)
class Interrupted(Desk):
    """A desk at which something else happens, once, before somebody writes."""

    meanwhile: list = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def writing(self):
        if self.meanwhile:
            self.meanwhile.pop()()
        with super().writing() as store:
            yield store


def interrupt(ledger, meanwhile):
    """Let something happen before this ledger writes next."""
    desk = ledger._desk
    ledger._desk = Interrupted(desk.database, desk.keys, desk.clock, [meanwhile])


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return Training(tmp_path_factory.mktemp("trained"), Plan.draw(1, RECORDS))


@pytest.fixture
def ledgers(tmp_path, training):
    """The same ledger twice."""
    with Ledger.create(tmp_path / "ledger") as ledger, Ledger.open(tmp_path / "ledger") as other:
        ledger.register(NAME, training.file, ids="id")
        yield ledger, other


def ask(ledger, training, *rows):
    rows = list(rows)
    records = Records.of_arrays(training.x[rows], training.y[rows], training.plan.ids(rows))
    return ledger.approve(ledger.request(NAME, subject=f"person {rows}", rows=records).id).id


def leave_applied(ledger, monkeypatch):
    """Apply what waits, and stop before anything is finished."""
    from unbayes.ledger import applying

    with monkeypatch.context() as patch:
        patch.setattr(applying, "finish", lambda *_: 0)
        ledger.apply(NAME)


def test_two_sign_the_same_reports(ledgers, training, monkeypatch):
    ledger, other = ledgers
    number = ask(ledger, training, 0)
    leave_applied(ledger, monkeypatch)
    ledger._desk.shred()
    interrupt(ledger, lambda: other.finish())
    assert ledger.finish() == 0
    assert ledger.show(number).state is RequestState.CLOSED
    ledger.verify_log()


def test_two_close_the_same_requests(ledgers, training, monkeypatch):
    from unbayes.ledger import issuing

    ledger, other = ledgers
    number = ask(ledger, training, 0)
    leave_applied(ledger, monkeypatch)
    ledger._desk.shred()
    assert issuing._issue(ledger._desk) == 1
    interrupt(ledger, lambda: other.finish())
    assert ledger.finish() == 0
    assert ledger.show(number).state is RequestState.CLOSED
    ledger.verify_log()


def test_finishing_counts_what_it_closes(ledgers, training, monkeypatch):
    ledger, _ = ledgers
    ask(ledger, training, 0)
    leave_applied(ledger, monkeypatch)
    assert ledger.finish() == 1
    assert ledger.finish() == 0


def trained_without(training, tmp_path, left_out):
    keep = left_out.keep(training.plan.ids(range(RECORDS)))
    names = training.plan.ids(np.flatnonzero(keep))
    trained = ub.fit(training.model, (training.x[keep], training.y[keep]), ids=names, key=training.key)
    notes = {"columns": ["a", "b"], "target": "y", "left_out": left_out.note}
    path = tmp_path / "new.unbayes"
    ub.save(path, trained.posterior, training.model, memory=trained.memory, notes=notes)
    return path


def test_a_base_that_holds_what_was_erased_meanwhile_is_refused(ledgers, training, tmp_path):
    """Its rows are gone, so that nobody could take it out again."""
    ledger, _ = ledgers
    ask(ledger, training, 0)
    ledger.apply(NAME)
    path = trained_without(training, tmp_path, ledger.suppressed(NAME))
    late = ask(ledger, training, 1)
    ledger.apply(NAME)
    with pytest.raises(Conflict, match=f"applied since its list was made, the first of them {late}"):
        ledger.rebase(NAME, path)
    ledger.serve_model(NAME, tmp_path / "m")
    require_equal(ub.load(tmp_path / "m").posterior, training.without([0, 1]))
    assert ledger.rebase(NAME, trained_without(training, tmp_path, ledger.suppressed(NAME))).kind == "base"


def test_nobody_is_taken_out_of_a_base_that_was_trained_without_them(ledgers, training, tmp_path):
    ledger, _ = ledgers
    ask(ledger, training, 0)
    ledger.apply(NAME)
    waiting = ask(ledger, training, 0, 1)
    ledger.rebase(NAME, trained_without(training, tmp_path, ledger.suppressed(NAME)))
    assert (ledger.show(waiting).erased, ledger.show(waiting).already) == (1, 1)
    again = ask(ledger, training, 0, 1, 2)
    assert ledger.apply(NAME).records == 1
    assert (ledger.show(again).erased, ledger.show(again).already) == (1, 2)
    ledger.serve_model(NAME, tmp_path / "m")
    require_equal(ub.load(tmp_path / "m").posterior, training.without([0, 1, 2]))


def test_approved_while_the_model_is_refined(ledgers, training, tmp_path, monkeypatch):
    """The remaining records hold it, and so does the refined model: it still has to be taken out."""
    from unbayes.ledger.solving import Base

    ledger, other = ledgers
    ask(ledger, training, 0)
    ledger.apply(NAME)
    table = tmp_path / "remaining.csv"
    lines = [
        f"record-{row},{training.x[row, 0]},{training.x[row, 1]},{training.y[row]}"
        for row in range(1, RECORDS)
    ]
    table.write_text("\n".join(["id,a,b,y", *lines]) + "\n")
    refined, late = Base.refined, []

    def slowly(*arguments):
        late.append(ask(other, training, 1))
        return refined(*arguments)

    monkeypatch.setattr(Base, "refined", slowly)
    ledger.refine(NAME, table)
    assert ledger.show(late[0]).state is RequestState.APPROVED
    assert ledger.apply(NAME).requests == (late[0],)


def test_withdrawn_while_it_is_held_back(ledgers, training, monkeypatch):
    from unbayes.ledger import applying

    ledger, other = ledgers
    stranger = Records.of_arrays([[1.0, 1.0]], [0.0], ["nobody"])
    number = ledger.approve(ledger.request(NAME, subject="p", rows=stranger).id).id
    solve = applying._solve

    def meanwhile(work, progress):
        other.withdraw(number)
        return solve(work, progress)

    monkeypatch.setattr(applying, "_solve", meanwhile)
    with pytest.raises(Conflict, match="nothing was written"):
        ledger.apply(NAME)
    assert (ledger.show(number).state, ledger.show(number).hold) == (RequestState.WITHDRAWN, None)


def test_a_backup_of_the_database_that_was_brought_back(tmp_path, training):
    """Rows whose key is gone hold their own request back, and no other."""
    folder = tmp_path / "ledger"
    with Ledger.create(folder) as ledger:
        ledger.register(NAME, training.file, ids="id")
        gone = ask(ledger, training, 0)
    shutil.copy(folder / "ledger.sqlite", tmp_path / "backup")
    with Ledger.open(folder) as ledger:
        ledger.withdraw(gone)
    shutil.copy(tmp_path / "backup", folder / "ledger.sqlite")
    with Ledger.open(folder) as ledger:
        other = ask(ledger, training, 1)
        applied = ledger.apply(NAME)
        assert applied.requests == (other,)
        assert "was destroyed" in applied.held[gone]
        assert ledger.withdraw(gone).state is RequestState.WITHDRAWN


def test_a_database_that_has_a_ledger_already(tmp_path):
    db = f"sqlite:///{tmp_path / 'database'}"
    Ledger.create(tmp_path / "one", db=db).close()
    with pytest.raises(LedgerError, match="there is a ledger in it already"):
        Ledger.create(tmp_path / "two", db=db)
    assert not any((tmp_path / "two").iterdir())


def test_whoever_has_the_old_database_open_cannot_write_there(ledgers, training, tmp_path, monkeypatch):
    """What it wrote would be lost, for the others use the new one."""
    from unbayes.ledger import upkeep

    ledger, other = ledgers
    ask(ledger, training, 0)
    db = f"sqlite:///{tmp_path / 'moved'}"
    with monkeypatch.context() as patch:

        def killed(*_):
            raise KeyboardInterrupt

        patch.setattr(upkeep, "write_address", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.export(db)
    with pytest.raises(Conflict, match="has moved to another database; open it again"):
        ask(other, training, 1)
    with pytest.raises(Conflict, match="has moved to another database before"):
        ledger.export(f"sqlite:///{tmp_path / 'third'}")
    ledger.export(db)
    with Ledger.open(tmp_path / "ledger") as moved:
        ask(moved, training, 1)
        assert len(moved.apply(NAME).requests) == 2
    with pytest.raises(Conflict, match="has moved"):
        other.apply(NAME)
    with pytest.raises(Conflict, match="must be an empty database"):
        ledger.export(db)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process began")
def test_who_holds_a_lease_and_is_no_more():
    host = lease.socket.gethostname()
    mine = f"{host}:{os.getpid()}:{lease._start(os.getpid())}:x"
    assert not lease._is_dead(mine)
    assert not lease._is_dead(None)
    assert not lease._is_dead(f"elsewhere:{os.getpid()}:1:x")
    # Another process has got the number.
    assert lease._is_dead(f"{host}:{os.getpid()}:1:x")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        theirs = f"{host}:{process.pid}:{lease._start(process.pid)}:x"
        assert not lease._is_dead(theirs)
        process.kill()
        # Its parent has not asked for its end yet.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert lease._is_dead(theirs)
    assert lease._is_dead(theirs)
