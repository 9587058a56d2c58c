"""Which files an address, a pattern or a folder names, here or in a bucket."""

import collections
import contextlib
import glob
import itertools
import os
from pathlib import Path
from typing import Any, NamedTuple

from unbayes.data.refusal import Refused

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".feather": "feather", ".arrow": "feather"}
# The folder that makes a folder a Delta table.
DELTA_LOG = "_delta_log"
# What is wrong with the files of one.
IN_DELTA = (
    "is a Delta table, in whose folder deleted records still lie: give the table alone, or format='parquet' "
    "to read its files as they are"
)
# Endings that say nothing but how a file is packed.
PACKED = (".gz", ".bz2", ".zst", ".lz4")


class Found(NamedTuple):
    """Files that were asked for.

    Attributes
    ----------
    paths
        Of the files, in order.
    filesystem
        Where they are; None for here.
    folder
        The one below which names of folders tell columns; None where several places were given.
    """

    paths: list[str]
    filesystem: Any
    folder: str | None


def find(places: list[str], storage_options: dict[str, Any] | None) -> Found:
    """The files that these addresses, patterns and folders name."""
    if not places:
        raise Refused("data must name at least one file, got none")
    remote = [each for each in places if "://" in each]
    if remote and len(remote) < len(places):
        raise Refused("data must be all here or all at one address, got both")
    filesystem = _Here()
    if remote:
        filesystem, _ = opened(places[0], storage_options)
        places = [filesystem._strip_protocol(each) for each in places]
    found = list[str]()
    for place in places:
        matches = [place] if filesystem.exists(place) else sorted(filesystem.glob(place))
        if not matches:
            what = "must match some files, but matches none" if glob.has_magic(place) else None
            raise Refused(f"{place} {what or 'cannot be read: there is no such file'}")
        for match in matches:
            inside = _inside(match, filesystem) if filesystem.isdir(match) else [match]
            if not inside:
                raise Refused(f"{match} must hold files, but holds none")
            found += inside
    real = found if remote else map(os.path.realpath, found)
    ((twice, times),) = collections.Counter(real).most_common(1)
    if times > 1:
        raise Refused(f"data must name each file once, got {twice} {times} times")
    folder = _base(places[0], filesystem) if len(places) == 1 else None
    return Found(found, filesystem if remote else None, folder)


def opened(address: str, storage_options: dict[str, Any] | None) -> tuple[Any, str]:
    """The file system of an address, and the path there."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(address, **(storage_options or {}))
    except (ImportError, ValueError) as error:
        raise Refused(
            f"{address} cannot be opened: fsspec knows no such address, or lacks a package for it"
        ) from error


def delta_table_around(found: Found) -> str | None:
    """A Delta table in whose folder one of the files lies; None where none does."""
    filesystem, seen = found.filesystem or _Here(), set[Path]()
    for path in found.paths:
        for folder in Path(path if found.filesystem else os.path.realpath(path)).parents:
            if folder in seen:
                break
            seen.add(folder)
            with contextlib.suppress(OSError):
                if filesystem.exists(f"{folder}/{DELTA_LOG}"):
                    return str(folder)
    return None


def _base(place: str, filesystem: Any) -> str:
    """The folder below which names of folders tell columns: those that were not named are data."""
    if filesystem.isdir(place):
        return place
    fixed = itertools.takewhile(lambda step: not glob.has_magic(step), Path(place).parts[:-1])
    return str(Path(*fixed))


class _Here:
    """Files on this machine, in the words of fsspec."""

    exists = staticmethod(os.path.exists)
    isdir = staticmethod(os.path.isdir)

    def glob(self, pattern: str) -> list[str]:
        return glob.glob(pattern, recursive=True)

    def find(self, folder: str) -> list[str]:
        return [str(path) for path in Path(folder).rglob("*") if path.is_file()]


def _inside(folder: str, filesystem: Any) -> list[str]:
    """The files in a folder and those within it, without hidden ones and notes such as _SUCCESS."""
    steps = len(Path(folder).parts)
    return [
        path
        for path in sorted(filesystem.find(folder))
        if not any(step.startswith((".", "_")) for step in Path(path).parts[steps:])
    ]


def format_of(paths: list[str]) -> str:
    """By the names of the files; those of no known ending are Parquet."""
    kinds = set()
    for path in map(Path, dict.fromkeys(paths)):
        packed = path.suffix.lower() in PACKED
        kinds.add(FORMATS.get((path.with_suffix("") if packed else path).suffix.lower(), "parquet"))
    if len(kinds) > 1:
        raise Refused(f"data must be of one format, got {' and '.join(sorted(kinds))}")
    return kinds.pop()
