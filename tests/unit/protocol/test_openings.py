"""What a proof opens: neighbouring nodes, folded up, with exactly the siblings that they need."""

from __future__ import annotations

import pytest
from tests.support.identities import digest

from atoll.protocol.games.trees import WrongOpening, fold, parts, words_tree
from atoll.protocol.hashing import keccak256
from atoll.protocol.merkle import LEAF, merkle_root

NODES = [keccak256(LEAF + digest(i)) for i in range(5)]


def above(a: bytes, b: bytes) -> bytes:
    return keccak256(b"\x01" + a + b)


A, B = above(NODES[0], NODES[1]), above(NODES[2], NODES[3])
TOP = above(above(A, B), NODES[4])


@pytest.mark.parametrize(
    ("first", "count", "siblings"),
    [
        (0, 5, []),
        (0, 1, [NODES[1], B, NODES[4]]),
        (1, 1, [NODES[0], B, NODES[4]]),
        (1, 2, [NODES[0], NODES[3], NODES[4]]),
        (2, 2, [A, NODES[4]]),
        (3, 2, [NODES[2], A]),
        (4, 1, [above(A, B)]),
    ],
)
def test_neighbours_fold_to_the_top_with_their_siblings_alone(
    first: int, count: int, siblings: list[bytes]
) -> None:
    shown = NODES[first : first + count]
    assert fold(shown, first, 5, 3, siblings) == TOP
    for odd in ([*siblings, digest("more")], siblings[:-1]):
        if odd != siblings:
            with pytest.raises(WrongOpening):
                fold(shown, first, 5, 3, odd)


def test_the_root_of_leaves_is_their_sealed_top() -> None:
    leaves = [digest(i) for i in range(5)]
    assert merkle_root(leaves) == keccak256(b"\x02" + (5).to_bytes(8, "big") + TOP)


@pytest.mark.parametrize(("first", "count"), [(-1, 2), (4, 2), (5, 1), (0, 0)])
def test_what_is_not_within_the_level_is_refused(first: int, count: int) -> None:
    with pytest.raises(WrongOpening, match="of 5"):
        fold([digest(i) for i in range(count)], first, 5, 3)


def test_parts_are_whole_but_for_the_last_of_all() -> None:
    data = bytes(range(250))
    assert parts(data, 0, 250, 100) == [data[:100], data[100:200], data[200:]]
    assert parts(data[100:], 1, 250, 100) == [data[100:200], data[200:]]
    assert parts(data[:200], 0, 250, 100) == [data[:100], data[100:200]]
    for shown, first in ((b"", 0), (data[:150], 0), (data[100:] + b"\x00", 1), (data[:249], 0)):
        with pytest.raises(WrongOpening, match="of 250"):
            parts(shown, first, 250, 100)


@pytest.mark.parametrize(("size", "count"), [(1, 1), (31, 1), (32, 1), (33, 2), (64, 2), (65, 3)])
def test_the_last_word_of_a_leaf_is_filled_up_with_zeros(size: int, count: int) -> None:
    leaf = bytes(range(1, size + 1))
    tree = words_tree(leaf)
    assert tree.count == count
    words = [tree.leaf(i) for i in range(count)]
    assert {len(word) for word in words} == {32}
    assert b"".join(words) == leaf + bytes(32 * count - size)
