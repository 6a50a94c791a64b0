"""How a pass over long vectors is cut up.

A pass writes to disjoint places or returns integers to be added, so neither the chunk length nor
the number of threads can change a bit of any result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from atoll.errors import ConfigError
from atoll.numerics.codec.update_codec import PIECE, VectorRow

T = TypeVar("T")

BLOCK = 1 << 26
"""Values of all rows together that are decoded at once, in a byte each; their sums take four."""

CHUNK = 1 << 20
"""Coordinates whose inner products a merged update has by themselves (SPEC-MERGE.md, 9)."""

MIN_SHARE = 1 << 17
"""Fewer coordinates than this are not worth a thread."""


def blocks(rows: Sequence[VectorRow], values: int = BLOCK) -> Iterator[slice]:
    """The slices of rows of one length, in order, in which they have so many values together.

    They begin where pieces do, so that rows that are decoded as they are read are decoded once.
    """
    size = max(1, values // max(1, len(rows)) // PIECE) * PIECE
    length = len(rows[0]) if rows else 0
    return (slice(at, min(at + size, length)) for at in range(0, length, size))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@dataclass(frozen=True, slots=True)
class PassPlan:
    """How to run a pass; memory is O(rows · chunk).

    Attributes:
        chunk: coordinates the numpy path handles at once.
        threads: threads that share the coordinates in the compiled path.
        native: whether the compiled path may be used where this machine has it.
    """

    chunk: int = 1 << 15
    threads: int = field(default_factory=_cores)
    native: bool = True

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.threads < 1:
            raise ConfigError(f"no plan: chunk {self.chunk}, threads {self.threads}")

    def chunks(self, length: int) -> Iterator[slice]:
        """The slices of range(length), in order."""
        for start in range(0, length, self.chunk):
            yield slice(start, min(start + self.chunk, length))

    def share(self, length: int, work: Callable[[int, int], T]) -> list[T]:
        """Calls work(start, stop) once a thread, together over range(length)."""
        shares = min(self.threads, max(1, length // MIN_SHARE))
        spans = list(pairwise(length * i // shares for i in range(shares + 1)))
        if shares == 1:
            return [work(*spans[0])]
        with ThreadPoolExecutor(shares) as pool:
            return list(pool.map(lambda span: work(*span), spans))
