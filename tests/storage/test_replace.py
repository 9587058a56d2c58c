"""A file is replaced in one step, keeps its rights, and nothing of a killed writer stays beside it."""

import errno
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import threading

import pytest

import unbayes as ub
from unbayes import _replace as replace
from unbayes._replace import replacing

posix_only = pytest.mark.skipif(os.name != "posix", reason="modes, links and signals are POSIX's")
pytestmark = posix_only

SECRET = b"a record of the memory"
NOBODY = 65534


def mode_of(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(path, data=b"new") -> None:
    with replacing(path) as file:
        file.write(data)


def temporaries(folder) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith("unbayes-tmp"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "belief.unbayes"


@pytest.fixture
def umask():
    """Set the umask for one test."""
    before = os.umask(0o022)
    os.umask(before)
    yield os.umask
    os.umask(before)


class TestRights:
    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o660, 0o444, 0o755])
    def test_an_old_file_keeps_its_mode(self, path, mode):
        write(path, b"old")
        path.chmod(mode)
        write(path)
        assert path.read_bytes() == b"new"
        assert mode_of(path) == mode

    @pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
    def test_a_new_file_has_what_the_umask_leaves(self, path, umask, mask, mode):
        umask(mask)
        write(path)
        assert mode_of(path) == mode
        assert umask(mask) == mask  # Nobody has touched it.

    @pytest.mark.parametrize("mode", [None, 0o666], ids=["new", "old"])
    def test_nobody_else_may_read_it_before_it_is_whole(self, path, umask, mode):
        umask(0)
        if mode is not None:
            write(path, b"old")
            path.chmod(mode)
        with replacing(path) as file:
            file.write(SECRET)
            assert [mode_of(path.with_name(name)) for name in temporaries(path.parent)] == [0o600]
        assert mode_of(path) == 0o666

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="root alone hands files to others")
    def test_owner_and_group_where_the_writer_is_root(self, path):
        write(path, b"old")
        os.chown(path, NOBODY, NOBODY)
        write(path)
        found = path.stat()
        assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY)

    def test_a_group_that_cannot_be_handed_on_loses_its_rights(self, path, monkeypatch):
        write(path, b"old")
        path.chmod(0o664)
        other = os.stat_result(
            [*path.stat()[:4], path.stat().st_uid, path.stat().st_gid + 1, *path.stat()[6:]]
        )
        monkeypatch.setattr(type(path), "stat", lambda self, **_: other)
        monkeypatch.setattr(os, "fchown", lambda *_: (_ for _ in ()).throw(PermissionError()))
        write(path)
        monkeypatch.undo()
        assert mode_of(path) == 0o604


class TestLinks:
    def test_a_link_stays_a_link(self, path, tmp_path):
        elsewhere = tmp_path / "folder"
        elsewhere.mkdir()
        real = elsewhere / "real.unbayes"
        write(real, b"old")
        real.chmod(0o600)
        path.symlink_to(os.path.join("folder", "real.unbayes"))
        write(path)
        assert path.is_symlink()
        assert (real.read_bytes(), mode_of(real)) == (b"new", 0o600)
        assert sorted(os.listdir(tmp_path)) == ["belief.unbayes", "folder"]

    def test_links_of_links(self, path, tmp_path):
        (tmp_path / "middle").symlink_to("real")
        path.symlink_to("middle")
        write(tmp_path / "real", b"old")
        write(path)
        assert (tmp_path / "real").read_bytes() == b"new"
        assert path.is_symlink()
        assert (tmp_path / "middle").is_symlink()

    def test_a_link_to_nothing_gets_something(self, path, tmp_path):
        path.symlink_to("real")
        write(path)
        assert path.is_symlink()
        assert (tmp_path / "real").read_bytes() == b"new"

    def test_a_link_to_a_folder_that_is_not_there(self, path):
        path.symlink_to("nowhere/real")
        with pytest.raises(FileNotFoundError):
            write(path)
        assert path.is_symlink()

    def test_a_link_to_itself(self, path):
        path.symlink_to(path.name)
        with pytest.raises(OSError, match="symbolic links") as refusal:
            write(path)
        assert refusal.value.errno == errno.ELOOP
        assert path.is_symlink()

    def test_a_pipe_is_not_replaced(self, path):
        os.mkfifo(path)
        with pytest.raises(OSError, match="Not a regular file"):
            write(path)
        assert stat.S_ISFIFO(path.stat().st_mode)

    def test_a_folder_is_not_replaced(self, tmp_path):
        with pytest.raises(IsADirectoryError):
            write(tmp_path)

    def test_save_follows_a_link_and_keeps_the_mode(self, path, tmp_path):
        real = tmp_path / "real"
        path.symlink_to("real")
        ub.save(path, ub.Beta(1.0, 2.0))
        real.chmod(0o600)
        ub.save(path, ub.Beta(3.0, 2.0))
        assert path.is_symlink()
        assert mode_of(real) == 0o600
        assert float(ub.load(path).posterior.successes) == 3.0


# The module alone, without JAX, which takes a second to import.
IMPORT = f"""
import os, runpy, sys
from pathlib import Path

replacing = runpy.run_path({replace.__file__!r})["replacing"]
"""
# Writes to a place, says so, and waits; what it is told to write comes from the command line.
WRITER = f"""{IMPORT}
with replacing(Path(sys.argv[1])) as file:
    file.write(sys.argv[2].encode())
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


def start_writer(path, data, **options):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), data],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    return writer


class TestKilledWriters:
    def test_the_next_one_removes_what_they_left(self, path):
        write(path, b"old")
        for _ in range(2):
            writer = start_writer(path, SECRET.decode())
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        left = temporaries(path.parent)
        # The second removed what the first had left; its own is there, and names the file it was for.
        assert len(left) == 1
        assert left[0].startswith(".belief.unbayes.")
        assert mode_of(path.with_name(left[0])) == 0o600
        assert path.with_name(left[0]).read_bytes() == SECRET
        assert path.read_bytes() == b"old"
        write(path)
        assert os.listdir(path.parent) == [path.name]
        assert path.read_bytes() == b"new"

    def test_one_that_is_still_writing_is_left_alone(self, path):
        with start_writer(path, "slow") as writer:
            for data in (b"quick", b"quick again"):
                write(path, data)
                assert path.read_bytes() == data
                assert len(temporaries(path.parent)) == 1
            writer.communicate("\n")
            assert writer.returncode == 0
        assert path.read_bytes() == b"slow"
        assert os.listdir(path.parent) == [path.name]

    def test_many_at_once(self, path):
        """Every one of them succeeds, none removes what another writes, and the last one's file is whole."""
        failures = []

        def repeat(number):
            try:
                for _ in range(30):
                    write(path, bytes([number]) * 1000)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=repeat, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert path.read_bytes() in {bytes([number]) * 1000 for number in range(4)}
        assert os.listdir(path.parent) == [path.name]

    def test_one_that_is_removed_before_it_is_locked_starts_again(self, path, monkeypatch):
        lock, removed = replace._lock, []

        def removed_first(descriptor, *, wait):
            if wait and not removed:
                removed.extend(temporaries(path.parent))
                path.with_name(removed[0]).unlink()
            return lock(descriptor, wait=wait)

        monkeypatch.setattr(replace, "_lock", removed_first)
        write(path)
        assert len(removed) == 1
        assert path.read_bytes() == b"new"

    def test_of_other_files_are_left_alone(self, path):
        for name in ("other.unbayes", "belief.unbayes.more", "unbayes"):
            writer = start_writer(path.with_name(name), "x")
            writer.kill()
            writer.communicate()
        foreign = temporaries(path.parent)
        write(path)
        assert len(foreign) == 3
        assert temporaries(path.parent) == foreign

    def test_without_locks_nothing_is_removed(self, path, monkeypatch):
        """A file system may know none; then nobody can tell who is still writing."""
        stale = path.with_name(f".{path.name}.{'0' * 16}.unbayes-tmp")
        stale.write_bytes(SECRET)

        def fails(*_):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(replace.fcntl, "flock", fails)
        write(path)
        assert stale.exists()
        monkeypatch.undo()
        write(path)
        assert not stale.exists()

    def test_where_the_system_itself_keeps_open_files(self, path, monkeypatch):
        """As on Windows, where there is no fcntl and what is open cannot be removed."""
        stale = path.with_name(f".{path.name}.{'0' * 16}.unbayes-tmp")
        stale.write_bytes(SECRET)
        monkeypatch.setattr(replace, "fcntl", None)
        write(path)
        assert os.listdir(path.parent) == [path.name]
        assert path.read_bytes() == b"new"

    def test_what_only_looks_like_one(self, path):
        name = path.with_name(f".{path.name}.{'0' * 16}.unbayes-tmp")
        precious = path.with_name("precious")
        precious.write_bytes(b"precious")
        name.symlink_to(precious)
        write(path)
        assert precious.read_bytes() == b"precious"
        name.unlink()
        name.mkdir()
        write(path)
        assert name.is_dir()

    @pytest.mark.parametrize("name", ["n" * 255, "ü" * 127, "[a-z]*.(unbayes)", " ", "…"])
    def test_any_name_of_a_file(self, tmp_path, name):
        path = tmp_path / name
        writer = start_writer(path, "x")
        writer.kill()
        writer.communicate()
        assert len(temporaries(tmp_path)) == 1
        write(path)
        assert os.listdir(tmp_path) == [name]


class TestReadOnlyFolders:
    """Run by a user for whom they are: for root nothing is read-only."""

    SCRIPT = f"""{IMPORT}
if os.geteuid() == 0:
    os.setegid({NOBODY})
    os.seteuid({NOBODY})
try:
    with replacing(Path(sys.argv[1])) as file:
        file.write(b"new")
except OSError as error:
    print(type(error).__name__)
"""

    @pytest.fixture
    def tmp_path(self):
        """A folder that the other user can get to; pytest's own are for root alone."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            yield pathlib.Path(folder)

    def attempt(self, path):
        ran = subprocess.run(
            [sys.executable, "-c", self.SCRIPT, str(path)], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def test_the_old_file_stays(self, path):
        write(path, b"old")
        path.parent.chmod(0o555)
        try:
            assert self.attempt(path) == "PermissionError"
        finally:
            path.parent.chmod(0o755)
        assert path.read_bytes() == b"old"
        assert os.listdir(path.parent) == [path.name]

    def test_a_folder_that_cannot_be_listed(self, path):
        path.parent.chmod(0o333)
        try:
            assert self.attempt(path) == ""
        finally:
            path.parent.chmod(0o755)
        assert path.read_bytes() == b"new"

    def test_a_link_to_where_writing_is_allowed(self, path, tmp_path):
        folder = tmp_path / "writable"
        folder.mkdir()
        folder.chmod(0o777)
        path.symlink_to("writable/real")
        tmp_path.chmod(0o555)
        try:
            assert self.attempt(path) == ""
        finally:
            tmp_path.chmod(0o755)
        assert (folder / "real").read_bytes() == b"new"
