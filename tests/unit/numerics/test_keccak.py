"""keccak of many messages at once: the bytes of Ethereum's, compiled and in NumPy alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from eth_hash.auto import keccak

from atoll.numerics.kernels import keccak as module
from atoll.numerics.kernels.keccak import Bytes, keccak_each, keccak_rows, keccak_rows_numpy

LENGTHS = (0, 1, 32, 33, 36, 65, 135, 136, 137, 271, 272, 1024)


def rows_of(count: int, length: int) -> Bytes:
    generator = np.random.default_rng(count * 10_000 + length)
    return generator.integers(0, 256, (count, length), dtype=np.uint8)


@pytest.mark.parametrize("function", [keccak_rows, keccak_rows_numpy])
@pytest.mark.parametrize("length", LENGTHS)
def test_every_row_has_ethereums_keccak(function: Callable[[Bytes], Bytes], length: int) -> None:
    for count in (1, 7, 8, 9, 17):
        rows = rows_of(count, length)
        assert [row.tobytes() for row in function(rows)] == [keccak(r.tobytes()) for r in rows]


def test_no_rows_have_no_digests() -> None:
    assert keccak_rows(rows_of(0, 36)).shape == keccak_rows_numpy(rows_of(0, 36)).shape == (0, 32)


def test_messages_of_any_lengths_are_hashed_in_their_order() -> None:
    random = np.random.default_rng(5)
    messages = [random.bytes(int(random.choice(LENGTHS))) for _ in range(60)]
    assert [row.tobytes() for row in keccak_each(messages)] == [keccak(m) for m in messages]
    assert keccak_each([]).shape == (0, 32)


def test_rows_that_are_not_contiguous_are_hashed_as_they_read() -> None:
    rows = rows_of(6, 80)[::2, ::2]
    assert [row.tobytes() for row in keccak_rows(rows)] == [keccak(r.tobytes()) for r in rows]


def test_without_a_compiler_numpy_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = keccak_rows(rows_of(9, 36))
    monkeypatch.setattr(module, "_library", lambda: None)
    assert np.array_equal(keccak_rows(rows_of(9, 36)), compiled)
