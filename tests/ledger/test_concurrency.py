"""Many submit while two apply: nothing is lost, and nothing is done twice."""

import time

import pytest

from ledger import torture
from ledger.holding import Training, require_all_well
from ledger.postgresql import folder_of_binaries, running
from ledger.torture import Plan, Processes
from unbayes.ledger import Ledger, RequestState

SUBMITTERS, APPLIERS = 8, 2


@pytest.fixture(scope="module")
def processes():
    return Processes()


@pytest.fixture(params=["sqlite", "postgresql"])
def db(request):
    if request.param == "sqlite":
        yield None
        return
    pytest.importorskip("psycopg", reason="needs the extra postgresql")
    if (binaries := folder_of_binaries()) is None:
        pytest.skip("there is no PostgreSQL here: no initdb and pg_ctl")
    with running(binaries) as server:
        yield server.new_database("ledger")


def submit_and_apply(processes, tmp_path, db, people, records):
    began = time.monotonic()
    plan = Plan.draw(people, records)
    training = Training(tmp_path, plan)
    folder, acknowledged = tmp_path / "ledger", tmp_path / "acknowledged"
    (tmp_path / "served").mkdir()
    served = tmp_path / "served" / "model.unbayes"
    torture.start_ledger(folder, plan, training.file, db)
    appliers = [processes.start(torture.keep_applying, folder, served) for _ in range(APPLIERS)]
    parts = [plan.people[i::SUBMITTERS] for i in range(SUBMITTERS)]
    submitters = [processes.start(torture.submit_all, folder, plan, acknowledged, part) for part in parts]
    for process in submitters:
        process.join(10 * torture.LONG_ENOUGH)
    assert [process.exitcode for process in submitters] == [0] * SUBMITTERS
    submitted = time.monotonic()
    for process in appliers:
        processes.kill(process, "applier")
    processes.run(torture.end, folder, plan, acknowledged, served)
    with Ledger.open(folder) as ledger:
        numbers = ledger.number_by_state()
        versions = len(ledger.versions(torture.NAME))
    assert numbers[RequestState.CLOSED] > people / 2
    erased = require_all_well(folder, training, acknowledged, served)
    print(
        f"{people} requests by {SUBMITTERS} processes in {submitted - began:.0f} s, {erased} records taken "
        f"out in {versions - 1} versions, all in {time.monotonic() - began:.0f} s"
    )


@pytest.mark.long
def test_many_submit_while_two_apply(processes, tmp_path, db):
    submit_and_apply(processes, tmp_path, db, people=120, records=800)


@pytest.mark.slow
def test_ten_thousand_requests(processes, tmp_path, db):
    submit_and_apply(processes, tmp_path, db, people=10_000, records=60_000)
