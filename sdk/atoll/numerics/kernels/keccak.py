"""keccak-256 of many messages of one length at once: trees over pieces, and the dither of updates.

`keccak.c` hashes eight side by side. It is used where it builds and gives what the NumPy version
gives; that one is the reference, and runs where there is no compiler. Source: FIPS 202's
permutation, with the padding that Ethereum kept (0x01 instead of 0x06).
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from atoll.numerics.kernels.build import Unusable, accepted, load_library

DIGEST_BYTES: Final = 32
_RATE: Final = 136
_SOURCE: Final = Path(__file__).with_name("keccak.c")
Bytes: TypeAlias = npt.NDArray[np.uint8]
_Words: TypeAlias = npt.NDArray[np.uint64]


def keccak_rows(rows_NL: Bytes) -> Bytes:
    """keccak-256 of each row of bytes: [N, 32]."""
    library = _library()
    return keccak_rows_numpy(rows_NL) if library is None else _compiled(library, rows_NL)


def keccak_each(messages: Sequence[bytes]) -> Bytes:
    """keccak-256 of each message, those of one length at once: [N, 32]."""
    positions = defaultdict[int, list[int]](list)
    for position, message in enumerate(messages):
        positions[len(message)].append(position)
    out = np.empty((len(messages), DIGEST_BYTES), dtype=np.uint8)
    for length, alike in positions.items():
        joined = b"".join([messages[position] for position in alike])
        out[alike] = keccak_rows(np.frombuffer(joined, np.uint8).reshape(len(alike), length))
    return out


def keccak_rows_numpy(rows_NL: Bytes) -> Bytes:
    """The same in plain NumPy: 25 words of every message's state, in vectors over messages."""
    count, length = rows_NL.shape
    padded = np.zeros((count, (length // _RATE + 1) * _RATE), dtype=np.uint8)
    padded[:, :length] = rows_NL
    padded[:, length] = 0x01
    padded[:, -1] |= 0x80
    words = padded.view("<u8").T  # a column is a message
    state = np.zeros((25, count), dtype=np.uint64)
    for start in range(0, len(words), _RATE // 8):
        state[: _RATE // 8] ^= words[start : start + _RATE // 8]
        state = _permuted(state)
    return np.ascontiguousarray(state[: DIGEST_BYTES // 8].T).astype("<u8").view(np.uint8)


def _permuted(state: _Words) -> _Words:
    """keccak-f[1600]; word x + 5·y of a state is FIPS 202's lane (x, y)."""
    for constant in _round_constants():
        parity = np.bitwise_xor.reduce(state.reshape(5, 5, -1), axis=0)
        mixed = np.roll(parity, 1, axis=0) ^ _turned(np.roll(parity, -1, axis=0), 1)
        moved = np.empty_like(state)
        for (x, y), turn in _turns():
            moved[y + 5 * ((2 * x + 3 * y) % 5)] = _turned(state[x + 5 * y] ^ mixed[x], turn)
        rows = moved.reshape(5, 5, -1)
        rows = rows ^ (~np.roll(rows, -1, axis=1) & np.roll(rows, -2, axis=1))
        state = rows.reshape(25, -1)
        state[0] ^= np.uint64(constant)
    return state


def _turned(words: _Words, bits: int) -> _Words:
    if not bits:
        return words
    turned: _Words = words << np.uint64(bits) | words >> np.uint64(64 - bits)
    return turned


@cache
def _turns() -> tuple[tuple[tuple[int, int], int], ...]:
    """By how many bits rho turns the lane at each position (FIPS 202, section 3.2.2)."""
    turns, x, y = [((0, 0), 0)], 1, 0
    for t in range(24):
        turns.append(((x, y), (t + 1) * (t + 2) // 2 % 64))
        x, y = y, (2 * x + 3 * y) % 5
    return tuple(turns)


@cache
def _round_constants() -> tuple[int, ...]:
    """Iota's constants, from their shift register (FIPS 202, section 3.2.5)."""
    constants, register = [], 1
    for _ in range(24):
        value = 0
        for j in range(7):
            value |= (register & 1) << ((1 << j) - 1)
            register = (register << 1) ^ (0x171 * (register >> 7))
        constants.append(value)
    return tuple(constants)


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled version, or None where it cannot be had or does not agree."""
    found = accepted("keccak", lambda: load_library(_SOURCE), _parted)
    return None if isinstance(found, Unusable) else found


def _parted(library: ctypes.CDLL) -> list[str]:
    """The lengths of messages whose hashes are not NumPy's."""
    samples = [
        (np.arange(rows * length, dtype=np.uint64) * 2654435761 >> 7).astype(np.uint8)
        for rows, length in _SAMPLES
    ]
    shaped = [sample.reshape(shape) for sample, shape in zip(samples, _SAMPLES, strict=True)]
    return [
        f"messages of {rows.shape[1]} bytes"
        for rows in shaped
        if not np.array_equal(_compiled(library, rows), keccak_rows_numpy(rows))
    ]


_SAMPLES: Final = ((1, 0), (9, 36), (7, 135), (8, 136), (3, 1024))
"""Around a block of messages and around a block of bytes."""


def _compiled(library: ctypes.CDLL, rows_NL: Bytes) -> Bytes:
    rows = np.ascontiguousarray(rows_NL, dtype=np.uint8)
    out = np.empty((len(rows), DIGEST_BYTES), dtype=np.uint8)
    sizes = (ctypes.c_int64(size) for size in rows.shape)
    pointers = (ctypes.c_void_p(array.ctypes.data) for array in (rows, out))
    data, digests = pointers
    library.keccak_rows(data, *sizes, digests)
    return out
