"""Seats that send later what their codec excluded: their reset periods are replayed and played
about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.property.rounds.reset_periods import ResetPeriod, fed_back, trained_reset_period
from tests.property.rounds.test_reset_period_games import claim_of, header_of, judged
from tests.unit.train.factories import make_job
from tests.unit.train.plays import play

from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import SeatState
from atoll.numerics.step import state_roots
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.games.players import NothingDiffers
from atoll.protocol.program import TraceTemplate
from atoll.train.own_run import OwnRun
from atoll.train.replay import replay_seat
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import run_alone


@pytest.fixture(scope="module")
def reset_period(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResetPeriod]:
    folder: Path = tmp_path_factory.mktemp("fed back")
    yield trained_reset_period(fed_back(make_job(folder)))


@pytest.mark.parametrize("round", [1, 2])
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_an_honest_round_has_nothing_to_challenge(
    reset_period: ResetPeriod, round: int, segment: int
) -> None:
    """Segment −1 is the update proof."""
    is_update_proof = segment < 0
    number = reset_period.job.manifest.segments - 1 if is_update_proof else segment
    task = judged(reset_period, round, number, is_update_proof=is_update_proof)
    own = OwnRun(task, reset_period.job.store)
    with pytest.raises(NothingDiffers):
        play(claim_of(reset_period, task, reset_period.trained[round]), lambda: own, lambda: own)


@pytest.mark.parametrize("round", [1, 2])
def test_its_replay_finds_it_as_it_was_said(reset_period: ResetPeriod, round: int) -> None:
    found = replay_seat(
        reset_period.tasks[round], reset_period.claimed(round), reset_period.job.store
    )
    assert found.mismatch_at is None


def forgetful(states: list[SeatState], number: int, course: Course) -> SegmentRun:
    """Says that nothing was excluded, at the end of the last segment of round 0."""
    done = run_alone(states, number, course)
    if course.round > 0 or number + 1 < course.manifest.segments:
        return done
    residual = {name: x * 0 for name, x in done.state.residual.items()}
    state = replace(done.state, residual=residual)
    return replace(done, state=state, roots=state_roots(state))


def test_who_hides_what_was_excluded_is_found_there(reset_period: ResetPeriod) -> None:
    cheated: TrainedRound = train_round(
        reset_period.tasks[0], reset_period.job.store, run=forgetful
    )
    last = reset_period.job.manifest.segments - 1
    assert cheated.states[:-1] == reset_period.trained[0].states[:-1]
    assert cheated.update == reset_period.trained[0].update
    found = replay_seat(
        reset_period.tasks[1],
        reset_period.claimed(1, [cheated, *reset_period.trained[1:]]),
        reset_period.job.store,
    )
    assert (found.earlier, found.mismatch_at) == (0, last)


def test_the_first_step_of_a_later_round_reads_what_was_left(reset_period: ResetPeriod) -> None:
    own = OwnRun(judged(reset_period, 1, 0), reset_period.job.store)
    header = header_of(reset_period.job).header
    part = header.step_part(1, 0)
    assert part == 1 + len(header.fragments)
    names = [own.trace(0).tree.count, header.nodes(part)]
    assert names[0] == names[1]
    last = TraceTemplate.from_bytes(own.template(header.nodes(part) - 1).data)
    assert (last.op, last.part) == (Op.RESULT, part)
