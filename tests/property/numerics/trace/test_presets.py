"""Every preset's model has a program, whose nodes read what comes before them: nothing is run."""

from __future__ import annotations

import time

import pytest
from tests.support.jobs import manifest_of_preset

from atoll.numerics.trace.build.whole import program_of
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.program_tree import Program
from atoll.protocol.program import Part, Source
from atoll.protocol.types import Digest

INITIAL = Digest(b"\x07" * 32)
CPU_SECONDS = 60
"""A generous bound of what takes four."""


@pytest.mark.parametrize(
    ("name", "nodes", "templates"),
    [
        ("demo", (1_889, 661), 2_550),
        ("nano", (12_949, 1_394), 5_834),
        ("gpt2-small", (282_620, 2_108), 22_053),
        ("llama-1b", (2_440_232, 2_828), 82_308),
    ],
)
def test_presets_have_programs(name: str, nodes: tuple[int, int], templates: int) -> None:
    started = time.process_time()
    program = program_of(manifest_of_preset(name), INITIAL)
    assert len(program.root) == 32
    seconds = time.process_time() - started
    assert tuple(program.nodes(part) for part in Part) == nodes
    assert len(program.templates) == templates
    assert seconds < CPU_SECONDS
    assert max(len(template.to_bytes()) for template in program.templates) < 1024
    check_reads(program)


def check_reads(program: Program) -> None:
    """Every node has one template, and reads whole tensors that come before it."""
    ends = {Part.STEP: Op.RESULT, Part.UPDATE_PROOF: Op.UPDATE}
    for part, op in ends.items():
        index, _ = program.at(part, program.nodes(part) - 1)
        assert program.templates[index].op == op
    for template in program.templates:
        for iteration in {0, template.count - 1}:
            node = template.first + iteration * template.stride
            for read in template.inputs:
                if read.source is Source.TRACE:
                    number = read.node + iteration * read.stride
                    assert number < node
                    index, _ = program.at(template.part, number)
                    assert program.templates[index].size == read.size
