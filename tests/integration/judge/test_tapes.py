"""Whole tapes of small jobs, node by node in the EVM: what an honest provider posts holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.judge.elements import Node, raw
from tests.judge.replay import Court, court
from tests.unit.bits.tape.jobs import small
from torch import Tensor

from atoll.bits.tape.run import run
from atoll.law.program import Part, Source, Template

JOBS = ["plain", "dropout", "masked", "relu2", "sgd", "sgd with momentum", "muon", "lora"]


@pytest.fixture(scope="module")
def judges() -> Iterator[Court]:
    with court() as made:
        yield made


def nodes(name: str, factor: float) -> Iterator[tuple[Template, Node, Tensor]]:
    """The nodes of a job's first step that these contracts judge, and their tensors.

    The opening weights are multiplied by the factor.
    """
    job = small(name)
    params = {each: p * factor for each, p in job.opening.params.items()}
    opening = replace(job.opening, params=params)
    values: dict[int, Tensor] = {}
    for number, tensor in run(job.program, Part.STEP, job.sources(opening, 0)):
        values[number] = tensor
        index, iteration = job.program.at(Part.STEP, number)
        template = job.program.templates[index]
        if all(read.source is Source.TAPE for read in template.inputs):
            inputs = tuple(values[i.node + iteration * i.stride] for i in template.inputs)
            node = Node(template.op, template.words, inputs, iteration, template.tail)
            assert node.attributes == template.attributes(iteration)
            yield template, node, tensor


# With the second factor the losses are no numbers, and so are most tensors.
@pytest.mark.parametrize(
    ("name", "factor"), [*((name, 1.0) for name in JOBS), ("plain", 1e20), ("muon", 1e20)]
)
def test_every_node_holds_at_its_ends_and_within(judges: Court, name: str, factor: float) -> None:
    rng = np.random.default_rng(0)
    operations = set()
    for template, node, tensor in nodes(name, factor):
        last, width = tensor.numel() - 1, template.width
        elements = sorted({0, last // 2, last, int(rng.integers(0, last + 1))})
        data = raw(tensor)
        expected = b"".join(data[at * width : (at + 1) * width] for at in elements)
        assert judges.elements(node, width, elements) == expected, (template, elements)
        operations.add(node.op)
    assert len(operations) > 20
