"""Which files an address, a pattern or a folder names, here or in a bucket."""

import glob
import os
from pathlib import Path
from typing import Any, NamedTuple

from unbayes.data.refusal import Refused

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".feather": "feather", ".arrow": "feather"}
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
        The only one that they are in, below which names of folders tell columns.
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
        import fsspec

        filesystem, _ = fsspec.core.url_to_fs(places[0], **(storage_options or {}))
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
    folder = places[0] if len(places) == 1 and filesystem.isdir(places[0]) else None
    return Found(found, filesystem if remote else None, folder)


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
