"""Many at once: everybody is answered, and what was answered is there."""

import threading

import pytest

from ledger.setting import Clock
from service.serving import caller, serving
from unbayes.ledger import Ledger
from unbayes.service import ServiceSettings

CLIENTS, STEPS = 30, 12


@pytest.mark.long
def test_nothing_is_lost_and_nobody_fails_with_many_at_once(tmp_path, setting):
    statuses, lock = [], threading.Lock()

    def work(address, ledger, number):
        name = f"client {number}"
        with caller(address, ledger, "submit", name=name) as client:
            for step in range(STEPS):
                row = (number * STEPS + step) % len(setting.ids)
                form = {
                    "subject": f"{number} {step}",
                    "ids": [setting.ids[row]],
                    "inputs": [setting.x[row].tolist()],
                    "targets": [float(setting.y[row])],
                }
                headers = {"Idempotency-Key": f"{step // 2}"}
                if step % 2:
                    answer = client.get("/v1/requests", params={"limit": 5})
                else:
                    answer = client.post("/v1/models/m/requests", json=form, headers=headers)
                with lock:
                    statuses.append(answer.status_code)

    # The service's own limits stay: a caller who keeps to them is not refused.
    with Ledger.create(tmp_path / "ledger", clock=Clock()) as ledger:
        ledger.register("m", setting.file, ids="id")
        with serving(ledger, ServiceSettings()) as address:
            threads = [
                threading.Thread(target=work, args=(address, ledger, number)) for number in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        requests = ledger.requests(limit=None)
        ledger.verify_log()
    assert len(statuses) == CLIENTS * STEPS
    assert set(statuses) <= {200, 201, 429}
    assert statuses.count(201) == len(requests)
    assert statuses.count(201) + statuses.count(429) >= CLIENTS * STEPS // 2
    assert statuses.count(201) > CLIENTS
