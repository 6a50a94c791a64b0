"""The judge's arithmetic in an EVM: of a sample of elements, no result differs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.judge.berkeley import SECOND
from tests.judge.fuzz import arithmetic, compare
from tests.judge.operations import OPERATIONS

from atoll_devnet.processes.evm import Evm

ELEMENTS = 2001
"""An odd number, whose results end within a word of the answer."""
WITHOUT_SECOND = {"abs32", "abs64", "fromInt32", "fromIntTo64", "philox4x32"}


@pytest.fixture
async def evm(tmp_path: Path) -> AsyncIterator[Evm]:
    async with Evm(tmp_path) as machine:
        yield machine


def test_every_rounding_has_a_second_soft_float() -> None:
    assert {operation.name for operation in OPERATIONS} - set(SECOND) == WITHOUT_SECOND


async def test_no_result_differs_from_the_reference_or_the_second_soft_float(evm: Evm) -> None:
    contract = await evm.place(arithmetic())
    found = [await compare(evm, contract, operation, ELEMENTS, 14) for operation in OPERATIONS]
    assert [c for c in found if c.of_reference or c.of_second] == []
    assert [c.elements for c in found] == [ELEMENTS] * len(OPERATIONS)


async def test_one_wrong_digit_of_a_constant_is_found(evm: Evm) -> None:
    right = arithmetic()
    largest, one_less = (b"\x63" + word.to_bytes(4) for word in (0x7F7FFFFF, 0x7F7FFFFE))
    wrong = right.replace(largest, one_less)
    assert wrong != right
    found = await compare(evm, await evm.place(wrong), OPERATIONS[0], ELEMENTS, 14)
    assert found.of_reference == found.of_second > 0
    assert found.examples
