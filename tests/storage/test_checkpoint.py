"""Training that was broken off goes on after the last pass that ended."""

import os
import signal
import subprocess
import sys
import types

import jax
import numpy as np
import pyarrow
import pytest

import unbayes as ub
from counting import Count
from problems import KEY, logistic, take

PROBLEM = logistic()
MODEL = PROBLEM.model
SETTINGS = {"memory": (ub.Sums(), 20), "key": KEY}


class BrokenOff(Exception):
    """What stands for a power cut."""


class Stream:
    """Records in two pieces; it counts how often they were read, and breaks off in the middle of a pass."""

    def __init__(self, breaks_in=None):
        self.passes, self.breaks_in = 0, breaks_in

    def __call__(self):
        self.passes += 1
        yield take(PROBLEM.full, slice(0, 100))
        if self.passes == self.breaks_in:
            raise BrokenOff
        yield take(PROBLEM.full, slice(100, 150))


def assert_equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)


def break_off(folder, number, **settings):
    with pytest.raises(BrokenOff):
        ub.fit(MODEL, Stream(number), checkpoint=ub.Checkpoint(folder), **(SETTINGS | settings))


@pytest.mark.parametrize("is_double", [True, False])
def test_training_goes_on_where_it_was_broken_off(tmp_path, is_double):
    with jax.enable_x64(is_double):
        model = ub.logistic_regression(2)
        whole = ub.fit(model, Stream(), **SETTINGS)
        # In the first pass, in the middle of training, and in the last pass, which is for the memory.
        for number in (1, 3, whole.passes):
            folder = tmp_path / str(number)
            with pytest.raises(BrokenOff):
                ub.fit(model, Stream(number), checkpoint=ub.Checkpoint(folder), **SETTINGS)
            stream, progress = Stream(), Count()
            resumed = ub.fit(model, stream, checkpoint=ub.Checkpoint(folder), progress=progress, **SETTINGS)
            assert stream.passes == whole.passes - number + 1
            assert_equal(resumed.posterior, whole.posterior)
            assert_equal(resumed.memory, whole.memory)
            assert resumed.elbo == whole.elbo
            notes = [note for *_, note in progress.passes]
            assert [note == "from the checkpoint" for note in notes] == [
                each < number for each in range(1, whole.passes + 1)
            ]
            assert list(folder.iterdir()) == []


def test_refining_goes_on_too(tmp_path):
    trained = ub.fit(MODEL, PROBLEM.full, method=ub.NaturalGradientVI(iterations=2), key=KEY)
    start = trained.posterior
    settings = {"passes": 4, "tolerance": 1e-30, "key": KEY}
    whole = ub.refine(start, MODEL, Stream(), **settings)
    with pytest.raises(BrokenOff):
        ub.refine(start, MODEL, Stream(2), checkpoint=ub.Checkpoint(tmp_path), **settings)
    stream = Stream()
    resumed = ub.refine(start, MODEL, stream, checkpoint=ub.Checkpoint(tmp_path), **settings)
    assert stream.passes == len(whole.trace) - 1
    assert_equal(resumed.posterior, whole.posterior)
    assert list(tmp_path.iterdir()) == []


def test_other_records_in_memory_are_refused_too(tmp_path):
    class Stopped(Count):
        """Breaks off when the second pass begins."""

        def track(self, description, total):
            if self.passes:
                raise BrokenOff
            return super().track(description, total)

    start = ub.FullGaussian.standard(3, MODEL.dtype)
    settings = {"key": KEY, "checkpoint": ub.Checkpoint(tmp_path)}
    with pytest.raises(BrokenOff):
        ub.refine(start, MODEL, PROBLEM.full, progress=Stopped(), **settings)
    with pytest.raises(ValueError, match="checkpoint must be of the same model, settings and records"):
        ub.refine(start, MODEL, take(PROBLEM.full, slice(None, None, -1)), **settings)
    whole = ub.refine(start, MODEL, PROBLEM.full, key=KEY)
    assert_equal(ub.refine(start, MODEL, PROBLEM.full, **settings).posterior, whole.posterior)


def test_other_work_is_refused(tmp_path):
    break_off(tmp_path / "stream", 3)
    for other in ({"records": PROBLEM.full}, {"model": ub.logistic_regression(2, prior_scale=1.0)}):
        given = {"model": MODEL, "records": Stream()} | other
        if "records" in other:
            given["records"] = ub.scan(other["records"])
        with pytest.raises(ValueError, match="checkpoint must be of the same model, settings and records"):
            ub.fit(**given, checkpoint=ub.Checkpoint(tmp_path / "stream"), **SETTINGS)
    with pytest.raises(TypeError, match="checkpoint must be a Checkpoint"):
        ub.fit(MODEL, Stream(), checkpoint=tmp_path, **SETTINGS)
    with pytest.raises(ValueError, match="checkpoint must be left out, unless records are read in passes"):
        ub.fit(MODEL, PROBLEM.full, checkpoint=ub.Checkpoint(tmp_path), **SETTINGS)


def test_other_settings_go_on_as_far_as_they_agree(tmp_path):
    """The first passes are the same whatever is kept afterwards."""
    whole = ub.fit(MODEL, Stream(), key=KEY, memory=None)
    break_off(tmp_path, whole.passes)
    stream = Stream()
    trained = ub.fit(MODEL, stream, key=KEY, checkpoint=ub.Checkpoint(tmp_path))
    assert stream.passes == 1
    assert_equal(trained.posterior, whole.posterior)


def test_files_that_were_changed_are_other_records(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra data")
    pq = pytest.importorskip("pyarrow.parquet")
    x, y = PROBLEM.full

    def write(rows):
        pq.write_table(pa.table({"a": x[rows, 0], "b": x[rows, 1], "y": y[rows]}), tmp_path / "rows.parquet")

    write(slice(None))
    first = ub.scan(tmp_path / "rows.parquet", target="y")
    signature = ub.scan(tmp_path / "rows.parquet", target="y").signature
    assert first.signature == signature
    assert ub.scan(tmp_path / "rows.parquet", target="y", where=("a", ">", 0)).signature != signature
    write(slice(None, None, -1))
    assert ub.scan(tmp_path / "rows.parquet", target="y").signature != signature
    assert ub.scan(PROBLEM.full).signature != ub.scan(PROBLEM.remaining).signature


def test_what_cannot_be_read_is_summed_up_again(tmp_path):
    whole = ub.fit(MODEL, Stream(), **SETTINGS)
    break_off(tmp_path, 4)
    (tmp_path / "unbayes-pass-2.checkpoint").write_bytes(b"PK")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".unbayes-pass-4.checkpoint.0123456789abcdef.unbayes-tmp").write_text("half of a sum")
    stream = Stream()
    resumed = ub.fit(MODEL, stream, checkpoint=ub.Checkpoint(tmp_path), **SETTINGS)
    assert stream.passes == whole.passes - 2
    assert_equal(resumed.posterior, whole.posterior)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_a_sum_that_is_not_finite_is_not_kept(tmp_path):
    checkpoint = ub.Checkpoint(tmp_path / "new")
    site = ub.fit(MODEL, PROBLEM.full, key=KEY).posterior.natural
    checkpoint.keep(1, "work", (np.float64(2.0), site, 3))
    found = checkpoint.find(1, "work")
    assert (found[0], found[2]) == (2, 3)
    assert_equal(found[1], site)
    assert checkpoint.folder.stat().st_mode & 0o777 == 0o700
    checkpoint.keep(2, "work", jax.tree.map(lambda leaf: leaf * np.inf, site))
    assert checkpoint.find(2, "work") is None


PROGRAM = """
import os, signal, sys
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import pyarrow
import unbayes as ub
from problems import KEY, logistic

folder, breaks_in = sys.argv[1], int(sys.argv[2])
records, passes = logistic().full, 0

def stream():
    global passes
    passes += 1
    yield tuple(each[:100] for each in records)
    if passes == breaks_in:
        os.kill(os.getpid(), signal.SIGKILL)
    yield tuple(each[100:] for each in records)

trained = ub.fit(logistic().model, stream, memory=20, key=KEY, checkpoint=ub.Checkpoint(folder))
np.savez(sys.argv[3], passes, *jax.tree.leaves((trained.posterior, trained.memory)))
"""


@pytest.mark.long
def test_a_process_that_was_killed(tmp_path):
    """The records of the passes that it finished are not read again."""

    def run(breaks_in, folder):
        command = [sys.executable, "-c", PROGRAM, tmp_path / folder, str(breaks_in), tmp_path / "out.npz"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, env=environment, check=False).returncode

    assert run(0, "whole") == 0
    whole = list(np.load(tmp_path / "out.npz").values())
    (tmp_path / "out.npz").unlink()
    assert run(4, "killed") == -signal.SIGKILL
    assert sorted(each.name for each in (tmp_path / "killed").iterdir()) == [
        f"unbayes-pass-{number}.checkpoint" for number in (1, 2, 3)
    ]
    assert run(0, "killed") == 0
    resumed = list(np.load(tmp_path / "out.npz").values())
    assert resumed[0] == whole[0] - 3
    for one, other in zip(resumed[1:], whole[1:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_tables_and_functions_are_known_by_what_they_are(tmp_path):
    x, y = PROBLEM.full
    table = pyarrow.table({"a": x[:, 0], "b": x[:, 1], "y": y, "row": range(len(y))})
    other = table.set_column(0, "a", [-x[:, 0]])

    def encode(piece):
        return np.stack([piece["a"], piece["b"]], axis=1), piece["y"].to_numpy(zero_copy_only=False)

    swapped = types.FunctionType(
        (lambda piece: (np.stack([piece["b"], piece["a"]], axis=1), piece["y"].to_numpy())).__code__,
        globals(),
        encode.__name__,
    )
    swapped.__qualname__ = encode.__qualname__
    scans = [
        ub.scan(table, columns=encode),
        ub.scan(table, columns=swapped),
        ub.scan(other, columns=encode),
        ub.scan(table, columns=encode, where=("row", "<", 100)),
        ub.scan(table, columns=encode, where=("row", ">=", 100)),
    ]
    assert len({each.signature for each in scans}) == len(scans)
    assert scans[0].signature == ub.scan(pyarrow.table(table.to_pydict()), columns=encode).signature
    with pytest.raises(
        ValueError, match=r"folder must be one that can be made or written to, but .*: file exists"
    ):
        ub.Checkpoint(__file__)


def test_nothing_else_in_the_folder_is_touched_or_read_by_others(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    (folder / "pass-1.unbayes").write_text("somebody's own")
    checkpoint = ub.Checkpoint(folder)
    checkpoint.keep(1, "origin", np.ones(3))
    (own,) = folder.glob("unbayes-pass-*")
    assert own.stat().st_mode & 0o077 == 0
    checkpoint.clear()
    assert [each.read_text() for each in folder.iterdir()] == ["somebody's own"]
