"""A program and a model that claims can be about, of jobs that nobody trains."""

from __future__ import annotations

from dataclasses import replace

from tests.support.identities import digest

from atoll.protocol.claims import ModelRoots, ProgramHeader
from atoll.protocol.merkle import merkle_proof
from atoll.protocol.program import Fragment, Part, TraceHeader, TraceTemplate, program_leaves

MODEL = ModelRoots(
    *(digest(name) for name in ("params", "outer", "exponents", "moments", "initial_state"))
)
HEADER = TraceHeader(
    step_nodes=9,
    update_proof_nodes=3,
    steps=40,
    segment=5,
    micro_batches=1,
    data_root=digest("data"),
    train_tokens=1_000_000,
    token_bytes=1,
    masked=False,
    batch=8,
    seq=64,
    tables_root=digest("tables"),
    tables_bytes=1024,
    initial=MODEL.digest(0),
)
TEMPLATE = TraceTemplate(Part.STEP, 1, 4, 4, 0, 9, 1, (), ())
LEAVES = program_leaves(HEADER, [TEMPLATE])
PROGRAM = ProgramHeader(HEADER, len(LEAVES), tuple(merkle_proof(LEAVES, 0)))
FRAGMENTS = (Fragment(5, 20), Fragment(6, 21))


def with_reset_periods(reset_period: int) -> ProgramHeader:
    """The program of a job whose seats carry states of their own."""
    header = replace(HEADER, update_proof_nodes=0, reset_period=reset_period, fragments=FRAGMENTS)
    return replace(PROGRAM, header=header)
