"""A full disk, a folder that cannot be written: a sentence, no half state, and it works again afterwards."""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest

import unbayes as ub
from ledger import torture
from ledger.holding import Training, require_all_well, require_equal
from ledger.torture import NAME, Plan
from unbayes.ledger import Ledger, LedgerError, RequestState, Submission

PEOPLE = 40


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return Training(tmp_path_factory.mktemp("trained"), Plan.draw(PEOPLE, 400))


@contextlib.contextmanager
def mounted(*arguments):
    """Something is mounted while the block runs; skips where that is not allowed."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs to mount, as root on Linux")
    done = subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(arguments[-1])], check=True)


@contextlib.contextmanager
def full(folder):
    """Nothing more fits on the disk while the block runs."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1024))
    try:
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def read_only(folder):
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=4m", "none", place):
        yield place


def counts(ledger):
    return ledger.number_by_state(), ledger.verify_log().events, ledger.current(NAME).number


def require_ends(ledger, training, tmp_path):
    """All is well in the end, whatever was refused before."""
    clerk = torture.Clerk(ledger, training.plan, tmp_path / "acknowledged")
    left = training.plan.people
    while left:
        left = [person for person in left if not clerk.step(person)]
        ledger.apply(NAME)
    served = tmp_path / "served"
    served.mkdir()
    ledger.serve_model(NAME, served / "m")


@pytest.mark.parametrize("trouble", [full, read_only])
def test_what_cannot_be_written_is_not_done(small_disk, training, tmp_path, trouble):
    folder = small_disk / "ledger"
    with Ledger.create(folder) as ledger:
        ledger.register(NAME, training.file, ids="id")
        clerk = torture.Clerk(ledger, training.plan, tmp_path / "acknowledged")
        first, *others = [person for person in training.plan.people if person.fate == "erase"]
        (number,) = clerk.submit(first)
        ledger.approve(number)
        before = counts(ledger)
        many = [
            Submission(f"somebody {i}", training.plan.submissions([others[0]])[0].records) for i in range(200)
        ]
        attempts = {
            "submit": lambda: ledger.request_many(NAME, many),
            "apply": lambda: ledger.apply(NAME),
        }
        if trouble is read_only:
            attempts["withdraw"] = lambda: ledger.withdraw(number)
        ledger.close()
        with trouble(small_disk):
            for attempt in attempts.values():
                with pytest.raises(LedgerError):
                    attempt()
                assert counts(ledger) == before
            ledger.close()
        assert ledger.apply(NAME).requests == (number,)
        assert ledger.show(number).state is RequestState.CLOSED
        require_ends(ledger, training, tmp_path)
    require_all_well(folder, training, tmp_path / "acknowledged", tmp_path / "served" / "m")


def test_keys_that_cannot_be_destroyed_yet(small_disk, training, tmp_path):
    """The database is elsewhere and takes the new version in; the keys are destroyed as soon as it works."""
    elsewhere = f"sqlite:///{tmp_path / 'database'}"
    with Ledger.create(small_disk / "ledger", db=elsewhere) as ledger:
        ledger.register(NAME, training.file, ids="id")
        clerk = torture.Clerk(ledger, training.plan, tmp_path / "acknowledged")
        person = next(each for each in training.plan.people if each.fate == "erase")
        (number,) = clerk.submit(person)
        ledger.approve(number)
        ledger.close()
        with read_only(small_disk):
            with pytest.raises(LedgerError, match=r"keys in .* cannot be changed: read-only"):
                ledger.apply(NAME)
            assert ledger.show(number).state is RequestState.APPLIED
            assert any("wait to be destroyed" in each.what for each in ledger.doctor() if not each.is_fine)
        assert ledger.finish() == 1
        assert ledger.show(number).state is RequestState.CLOSED
        ledger.serve_model(NAME, tmp_path / "m")
        assert all(finding.is_fine for finding in ledger.doctor())
    require_equal(ub.load(tmp_path / "m").posterior, training.without(person.rows))


def test_commands_answer_with_a_sentence(small_disk, training, tmp_path):
    from typer.testing import CliRunner

    from unbayes.cli import app

    folder = small_disk / "ledger"
    with Ledger.create(folder) as ledger:
        ledger.register(NAME, training.file, ids="id")
        ledger.request_many(NAME, training.plan.submissions(training.plan.people[:1]))

    def run(*arguments):
        return CliRunner().invoke(app, [*map(str, arguments), "--ledger", str(folder)])

    commands = [("approve", 1), ("apply", NAME), ("log", "checkpoint")]
    with read_only(small_disk):
        for command in commands:
            done = run(*command)
            assert done.exit_code == 2, (command, done.output)
            assert len(done.stderr.strip().splitlines()) == 1
            assert "readonly" in done.stderr.replace("-", "")
    assert run("approve", 1).exit_code == 0


def test_a_ledger_that_could_not_be_made(small_disk, training):
    """Nothing of it is in the way afterwards."""
    with full(small_disk), pytest.raises(LedgerError):
        Ledger.create(small_disk / "ledger")
    with Ledger.create(small_disk / "ledger") as ledger:
        ledger.register(NAME, training.file, ids="id")
        ledger.verify_log()
