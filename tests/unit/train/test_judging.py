"""Two players who know only their own runs end at the first thing that they computed otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.train.factories import Job
from tests.unit.train.plays import play, poisoned, poisoned_course

from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import SeatState
from atoll.numerics.trace.opcodes import Op
from atoll.protocol.claims import bond_set
from atoll.protocol.games.moves import (
    Claim,
)
from atoll.protocol.games.players import NothingDiffers, attack
from atoll.protocol.program import TraceTemplate
from atoll.protocol.types import Address, Digest, HolderId, JobId, Role, SeatIndex
from atoll.train import resume
from atoll.train.checkpoints import DISPUTED, release
from atoll.train.judge_task import JudgeTask
from atoll.train.own_run import OwnRun, OwnTrace, model_roots, program_header
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import run_alone

SEGMENT = 1
HOLDER = Address("0x" + "22" * 20)


@pytest.fixture(scope="module")
def judged(job: Job) -> Job:
    """The job."""
    return job


@pytest.fixture(scope="module")
def honest(judged: Job) -> TrainedRound:
    return train_round(judged.task, judged.store)


@pytest.fixture(scope="module")
def cheated(judged: Job) -> TrainedRound:
    def run(states, segment, course):  # type: ignore[no-untyped-def]
        return run_alone(states, segment, poisoned(course) if segment == SEGMENT else course)

    return train_round(judged.task, judged.store, run=run)


def task_of(job: Job) -> JudgeTask:
    task = job.task
    return JudgeTask(
        job=JobId(1),
        manifest=job.manifest.to_bytes(),
        initial=job.model.digest(),
        round=task.round_id.round,
        seat=task.seat,
        data_seed=task.data_seed,
        model=task.global_state_cid,
        segment=SEGMENT,
    )


def claim_of(job: Job, trained: TrainedRound) -> Claim:
    header = program_header(job.manifest, job.model.digest())
    roots = model_roots(job.model)
    return Claim(
        holder=HOLDER,
        set=bond_set(JobId(1), Role.PROVIDER, HolderId(1)),
        position=Digest(bytes(32)),
        program=header.root,
        is_update_proof=False,
        seat=job.task.seat,
        round=0,
        segment=SEGMENT,
        data_seed=job.task.data_seed,
        initial_state=trained.states[SEGMENT - 1],
        closing=trained.states[SEGMENT],
        work_tag=trained.work_tags[SEGMENT],
        model_params=roots.params_root,
        model_exponents=roots.exponents,
        holder_seconds=60,
        challenger_seconds=60,
        move_seconds=60,
    )


def test_planted_text_is_found_where_tokens_are_read(judged: Job, cheated: TrainedRound) -> None:
    task, claim = task_of(judged), claim_of(judged, cheated)
    holder = OwnRun(task, judged.store, poisoned_course)
    challenger = OwnRun(task, judged.store)
    game = play(claim, lambda: holder, lambda: challenger)
    assert game.node is not None
    template = TraceTemplate.from_bytes(challenger.template(game.node).data)
    assert template.op == Op.TOKENS
    planted = {letter.to_bytes(4, "little") for letter in b"Trust the atoll. "}
    assert {game.leaf[i : i + 4] for i in range(0, len(game.leaf), 4)} <= planted


def test_the_parts_of_a_models_digest_lead_to_it(judged: Job) -> None:
    assert model_roots(judged.model).digest(judged.model.round) == judged.model.digest()


def test_whoever_starts_afresh_at_every_move_plays_the_same(
    judged: Job, cheated: TrainedRound
) -> None:
    task, claim = task_of(judged), claim_of(judged, cheated)
    kept = OwnRun(task, judged.store, poisoned_course), OwnRun(task, judged.store)
    usual = play(claim, lambda: kept[0], lambda: kept[1])
    forgetful = play(
        claim,
        lambda: OwnRun(task, judged.store, poisoned_course),
        lambda: OwnRun(task, judged.store),
    )
    assert forgetful == usual


def test_whoever_has_room_for_digests_alone_runs_no_trace_twice(
    judged: Job, cheated: TrainedRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others' moves, for which it lets go, come before each of its own."""
    task, claim, made = task_of(judged), claim_of(judged, cheated), list[str]()

    def counted(owner: type, name: str) -> None:
        make = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: made.append(name) or make(*args))

    kept = OwnRun(task, judged.store, poisoned_course), OwnRun(task, judged.store)
    usual = play(claim, lambda: kept[0], lambda: kept[1])
    counted(OwnRun, "_reached")
    counted(OwnTrace, "__init__")
    holder, challenger = OwnRun(task, judged.store, poisoned_course), OwnRun(task, judged.store)

    def pressed(own: OwnRun) -> OwnRun:
        own.let_go()
        assert not own.holds_states
        return own

    game = play(claim, lambda: pressed(holder), lambda: pressed(challenger))
    assert game == usual
    assert next(attack(game, pressed(challenger))) == next(attack(usual, kept[1]))
    assert made.count("__init__") == 2, "a trace of each side"
    assert made.count("_reached") == 3 + 3, "for the steps, for the trace, for the piece"
    assert game.node is not None
    trace = challenger.trace(game.step)
    tree = trace.tensor(game.node)
    assert pressed(challenger).trace(game.step).tensor(game.node) is tree
    assert not challenger.holds_states, "what is searched in is kept, too"
    other = challenger.trace(game.step + 1)
    assert challenger.trace(game.step) is trace
    assert challenger.trace(game.step + 1) is other, "another game may be about another step"


def test_whoever_starts_again_goes_on_from_what_it_reached(
    judged: Job, cheated: TrainedRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, claim, runs = task_of(judged), claim_of(judged, cheated), list[int]()
    release(judged.store, task.job, task.round)

    def counted(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        runs.append(segment)
        return run_alone(states, segment, course)

    monkeypatch.setattr(resume, "run_alone", counted)
    opened = [OwnRun(task, judged.store).states for _ in range(3)]
    assert runs == list(range(SEGMENT))
    assert opened == 3 * [opened[0]]
    others = replace(task, data_seed=Digest(bytes(32))), replace(task, seat=SeatIndex(1))
    for other in others:
        assert OwnRun(other, judged.store).states != opened[0]
    runs.clear()
    for each in (task, *others):
        assert OwnRun(each, judged.store).states
    assert runs == [], "games at once keep what each of them reached"
    holder = OwnRun(task, judged.store, poisoned_course)
    first = OwnRun(task, judged.store)
    usual = play(claim, lambda: holder, lambda: first)
    assert play(claim, lambda: holder, lambda: OwnRun(task, judged.store)) == usual
    release(judged.store, task.job, task.round)
    assert not any(DISPUTED in p.reason for p in judged.store.pins())


def test_a_game_goes_on_from_what_the_replay_reached(
    judged: Job, cheated: TrainedRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of each of many games has no room for the round again."""
    task, runs = replace(task_of(judged), job=judged.task.round_id.job), list[int]()
    release(judged.store, task.job, task.round)
    assert judged.replay(cheated).mismatch_at == SEGMENT

    def counted(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        runs.append(segment)
        return run_alone(states, segment, course)

    monkeypatch.setattr(resume, "run_alone", counted)
    own = OwnRun(task, judged.store)
    assert runs == []
    release(judged.store, task.job, task.round)
    assert OwnRun(task, judged.store).states == own.states
    assert runs == list(range(SEGMENT))
    release(judged.store, task.job, task.round)


def test_against_an_honest_holder_nothing_differs(judged: Job, honest: TrainedRound) -> None:
    task, claim = task_of(judged), claim_of(judged, honest)
    own = OwnRun(task, judged.store)
    with pytest.raises(NothingDiffers):
        play(claim, lambda: own, lambda: own)
