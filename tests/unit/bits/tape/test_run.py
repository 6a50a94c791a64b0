"""A program's run of a step is the step: state, norm and losses, to the bit."""

from __future__ import annotations

import pytest
from tests.unit.bits.tape.jobs import DATA_SEED, JOBS, SEAT, small

from atoll.bits.step import inner_step, state_roots
from atoll.bits.tape.run import Outcome, run
from atoll.law.draws import dropout_key
from atoll.law.program import Part
from atoll.law.trace import float_bytes


@pytest.mark.parametrize("name", JOBS)
def test_a_program_gives_what_steps_give(name: str) -> None:
    job = small(name)
    state = job.opening
    for step in range(2):
        for _, tensor in run(job.program, Part.STEP, job.sources(state, step)):
            last = tensor
        found = Outcome.of(last.numpy().tobytes())
        batch = job.course.batch(job.course.offsets(step))
        done = inner_step(state, batch, step, job.course.recipe, dropout_key(DATA_SEED, SEAT))
        losses = b"".join(float_bytes(">f", loss) for loss in done.work.losses)
        assert b"".join(float_bytes(">f", loss) for loss in found.losses) == losses
        assert found.norm == done.work.norm
        assert found.digest == state_roots(done.state).digest()
        state = done.state
