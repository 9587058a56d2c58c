"""Keys on sheets: what is sealed is read again until its key is destroyed, and by nobody else."""

import multiprocessing
import os
import stat

import pytest

from unbayes.ledger.errors import KeyDestroyed, KeyProblem
from unbayes.ledger.keys import KEYS_A_SHEET, MASTER, SHEETS, Keys

SECRETS = (0, 1, 999, KEYS_A_SHEET, 123_456)


@pytest.fixture
def keys(tmp_path):
    return Keys.create(tmp_path / "keys")


@pytest.mark.parametrize("secret", SECRETS)
def test_sealed_data_are_read_again_also_after_reopening(keys, secret):
    sealed = keys.seal(secret, b"a row", "label")
    assert b"a row" not in sealed
    assert keys.unseal(secret, sealed, "label") == b"a row"
    assert Keys.open(keys.folder).unseal(secret, sealed, "label") == b"a row"


def test_nothing_else_reads_them(keys, tmp_path):
    sealed = keys.seal(3, b"a row", "label")
    for secret, label in ((4, "label"), (3, "another")):
        with pytest.raises(KeyProblem):
            keys.unseal(secret, sealed, label)
    with pytest.raises(KeyProblem):
        Keys.create(tmp_path / "others").unseal(3, sealed, "label")
    for place in range(len(sealed)):
        altered = bytearray(sealed)
        altered[place] ^= 1
        with pytest.raises(KeyProblem):
            keys.unseal(3, bytes(altered), "label")


def test_a_destroyed_key_is_gone_for_everyone_and_its_neighbours_stay(keys):
    other = Keys.open(keys.folder)
    sealed = {secret: keys.seal(secret, b"a row", "label") for secret in (5, 6, 7, 2000)}
    assert other.unseal(6, sealed[6], "label") == b"a row"
    keys.destroy([6, 2000])
    keys.destroy([6])
    for reader in (keys, other, Keys.open(keys.folder)):
        for secret in (6, 2000):
            assert reader.is_destroyed(secret)
            with pytest.raises(KeyDestroyed):
                reader.unseal(secret, sealed[secret], "label")
            with pytest.raises(KeyDestroyed):
                reader.seal(secret, b"a row", "label")
        assert reader.unseal(5, sealed[5], "label") == b"a row"
        assert not reader.is_destroyed(7)


def test_digests_are_keyed_and_know_their_kind(keys, tmp_path):
    assert keys.digest("subject", "4711") == Keys.open(keys.folder).digest("subject", "4711")
    others = Keys.create(tmp_path / "others")
    found = {
        keys.digest("subject", "4711"),
        keys.digest("record", "4711"),
        keys.digest("subject", "4712"),
        others.digest("subject", "4711"),
    }
    assert len(found) == 4


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
def test_none_but_the_owner_may_read_keys(keys):
    keys.seal(0, b"a row", "label")
    for path in keys.folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name in {".lock", "public.pem"}
    (keys.folder / MASTER).chmod(0o640)
    with pytest.raises(KeyProblem, match="owner only"):
        Keys.open(keys.folder)


def test_a_damaged_sheet_is_refused(keys):
    keys.seal(0, b"a row", "label")
    (sheet,) = (keys.folder / SHEETS).glob("*.keys")
    data = bytearray(sheet.read_bytes())
    data[100] ^= 1
    sheet.write_bytes(data)
    with pytest.raises(KeyProblem, match="altered"):
        Keys.open(keys.folder).seal(0, b"a row", "label")


def _seal(folder, queue):
    queue.put(Keys.open(folder).seal(0, b"a row", "label"))


def test_processes_that_need_a_new_sheet_at_once_share_one(keys):
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    processes = [spawn.Process(target=_seal, args=(keys.folder, queue)) for _ in range(4)]
    for process in processes:
        process.start()
    sealed = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert [keys.unseal(0, each, "label") for each in sealed] == [b"a row"] * 4
