"""The Merkle tree, against published vectors and the recursive definition of RFC 9162, section 2.1."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unbayes.ledger.errors import NotInLog, TamperedLog
from unbayes.ledger.merkle import (
    EMPTY_ROOT,
    Frontier,
    Tree,
    leaf_hash,
    node_hash,
    require_consistency,
    require_inclusion,
    root_of,
)

# From the tests of certificate-transparency: entries, and roots of the first one, two, … of them.
PUBLISHED_ENTRIES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
PUBLISHED_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LARGEST = 70
LEAVES = [leaf_hash(str(i).encode()) for i in range(LARGEST)]


def below(n):
    """The largest power of two below n."""
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def root_by_definition(leaves):
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = below(len(leaves))
    left, right = root_by_definition(leaves[:k]), root_by_definition(leaves[k:])
    return hashlib.sha256(b"\x01" + left + right).digest()


def path_by_definition(m, leaves):
    """PATH(m, D_n)."""
    if len(leaves) == 1:
        return []
    k = below(len(leaves))
    if m < k:
        return [*path_by_definition(m, leaves[:k]), root_by_definition(leaves[k:])]
    return [*path_by_definition(m - k, leaves[k:]), root_by_definition(leaves[:k])]


def subproof_by_definition(m, leaves, is_whole):
    """SUBPROOF(m, D_n, b)."""
    if m == len(leaves):
        return [] if is_whole else [root_by_definition(leaves)]
    k = below(len(leaves))
    if m <= k:
        return [*subproof_by_definition(m, leaves[:k], is_whole), root_by_definition(leaves[k:])]
    return [*subproof_by_definition(m - k, leaves[k:], False), root_by_definition(leaves[:k])]


def test_published_roots():
    leaves = [leaf_hash(entry) for entry in PUBLISHED_ENTRIES]
    frontier = Frontier()
    for n, expected in enumerate(PUBLISHED_ROOTS, 1):
        frontier = frontier.append(leaves[n - 1])
        assert Tree(leaves[:n]).root.hex() == expected
        assert root_of(leaves[:n]).hex() == expected
        assert frontier.root.hex() == expected


def test_published_proofs():
    """Those of RFC 6962, section 2.1.3, whose nodes are named there."""
    a, b, c, d, e, f, j = LEAVES[:7]
    g, h, i = node_hash(a, b), node_hash(c, d), node_hash(e, f)
    k, top = node_hash(g, h), node_hash(i, j)
    tree = Tree(LEAVES[:7])
    assert tree.root == node_hash(k, top)
    assert tree.inclusion_proof(0) == [b, h, top]
    assert tree.inclusion_proof(3) == [c, g, top]
    assert tree.inclusion_proof(4) == [f, j, k]
    assert tree.inclusion_proof(6) == [i, k]
    assert tree.consistency_proof(3) == [c, d, g, top]
    assert tree.consistency_proof(4) == [top]
    assert tree.consistency_proof(6) == [i, j, k]


def test_the_empty_log():
    assert Frontier().root == Tree([]).root == root_of([]) == EMPTY_ROOT == hashlib.sha256(b"").digest()
    assert Frontier.from_hex(Frontier().to_hex()) == Frontier()
    with pytest.raises(IndexError):
        Tree([]).inclusion_proof(0)


@pytest.mark.parametrize("size", range(1, LARGEST + 1))
def test_every_entry_and_every_older_log_by_definition(size):
    leaves = LEAVES[:size]
    root, tree = root_by_definition(leaves), Tree(leaves)
    assert tree.root == root_of(leaves) == root
    for index in range(size):
        proof = tree.inclusion_proof(index)
        assert proof == path_by_definition(index, leaves)
        require_inclusion(leaves[index], index, size, proof, root)
    for old in range(1, size + 1):
        proof = tree.consistency_proof(old)
        old_root = root_of(leaves[:old])
        assert proof == subproof_by_definition(old, leaves, True)
        assert tree.root_at(old) == old_root
        require_consistency(old, old_root, size, root, proof)
    require_consistency(0, EMPTY_ROOT, size, root, tree.consistency_proof(0))


def test_a_frontier_can_be_written_down_at_every_size():
    frontier = Frontier()
    for n, leaf in enumerate(LEAVES, 1):
        frontier = Frontier.from_hex(frontier.to_hex()).append(leaf)
        assert frontier.size == n
        assert frontier.root == root_of(LEAVES[:n])


@pytest.mark.parametrize(
    "text", ["", "zz", "00", "0" * 15 + "1", "0" * 16 + "ab" * 32, "0" * 15 + "1" + "ab" * 31]
)
def test_a_damaged_frontier_is_refused(text):
    with pytest.raises(TamperedLog):
        Frontier.from_hex(text)


def flip(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


bits = st.integers(0, 255)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, LARGEST), st.data())
def test_no_inclusion_with_anything_changed(size, data):
    index = data.draw(st.integers(0, size - 1))
    tree = Tree(LEAVES[:size])
    leaf, proof, root = LEAVES[index], tree.inclusion_proof(index), tree.root
    bit = data.draw(bits)
    wrong = [(flip(leaf, bit), index, proof, root), (leaf, index, proof, flip(root, bit))]
    wrong += [(leaf, other, proof, root) for other in range(-1, size + 1) if other != index]
    wrong += [(leaf, index, proof[:-1], root)] if proof else []
    wrong += [(leaf, index, [*proof, root], root), (leaf, index, proof, root[:-1])]
    for at in range(len(proof)):
        wrong.append((leaf, index, [*proof[:at], flip(proof[at], bit), *proof[at + 1 :]], root))
        wrong.append((leaf, index, [*proof[:at], *proof[at + 1 :]], root))
    for a_leaf, an_index, a_proof, a_root in wrong:
        with pytest.raises(NotInLog):
            require_inclusion(a_leaf, an_index, size, a_proof, a_root)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, LARGEST), st.data())
def test_no_consistency_with_anything_changed(size, data):
    old = data.draw(st.integers(0, size))
    tree, bit = Tree(LEAVES[:size]), data.draw(bits)
    old_root, proof, root = tree.root_at(old), tree.consistency_proof(old), tree.root
    wrong = [(flip(old_root, bit), root, proof), (old_root, root, [*proof, root])]
    # Every log continues the empty one.
    wrong += [(old_root, flip(root, bit), proof)] if old else []
    for at in range(len(proof)):
        wrong.append((old_root, root, [*proof[:at], flip(proof[at], bit), *proof[at + 1 :]]))
        wrong.append((old_root, root, [*proof[:at], *proof[at + 1 :]]))
    for an_old_root, a_root, a_proof in wrong:
        with pytest.raises(TamperedLog):
            require_consistency(old, an_old_root, size, a_root, a_proof)
    with pytest.raises(TamperedLog, match="not an older one"):
        require_consistency(size + 1, root, size, root, [])


def test_another_past_has_no_proof():
    """Neither an exchanged entry nor a changed order passes for the same log."""
    for size, old in ((8, 4), (13, 7), (70, 69)):
        honest = Tree(LEAVES[:size])
        swapped = [LEAVES[1], LEAVES[0], *LEAVES[2:size]]
        for proof in (honest.consistency_proof(old), Tree(swapped).consistency_proof(old)):
            with pytest.raises(TamperedLog):
                require_consistency(old, honest.root_at(old), size, root_of(swapped), proof)


def test_what_is_asked_of_a_tree_must_be_in_it():
    tree = Tree(LEAVES[:5])
    for call in (
        tree.inclusion_proof,
        lambda n: tree.consistency_proof(n + 1),
        lambda n: tree.root_at(n + 1),
    ):
        for n in (-2, 5):
            with pytest.raises(IndexError, match="5 entries"):
                call(n)
