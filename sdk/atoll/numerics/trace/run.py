"""Executes a program: every node's tensor in canonical order, and what is committed to of them.

Rule of this file: nothing is kept that no later node reads, unless the caller keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from atoll.numerics.kernels.keccak import DIGEST_BYTES
from atoll.numerics.pieces import MerkleTree, piece_root, tree_of
from atoll.numerics.tensors import raw_bytes
from atoll.numerics.trace import (
    attention_operations,
    elementwise,
    floats,
    integers,
    rollout_operations,
    states,
    update_proofs,
)
from atoll.numerics.trace.imports import READS as IMPORTS
from atoll.numerics.trace.imports import Read, Reading, TraceSources
from atoll.numerics.trace.program_tree import Program, numbers_of, reads_of
from atoll.protocol.program import Source, TraceTemplate
from atoll.protocol.types import Digest

Values: TypeAlias = Mapping[int, Tensor]
"""Nodes' flat tensors by their numbers."""
READS: Final[dict[int, Read]] = {**IMPORTS, **rollout_operations.READS}
_OPERATIONS: Final[dict[int, integers.Operation]] = {
    int(op): operation
    for family in (elementwise, integers, attention_operations, floats, rollout_operations)
    for op, operation in family.OPERATIONS.items()
}
_WITH_TAILS: Final[dict[int, states.Operation]] = {
    int(op): operation
    for family in (states, update_proofs)
    for op, operation in family.OPERATIONS.items()
} | rollout_operations.WITH_TAILS


def evaluate(
    template: TraceTemplate, iteration: int, values: Values, sources: TraceSources
) -> Tensor:
    """One node's tensor from those that it reads.

    Raises:
        KeyError: one of them is not among the values.
    """
    inputs = []
    for read in template.inputs:
        if read.source is Source.TRACE:
            inputs.append(values[read.node + iteration * read.stride])
        elif read.source is Source.CONTEXT:
            context = np.frombuffer(sources.context.to_bytes(), np.uint8).copy()
            inputs.append(torch.from_numpy(context))
    if template.op in READS:
        reading = Reading(template.words, template.tail, iteration, inputs, sources)
        return READS[template.op](reading)
    if template.op in _WITH_TAILS:
        return _WITH_TAILS[template.op](template.words, inputs, template.tail)
    return _OPERATIONS[template.op](template.words, inputs, iteration)


def run(program: Program, part: int, sources: TraceSources) -> Iterator[tuple[int, Tensor]]:
    """Every node of a part with its flat tensor, in canonical order."""
    last = _last_readers(program, part)
    values: dict[int, Tensor] = {}
    for node, (template, iteration) in enumerate(program.walk(part)):
        values[node] = evaluate(template, iteration, values, sources)
        yield node, values[node]
        for read in {*_reads(template, iteration), node}:
            if last[read] <= node:
                del values[read]


def _reads(template: TraceTemplate, iteration: int) -> list[int]:
    """The nodes of the trace that it reads in that iteration."""
    return [
        read.node + iteration * read.stride
        for read in template.inputs
        if read.source is Source.TRACE
    ]


def _last_readers(program: Program, part: int) -> npt.NDArray[np.int64]:
    """The last node that reads each node; itself where none does."""
    last = np.arange(program.nodes(part))
    for template in program.templates:
        if template.part == part and template.count == 1:
            for node in _reads(template, 0):
                last[node] = max(last[node], template.first)
        elif template.part == part:
            numbers = numbers_of(template)
            for read in reads_of(template):
                np.maximum.at(last, read, numbers)
    return last


def node_digest(tensor: Tensor) -> Digest:
    """The piece root of a node's bytes."""
    return piece_root(raw_bytes(tensor))


def trace_of(program: Program, part: int, sources: TraceSources) -> tuple[MerkleTree, bytes]:
    """The tree over all nodes' digests, whose root is the trace's, and the last node's bytes."""
    digests = bytearray()
    for _, tensor in run(program, part, sources):
        digests += node_digest(tensor)
    leaves = np.frombuffer(bytes(digests), np.uint8).reshape(-1, DIGEST_BYTES)
    return tree_of(leaves), bytes(raw_bytes(tensor))


def tensors(program: Program, part: int, sources: TraceSources, wanted: frozenset[int]) -> Values:
    """Some nodes' tensors, by running what they depend on and no more."""
    needed, waiting = set[int](), list(wanted)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            index, iteration = program.at(part, node)
            waiting += _reads(program.templates[index], iteration)
    values: dict[int, Tensor] = {}
    for node in sorted(needed):
        index, iteration = program.at(part, node)
        values[node] = evaluate(program.templates[index], iteration, values, sources)
    return {node: values[node] for node in wanted}
