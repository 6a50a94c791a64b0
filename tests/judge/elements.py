"""Nodes to try the judge's operations on: what an operation reads, and what it then gives.

Rule of this file: numbers are drawn where rounding, flushing and overflow part, and a node is a
function of its generator. A family's module has `NODES`, a function of a generator for each of its
operations; `tests/judge/replay.py` runs them through the EVM.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from tests.judge.operands import BORDERS
from torch import Tensor

Rng = np.random.Generator
Words = npt.NDArray[np.uint64]
Operation = Callable[[Sequence[int], Sequence[Tensor], int], Tensor]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation on whole tensors.

    Attributes:
        words: the template's; `tail` its bytes behind them.
        inputs: flat tensors, in the order of `opcodes.py`.
        iteration: the micro-batch.
    """

    op: int
    words: tuple[int, ...]
    inputs: tuple[Tensor, ...]
    iteration: int = 0
    tail: bytes = b""

    @property
    def attributes(self) -> bytes:
        """What the game gives the contract: iteration, words, tail."""
        numbers = (self.iteration, *self.words)
        return struct.pack(f">{len(numbers)}Q", *numbers) + self.tail

    def result(self, operation: Operation) -> Tensor:
        """The node's tensor."""
        return operation(self.words, self.inputs, self.iteration)


Draw = Callable[[Rng, int], Node]
"""A node of about so many elements."""


def raw(x: Tensor) -> bytes:
    """A tensor's bytes, little-endian."""
    return x.contiguous().view(torch.uint8).numpy().tobytes()


def word32(x: float) -> int:
    """The bits of x rounded to binary32."""
    return int(np.float32(x).view(np.uint32))


def word64(x: float) -> int:
    """The bits of x."""
    return int(np.float64(x).view(np.uint64))


# With the formats' own: where moments are flushed (2⁻¹⁰⁰), where exp ends below, Muon's least norm.
_ENDS32: Final = (0x0D7FFFFF, 0x0D800000, 0x0D800001, 0x42ABFFFF, 0x42AC0001, 0x42B17217)
BORDERS32: Final = np.array([*BORDERS["32"], *_ENDS32, *(x | 1 << 31 for x in _ENDS32)], np.uint64)
BORDERS64: Final = np.array([*BORDERS["64"], 0x3C2FFFFFFFFFFFFF, 0x3C30000000000000], np.uint64)


def floats(words: npt.NDArray[Any]) -> Tensor:
    """binary32 of these bits."""
    return torch.from_numpy(words.astype(np.uint32).view(np.float32))


def doubles(words: npt.NDArray[Any]) -> Tensor:
    """binary64 of these bits."""
    return torch.from_numpy(words.astype(np.uint64).view(np.float64))


def _with_fields(rng: Rng, drawn: Words, low: int, high: int) -> Words:
    """binary32 with exponents' fields of this range."""
    field = rng.integers(low, high, drawn.size, dtype=np.uint64)
    return (drawn & np.uint64(0x807FFFFF)) | (field << np.uint64(23))


def reals(rng: Rng, count: int) -> Tensor:
    """binary32 of seven shapes: any bits, borders, about one, wider, few digits (whose sums and
    products end in halves), next to where exp and the flush change over, small.
    """
    drawn = rng.integers(0, 1 << 32, count, dtype=np.uint64)
    sign = drawn & np.uint64(1 << 31)
    few = rng.integers(8, 23, count, dtype=np.uint64)
    short = _with_fields(rng, drawn, 118, 137) >> few << few
    ends = np.array([0x42AC0000, 0x42B17218, 0x42B20000, 0x0D800000], np.uint64)
    near = ends[rng.integers(0, len(ends), count)] + rng.integers(0, 17, count, dtype=np.uint64)
    shapes = np.stack(
        (
            drawn,
            BORDERS32[rng.integers(0, len(BORDERS32), count)],
            _with_fields(rng, drawn, 117, 134),
            _with_fields(rng, drawn, 97, 157),
            short | sign,
            (near - np.uint64(8)) | sign,
            _with_fields(rng, drawn, 20, 34),
        )
    )
    return floats(_with_all(rng, BORDERS32, _picked(rng, shapes, (1, 1, 4, 2, 2, 1, 1))))


def _picked(rng: Rng, shapes: Words, weights: Sequence[int]) -> Words:
    count = shapes.shape[1]
    shares = np.array(weights) / sum(weights)
    picked: Words = shapes[rng.choice(len(shapes), count, p=shares), np.arange(count)]
    return picked


def _with_all(rng: Rng, borders: Words, words: Words) -> Words:
    """The words, with every border at some place, if half of the places is enough for that."""
    if words.size >= 2 * borders.size:
        words[rng.permutation(words.size)[: borders.size]] = borders
    return words


def wide_reals(rng: Rng, count: int) -> Tensor:
    """binary64: any bits, borders, about one, and halves between two numbers of binary32."""
    drawn = rng.integers(0, 1 << 64, count, dtype=np.uint64)
    field = rng.integers(1000, 1045, count, dtype=np.uint64) << np.uint64(52)
    middle = (drawn & np.uint64(0x800FFFFFFFFFFFFF)) | field
    half = (middle & np.uint64(0xFFFFFFFFE0000000)) | np.uint64(0x10000000)
    borders = BORDERS64[rng.integers(0, len(BORDERS64), count)]
    shapes = np.stack((drawn, borders, middle, half))
    return doubles(_with_all(rng, BORDERS64, _picked(rng, shapes, (1, 1, 5, 2))))


def integers64(rng: Rng, count: int) -> Tensor:
    """i64 of any length, of both signs."""
    drawn = rng.integers(0, 1 << 64, count, dtype=np.uint64)
    cut = rng.integers(0, 65, count)
    shifted = np.where(cut < 64, drawn.view(np.int64) >> np.minimum(cut, 63), 0)
    return torch.from_numpy(shifted.astype(np.int64))


def integers32(rng: Rng, count: int) -> Tensor:
    """i32 of any length, of both signs."""
    return (integers64(rng, count) >> 32).to(torch.int32)


def size(rng: Rng, low: int, high: int) -> int:
    """A size from `low` to `high`."""
    return int(rng.integers(low, high + 1))


def word(x: Tensor) -> int:
    """The bits of the one number of x, as a template has them."""
    return int.from_bytes(raw(x), "little")
