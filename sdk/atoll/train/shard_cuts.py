"""Which rows of each tensor each rank holds. Needs no torch.

Rule of this file: all ranks work it out, each for itself, from shapes, and come to the same. A rank
has whole rows that follow one another, in all a whole number of the chunks that are hashed; and a
matrix that is stepped as a whole has one holder.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import gcd, prod
from typing import Final, TypeAlias

Shape: TypeAlias = tuple[int, ...]
UNIT: Final = 1024
"""Elements of a chunk that is hashed (`numerics.tensors.CHUNK_BYTES`, of fp32)."""


@dataclass(frozen=True)
class Cuts:
    """Rows by rank.

    Attributes:
        shapes: of the whole tensors, by name.
        ends: of each tensor the first row of each rank, and the number of rows.
    """

    shapes: Mapping[str, Shape]
    ends: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, shapes: Mapping[str, Shape], whole: Collection[str], size: int) -> Cuts:
        """Large tensors are cut as evenly as their rows allow, the others go to whoever has least.

        Args:
            whole: names of what is not cut.
            size: ranks.
        """
        loads = [0] * size
        ends: dict[str, tuple[int, ...]] = {}
        for name, shape in sorted(shapes.items(), key=lambda pair: (-prod(pair[1]), pair[0])):
            rows = shape[0] if shape else 1
            width = max(1, prod(shape[1:]))
            at_once = rows if name in whole else UNIT // gcd(UNIT, width)
            units = -(-rows // at_once)
            counts = [units // size] * size
            for rank in sorted(range(size), key=loads.__getitem__)[: units % size]:
                counts[rank] += 1
            marks = (0, *(min(rows, at_once * end) for end in accumulate(counts)))
            ends[name] = marks
            loads = [
                load + width * (end - start)
                for load, (start, end) in zip(loads, pairwise(marks), strict=True)
            ]
        return cls(shapes, {name: ends[name] for name in shapes})

    @classmethod
    def evenly(cls, shapes: Mapping[str, Shape], size: int) -> Cuts:
        """As evenly as rows allow, wherever chunks that are hashed end: for what nobody hashes."""
        ends = {
            name: tuple(shape[0] * rank // size for rank in range(size + 1))
            for name, shape in shapes.items()
        }
        return cls(shapes, ends)

    @cached_property
    def names(self) -> list[str]:
        """Ascending, as they are hashed."""
        return sorted(self.shapes)

    def rows(self, name: str, rank: int) -> slice:
        """Of a rank; none of many small tensors."""
        start, end = self.ends[name][rank : rank + 2]
        return slice(start, end)

    def part(self, name: str, rank: int) -> Shape:
        """The shape of a rank's rows."""
        rows = self.rows(name, rank)
        return (rows.stop - rows.start, *self.shapes[name][1:])

    def width(self, name: str) -> int:
        """Elements of a row."""
        return prod(self.shapes[name][1:])

    def counts(self, name: str) -> list[int]:
        """Elements by rank."""
        width = self.width(name)
        return [width * (end - start) for start, end in pairwise(self.ends[name])]
