"""Whole tapes of small jobs, node by node in the EVM: what an honest provider posts holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.judge.elements import Node, raw
from tests.judge.replay import FAMILIES, Court, court
from tests.unit.bits.tape.jobs import small
from torch import Tensor

from atoll.bits.tape.run import run
from atoll.law.program import Part, Source, Template

JOBS = ["plain", "dropout", "masked", "relu2", "sgd", "sgd with momentum", "muon", "lora"]


@pytest.fixture(scope="module")
def judges() -> Iterator[Court]:
    with court() as made:
        yield made


def nodes(name: str) -> Iterator[tuple[Template, Node, Tensor]]:
    """The nodes of a job's first step that these contracts judge, and their tensors."""
    job = small(name)
    values: dict[int, Tensor] = {}
    for number, tensor in run(job.program, Part.STEP, job.sources(job.opening, 0)):
        values[number] = tensor
        index, iteration = job.program.at(Part.STEP, number)
        template = job.program.templates[index]
        if template.op >> 8 in FAMILIES:
            assert all(read.source is Source.TAPE for read in template.inputs)
            inputs = tuple(values[i.node + iteration * i.stride] for i in template.inputs)
            node = Node(template.op, template.words, inputs, iteration, template.tail)
            assert node.attributes == template.attributes(iteration)
            yield template, node, tensor


@pytest.mark.parametrize("name", JOBS)
def test_every_node_holds_at_its_ends_and_within(judges: Court, name: str) -> None:
    rng = np.random.default_rng(0)
    operations = set()
    for template, node, tensor in nodes(name):
        last, width = tensor.numel() - 1, template.width
        elements = sorted({0, last // 2, last, int(rng.integers(0, last + 1))})
        data = raw(tensor)
        expected = b"".join(data[at * width : (at + 1) * width] for at in elements)
        assert judges.elements(node, width, elements) == expected, (template, elements)
        operations.add(node.op)
    assert len(operations) > 20
