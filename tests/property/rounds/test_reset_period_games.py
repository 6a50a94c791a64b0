"""Games about a round that goes on with a seat's own state, and mixes in what was merged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.property.rounds.reset_periods import ResetPeriod, streaming, trained_reset_period
from tests.unit.train.factories import Job, make_job
from tests.unit.train.plays import play, poisoned, poisoned_course

from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import SeatState
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.claims import ProgramHeader, bond_set
from atoll.protocol.games.moves import Claim
from atoll.protocol.games.players import NothingDiffers
from atoll.protocol.program import TraceHeader, TraceTemplate
from atoll.protocol.types import ZERO_DIGEST, Address, Digest, HolderId, JobId, Role
from atoll.train import resume
from atoll.train.checkpoints import DISPUTED, release
from atoll.train.judge_task import JudgeTask
from atoll.train.own_run import OwnRun, model_roots, program_header
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import run_alone

HOLDER = Address("0x" + "22" * 20)
TAKING = 1
"""The segment whose first step mixes in what the round before merged."""


@pytest.fixture(scope="module")
def reset_period(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResetPeriod]:
    folder: Path = tmp_path_factory.mktemp("reset_period")
    yield trained_reset_period(streaming(make_job(folder)))


def judged(
    reset_period: ResetPeriod, round: int, segment: int, *, is_update_proof: bool = False
) -> JudgeTask:
    task = reset_period.tasks[round]
    return JudgeTask(
        job=JobId(1),
        manifest=reset_period.job.manifest.to_bytes(),
        initial=reset_period.job.model.digest(),
        round=task.round_id.round,
        seat=task.seat,
        data_seed=task.data_seed,
        model=task.global_state_cid,
        segment=segment,
        is_update_proof=is_update_proof,
        earlier=task.earlier,
    )


def claim_of(reset_period: ResetPeriod, task: JudgeTask, trained: TrainedRound) -> Claim:
    """What a holder says that came to this in the task's round."""
    before = reset_period.trained[task.round - 1].states[-1]
    states = (before, *trained.states)[task.segment + task.is_update_proof :]
    roots = model_roots(reset_period.model_of(task.round))
    return Claim(
        holder=HOLDER,
        set=bond_set(JobId(1), Role.PROVIDER, HolderId(1)),
        position=Digest(bytes(32)),
        program=header_of(reset_period.job).root,
        is_update_proof=task.is_update_proof,
        seat=task.seat,
        round=task.round,
        segment=task.segment,
        data_seed=task.data_seed,
        initial_state=states[0],
        closing=ZERO_DIGEST if task.is_update_proof else states[1],
        work_tag=ZERO_DIGEST,
        update_root=trained.update_root if task.is_update_proof else ZERO_DIGEST,
        model_params=roots.params_root,
        model_exponents=roots.exponents,
        holder_seconds=60,
        challenger_seconds=60,
        move_seconds=60,
    )


def header_of(job: Job) -> ProgramHeader:
    return program_header(job.manifest, job.model.digest())


@pytest.mark.parametrize("segment", [0, TAKING])
def test_planted_text_in_a_round_that_goes_on_is_found_where_it_is_read(
    reset_period: ResetPeriod, segment: int
) -> None:
    def run(states: list[SeatState], number: int, course: Course) -> SegmentRun:
        return run_alone(states, number, poisoned(course) if number == segment else course)

    cheated = train_round(reset_period.tasks[1], reset_period.job.store, run=run)
    task = judged(reset_period, 1, segment)
    holder = OwnRun(task, reset_period.job.store, poisoned_course)
    challenger = OwnRun(task, reset_period.job.store)
    game = play(claim_of(reset_period, task, cheated), lambda: holder, lambda: challenger)
    assert game.node is not None
    template = TraceTemplate.from_bytes(challenger.template(game.node).data)
    assert (template.op, template.part) == (Op.TOKENS, game.part)
    header: TraceHeader = header_of(reset_period.job).header
    fragments = len(header.fragments)
    assert game.part == (1 + fragments if segment == TAKING else 0)


@pytest.mark.parametrize("round", [1, 2])
@pytest.mark.parametrize("segment", [0, TAKING])
def test_an_honest_round_that_goes_on_has_nothing_to_challenge(
    reset_period: ResetPeriod, round: int, segment: int
) -> None:
    task = judged(reset_period, round, segment)
    own = OwnRun(task, reset_period.job.store)
    with pytest.raises(NothingDiffers):
        play(claim_of(reset_period, task, reset_period.trained[round]), lambda: own, lambda: own)


def test_a_state_that_nobody_comes_to_is_no_opening(reset_period: ResetPeriod) -> None:
    """Whoever goes on with something false has no run that leads from what it said before."""
    task = judged(reset_period, 1, 0)
    forgetful = replace(task, earlier=())
    honest, other = (OwnRun(each, reset_period.job.store) for each in (task, forgetful))
    claim = claim_of(reset_period, task, reset_period.trained[1])
    assert honest.states[-1] == claim.closing != other.states[-1]


@pytest.mark.parametrize("round", [1, 2])
def test_the_link_of_an_honest_round_is_that_of_its_fragment(
    reset_period: ResetPeriod, round: int
) -> None:
    manifest = reset_period.job.manifest
    last = manifest.segments - 1
    task = judged(reset_period, round, last, is_update_proof=True)
    own = OwnRun(task, reset_period.job.store)
    with pytest.raises(NothingDiffers):
        play(claim_of(reset_period, task, reset_period.trained[round]), lambda: own, lambda: own)


def test_whoever_starts_again_runs_no_earlier_round_twice(
    reset_period: ResetPeriod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock has room for one run of them; the first player is killed after six segments."""
    task, store = judged(reset_period, 2, 0), reset_period.job.store
    ran, found = list[tuple[int, int]](), list[list[tuple[int, int]]]()
    for round in range(2):
        release(store, task.job, round)

    def counted(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        if not found and len(ran) == 6:
            raise InterruptedError
        ran.append((course.round, segment))
        return run_alone(states, segment, course)

    monkeypatch.setattr(resume, "run_alone", counted)
    for _ in range(3):
        with suppress(InterruptedError):
            assert OwnRun(task, store).states[-1] == reset_period.trained[2].states[0]
        found.append(ran.copy())
        ran.clear()
    every = [(round, segment) for round in range(2) for segment in range(4)]
    assert found == [every[:6], every[4:], []]
    for round in range(3):
        release(store, task.job, round)
    assert not any(DISPUTED in pin.reason for pin in store.pins())
