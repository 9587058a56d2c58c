"""What must hold of a ledger in the end: nothing is lost, nothing was done twice, nothing is left over."""

import collections
import json
from pathlib import Path

import numpy as np
import sqlalchemy as sa

import unbayes as ub
from ledger.torture import ENDS, NAME
from unbayes.ledger import Ledger, RequestState, schema, verify_report


class Training:
    """The model that people ask to be taken out of."""

    def __init__(self, folder, plan):
        from jax import random as jax_random

        self.plan, self.key = plan, jax_random.key(0)
        self.x, self.y = plan.data()
        self.model = ub.linear_regression(2, prior_scale=3.0, noise_scale=0.3)
        self.trained = ub.fit(self.model, (self.x, self.y), ids=plan.ids(range(plan.records)), key=self.key)
        self.file = folder / "model.unbayes"
        notes = {"columns": ["a", "b"], "target": "y"}
        ub.save(self.file, self.trained.posterior, self.model, memory=self.trained.memory, notes=notes)

    def without(self, rows):
        rows = sorted(rows)
        if not rows:
            return self.trained.posterior
        found = ub.unlearn(
            self.trained.posterior,
            self.model,
            (self.x[rows], self.y[rows]),
            memory=self.trained.memory,
            ids=self.plan.ids(rows),
            key=self.key,
        )
        return found.posterior


def require_equal(one, other):
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-9)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-9)


def require_all_well(folder, training, acknowledged, served):
    """Nothing is lost, nothing was done twice, nothing is left over."""
    plan = training.plan
    with Ledger.open(folder) as ledger:
        requests = {each.id: each for each in ledger.requests(limit=None)}
        people = _whose(ledger, plan, requests)
        for number, person in people.items():
            assert requests[number].state in ENDS[person.fate], (person, requests[number])
        closed = {n: each for n, each in requests.items() if each.state is RequestState.CLOSED}
        erased = {row for number in closed for row in people[number].rows}
        _require_claims(ledger, plan, closed, people, erased)
        require_equal(ub.load(served).posterior, training.without(erased))
        assert ledger.current(NAME).erased == len(erased)
        for number in closed:
            contents = verify_report(ledger.report(number), ledger.public_key).contents
            assert contents.request.number == number
            assert contents.records.erased == closed[number].erased
        _require_log(ledger, requests, closed)
        _require_nothing_left(ledger, requests)
        _require_acknowledged(acknowledged, people, requests)
        assert [finding.what for finding in ledger.doctor() if not finding.is_fine] == []
    require_no_leftovers(folder)
    require_no_leftovers(Path(served).parent)
    return len(erased)


def _whose(ledger, plan, requests):
    """Whose request is which: everybody has one."""
    by_subject = {ledger._desk.keys.digest("subject", f"person {each.number}"): each for each in plan.people}
    people = {number: by_subject[each.subject] for number, each in requests.items()}
    assert sorted(each.number for each in people.values()) == [each.number for each in plan.people]
    return people


def _require_claims(ledger, plan, closed, people, erased):
    """Each record was taken out once, by one who asked for it."""
    with ledger._desk.reading() as store:
        claims = {row.digest: row.request_id for row in store.run(sa.select(schema.claim))}
        number = store.run(sa.select(sa.func.count()).select_from(schema.claim)).scalar()
    digest = ledger._desk.keys.digest
    rows = {digest("record", name): row for row, name in enumerate(plan.ids(range(plan.records)))}
    assert {rows[each] for each in claims} == erased
    assert number == len(erased)
    by_request = collections.Counter(claims.values())
    for each, owner in claims.items():
        assert rows[each] in people[owner].rows
    for request in closed.values():
        assert request.erased == by_request[request.id]
        assert request.asked == request.erased + request.already
        assert request.unknown == 0


def _require_log(ledger, requests, closed):
    """The log is whole, and tells of each step of each request once."""
    ledger.verify_log()
    with ledger._desk.reading() as store:
        events = [
            json.loads(bytes(body)) for body in store.connection.scalars(sa.select(schema.event.c.body))
        ]
        applied = store.run(sa.select(sa.func.count()).select_from(schema.application)).scalar()
    told = collections.Counter((event["request"], event["kind"]) for event in events)
    once = ("request_received", "request_approved", "request_applied", "report_issued", "request_closed")
    expected = collections.Counter((number, kind) for number in closed for kind in once)
    for number, request in requests.items():
        if request.state in (RequestState.DENIED, RequestState.WITHDRAWN):
            expected[number, "request_received"] = expected[number, f"request_{request.state}"] = 1
            expected[number, "request_approved"] = min(1, told[number, "request_approved"])
    found = {pair: number for pair, number in told.items() if pair[0] is not None}
    assert found == {pair: number for pair, number in expected.items() if number}
    assert applied == len(closed)


def _require_nothing_left(ledger, requests):
    """No rows, no keys, no lease, and of the versions only the base and the current one."""
    keys = ledger._desk.keys
    with ledger._desk.reading() as store:
        for table in (schema.payload, schema.shred):
            assert store.run(sa.select(sa.func.count()).select_from(table)).scalar() == 0
    assert [n for n, each in requests.items() if not keys.is_destroyed(each.secret_id)] == []
    model = ledger.model(NAME)
    assert model.lease_holder is None
    for version in ledger.versions(NAME):
        is_wanted = version.number in (1, model.head)
        assert (version.is_kept, keys.is_destroyed(version.secret_id)) == (is_wanted, not is_wanted)


def _require_acknowledged(acknowledged, people, requests):
    """What a process was told to have happened is so."""
    numbers = {person.number: number for number, person in people.items()}
    for line in Path(acknowledged).read_text().splitlines():
        what, person, number = line.split()
        assert numbers[int(person)] == int(number), line
        state = requests[int(number)].state
        if what == "ended":
            assert state in (RequestState.DENIED, RequestState.WITHDRAWN), line
        if what == "approved":
            assert state in (RequestState.CLOSED, RequestState.WITHDRAWN), line


def require_no_leftovers(folder):
    """No temporary file, no journal."""
    for path in Path(folder).rglob("*"):
        is_expected = not path.name.startswith(".") or path.name == ".lock"
        assert is_expected, path
        assert not path.name.endswith(("-journal", "-wal", "-shm")), path
