"""Updates as bytes: SPEC-MERGE.md, chapters 1 and 2.

An update is a vector, the tensors that are sent one after another in ascending order of name. A
coordinate in grid steps is its fp32 product with 2^−e.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray
from tests.second_client import sparse
from tests.second_client.arithmetic import Array
from tests.second_client.packing import STEPS, block_steps, packed, unpacked
from tests.second_client.words import hashed, keccak, keccak_each, piece_root, sha256, u16, u32, u64

BLOCK = 32
PIECE = 1 << 16


@dataclass(frozen=True)
class Codec:
    """What SPEC-MERGE.md says of one, chapters 1, 4 and 5.

    Attributes:
        bits: of a code.
        votes: P, A, B, D and C; nobody votes where they are None.
        reach: of codes whose blocks have a step each: in steps, and one value in how many may
            exceed it.
        finer: φ of what the model moves by; None where that is not rounded.
    """

    number: int
    bits: int
    votes: tuple[int, ...] | None
    reach: tuple[int, int] | None = None
    finer: int | None = 0
    is_dithered: bool = False
    is_sparse: bool = False
    is_exact: bool = False


_SPARSE_VOTES = (16, 48, 12, 0, 55)
CODECS = {
    "grid8": Codec(0, 8, (256, 64, 24, 2, 126)),
    "grid4": Codec(1, 4, (16, 6, 2, 1, 6), finer=4),
    "two_bit": Codec(2, 2, (16, 48, 12, 0, 55), reach=(3, 16), is_dithered=True),
    "sign": Codec(3, 1, (16, 16, 4, 0, 27), reach=(2, 5)),
    "sparse": Codec(4, 2, _SPARSE_VOTES, finer=None, is_sparse=True),
    "dct": Codec(5, 2, _SPARSE_VOTES, finer=None, is_sparse=True),
    "fp32": Codec(6, 32, None, finer=None, is_exact=True),
}

Integers = NDArray[np.int64]
Seat = tuple[bytes, int]
"""The data seed and the seat, under which two_bit's dither is drawn."""


def update_root(update: bytes) -> bytes:
    """What a provider reveals of its update."""
    return hashed("atoll.update.v1", len(update), piece_root(update))


def layout_digest(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """What says which tensors a vector is of."""
    return _layout_digest(tuple(sorted(shapes.items())))


@cache
def _layout_digest(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> bytes:
    layout = b"atoll.layout.v1"
    for name, sides in shapes:
        layout += u16(len(name)) + name.encode() + bytes([len(sides)]) + b"".join(map(u64, sides))
    return sha256(layout)


def header(kind: str, shapes: Mapping[str, tuple[int, ...]], exponents: Mapping[str, int]) -> bytes:
    """Everything of a section that follows from the round."""
    names = sorted(shapes)
    start = b"ATUP" + bytes([1, CODECS[kind].number]) + u16(len(names)) + layout_digest(shapes)
    return start + b"".join(exponents[n].to_bytes(2, "big", signed=True) for n in names)


def encode(
    kind: str,
    delta: Mapping[str, Array],
    exponents: Mapping[str, int],
    seat: Seat,
    section: int = 0,
) -> bytes:
    """The bytes of a section of an update. Raises ValueError where a value is not finite."""
    shapes = {name: values.shape for name, values in delta.items()}
    names = sorted(delta)
    values = np.concatenate([delta[name].reshape(-1) for name in names])
    if not np.isfinite(values).all():
        raise ValueError("a value that is not finite has no update")
    start = header(kind, shapes, exponents)
    if kind == "fp32":
        return start + (values + np.float32(0.0)).astype("<f4").tobytes()
    scale = np.repeat(
        np.array([2.0 ** -exponents[name] for name in names], np.float32),
        [delta[name].size for name in names],
    )
    with np.errstate(over="ignore"):
        x = values * scale
    if kind == "grid8":
        return start + np.clip(np.rint(x), -127, 127).astype(np.int8).tobytes()
    if kind == "grid4":
        return start + packed(np.clip(np.rint(x), -7, 7).astype(np.int64) + 7, 4)
    if CODECS[kind].is_sparse:
        return start + sparse.write(x if kind == "sparse" else sparse.coefficients(x))
    return start + _block_steps(kind, x, seat, section)


def decode(
    kind: str,
    data: bytes,
    shapes: Mapping[str, tuple[int, ...]],
    exponents: Mapping[str, int],
    seat: Seat,
) -> dict[str, Array]:
    """What the bytes of an update say, as tensors."""
    start = header(kind, shapes, exponents)
    if data[: len(start)] != start:
        raise ValueError("an update of another round or model")
    body, count = data[len(start) :], sum(prod(shape) for shape in shapes.values())
    values, finer = _values(kind, body, count, seat)
    tensors, at = {}, 0
    for name in sorted(shapes):
        size = prod(shapes[name])
        step = np.float32(1.0 if kind == "fp32" else 2.0 ** (exponents[name] - finer))
        tensors[name] = (values[at : at + size] * step).reshape(shapes[name])
        at += size
    return tensors


def _values(kind: str, body: bytes, count: int, seat: Seat) -> tuple[Array, int]:
    """The numbers that a body says, and by how many bits their unit is finer than a grid step."""
    if kind == "fp32":
        return np.frombuffer(body, "<f4"), 0
    integers = merged_integers(kind, body, count, seat)
    if kind == "dct":
        return sparse.fine_coordinates(integers, count), 8
    return integers.astype(np.float32), 0


def merged_integers(kind: str, body: bytes, count: int, seat: Seat, section: int = 0) -> Integers:
    """The integers that an update's body adds to a merge, of so many coordinates.

    Those of `dct` are coefficients, of whole blocks.
    """
    if CODECS[kind].is_sparse:
        return sparse.read(body, sparse.positions(kind, count))
    if kind == "fp32":
        units = np.rint(np.frombuffer(body, "<f4").astype(np.float64) * 2.0**40)
        return np.clip(units, -(1 << 47), 1 << 47).astype(np.int64)
    if kind == "grid8":
        return np.frombuffer(body, np.int8).astype(np.int64)
    if kind == "grid4":
        return unpacked(body, count, 4) - 7
    blocks = -(-count // BLOCK)
    cut = -(-blocks // 2)
    steps = np.array(STEPS)[unpacked(body[:cut], blocks, 4)].repeat(BLOCK)[:count]
    bits = CODECS[kind].bits
    values: Integers = (2 * unpacked(body[cut:], count, bits) - (1 << bits) + 1) * steps
    return values - dither(steps, seat, section) if CODECS[kind].is_dithered else values


def _block_steps(kind: str, x: Array, seat: Seat, section: int) -> bytes:
    """A step for every block of 32, then a code of one or two bits for every coordinate."""
    codec = CODECS[kind]
    assert codec.reach is not None
    indices, levels = block_steps(x, BLOCK, *codec.reach), codec.bits
    steps = np.array(STEPS)[indices].repeat(BLOCK)[: len(x)]
    if codec.is_dithered:
        x = x + dither(steps, seat, section).astype(np.float32)
    y = np.clip(x / steps.astype(np.float32), -2 * levels, 2 * levels - 1)
    codes = (np.floor(y / 2) + levels).astype(np.int64)
    return packed(indices, 4) + packed(codes, levels)


def dither(steps: Integers, seat: Seat, section: int) -> Integers:
    """An integer between −s and s for every coordinate whose step is s, drawn by keccak."""
    sizes = [min(PIECE, len(steps) - at) for at in range(0, len(steps), PIECE)]
    drawn = b"".join(noise(seat, section, piece, size) for piece, size in enumerate(sizes))
    bytes_ = np.frombuffer(drawn, np.uint8).astype(np.int64)
    return (((2 * bytes_ + 1) * steps + 128) >> 8) - steps


def noise(seat: Seat, section: int, piece: int, size: int) -> bytes:
    """The first bytes that a piece's dither follows from."""
    return _noise_blocks(seat, section, piece, -(-size // 32))[:size]


@lru_cache(maxsize=4096)
def _noise_blocks(seat: Seat, section: int, piece: int, blocks: int) -> bytes:
    key = dither_key(seat, section, piece)
    return b"".join(keccak_each([key + u32(block) for block in range(blocks)]))


@lru_cache(maxsize=4096)
def dither_key(seat: Seat, section: int, piece: int) -> bytes:
    """Everybody can work it out: nobody chose it, and every seat, round and piece has another."""
    data_seed, index = seat
    return keccak(data_seed + u16(index) + bytes([section]) + u32(piece))
