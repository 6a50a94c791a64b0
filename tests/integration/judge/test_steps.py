"""Every element of the judge's operations in the EVM is the one that Python makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from tests.judge import replay
from tests.judge.replay import NODES, OPERATIONS, Court, court, differences
from torch import Tensor

from atoll.bits.tape.opcodes import Op

ELEMENTS = 1000


@pytest.fixture(scope="module")
def judges() -> Iterator[Court]:
    with court() as made:
        yield made


@pytest.mark.parametrize("op", sorted(NODES), ids=lambda op: Op(op).name)
def test_no_element_differs(judges: Court, op: int) -> None:
    finding = differences(judges, op, ELEMENTS, seed=0)
    assert finding.elements >= ELEMENTS
    assert finding.different == 0, finding.first


def test_one_bit_in_one_element_is_found(judges: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(words: Sequence[int], inputs: Sequence[Tensor], iteration: int) -> Tensor:
        result = OPERATIONS[Op.SWIGLU](words, inputs, iteration)
        result.view(torch.int32)[7] ^= 1
        return result

    monkeypatch.setattr(replay, "OPERATIONS", {Op.SWIGLU: wrong})
    finding = differences(judges, Op.SWIGLU, 1, seed=0)
    assert (finding.different, finding.elements) == (1, 64)
    assert "SWIGLU" in finding.first and "element 7" in finding.first


def test_every_operation_has_nodes_and_one_in_python() -> None:
    assert NODES.keys() == OPERATIONS.keys() == set(Op)
