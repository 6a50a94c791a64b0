"""Every element of the judge's operations in the EVM is the one that Python makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from tests.judge import replay
from tests.judge.elements import raw
from tests.judge.replay import NODES, OPERATIONS, Court, court, differences
from tests.judge.state_nodes import Given
from torch import Tensor

from atoll.numerics.trace.opcodes import Op

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


@pytest.mark.parametrize("count", [4097, 5119, 7168, 8193])
def test_ranks_at_the_borders_of_quarters_and_chunks(judges: Court, count: int) -> None:
    """Of values next to a border every number; where all are equal, all to the left come before."""
    borders = np.arange(0, count + 1024, 1024)
    places = [p for p in sorted({*(borders - 1), *borders, *(borders + 1)}) if 0 <= p < count]
    elements = [4 * int(place) + quarter for place in places for quarter in range(4)]
    tied = torch.randn(count, generator=torch.Generator().manual_seed(count)).round()
    for x in (torch.zeros(count), torch.arange(float(count)), tied):
        node = Given(Op.COUNT_BEFORE, (count,), (x,))
        expected = node.result(OPERATIONS[Op.COUNT_BEFORE])[torch.tensor(elements)]
        assert judges.elements(node, 2, elements) == raw(expected)


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
    assert NODES.keys() == OPERATIONS.keys() == set(Op) - {Op.GENERATED}
