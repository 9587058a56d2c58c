"""Merkle tree over SHA-256: one hash stands for a whole log, short proofs tie entries and older logs to it.

The tree of RFC 9162, section 2.1, which is that of RFC 6962. Of n > 1 entries, the first k go to the left
and the others to the right, k being the largest power of two below n.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Self

from unbayes.ledger.errors import NotInLog, TamperedLog

HASH_BYTES = 32
# Hash of the empty log.
EMPTY_ROOT = hashlib.sha256(b"").digest()
# Hexadecimal digits for the size of a log where its frontier is written down: 64 bits.
_SIZE_DIGITS = 16


def leaf_hash(data: bytes) -> bytes:
    """SHA-256(0x00 ‖ data), the hash of one entry."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 ‖ left ‖ right), the hash of two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclasses.dataclass(frozen=True)
class Frontier:
    """All that is needed of a log to append to it and to tell its root: a few hashes, however long it is.

    Attributes
    ----------
    size
        Number of entries.
    hashes
        Roots of the perfect subtrees, from left to right; one for each binary digit 1 of the size.
    """

    size: int = 0
    hashes: tuple[bytes, ...] = ()

    def __post_init__(self):
        if self.size < 0 or len(self.hashes) != self.size.bit_count():
            raise TamperedLog(
                f"a log of {self.size} entries does not have {len(self.hashes)} perfect subtrees"
            )

    def append(self, leaf: bytes) -> Self:
        """The log with one entry more, given as the hash of that entry."""
        hashes, merges = list(self.hashes), self.size
        while merges & 1:
            leaf = node_hash(hashes.pop(), leaf)
            merges >>= 1
        return type(self)(self.size + 1, (*hashes, leaf))

    @property
    def root(self) -> bytes:
        """Hash of the whole log."""
        return _join(self.hashes)

    def to_hex(self) -> str:
        """As text: 16 digits for the size, 64 for each hash."""
        return f"{self.size:0{_SIZE_DIGITS}x}" + "".join(h.hex() for h in self.hashes)

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """The inverse of `to_hex`."""
        try:
            data = bytes.fromhex(text)
        except ValueError:
            raise TamperedLog("the frontier of the log is not hexadecimal") from None
        head, tail = data[: _SIZE_DIGITS // 2], data[_SIZE_DIGITS // 2 :]
        if len(head) < _SIZE_DIGITS // 2 or len(tail) % HASH_BYTES:
            raise TamperedLog(
                f"the frontier of the log has {len(text)} digits, which is no whole number of hashes"
            )
        hashes = tuple(tail[i : i + HASH_BYTES] for i in range(0, len(tail), HASH_BYTES))
        return cls(int.from_bytes(head), hashes)


class Tree:
    """All hashes of a log, each computed once, to answer for many entries and for any size it once had.

    Parameters
    ----------
    leaf_hashes
        Hashes of the entries, in order.
    """

    # Level k holds the roots of all perfect subtrees of 2^k entries, from left to right.
    _levels: list[list[bytes]]

    def __init__(self, leaf_hashes: Iterable[bytes] = ()):
        self._levels = [[]]
        self.extend(leaf_hashes)

    def extend(self, leaf_hashes: Iterable[bytes]) -> None:
        """More entries at the end of the log."""
        self._levels[0].extend(leaf_hashes)
        height, sha256 = 0, hashlib.sha256
        while len(level := self._levels[height]) > 1:
            height += 1
            if height == len(self._levels):
                self._levels.append([])
            above = self._levels[height]
            pairs = zip(level[2 * len(above) :: 2], level[2 * len(above) + 1 :: 2], strict=False)
            above += [sha256(b"\x01" + a + b).digest() for a, b in pairs]

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self._levels[0])

    @property
    def root(self) -> bytes:
        """Hash of the whole log."""
        return self._hash_of(0, self.size)

    def root_at(self, size: int) -> bytes:
        """Hash of the log when it had only that many entries."""
        return self._hash_of(0, self._known(size))

    def leaf(self, index: int) -> bytes:
        """Hash of an entry."""
        return self._levels[0][index]

    def inclusion_proof(self, index: int, size: int | None = None) -> list[bytes]:
        """Hashes that lead from an entry to the root (RFC 9162, 2.1.3.1), the entry's neighbour first.

        Parameters
        ----------
        index
            Where the entry stands.
        size
            Of the log whose root it is; all of it unless given.
        """
        start, stop, proof = 0, self._known(size), []
        if not 0 <= index < stop:
            raise IndexError(f"index is {index}, in a log of {stop} entries")
        while stop - start > 1:
            middle = start + _split(stop - start)
            if index < middle:
                proof.append(self._hash_of(middle, stop))
                stop = middle
            else:
                proof.append(self._hash_of(start, middle))
                start = middle
        return proof[::-1]

    def consistency_proof(self, old_size: int, size: int | None = None) -> list[bytes]:
        """Hashes that show that the log of an older size is the beginning of a later one (RFC 9162, 2.1.4.1).

        Parameters
        ----------
        old_size, size
            Of the older log and of the later one, which is all of it unless given.
        """
        start, stop, proof, is_whole = 0, self._known(size), [], True
        if not 0 <= old_size <= stop:
            raise IndexError(f"size is {old_size}, of a log that has {stop} entries")
        if not old_size:
            return proof
        # Down to the subtree that ends where the old log ended; what is passed on the way is the proof.
        while old_size < stop:
            middle = start + _split(stop - start)
            if old_size <= middle:
                proof.append(self._hash_of(middle, stop))
                stop = middle
            else:
                proof.append(self._hash_of(start, middle))
                start, is_whole = middle, False
        if not is_whole:
            proof.append(self._hash_of(start, stop))
        return proof[::-1]

    def _hash_of(self, start: int, stop: int) -> bytes:
        """Hash of a subtree; these begin at multiples of their size, rounded up to a power of two."""
        hashes, left = [], stop - start
        for height in reversed(range(left.bit_length())):
            if left >> height & 1:
                hashes.append(self._levels[height][start >> height])
                start += 1 << height
        return _join(hashes)

    def _known(self, size: int | None) -> int:
        if size is not None and not 0 <= size <= self.size:
            raise IndexError(f"size is {size}, of a log that has {self.size} entries")
        return self.size if size is None else size


def root_of(leaf_hashes: Iterable[bytes]) -> bytes:
    """Hash of a whole log, from the hashes of its entries."""
    level = list(leaf_hashes)
    while len(level) > 1:
        level = _level_above(level)
    return level[0] if level else EMPTY_ROOT


def require_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Refuse, by `NotInLog`, a proof that the log holds an entry at an index (RFC 9162, 2.1.3.2).

    Parameters
    ----------
    leaf
        Hash of the entry.
    index, size
        Where it stands, and how many entries the log of that root has.
    proof, root
        What `Tree.inclusion_proof` gave, and the root that it should lead to.
    """
    if not 0 <= index < size:
        raise NotInLog(f"a log of {size} entries has none at index {index}")
    _require_hashes(leaf, root, *proof)
    place, last, found = index, size - 1, leaf
    for neighbour in proof:
        if not last:
            raise NotInLog(f"the proof for entry {index} of {size} is too long")
        if place & 1 or place == last:
            found = node_hash(neighbour, found)
            place, last = _above_lone_nodes(place, last)
        else:
            found = node_hash(found, neighbour)
        place, last = place >> 1, last >> 1
    if last:
        raise NotInLog(f"the proof for entry {index} of {size} is too short")
    if found != root:
        raise NotInLog(f"the proof for entry {index} of {size} does not lead to the root of the log")


def require_consistency(
    old_size: int, old_root: bytes, new_size: int, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Refuse, by `TamperedLog`, a proof that a log has only grown (RFC 9162, 2.1.4.2)."""
    story = f"the log of {new_size} entries does not continue that of {old_size}"
    if not 0 <= old_size <= new_size:
        raise TamperedLog(f"{story}, which is not an older one")
    _require_hashes(old_root, new_root, *proof)
    if not old_size or old_size == new_size:
        expected = new_root if old_size else EMPTY_ROOT
        if proof or old_root != expected:
            raise TamperedLog(story)
        return
    # Where the old log is a perfect subtree, its root is the first hash.
    hashes = [old_root, *proof] if old_size.bit_count() == 1 else list(proof)
    if not hashes:
        raise TamperedLog(f"{story}: the proof is empty")
    place, last = _above_lone_nodes(old_size - 1, new_size - 1, until_even=True)
    old = new = hashes[0]
    for neighbour in hashes[1:]:
        if not last:
            raise TamperedLog(f"{story}: the proof is too long")
        if place & 1 or place == last:
            old, new = node_hash(neighbour, old), node_hash(neighbour, new)
            place, last = _above_lone_nodes(place, last)
        else:
            new = node_hash(new, neighbour)
        place, last = place >> 1, last >> 1
    if last or old != old_root or new != new_root:
        raise TamperedLog(story)


def _above_lone_nodes(place: int, last: int, *, until_even: bool = False) -> tuple[int, int]:
    """Go up: past nodes that have no neighbour to the right, or past all that are right children."""
    while (place & 1) if until_even else (place and not place & 1):
        place, last = place >> 1, last >> 1
    return place, last


def _level_above(level: list[bytes]) -> list[bytes]:
    """Hash neighbours together; a last one without a neighbour is handed up as it is."""
    sha256 = hashlib.sha256
    above = [sha256(b"\x01" + a + b).digest() for a, b in zip(level[::2], level[1::2], strict=False)]
    return above + level[-1:] if len(level) & 1 else above


def _join(hashes: Sequence[bytes]) -> bytes:
    """Root of perfect subtrees that stand side by side, the largest first."""
    if not hashes:
        return EMPTY_ROOT
    root = hashes[-1]
    for left in hashes[-2::-1]:
        root = node_hash(left, root)
    return root


def _split(size: int) -> int:
    """The largest power of two below a size."""
    return 1 << (size - 1).bit_length() - 1


def _require_hashes(*hashes: bytes) -> None:
    for found in hashes:
        if len(found) != HASH_BYTES:
            raise NotInLog(f"a hash of the proof has {len(found)} bytes, not {HASH_BYTES}")
