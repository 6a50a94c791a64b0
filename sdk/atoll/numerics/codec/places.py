"""Where one coordinate lies in an update, and whether its bytes say something: what a strike shows.

Rule of this file: codecs whose merges are stated (SPEC-MERGE.md, 9) and no other. The same stands
in `contracts/src/libraries/Merging.sol`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from atoll.numerics.codec.block_steps import BLOCK
from atoll.numerics.codec.vector_layout import Layout

HEADER: Final = 40
"""Bytes of a section before exponents."""
_CODES: Final = {"two_bit": 4, "sign": 8}
"""Codes a byte, of codecs with steps."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a coordinate lies in an update: bytes of its block's step and of its code; the same
    where its codec has no steps.
    """

    step: int
    code: int


def place_in(vector: Layout, kind: str, index: int) -> Place:
    """Where a section of this layout has a coordinate, from the section's begin."""
    start = HEADER + 2 * len(vector.names)
    if kind not in _CODES:
        at = start + (index if kind == "grid8" else index // 2)
        return Place(at, at)
    steps = (-(-vector.total // BLOCK) + 1) // 2
    return Place(start + index // BLOCK // 2, start + steps + index // _CODES[kind])


def is_canonical(kind: str, index: int, step: int, code: int) -> bool:
    """Whether the bytes with a coordinate's step and code say something of it."""
    if kind == "grid8":
        return code != 0x80
    if kind == "grid4":
        return code >> 4 * (index % 2) & 15 != 15
    return step >> 4 * (index // BLOCK % 2) & 15 < 9
