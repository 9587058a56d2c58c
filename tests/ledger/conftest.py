"""A trained model, a clock, and a ledger of the model."""

import pytest

from ledger.setting import Clock, Setting
from unbayes.ledger import Ledger


@pytest.fixture(scope="session")
def setting(tmp_path_factory):
    return Setting(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(tmp_path, setting, clock):
    with Ledger.create(tmp_path / "ledger", clock=clock) as ledger:
        ledger.register("m", setting.file, ids="id")
        yield ledger
