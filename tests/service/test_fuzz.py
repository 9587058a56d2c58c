"""What schemathesis makes up from the document: no 5xx, and no answer that the document does not have."""

import pytest

from ledger.setting import Clock
from service.fuzzing import fuzz
from service.serving import caller, serving
from unbayes.ledger import Ledger
from unbayes.ledger.tokens import Scope
from unbayes.service import ServiceSettings

CALLS, SECONDS = 400, 90.0


@pytest.mark.long
def test_calls_that_are_made_up(tmp_path, setting):
    settings = ServiceSettings(rate=1e6, burst=10**6)
    with Ledger.create(tmp_path / "ledger", clock=Clock()) as ledger:
        ledger.register("m", setting.file, ids="id")
        with serving(ledger, settings) as address:
            with caller(address, ledger, "audit") as client:
                document = client.get("/openapi.json").json()

            def new_token():
                return ledger.tokens.create("fuzz", list(Scope))[1]

            known = {"name": "m", "number": 1}
            found = fuzz(address, new_token, document, CALLS, seconds=SECONDS, known=known)
        ledger.verify_log()
    assert not found.failures, "\n\n".join(f"{name}\n{text}" for name, text in found.failures.items())
    assert found.server_errors == 0
    assert found.calls >= CALLS // 4
    # Some were good, and many were not.
    assert found.statuses[200] > 0
    assert found.statuses[422] > 0
