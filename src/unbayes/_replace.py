"""Replacing a file in one step: it appears whole or not at all, and keeps the rights that it had.

What is written goes to a temporary file beside it, which nobody else may read and which is locked while its
writer lives. A writer that was killed leaves its temporary behind, without a lock; the next one to write to
the same place removes it.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ModuleNotFoundError:  # Windows, which does not remove a file that somebody has open.
    fcntl = None

# Characters of the file's name that the name of a temporary repeats: a name may have 255 bytes, a character
# has up to four.
REPEATED_CHARACTERS = 40
SUFFIX = "unbayes-tmp"
# Random bytes in the name of a temporary: no two writers get the same.
RANDOM_BYTES = 8
# Rights that are asked for where there was no file before; the user's umask takes away from them.
NEW_FILE_MODE = 0o666


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` once the block has ended without an error.

    A link stays a link: the file that it points to is replaced. An old file hands on its mode, its group
    where the system allows that, and its owner where the writer is root; a group that cannot be handed on
    loses its rights instead of passing them to another. A new file has the rights that the umask leaves.
    """
    target = _target(path)
    old = target.stat() if target.exists() else None
    _remove_stale(target)
    mode = _new_mode(target) if old is None else stat.S_IMODE(old.st_mode)
    temporary, file = _open_temporary(target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                _hand_on_rights(file, old, mode)
                # Renamed while it is locked: the next writer might take it for left behind.
                os.replace(temporary, target)
        if fcntl is None:  # Windows renames closed files only.
            os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _target(path: Path) -> Path:
    """The file itself, at the end of all links."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Not a regular file, which alone can be replaced", os.fspath(path))
    return target


def _name(target: Path) -> str:
    start = target.name[:REPEATED_CHARACTERS]
    return f".{start}.{secrets.token_hex(RANDOM_BYTES)}.{SUFFIX}"


def _open_temporary(target: Path) -> tuple[Path, BinaryIO]:
    """A locked file that none but its owner may read."""
    while True:
        temporary = target.with_name(_name(target))
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(temporary, flags, stat.S_IRUSR | stat.S_IWUSR), "wb")
        _lock(file.fileno(), wait=True)
        if os.fstat(file.fileno()).st_nlink:
            return temporary, file
        # Another writer saw it before it was locked, and removed it.
        file.close()


def _new_mode(target: Path) -> int:
    """What the umask leaves of a new file; an empty one is made to see it, for asking would change it."""
    probe = target.with_name(_name(target))
    descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, NEW_FILE_MODE)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)


def _hand_on_rights(file: BinaryIO, old: os.stat_result | None, mode: int) -> None:
    """Set the mode; of an old file, owner and group as far as the system allows."""
    new = os.fstat(file.fileno())
    if old is not None and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        for owner in (old.st_uid, -1):
            with contextlib.suppress(OSError):
                os.fchown(file.fileno(), owner, old.st_gid)
                break
        else:
            mode &= ~stat.S_IRWXG
    os.fchmod(file.fileno(), mode)


def _remove_stale(target: Path) -> None:
    """Remove what killed writers to the same place have left, and nothing that somebody writes just now."""
    pattern = re.compile(
        rf"\.{re.escape(target.name[:REPEATED_CHARACTERS])}\.[0-9a-f]{{{2 * RANDOM_BYTES}}}\.{SUFFIX}"
    )
    with contextlib.suppress(OSError):  # A folder may allow writing, and forbid listing.
        for name in os.listdir(target.parent):
            if pattern.fullmatch(name):
                with contextlib.suppress(OSError):
                    _remove_unlocked(target.with_name(name))


def _remove_unlocked(temporary: Path) -> None:
    if fcntl is None:
        temporary.unlink()
        return
    # Neither followed where it is a link, nor waited for where it is a pipe.
    descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _lock(descriptor, wait=False):
            temporary.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock a file until it is closed; False where another has locked it, or there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
