"""The operations of sparse updates, by the definition and in plain Python."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pytest
import torch
from torch import Tensor

from atoll.numerics.codec import sparse
from atoll.numerics.codec.packing import pack
from atoll.numerics.trace import update_proofs

CHUNK, QUARTER = 4096, 1024
SIZES = [
    1, 8, 15, 17, 1023, 1024, 1025, 2047, 2049, 3072, 3073, 4095, 4096, 4097, 5119, 5121, 8193,
]  # fmt: skip
KINDS = ("any bits", "ties", "equals", "what is not a number")


def values(kind: str, size: int) -> Tensor:
    rng = np.random.default_rng([size, KINDS.index(kind)])
    match kind:
        case "any bits":
            x = rng.integers(0, 1 << 32, size, dtype=np.uint32).view(np.float32)
        case "ties":
            x = np.rint(rng.normal(size=size) * 3).astype(np.float32)
        case "equals":
            x = np.where(rng.integers(0, 2, size), np.float32(-0.0), np.float32(0))
        case _:
            few = np.array([np.nan, np.inf, -np.inf, 3e38, -1.0], np.float32)
            x = few[rng.integers(0, len(few), size)]
    return torch.from_numpy(x)


def keys_of(x: Tensor) -> list[tuple[int, int]]:
    """The larger a value's key, the earlier it comes."""
    bits = x.view(torch.int32).tolist()
    return [(word & 0x7FFFFFFF, -position) for position, word in enumerate(bits)]


def numbers_of(x: Tensor) -> list[list[int]]:
    """What comes before each value, of every quarter of its chunk."""
    keys, found = keys_of(x), []
    for start in range(0, len(keys), CHUNK):
        chunk = keys[start : start + CHUNK]
        quarters = [sorted(chunk[at : at + QUARTER]) for at in range(0, CHUNK, QUARTER)]
        found += [[len(q) - bisect_right(q, key) for q in quarters] for key in chunk]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_a_value_is_kept_by_what_comes_before_it_in_every_quarter(size: int, kind: str) -> None:
    x = values(kind, size)
    numbers = update_proofs.count_before((size,), (x,), b"")
    assert numbers.view(-1, 4).tolist() == numbers_of(x)
    flags = update_proofs.kept((size,), (numbers,), b"").numpy().tobytes()
    ranks = [sum(four) for four in numbers.view(-1, 4).tolist()]
    most = [-(-7 * min(CHUNK, size - start) // 128) for start in range(0, size, CHUNK)]
    expected = sum((rank < most[i // CHUNK]) << i for i, rank in enumerate(ranks))
    assert flags == expected.to_bytes(-(-size // 8), "little")
    assert flags == pack(sparse.kept(x.numpy()).view(np.uint8), 1)


def test_numbers_of_a_liar_add_up_beyond_sixteen_bits() -> None:
    numbers = torch.tensor([0xFFFF, 1, 0, 0, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF], dtype=torch.int32)
    numbers = torch.cat([numbers, torch.zeros(8, dtype=torch.int32)]).to(torch.uint16)
    assert update_proofs.kept((4,), (numbers,), b"").tolist() == [0b1100]


def kept_by(flags: list[int], size: int) -> list[tuple[int, int]]:
    """Position and number of each value kept: of a chunk the first k whose flags are set."""
    found = []
    for start in range(0, size, CHUNK):
        length = min(CHUNK, size - start)
        positions = [start + i for i in range(length) if flags[start + i]]
        first = start // CHUNK * 224
        found += [(p, first + j) for j, p in enumerate(positions[: -(-7 * length // 128)])]
    return found


def unary(kept: list[tuple[int, int]], size: int) -> list[int]:
    """Of each chunk, for every 16 positions a 1 for each that is kept and a 0; zeros to its end."""
    bits = []
    for start in range(0, size, CHUNK):
        length = min(CHUNK, size - start)
        chunk = []
        for group in range(start, start + length, 16):
            chunk += [1] * sum(group <= position < group + 16 for position, _ in kept) + [0]
        most = -(-7 * length // 128) + -(-length // 16)
        bits += chunk + [0] * (most - len(chunk))
    return bits


@pytest.mark.parametrize("share", [0.0, 0.03, 7 / 128, 0.08, 1.0])
@pytest.mark.parametrize("size", [1, 17, 1023, 4095, 4096, 4097, 4111, 8200])
def test_of_any_flags_the_first_of_a_chunk_count(size: int, share: float) -> None:
    """Whoever lies may set more or fewer than are kept, and those behind the last value."""
    rng = np.random.default_rng([size, int(1000 * share)])
    flags = (rng.random(-(-size // 8) * 8) < share).astype(np.uint8)
    kept, total = kept_by(flags.tolist(), size), sparse.kept_of(size)
    packed = torch.from_numpy(np.frombuffer(pack(flags, 1), np.uint8).copy())
    x, said = torch.arange(1.0, size + 1), torch.arange(total).to(torch.int8)
    chosen, lower, spread = [0.0] * total, [0] * total, [0] * size
    for position, number in kept:
        chosen[number], lower[number] = position + 1.0, position % 16
        spread[position] = (number + 128) % 256 - 128
    assert update_proofs.chosen((size,), (packed, x), b"").tolist() == chosen
    assert update_proofs.spread((size,), (packed, said), b"").tolist() == spread
    lower_bits = update_proofs.lower_bits((size,), (packed,), b"").numpy().tobytes()
    assert lower_bits == pack(np.array(lower, np.uint8), 4)
    counts = update_proofs.counts((size,), (packed,), b"").numpy().tobytes()
    assert counts == pack(np.array(unary(kept, size), np.uint8), 1)
