"""The log as others read it: proofs hold by the checks of `merkle`, for any size that it had."""

import shutil

import pytest
import sqlalchemy as sa

from ledger.setting import ask
from unbayes.ledger import Ledger, LedgerError, NotFound, TamperedLog, schema
from unbayes.ledger.checkpoint import read_checkpoint
from unbayes.ledger.events import Event, EventKind
from unbayes.ledger.merkle import leaf_hash, require_consistency, require_inclusion, root_of


@pytest.fixture
def leaves(ledger, setting):
    """Hashes of all events of a ledger in which something has happened."""
    for row in range(3):
        ask(ledger, setting, row)
    ledger.apply("m")
    ask(ledger, setting, 4, approve=False)
    return [each.leaf for each in ledger.log.events(limit=1000)]


def unhex(hashes):
    return [bytes.fromhex(each) for each in hashes]


def test_its_state(ledger, leaves):
    state = ledger.log.state()
    verified = ledger.verify_log()
    assert (
        (state.size, state.root) == (len(leaves), root_of(leaves).hex()) == (verified.events, verified.root)
    )
    assert state.time == ledger.log.events(state.size - 1)[0].time


def test_every_event_is_in_the_log_of_every_size(ledger, leaves):
    assert len(leaves) > 15
    for size in range(1, len(leaves) + 1):
        root = root_of(leaves[:size])
        for index in range(size):
            found = ledger.log.inclusion(index, size)
            assert (found.index, found.size, found.leaf, found.root) == (
                index,
                size,
                leaves[index].hex(),
                root.hex(),
            )
            require_inclusion(leaves[index], index, size, unhex(found.proof), root)


def test_every_size_continues_every_smaller_one(ledger, leaves):
    for second in range(len(leaves) + 1):
        for first in range(second + 1):
            found = ledger.log.consistency(first, second)
            roots = root_of(leaves[:first]), root_of(leaves[:second])
            assert (found.first, found.second, *unhex((found.first_root, found.second_root))) == (
                first,
                second,
                *roots,
            )
            require_consistency(first, roots[0], second, roots[1], unhex(found.proof))


def test_without_a_size_it_is_all_of_it_also_once_it_has_grown(ledger, setting, leaves):
    size = len(leaves)
    assert (ledger.log.inclusion(3).size, ledger.log.consistency(3).second) == (size, size)
    request = ask(ledger, setting, 7, approve=False)
    found = ledger.log.inclusion(size)
    (event,) = ledger.log.of_request(request.id)
    assert (found.size, found.leaf) == (size + 1, event.leaf.hex())
    require_inclusion(event.leaf, size, size + 1, unhex(found.proof), bytes.fromhex(ledger.log.state().root))


@pytest.mark.parametrize(
    ("ask_for", "words"),
    [
        (lambda log: log.inclusion(-1), "there is no event -1"),
        (lambda log: log.inclusion(5, 5), "there is no event 5 in a log of 5"),
        (lambda log: log.inclusion(0, 9999), "size must be 0 to"),
        (lambda log: log.inclusion(0, -1), "size must be 0 to"),
        (lambda log: log.consistency(3, 2), "first must be 0 to 2"),
        (lambda log: log.consistency(-1), "first must be 0 to"),
        (lambda log: log.consistency(1, 9999), "size must be 0 to"),
        (lambda log: log.of_request(99), "there is no request 99"),
        (lambda log: log.openings(99), "there is no request 99"),
    ],
)
@pytest.mark.usefixtures("leaves")
def test_what_is_not_there(ledger, ask_for, words):
    with pytest.raises(NotFound, match=words):
        ask_for(ledger.log)


def test_events_in_parts(ledger, leaves):
    some = ledger.log.events(start=2, limit=3)
    assert [each.sequence for each in some] == [2, 3, 4]
    assert [each.leaf for each in some] == leaves[2:5]
    assert ledger.log.events(start=len(leaves)) == ledger.log.events(start=10**9) == []
    for bad in ({"start": -1}, {"limit": 0}):
        with pytest.raises(LedgerError, match="start must be at least 0 and limit at least 1"):
            ledger.log.events(**bad)


def test_events_of_a_request_and_what_they_commit_to(ledger, setting):
    request = ask(ledger, setting, 0, 1, approve=False)
    other = ask(ledger, setting, 2)
    ledger.approve(request.id, by="anna")
    ledger.deny(request.id, "a ground", by="ben")
    kinds = [EventKind.REQUEST_RECEIVED, EventKind.REQUEST_APPROVED, EventKind.REQUEST_DENIED]
    events, openings = ledger.log.of_request(request.id), ledger.log.openings(request.id)
    assert [each.kind for each in events] == kinds
    assert {each.request for each in events} == {request.id}
    assert list(openings) == [each.sequence for each in events]
    for each in events:
        openings[each.sequence].require(each.commitment)
    received, approved, denied = (opening.details for opening in openings.values())
    assert len(received["records"]) == 2
    assert (approved, denied) == ({"by": "anna"}, {"ground": "a ground", "by": "ben"})
    assert len(ledger.log.of_request(other.id)) == 2


def test_checkpoints_are_signed_and_kept(ledger, leaves):
    known = len(ledger.log.checkpoints())
    signed = ledger.log.sign()
    assert ledger.log.sign() == signed
    assert ledger.checkpoint() == signed.text
    assert ledger.log.checkpoints()[known:] == [signed]
    read = read_checkpoint(signed.text, ledger.public_key)
    assert (read.size, read.root, read.time) == (len(leaves), root_of(leaves), signed.time)
    assert [each.size for each in ledger.log.checkpoints()] == sorted(
        {each.size for each in ledger.log.checkpoints()}
    )


def test_an_event_that_was_changed_is_not_proved(ledger, leaves):
    event = ledger.log.events(2, 1)[0]
    forged = Event(event.sequence, event.time, EventKind.REQUEST_DENIED, "m", event.request)
    with ledger._desk.database.engine.begin() as connection:
        mine = schema.event.c.sequence == event.sequence
        connection.execute(sa.update(schema.event).where(mine).values(body=forged.body))
    assert leaf_hash(forged.body) != leaves[2]
    with pytest.raises(TamperedLog, match="not those that the head of the log was made of"):
        ledger.log.inclusion(2)


def test_a_backup_that_was_brought_back_meanwhile(ledger, setting, tmp_path, clock):
    """What was read for proofs before is left aside."""
    place = tmp_path / "ledger" / "ledger.sqlite"
    shutil.copy(place, tmp_path / "backup.sqlite")
    ask(ledger, setting, 0)
    ledger.log.inclusion(0)
    ledger._desk.database.engine.dispose()
    shutil.copy(tmp_path / "backup.sqlite", place)
    ask(ledger, setting, 1)
    ask(ledger, setting, 2)
    leaves = [each.leaf for each in ledger.log.events(limit=100)]
    for index, leaf in enumerate(leaves):
        found = ledger.log.inclusion(index)
        require_inclusion(leaf, index, len(leaves), unhex(found.proof), root_of(leaves))
    with Ledger.open(tmp_path / "ledger", clock=clock) as other:
        assert other.log.inclusion(3) == ledger.log.inclusion(3)
