"""Saved files as the commands see them: checked, and read as descriptions before anything is rebuilt."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unbayes.data.refusal import Refused, reason

if TYPE_CHECKING:
    import numpy as np

MODEL, STATISTICS = "model", "statistics"


class Opened(NamedTuple):
    """A file whose checksums hold: its manifest, and its arrays by name."""

    path: Path
    kind: str
    manifest: dict[str, Any]
    arrays: "dict[str, np.ndarray]"

    @property
    def notes(self) -> dict[str, Any]:
        """What was noted when the file was saved."""
        return self.manifest.get("notes") or {}

    @property
    def functions(self) -> list[str]:
        """Places of the model's functions, which no file can store."""
        return list(_functions(self.manifest.get("model")))

    @property
    def erasures(self) -> list[dict[str, Any]]:
        """What `unbayes erase` noted of earlier erasures, the oldest first."""
        listed = self.notes.get("erasures", [])
        if not isinstance(listed, list) or not all(
            isinstance(each, dict) and isinstance(each.get("doubts", []), list) for each in listed
        ):
            raise Refused(f"the notes of {self.path} hold erasures that unbayes erase did not write")
        return listed


def open_file(path: Path, *kinds: str) -> Opened:
    """Read a file of one of these kinds, and set JAX up for the types in it: this process is ours."""
    import jax

    from unbayes.storage.archive import UnreadableFile, read_archive

    jax.config.update("jax_enable_x64", True)
    failures = []
    for kind in kinds:
        try:
            manifest, arrays = read_archive(path, kind)
        except UnreadableFile as error:
            failures.append(f"{path} cannot be read: {error}")
        except OSError as error:
            raise Refused(f"{path} cannot be read: {reason(error)}") from error
        else:
            has_doubles = any(entry["dtype"].endswith("64") for entry in manifest["arrays"].values())
            jax.config.update("jax_enable_x64", has_doubles)
            return Opened(path, kind, manifest, arrays)
    raise Refused(failures[0])


def _functions(node: Any) -> Iterator[str]:
    match node:
        case {"function": str(name)}:
            yield name
        case dict():
            for part in node.values():
                yield from _functions(part)
        case list():
            for part in node:
                yield from _functions(part)
