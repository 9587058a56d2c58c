"""A ledger with a trained model, and a server over it."""

import pytest

from ledger.conftest import clock, ledger, setting  # noqa: F401
from service.serving import serving


@pytest.fixture
def address(ledger):  # noqa: F811
    with serving(ledger) as address:
        yield address
