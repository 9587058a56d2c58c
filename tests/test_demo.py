"""The demo tells its story to the end, and what it leaves behind is as it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import unbayes as ub
from unbayes.ledger import Ledger, PublicKey, RequestState, verify_report

plt = pytest.importorskip("matplotlib.pyplot")
DEMO = Path(__file__).parent.parent / "examples" / "deletion_request.py"


def run(folder):
    return subprocess.run([sys.executable, DEMO, folder], capture_output=True, text=True, check=False)


@pytest.mark.long
def test_the_demo_ends_with_a_picture_and_a_checked_report(tmp_path):
    folder = tmp_path / "demo"
    (folder / "unbayes-ledger").mkdir(parents=True)
    (folder / "left").touch()
    done = run(folder)
    assert done.returncode == 0, done.stderr
    assert not (folder / "left").exists()

    assert "version 2 is without 30 records of 4 requests: trusted" in done.stdout
    assert "the log is whole" in done.stdout
    last = next(line for line in done.stdout.splitlines() if line.strip().startswith("version 2, without"))
    low, high, true = map(float, re.findall(r"[\d.e-]+", last.partition("(")[2]))
    assert low < true < high < 0.1

    with Ledger.open(folder / "unbayes-ledger") as ledger:
        found = {each.id: each for each in ledger.requests()}
        key = ledger.public_key
    assert [found[n].erased for n in (1, 2, 3, 5)] == [10, 10, 10, 0]
    assert found[4].state is RequestState.WITHDRAWN
    assert PublicKey.from_pem((folder / "auditor" / "public.pem").read_bytes()) == key
    assert verify_report((folder / "report.json").read_bytes(), key).contents.records.erased == 10
    assert "10 records were" in (folder / "report.html").read_text()
    assert ub.load(folder / "current.unbayes").memory is None
    left = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"patient-" not in left
    assert b"visit-" not in left

    pixels = plt.imread(folder / "demo.png")
    assert pixels.shape[1] > pixels.shape[0] > 400
    assert len({tuple(pixel) for row in pixels[::10, ::10, :3] for pixel in row}) > 20


def test_the_demo_removes_no_other_folder(tmp_path):
    (tmp_path / "mine").touch()
    done = run(tmp_path)
    assert done.returncode == 2
    assert "must be a folder of an earlier demo" in done.stderr
    assert (tmp_path / "mine").exists()
