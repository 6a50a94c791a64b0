"""The contracts work out of a program's nodes what Python's run of the program has in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.judge.elements import raw
from tests.judge.replay import Court, court
from tests.judge.state_nodes import Given
from tests.unit.numerics.trace.jobs import JOBS as SMALL_JOBS
from tests.unit.numerics.trace.jobs import SOURCES, Small, small
from torch import Tensor

from atoll.numerics.step import inner_step
from atoll.numerics.trace.imports import TraceSources
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.run import run
from atoll.protocol.optimisers import INNER_OPTIMISERS
from atoll.protocol.program import Part, Source, TraceTemplate

NODES_EACH = 3
"""Of an operation: the first, the last, and one between them."""
MOST_BYTES = 600_000
"""Of a node's inputs: a chain takes no larger calls."""


@pytest.fixture(scope="module")
def judges() -> Iterator[Court]:
    with court() as made:
        yield made


def shown(template: TraceTemplate, output: Tensor, sources: TraceSources) -> dict[Source, Tensor]:
    """The bytes of the sources that an import reads; what lies in a tree it only copies."""
    whole = output - 1 if template.op == Op.COUNT else output
    tokens = np.ascontiguousarray(sources.tokens[0 : len(sources.tokens)])
    data = {
        Source.CONTEXT: sources.context.to_bytes(),
        Source.TABLES: sources.tables,
        Source.TOKENS: tokens.tobytes(),
        Source.EXPONENTS: sources.exponents,
    }
    read = {kind: np.frombuffer(each, np.uint8).copy() for kind, each in data.items()}
    return {kind: torch.from_numpy(each) for kind, each in read.items()} | {
        Source.STATE: whole,
        Source.BASE: whole,
        Source.MODEL: whole,
    }


def node_of(
    job: Small, number: int, values: dict[int, Tensor], sources: TraceSources
) -> tuple[Given, TraceTemplate]:
    """A node as `Court` takes it."""
    index, iteration = job.program.at(Part.STEP, number)
    template = job.program.templates[index]
    beside = shown(template, values[number], sources)
    inputs = tuple(
        values[read.node + iteration * read.stride]
        if read.source is Source.TRACE
        else beside[read.source]
        for read in template.inputs
    )
    for read, tensor in zip(template.inputs, inputs, strict=True):
        assert tensor.nbytes == read.size
    return Given(template.op, template.words, inputs, iteration, template.tail), template


def chosen(job: Small) -> dict[int, list[int]]:
    """Some nodes of each operation, of several iterations."""
    by_op: dict[int, list[int]] = {}
    for number in range(job.program.nodes(Part.STEP)):
        index, _ = job.program.at(Part.STEP, number)
        by_op.setdefault(job.program.templates[index].op, []).append(number)
    return {
        op: sorted({nodes[i * (len(nodes) - 1) // (NODES_EACH - 1)] for i in range(NODES_EACH)})
        for op, nodes in by_op.items()
    }


OPTIMISERS = sorted({*INNER_OPTIMISERS} & {*SMALL_JOBS})
JOBS = ["dropout", "lora", "long", "relu2", "wide", *SOURCES, *OPTIMISERS]
# With weights so large, loss and norm are no numbers, and most tensors have none.
FED_BACK = ("fed back", "largest fed back", "cosines fed back")
OVERFLOWING = [(name, 1e20) for name in ("plain", "muon", *FED_BACK)]


@pytest.mark.parametrize(("name", "factor"), [*((name, 1.0) for name in JOBS), *OVERFLOWING])
def test_elements_of_nodes_are_the_runs(judges: Court, name: str, factor: float) -> None:
    job = small(name)
    state = inner_step(job.initial_state, job.course.input(0), job.course.recipe).state
    params = {each: p * factor for each, p in state.params.items()}
    sources = job.sources(replace(state, params=params), 1)
    values = dict(run(job.program, Part.STEP, sources))
    nodes, tried = chosen(job), set[int]()
    for op, numbers in nodes.items():
        for number in numbers:
            node, template = node_of(job, number, values, sources)
            if sum(x.nbytes for x in node.inputs) > MOST_BYTES:
                continue
            tried.add(op)
            last = template.size // template.width - 1
            elements = sorted({0, last // 3, last // 2, last - 1 if last else 0, last})
            found = judges.elements(node, template.width, elements)
            data, width = raw(values[number]), template.width
            expected = b"".join(data[e * width : (e + 1) * width] for e in elements)
            assert found == expected, f"{Op(op).name}, node {number}"
    assert len(tried) > len(nodes) - 4
