"""An older database is brought back, while the keys are those of today."""

import shutil
import sqlite3

import pytest

from ledger.conftest import setting  # noqa: F401
from ledger.setting import ask, current, require_equal
from unbayes.ledger import Ledger, ModelSettings, RequestState, TamperedLog

DESTROYED = "was destroyed"


@pytest.fixture
def restored(tmp_path, setting):  # noqa: F811
    """A ledger as a backup had it: of three requests, the second waited, and the third had not come."""
    folder, backup = tmp_path / "ledger", tmp_path / "backup"
    with Ledger.create(folder) as ledger:
        ledger.register("m", setting.file, ids="id", settings=ModelSettings(when="now"))
        ask(ledger, setting, 1)
        ledger.apply("m")
        ask(ledger, setting, 2)
    with sqlite3.connect(folder / "ledger.sqlite") as database:
        database.execute("VACUUM INTO ?", (str(backup),))
    with Ledger.open(folder) as ledger:
        ledger.apply("m")
        ask(ledger, setting, 3)
        ledger.apply("m")
    shutil.copy(backup, folder / "ledger.sqlite")
    (folder / "keys" / "checkpoint").replace(tmp_path / "checkpoint")
    with Ledger.open(folder) as ledger:
        yield ledger


def test_what_was_destroyed_is_not_back(restored):
    restored.apply("m")
    waiting = restored.show(2)
    assert waiting.state is RequestState.APPROVED
    assert DESTROYED in waiting.hold
    assert any(DESTROYED in finding.what for finding in restored.doctor() if not finding.is_fine)


def test_who_asks_again_is_erased(restored, setting, tmp_path):  # noqa: F811
    restored.deny(2, "submitted again after a restore")
    numbers = [ask(restored, setting, row).id for row in (2, 3)]
    restored.apply("m")
    assert {restored.show(number).state for number in numbers} == {RequestState.CLOSED}
    require_equal(current(restored, tmp_path), setting.without(1, 2, 3))
    hook, _ = restored.hooks.add("https://app.example.org/told")
    assert hook.id == 1


def test_the_log_tells_that_it_is_an_older_one(restored, tmp_path):
    with pytest.raises(TamperedLog):
        restored.verify_log([(tmp_path / "checkpoint").read_text()])
