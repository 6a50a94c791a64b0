"""Which operations a step has, how its nodes are numbered, how large they are: nothing is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.numerics.trace.jobs import CODECS, JOBS, Changes, manifest_of, small, tokens_of
from tests.vectors.generate_judge_states import program_roots

from atoll.errors import ManifestError
from atoll.numerics.trace.build.graph import Graph, Region
from atoll.numerics.trace.build.whole import MAX_BATCH, can_be_judged, program_of
from atoll.numerics.trace.opcodes import Op
from atoll.numerics.trace.program_tree import Program
from atoll.protocol.hashing import keccak256
from atoll.protocol.merkle import verify_proof
from atoll.protocol.program import Part, TraceTemplate, program_root
from atoll.protocol.types import Digest

VECTORS = Path(__file__).parents[3] / "vectors"
INITIAL = Digest(b"\x07" * 32)


def test_programs_are_those_of_the_vectors() -> None:
    assert json.loads((VECTORS / "judge_programs.json").read_text()) == program_roots()


@pytest.mark.parametrize("name", ["plain", "lora", "muon"])
def test_every_template_has_a_path_to_the_root(name: str) -> None:
    program = small(name).program
    count = 1 + len(program.templates) + 1  # header and merge's shape
    root, tree = program.root, program.tree
    assert root == program_root(program.header, program.templates, program.merge)
    for at in range(0, len(program.templates), 41):
        data = program.templates[at].to_bytes()
        assert TraceTemplate.from_bytes(data) == program.templates[at]
        assert verify_proof(keccak256(data), at + 1, count, tree.path(at + 1), root)
    with pytest.raises(IndexError):
        tree.path(count)


def test_every_operation_is_of_some_program() -> None:
    jobs = [*JOBS.values(), *CODECS.values()]
    used = {template.op for job in jobs for template in program_with(job).templates}
    assert {op for op in Op if op not in used} == set()


def program_with(changes: Changes) -> Program:
    """The program of a job with these changes, whatever model it begins with."""
    return program_of(manifest_of(changes, tokens_of(changes, 1200)), INITIAL)


def test_other_manifests_have_other_programs() -> None:
    roots = {program_with(changes).root for changes in JOBS.values()}
    assert len(roots) == len(JOBS)


def test_nodes_of_loops_are_numbered_by_micro_batch() -> None:
    g = Graph(3)
    weight = g.add(Op.RATE, [], 1)
    with g.within(Region.BODY):
        unread = g.add(Op.NORM, [weight], 1)
        gradient = g.add(Op.NORM, [weight], 1)
        (total,) = g.summed(gradient)
    with g.within(Region.END):
        result = g.add(Op.NORM, [total], 1)
    nodes, templates = g.templates(Part.STEP, result)
    assert unread.node == 1  # and it has no number
    places = [(t.op, t.first, t.count, t.stride) for t in templates]
    assert places == [
        (Op.RATE, 0, 1, 0), (Op.NORM, 1, 3, 2), (Op.COPY, 2, 1, 0), (Op.ADD, 4, 2, 2),
        (Op.NORM, 7, 1, 0),
    ]  # fmt: skip
    assert nodes == 8
    reads = [[(i.node, i.stride) for i in t.inputs] for t in templates]
    assert reads == [[], [(0, 0)], [(1, 0)], [(2, 2), (3, 2)], [(6, 0)]]


def test_sums_begin_anew_in_every_lane() -> None:
    g = Graph(6, lane=3)
    with g.within(Region.BODY):
        sums = g.summed(g.add(Op.RATE, [], 1))
    with g.within(Region.END):
        result = g.chained(sums)
    nodes, templates = g.templates(Part.STEP, result)
    places = [(t.op, t.first, t.count, t.stride) for t in templates]
    assert places == [
        (Op.RATE, 0, 6, 2), (Op.COPY, 1, 2, 6), (Op.ADD, 3, 2, 2), (Op.ADD, 9, 2, 2),
        (Op.ADD, 12, 1, 0),
    ]  # fmt: skip
    assert nodes == 13
    reads = [[(i.node, i.stride) for i in t.inputs] for t in templates]
    assert reads == [[], [(0, 6)], [(1, 2), (2, 2)], [(7, 2), (8, 2)], [(5, 0), (11, 0)]]


def test_one_micro_batch_has_no_sums() -> None:
    ops = {template.op for template in small("one micro-batch").program.templates}
    assert Op.COPY not in ops
    assert Op.COPY in {template.op for template in small("plain").program.templates}


@pytest.mark.parametrize(
    "changes",
    [
        {"inner": {"batch": MAX_BATCH + 1}},
        {"inner": {"segment": 1 << 15}},
    ],
    ids=lambda changes: next(iter(next(iter(changes.values())))),
)
def test_a_job_whose_operations_cannot_be_judged_has_no_program(
    changes: dict[str, dict[str, Any]],
) -> None:
    manifest = small("plain").manifest
    assert can_be_judged(manifest)
    ((part, fields),) = changes.items()
    changed = getattr(manifest, part).model_copy(update=fields)
    manifest = manifest.model_copy(update={part: changed})
    assert not can_be_judged(manifest)
    with pytest.raises(ManifestError, match="cannot be judged"):
        program_of(manifest, INITIAL)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"seq": 1 << 17}},
        {"model": {"seq": 1 << 10, "layers": 8}, "codec": {"fragments": 64}},
    ],
    ids=["seq", "fragments"],
)
def test_a_program_too_large_to_make_is_refused_before_it_is_made(
    changes: dict[str, dict[str, Any]],
) -> None:
    """Whoever looks at a stranger's job makes its program."""
    manifest = small("plain").manifest
    parts = {part: getattr(manifest, part).model_copy(update=to) for part, to in changes.items()}
    manifest = manifest.model_copy(update=parts)
    assert can_be_judged(manifest)
    with pytest.raises(ManifestError, match="different operations"):
        program_of(manifest, INITIAL)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"fragments": 2}, 2),
        ({"mixing": "0.5"}, 1),
        ({"overlap": 1}, 1),
        ({"feedback": "0.9"}, 1),
    ],
)
def test_where_seats_keep_parameters_each_fragment_has_its_parts(
    changes: dict[str, Any], fragments: int
) -> None:
    plain = small("plain")
    codec = plain.manifest.codec.model_copy(update=changes)
    manifest = plain.manifest.model_copy(update={"codec": codec})
    program = program_of(manifest, INITIAL)
    header = program.header
    assert (len(header.fragments), header.overlap) == (fragments, codec.overlap)
    assert {t.part for t in program.templates} == set(range(1 + 2 * fragments))
    for part in range(1 + 2 * fragments):
        counted = sum(t.count for t in program.templates if t.part == part)
        assert counted == header.nodes(part) > 0
    assert all(taking > header.step_nodes for _, taking in header.fragments)
    assert plain.program.header.fragments == ()


def test_a_node_that_is_not_there_has_no_template() -> None:
    program = small("plain").program
    for node in (-1, program.nodes(Part.STEP)):
        with pytest.raises(IndexError):
            program.at(Part.STEP, node)
    doubled = Program(program.header, (*program.templates, program.templates[0]))
    with pytest.raises(ValueError, match="has another"):
        doubled.at(Part.STEP, 0)
    with pytest.raises(ValueError, match="no template"):
        Program(program.header, program.templates[1:]).at(Part.STEP, 0)
